"""Files with the state of torch's optimisers, with functions of the host, and foreign files."""

import os
import unittest

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from saving_test import FilesTest, Model  # pylint: disable=wrong-import-position


def _options() -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False).randomSeed(4)


_OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5),
}


class OptimizerStateTest(FilesTest):
    def trained(self, make):
        torch.manual_seed(8)
        model = Model()
        training = poptorch.trainingModel(model, _options(), make(model.parameters()))
        for _ in range(3):
            training(self.x, self.target)
        return training

    def losses(self, training):
        return [training(self.x, self.target)[1].item() for _ in range(3)]

    def test_loaded_models_go_on(self):
        for name, make in _OPTIMIZERS.items():
            for detach in (False, True):
                with self.subTest(name, detach=detach):
                    training = self.trained(make)
                    if detach:
                        training.detachFromDevice()
                    training.save(self.file)
                    loaded = poptorch.load(self.file)
                    self.assertEqual(self.losses(training), self.losses(loaded))
                    training.destroy()
                    loaded.destroy()

    def test_the_state_matters(self):
        training = self.trained(_OPTIMIZERS["momentum"])
        training.save(self.file)
        loaded = poptorch.load(self.file)
        loaded.destroy()
        fresh = _OPTIMIZERS["momentum"](loaded.model.parameters())
        forgetful = poptorch.trainingModel(loaded.model, _options(), fresh)
        self.assertNotEqual(self.losses(training), self.losses(forgetful))

    def test_the_state_is_written_when_a_device_is_there(self):
        training = self.trained(_OPTIMIZERS["adam"])
        training.save(self.file)
        on_demand = lambda opts: opts.connectionType(poptorch.ConnectionType.OnDemand)
        loaded = poptorch.load(self.file, on_demand)
        self.assertFalse(loaded.isAttachedToDevice())
        loaded.save(self.file)  # on the way through another file
        again = poptorch.load(self.file)
        expected = self.losses(training)
        self.assertEqual(self.losses(loaded), expected)
        self.assertEqual(self.losses(again), expected)

    def test_dictionaries_of_torch_have_no_state_of_the_device(self):
        training = self.trained(_OPTIMIZERS["adam"])
        optimizer = training._device_optimizer.optimizer
        self.assertEqual(optimizer.state_dict()["state"], {})
        self.assertNotIn("ipu_state", optimizer.state_dict())

    def test_partial_dictionaries_are_merged_with_the_device(self):
        training = self.trained(lambda p: poptorch.optim.Adam(p, lr=0.01))
        optimizer = training._device_optimizer.optimizer
        whole = optimizer.state_dict()
        names = sorted(whole["ipu_state"])
        self.assertIn("Accl1___fc1.weight", names)
        part = {"Accl1___fc1.weight": torch.zeros(10, 10)}
        optimizer.load_state_dict({**whole, "ipu_state": part})
        self.assertEqual(sorted(optimizer.state_dict()["ipu_state"]), sorted(part))
        training(self.x, self.target)
        merged = optimizer.state_dict()["ipu_state"]
        self.assertEqual(sorted(merged), names)
        # One update of a moment of 0 is a tenth of the gradient; that of the others goes on.
        norm = lambda state: state["Accl1___fc1.weight"].norm().item()
        self.assertNotEqual(norm(merged), 0)
        self.assertNotEqual(norm(merged), norm(whole["ipu_state"]))
        self.assertEqual(merged["optimizer/step/ipu0"].item(), 4)


class Hosted(nn.Module):
    """A function of the host between two layers; it multiplies by the model's factor."""

    def __init__(self, function=None) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first, self.last = nn.Linear(10, 4), nn.Linear(4, 2)
        self.factor = 3.0
        self.host = poptorch.CPU(function or self.multiplied, "multiplied")

    def multiplied(self, x):
        return x * self.factor

    def forward(self, x):
        return self.last(self.host(self.first(x)))


class HostFunctionsTest(FilesTest):
    def test_model_with_its_functions(self):
        model = poptorch.inferenceModel(Hosted(), _options())
        expected = model(self.x)
        model.save(self.file)
        model.destroy()
        loaded = poptorch.load(self.file)
        self.assertTrue(torch.equal(loaded(self.x), expected))
        # The function is a method of the model that was loaded.
        loaded.model.factor = 0.0
        torch.testing.assert_close(loaded(self.x), loaded.model.last.bias.detach().expand(6, 2))
        loaded.detachFromDevice()
        loaded.model.factor = 3.0
        self.assertTrue(torch.equal(loaded(self.x), expected))

    def test_alone_it_is_refused(self):
        model = poptorch.inferenceModel(Hosted(), _options())
        model.compile(self.x)
        with self.assertRaisesRegex(poptorch.Error, "is saved with export_model=True only"):
            model.save(self.file, export_model=False)
        self.assertEqual(os.listdir(self.folder), [])
        model.save(self.file)
        other = poptorch.inferenceModel(Hosted(), _options())
        with self.assertRaisesRegex(poptorch.Error, "which poptorch.load brings with the model"):
            other.loadExecutable(self.file)
        self.assertFalse(other.isCompiled())

    def test_functions_that_cannot_be_pickled(self):
        model = poptorch.inferenceModel(Hosted(lambda x: x + 1), _options())
        model.compile(self.x)
        with self.assertRaisesRegex(poptorch.Error, "The model cannot be saved to .*lambda"):
            model.save(self.file)
        self.assertEqual(os.listdir(self.folder), [])


class PopefTest(FilesTest):
    def test_popef_files_are_named(self):
        for name, content in (("m.popef", b"\0\1\2"), ("m.PopEF", b"x"), ("m", b"\0PopEF\1")):
            path = os.path.join(self.folder, name)
            with open(path, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(poptorch.Error, "it is a PopEF file, .*: compile the"):
                poptorch.load(path)

    def test_names_alone_do_not_count(self):
        path = os.path.join(self.folder, "m.popef")
        model = poptorch.inferenceModel(nn.Linear(10, 4), _options())
        expected = model(self.x)
        model.save(path)
        self.assertTrue(torch.equal(poptorch.load(path)(self.x), expected))
        with open(path, "wb"):
            pass
        with self.assertRaisesRegex(poptorch.Error, "it is not a file of PoplarExecutor.save"):
            poptorch.load(path)


if __name__ == "__main__":
    unittest.main()
