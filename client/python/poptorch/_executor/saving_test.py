"""Compiled models in files, on the IPUModel; files that are damaged or of something else."""

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from poptorch import OutputMode  # pylint: disable=wrong-import-position

_ON_IPUS = {"POPTORCH_IPU_MODEL": "0", "POPTORCH_SMALL_IPU_MODEL": "0"}


class Model(nn.Module):
    """A network with dropout and a buffer, so that all kinds of state matter."""

    def __init__(self, width: int = 10):
        super().__init__()
        self.fc1 = nn.Linear(10, width)
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(0.5)
        self.fc2 = nn.Linear(width, 4)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, target=None):
        out = self.fc2(self.dropout(torch.relu(self.norm(self.fc1(x)))))
        return out if target is None else (out, self.loss(out, target))


def _options(**values) -> poptorch.Options:
    result = poptorch.Options().showCompilationProgressBar(False)
    for name, value in values.items():
        getattr(result, name)(value)
    return result


def _training(options=None, optimizer=None, width: int = 10):
    torch.manual_seed(8)
    model = Model(width)
    make = optimizer or (lambda parameters: poptorch.optim.Adam(parameters, lr=0.01))
    return poptorch.trainingModel(model, options or _options(), make(model.parameters()))


def _inference(options=None):
    torch.manual_seed(8)
    return poptorch.inferenceModel(Model().eval(), options or _options())


class FilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.folder = folder
        self.file = os.path.join(folder, "model.poptorch")
        torch.manual_seed(9)
        self.x, self.target = torch.randn(6, 10), torch.randint(0, 4, (6,))


