"""Names of tensors, and anchored tensors, on the IPUModel, against eager PyTorch."""

import copy
import os
import unittest

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from poptorch import OutputMode  # pylint: disable=wrong-import-position
from poptorch._logging import native  # pylint: disable=wrong-import-position

_TOLERANCES = {"rtol": 1e-4, "atol": 1e-6}


class Model(nn.Module):
    def __init__(self, blocks: bool = False):
        super().__init__()
        self.fc1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(10, 10)
        self.loss = nn.MSELoss()
        self.blocks = blocks

    def forward(self, x, labels=None):
        if self.blocks:
            poptorch.Block.start("first", ipu_id=0)
        x = self.relu(self.fc1(x))
        if self.blocks:
            poptorch.Block.start("second", ipu_id=1)
        x = self.fc2(x)
        return x if labels is None else (x, self.loss(x, labels))


def _options(**values) -> poptorch.Options:
    result = poptorch.Options().showCompilationProgressBar(False)
    for name, value in values.items():
        getattr(result, name)(value)
    return result


def _gradients(model, x, labels):
    """The gradients of one micro-batch, by the name of the parameter."""
    model = copy.deepcopy(model)
    model(x, labels)[1].backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


class TensorNamesTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.arguments = torch.rand(10, 10), torch.rand(10, 10)

    def test_training(self):
        model = poptorch.trainingModel(Model(), _options())
        with self.assertRaisesRegex(AssertionError, "Model must be compiled before calling"):
            model.getTensorNames()
        model.compile(*self.arguments)
        names = model.getTensorNames()
        self.assertEqual(len(names), len(set(names)))
        for name in (
            "input",
            "input/1",
            "fc1.weight",
            "fc1/Gemm:0",
            "fc2/Gemm:0",
            "relu/Relu:0",
            "loss",
            "loss/MseLoss:0",
            "Gradient___fc2.bias",
            "Gradient___fc1/Gemm:0",
            "UpdatedVar___fc2.weight",
            "scaledLearningRate0___specific___fc1.weight",
            "weightDecayScaleFactor0___specific___fc1.weight",
        ):
            self.assertIn(name, names)
        self.assertNotIn("Gradient___input", names)
        model.destroy()
        with self.assertRaises(AssertionError):
            model.getTensorNames()

    def test_inference(self):
        model = poptorch.inferenceModel(Model(), _options())
        model.compile(self.arguments[0])
        names = model.getTensorNames()
        self.assertIn("fc1/Gemm:0", names)
        for prefix in ("Gradient___", "UpdatedVar___", "loss", "scaled"):
            self.assertFalse([name for name in names if name.startswith(prefix)])

    def test_frozen_and_repeated(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.ModuleList([Model()])
                self.inner[0].fc1.requires_grad_(False)

            def forward(self, x, labels):
                model = self.inner[0]
                x = model.relu(model.fc1(model.relu(model.fc1(x) * 2) * 3))
                return model(x, labels)

        model = poptorch.trainingModel(Twice(), _options())
        model.compile(*self.arguments)
        names = model.getTensorNames()
        for name in ("inner/0/fc1/Gemm:0", "inner/0/fc1/Gemm:0/1", "inner/0/fc1/Gemm:0/2"):
            self.assertIn(name, names)
        for name in ("Mul:0", "Mul:0/1", "UpdatedVar___inner.0.fc2.weight"):
            self.assertIn(name, names)
        self.assertNotIn("UpdatedVar___inner.0.fc1.weight", names)
        self.assertNotIn("Gradient___inner.0.fc1.weight", names)

    def test_without_modules(self):
        model = poptorch.inferenceModel(Model(), _options().disableModuleNamescope())
        model.compile(self.arguments[0])
        names = model.getTensorNames()
        self.assertIn("Gemm:0/1", names)
        self.assertFalse([name for name in names if name.startswith("fc1/")])


class AnchorsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(6)

    def test_gradients_and_updated_weights(self):
        module = Model()
        options = _options()
        options.anchorTensor("gradient", "Gradient___fc2.bias")
        options.anchorTensor("hidden", "relu/Relu:0")
        options.anchorTensor("by hidden", "Gradient___relu/Relu:0")
        options.anchorTensor("updated", "UpdatedVar___fc2.weight")
        options.anchorTensor("before", "fc2.weight")
        options.anchorTensor("rate", "scaledLearningRate0___specific___fc1.weight")
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        model = poptorch.trainingModel(module, options, optimizer)
        with self.assertRaisesRegex(AssertionError, "No tensor with name gradient found."):
            model.getAnchoredTensor("gradient")
        seen = []
        for _ in range(2):
            x, labels = torch.rand(10, 10), torch.rand(10, 10)
            reference = Model()
            reference.load_state_dict(model.state_dict())
            hidden = reference.relu(reference.fc1(x)).detach().requires_grad_()
            reference.loss(reference.fc2(hidden), labels).backward()
            before = reference.fc2.weight.detach().clone()
            model(x, labels)
            gradient = model.getAnchoredTensor("gradient")
            torch.testing.assert_close(gradient, reference.fc2.bias.grad, **_TOLERANCES)
            torch.testing.assert_close(
                model.getAnchoredTensor("hidden"), hidden.detach(), **_TOLERANCES
            )
            by_hidden = model.getAnchoredTensor("by hidden")
            torch.testing.assert_close(by_hidden, hidden.grad, **_TOLERANCES)
            torch.testing.assert_close(model.getAnchoredTensor("before"), before)
            updated = before - 0.5 * reference.fc2.weight.grad
            torch.testing.assert_close(model.getAnchoredTensor("updated"), updated, **_TOLERANCES)
            self.assertEqual(float(model.getAnchoredTensor("rate")), 0.5)
            seen.append(gradient)
        self.assertFalse(torch.equal(*seen))
        model.setOptimizer(torch.optim.SGD(module.parameters(), lr=0.25))
        model(x, labels)
        self.assertEqual(float(model.getAnchoredTensor("rate")), 0.25)
        with self.assertRaisesRegex(AssertionError, "No tensor with name other found."):
            model.getAnchoredTensor("other")

    def check_modes(self, blocks: bool, replicas: int) -> None:
        """Anchors of all modes, with 4 iterations of an accumulation of 3."""
        iterations, accumulation, rows = 4, 3, 2
        module = Model(blocks)
        options = _options(deviceIterations=iterations, replicationFactor=replicas)
        options.Training.gradientAccumulation(accumulation)
        name = "Gradient___fc1.weight"
        for mode, period in (
            (OutputMode.All, 1),
            (OutputMode.Final, 1),
            (OutputMode.Sum, 1),
            (OutputMode.EveryN, 2),
        ):
            options.anchorTensor(mode.name, name, mode, period)
        options.anchorTensor("every 4", name, OutputMode.EveryN, 4)
        options.anchorTensor("every 5", name, OutputMode.EveryN, 5)
        options.anchorTensor("default", name)
        count = iterations * accumulation * replicas
        x, labels = torch.rand(count * rows, 10), torch.rand(count * rows, 10)
        # A rate of 0: all micro-batches see the same weights.
        optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
        expected = torch.stack(
            [
                _gradients(module, *each)["fc1.weight"]
                for each in zip(x.split(rows), labels.split(rows))
            ]
        )
        model = poptorch.trainingModel(module, options, optimizer)
        model(x, labels)

        def check(short_name: str, values: torch.Tensor) -> None:
            values = values.reshape(-1, 10)
            tensor = model.getAnchoredTensor(short_name)
            torch.testing.assert_close(tensor, values, msg=short_name, **_TOLERANCES)

        check("All", expected)
        check("Final", expected[-replicas:])
        check("default", expected[-replicas:])
        by_iteration = expected.reshape(iterations, accumulation, replicas, 10, 10)
        check("Sum", by_iteration.sum((0, 1)))
        check("EveryN", by_iteration[1::2])
        check("every 4", by_iteration[3::4])
        self.assertEqual(model.getAnchoredTensor("every 5").shape, (0, 10, 10))

    def test_modes(self):
        self.check_modes(blocks=False, replicas=1)

    def test_modes_of_replicas(self):
        self.check_modes(blocks=False, replicas=2)

    def test_modes_in_a_pipeline(self):
        self.check_modes(blocks=True, replicas=1)

    def test_every_n_beside_outputs_of_every_n(self):
        options = _options(deviceIterations=12).outputMode(OutputMode.EveryN, 4)
        options.anchorTensor("hidden", "fc1/Gemm:0", OutputMode.EveryN, 6)
        options.anchorTensor("all", "fc1/Gemm:0", OutputMode.All)
        options.anchorTensor("default", "fc1/Gemm:0")
        module = Model()
        x = torch.rand(12, 10)
        model = poptorch.inferenceModel(module, options)
        result = model(x)
        with torch.no_grad():
            hidden, whole = module.fc1(x), module(x)
        torch.testing.assert_close(result, whole[3::4], **_TOLERANCES)
        for name, expected in (
            ("hidden", hidden[5::6]),
            ("all", hidden),
            ("default", hidden[3::4]),
        ):
            torch.testing.assert_close(model.getAnchoredTensor(name), expected, **_TOLERANCES)

    def test_state_of_the_optimiser(self):
        module = Model()
        options = _options()
        options.anchorTensor("moment", "Accl1___fc2.bias")
        optimizer = poptorch.optim.Adam(module.parameters(), lr=0.1)
        model = poptorch.trainingModel(module, options, optimizer)
        x, labels = torch.rand(10, 10), torch.rand(10, 10)
        gradient = _gradients(module, x, labels)["fc2.bias"]
        model(x, labels)
        moment = model.getAnchoredTensor("moment")
        torch.testing.assert_close(moment, 0.1 * gradient, **_TOLERANCES)
        self.assertIn("Accl1___fc2.bias", model.getTensorNames())

    def test_scaled_gradients(self):
        module = Model()
        options = _options()
        options.anchorTensor("gradient", "Gradient___fc2.bias")
        optimizer = poptorch.optim.SGD(module.parameters(), lr=0.1, loss_scaling=16.0)
        x, labels = torch.rand(10, 10), torch.rand(10, 10)
        gradient = _gradients(module, x, labels)["fc2.bias"]
        model = poptorch.trainingModel(module, options, optimizer)
        model(x, labels)
        torch.testing.assert_close(
            model.getAnchoredTensor("gradient"), 16 * gradient, **_TOLERANCES
        )

    def test_modes_are_logged(self):
        options = _options()
        for mode, period in (
            (OutputMode.All, 3),
            (OutputMode.EveryN, 4),
            (OutputMode.Final, 1),
            (OutputMode.Sum, 1),
        ):
            options.anchorTensor(mode.name, "Gradient___fc2.bias", mode, period)
        model = poptorch.trainingModel(Model(), options)
        with self.assertLogs(native, "DEBUG") as logs:
            model.compile(torch.rand(10, 10), torch.rand(10, 10))
        text = "\n".join(logs.output)
        for shown in ("ALL/1", "EVERYN/4", "FINAL/1", "Sum/1"):
            self.assertIn("Gradient___fc2.bias " + shown, text)

    def refuse(self, message: str, *anchor, training: bool = True, iterations: int = 1) -> None:
        options = _options(deviceIterations=iterations)
        options.anchorTensor("it", *anchor)
        x = torch.rand(iterations, 10), torch.rand(iterations, 10)
        if training:
            model, arguments = poptorch.trainingModel(Model(), options), x
        else:
            model, arguments = poptorch.inferenceModel(Model(), options), x[:1]
        with self.assertRaisesRegex(poptorch.Error, message):
            model(*arguments)
        self.assertFalse(model.isCompiled())

    def test_wrong_anchors_are_named(self):
        self.refuse(
            "Anchor it: the model has no tensor Gradient___fc2.biass.*such as Gradient___fc2.bias",
            "Gradient___fc2.biass",
        )
        self.refuse("no tensor Gradient___fc2.bias", "Gradient___fc2.bias", training=False)
        self.refuse("no tensor Accl3___fc2.bias", "Accl3___fc2.bias")
        self.refuse(
            "return period is 3, must be a factor of the 4", "fc1/Gemm:0", OutputMode.EveryN, 3,
            iterations=4,
        )  # fmt: skip
        self.refuse(
            "UpdatedVar___fc2.bias is read after a call", "UpdatedVar___fc2.bias", OutputMode.All,
            iterations=2,
        )  # fmt: skip


if __name__ == "__main__":
    unittest.main()