class SavingTest(FilesTest):
    def expect_not_compiled(self):
        """Fails if a model is compiled from now on."""
        compiles = mock.patch.object(
            poptorch.PoplarExecutor, "_compile_core", side_effect=AssertionError("compiled")
        )
        compiles.start()
        self.addCleanup(compiles.stop)

    def test_inference(self):
        model = _inference()
        expected = model(self.x)
        model.save(self.file)
        model.destroy()
        self.assertEqual(os.listdir(self.folder), ["model.poptorch"])
        self.expect_not_compiled()
        loaded = poptorch.load(self.file)
        self.assertTrue(loaded.isCompiled())
        self.assertTrue(loaded.isAttachedToDevice())
        torch.testing.assert_close(loaded(self.x), expected, rtol=0, atol=0)
        self.assertIn("fc1/Gemm:0", loaded.getTensorNames())

    def check_goes_on(self, optimizer=None, detach: bool = False) -> None:
        """The original and the loaded model train alike, also their dropout."""
        options = _options(deviceIterations=1).randomSeed(11)
        options.anchorTensor("gradient", "Gradient___fc2.bias")
        model = _training(options, optimizer)
        for _ in range(3):
            model(self.x, self.target)
        if detach:
            model.detachFromDevice()
        model.save(self.file)
        self.expect_not_compiled()
        loaded = poptorch.load(self.file)
        for _ in range(3):
            self.assertTrue(
                torch.equal(model(self.x, self.target)[1], loaded(self.x, self.target)[1])
            )
            self.assertEqual(model.rng_state, loaded.rng_state)
            anchored = [each.getAnchoredTensor("gradient") for each in (model, loaded)]
            self.assertTrue(torch.equal(*anchored))
        for (name, ours), theirs in zip(model.model.named_parameters(), loaded.model.parameters()):
            self.assertTrue(torch.equal(ours.detach(), theirs.detach()), name)

    def test_training(self):
        self.check_goes_on()

    def test_training_that_was_detached(self):
        self.check_goes_on(detach=True)

    def test_training_with_momentum(self):
        self.check_goes_on(lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9))

    def test_optimizer_of_a_loaded_model(self):
        model = _training()
        model(self.x, self.target)
        model.save(self.file)
        loaded = poptorch.load(self.file)
        optimizer = poptorch.optim.Adam(loaded.model.parameters(), lr=0.0)
        loaded.setOptimizer(optimizer)
        before = loaded.model.fc1.weight.detach().clone()
        loaded(self.x, self.target)
        self.assertTrue(torch.equal(loaded.model.fc1.weight.detach(), before))

    def test_compile_and_export(self):
        model = _training()
        model.compileAndExport(self.file, self.x, target=self.target)
        self.expect_not_compiled()
        loaded = poptorch.load(self.file)
        losses = [each(self.x, self.target)[1] for each in (model, loaded)]
        self.assertTrue(torch.equal(*losses))

    def test_without_model(self):
        model = _training()
        model.compileAndExport(self.file, self.x, self.target, export_model=False)
        expected = model(self.x, self.target)[1]
        with self.assertRaisesRegex(AssertionError, "created with 'export_model=False'"):
            poptorch.load(self.file)
        self.expect_not_compiled()
        other = _training()
        other.loadExecutable(self.file)
        self.assertTrue(torch.equal(other(self.x, self.target)[1], expected))

    def test_inference_model_of_a_training_model(self):
        inference = _inference()
        inference.compileAndExport(self.file, self.x)
        training = _training()
        for _ in range(5):
            training(self.x, self.target)
        training.model.eval()
        self.expect_not_compiled()
        validation = poptorch.inferenceModel(training, _options())
        validation.loadExecutable(self.file)
        with torch.no_grad():
            expected = Model().eval()
            expected.load_state_dict(training.state_dict())
            torch.testing.assert_close(validation(self.x), expected(self.x), rtol=1e-4, atol=1e-5)

    def test_offline_target(self):
        with mock.patch.dict(os.environ, _ON_IPUS):
            options = _options().useOfflineIpuTarget().randomSeed(3)
            model = _training(options)
            model.compileAndExport(self.file, self.x, self.target)
            self.assertFalse(model.isAttachedToDevice())
            with self.assertRaisesRegex(poptorch.Error, "Trying to run a model on an offline"):
                model(self.x, self.target)
            with self.assertRaisesRegex(AssertionError, "Trying to attach to an offline device"):
                model.attachToDevice()
        self.expect_not_compiled()
        edited = []
        loaded = poptorch.load(self.file, edited.append)
        self.assertEqual(loaded.options.connection_type, poptorch.ConnectionType.Always)
        self.assertEqual([type(each) for each in edited], [poptorch.Options])
        self.assertEqual(loaded.rng_state, [3, 0])
        expected = _training(_options().randomSeed(3))
        self.addCleanup(expected.destroy)
        mock.patch.stopall()
        self.assertTrue(
            torch.equal(loaded(self.x, self.target)[1], expected(self.x, self.target)[1])
        )

    def test_offline_target_on_the_ipu_model(self):
        model = _training(_options().useOfflineIpuTarget())
        with self.assertRaisesRegex(poptorch.Error, "not supported for the IPU model"):
            model.compile(self.x, self.target)

    def test_other_options_compile_again(self):
        _inference().compileAndExport(self.file, self.x)
        expected = _inference()(self.x)
        other = _inference(_options().outputMode(OutputMode.Sum))
        with self.assertLogs("poptorch::python", "INFO") as logs:
            other.loadExecutable(self.file)
        self.assertIn("its model is compiled again", "\n".join(logs.output))
        torch.testing.assert_close(other(self.x), expected, rtol=0, atol=0)

    def test_folders(self):
        model = _inference()
        with self.assertRaisesRegex(poptorch.Error, "has not been compiled"):
            model.save(self.file)
        model.compile(self.x)
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            model.save(self.folder)
        self.assertIn("is a directory, saving model to " + self.file, "\n".join(logs.output))
        model.save(os.path.join(self.folder, "a", "b", "model"))
        self.assertEqual(os.listdir(os.path.join(self.folder, "a", "b")), ["model"])
        with self.assertRaisesRegex(AssertionError, "Destination folder .* is not a directory"):
            model.save(os.path.join(self.file, "model"))

    def test_what_cannot_be_pickled(self):
        class Local(Model):
            """A class that no other program can find."""

        model = poptorch.inferenceModel(Local().eval(), _options())
        model.compile(self.x)
        with self.assertRaisesRegex(poptorch.Error, "The model cannot be saved to .*Local"):
            model.save(self.file)
        self.assertEqual(os.listdir(self.folder), [])
        model.save(self.file, export_model=False)

    def test_another_process(self):
        model = _inference()
        expected = model(self.x)
        model.save(self.file)
        script = os.path.join(self.folder, "script.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(
                "import sys, torch, poptorch\n"
                "from saving_test import *  # the class of the model, which is in __main__\n"
                "model = poptorch.load(sys.argv[1])\n"
                "torch.save(model(torch.load(sys.argv[2])), sys.argv[3])\n"
            )
        arguments = [self.file, *(os.path.join(self.folder, name) for name in ("x", "y"))]
        torch.save(self.x, arguments[1])
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([os.path.dirname(__file__), *sys.path])
        subprocess.run([sys.executable, script, *arguments], env=environment, check=True)
        self.assertTrue(torch.equal(torch.load(arguments[2]), expected))


class WrongFilesTest(FilesTest):
    def setUp(self):
        super().setUp()
        _inference().compileAndExport(self.file, self.x)
        with open(self.file, "rb") as file:
            self.content = file.read()

    def refuse(self, content: bytes, message: str) -> None:
        with open(self.file, "wb") as file:
            file.write(content)
        for read in (poptorch.load, _inference().loadExecutable):
            with self.assertRaisesRegex(poptorch.Error, message) as raised:
                read(self.file)
            self.assertIn(self.file, str(raised.exception))
            self.assertNotIn("\n", str(raised.exception))

    def test_damaged_files(self):
        whole = len(self.content)
        for size in (0, 5):
            self.refuse(self.content[:size], "it is not a file of PoplarExecutor.save")
        for size in (16, 40, 56, 57, whole // 2, whole - 1):
            self.refuse(self.content[:size], "it is truncated")
        for place in (20, 50, 60, whole // 2, whole - 1):
            changed = bytearray(self.content)
            changed[place] ^= 1
            self.refuse(bytes(changed), "it is truncated or damaged")
        self.refuse(self.content + b"more", "it is truncated or damaged")

    def test_foreign_files(self):
        torch.save(self.x, self.file)
        with open(self.file, "rb") as file:
            self.refuse(file.read(), "it is a file of torch.save, and not of PoplarExecutor.save")
        self.refuse(pickle.dumps([1, 2]), "it is not a file of PoplarExecutor.save")
        self.refuse(b"VIPUCACHE\x02", "it is an executable of a cache")
        os.unlink(self.file)
        for read in (poptorch.load, _inference().loadExecutable):
            with self.assertRaisesRegex(poptorch.Error, "it cannot be read: No such file"):
                read(self.file)
            with self.assertRaisesRegex(poptorch.Error, "it cannot be read: Is a directory"):
                read(self.folder)

    def test_other_versions(self):
        with mock.patch.object(poptorch, "__version__", "3.3.0"):
            with self.assertRaisesRegex(AssertionError, "PopTorch version mismatch.*3.2.0.*3.3.0"):
                poptorch.load(self.file)
            with self.assertRaisesRegex(poptorch.Error, "PopTorch version mismatch"):
                _inference().loadExecutable(self.file)

    def test_files_of_other_models(self):
        with self.assertRaisesRegex(poptorch.Error, "it is of an inference model"):
            _training().loadExecutable(self.file)
        more = _inference(_options(deviceIterations=2))
        with self.assertRaisesRegex(poptorch.Error, "for calls of 1 micro-batches.*say 2"):
            more.loadExecutable(self.file)
        wider = poptorch.inferenceModel(Model(width=12).eval(), _options())
        with self.assertRaisesRegex(
            poptorch.Error, r"fc1.weight is \[10, 10\] there, and \[12, 10\] in this model"
        ):
            wider.loadExecutable(self.file)
        other = poptorch.inferenceModel(nn.Linear(10, 4), _options())
        with self.assertRaisesRegex(poptorch.Error, "a tensor fc1.weight, and this model has none"):
            other.loadExecutable(self.file)
        self.assertFalse(other.isCompiled())


class RandomStateTest(FilesTest):
    def test_without_a_device(self):
        model = _training(_options().randomSeed(21))
        with self.assertRaisesRegex(poptorch.Error, "has not been compiled"):
            model.rng_state  # pylint: disable=pointless-statement
        model.compile(self.x, self.target)
        first = model.rng_state
        self.assertEqual(first, [21, 0])
        loss = model(self.x, self.target)[1]
        counted = model.rng_state
        self.assertEqual(counted, [21, 1])
        model.detachFromDevice()
        self.assertEqual(model.rng_state, counted)
        model.rng_state = first
        self.assertEqual(model.rng_state, first)
        model.model.load_state_dict(_training().state_dict())
        model.attachToDevice()
        self.assertEqual(model.rng_state, first)
        model.copyWeightsToDevice()
        self.assertTrue(torch.equal(model(self.x, self.target)[1], loss))
        with self.assertRaisesRegex(ValueError, "has 3 numbers, must have 2"):
            model.rng_state = [1, 2, 3]


class HooksTest(unittest.TestCase):
    def test_order_and_removal(self):
        calls = []
        handles = [
            poptorch.registerPreCompileHook(lambda: calls.append("before 1")),
            poptorch.registerPostCompileHook(lambda: calls.append("after")),
            poptorch.registerPreCompileHook(lambda: calls.append("before 2")),
        ]
        for handle in handles:
            self.addCleanup(handle.remove)
        model = _inference()
        model(torch.randn(6, 10))
        model(torch.randn(6, 10))
        self.assertEqual(calls, ["before 1", "before 2", "after"])
        handles[0].remove()
        _inference().compile(torch.randn(6, 10))
        self.assertEqual(calls[3:], ["before 2", "after"])

    def test_what_cannot_be_called(self):
        with self.assertRaisesRegex(RuntimeError, "Pre-compile hook must be callable"):
            poptorch.registerPreCompileHook(2)
        with self.assertRaisesRegex(RuntimeError, "Post-compile hook must be callable"):
            poptorch.registerPostCompileHook(False)


if __name__ == "__main__":
    unittest.main()
