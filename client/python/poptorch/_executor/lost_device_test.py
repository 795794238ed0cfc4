"""IPUs that fail while a model has them: what the model goes on from, and that it can be left."""

import copy
import os
import unittest

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position

_LOST = "The IPUs have failed, and the weights"


class Model(nn.Module):
    """A layer and its loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return poptorch.identity_loss((self.fc(x) ** 2).sum(), "sum")


class _Failed:
    """A poptorch_core.Model whose IPUs answer no more."""

    def __init__(self, core) -> None:
        self._core = core

    def __getattr__(self, name: str):
        return getattr(self._core, name)

    @staticmethod
    def _fail(*_):
        raise poptorch.poptorch_core.StatusError("UNAVAILABLE", "the agent is away")

    run = read_state = write_state = _fail


class LostDeviceTest(unittest.TestCase):
    def setUp(self):
        self.x = torch.ones(2, 3)
        self.model = Model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        options = poptorch.Options().showCompilationProgressBar(False)
        self.training = poptorch.trainingModel(self.model, options, self.optimizer)
        self.training(self.x)
        self.read = self.model.fc.weight.detach().clone()
        self.core = self.training._core

    def fail(self):
        """The IPUs fail in a run that the host has not read the weights after."""
        self.training(self.x)
        self.training._core = _Failed(self.core)
        with self.assertLogs("poptorch::python", "WARNING") as lines:
            with self.assertRaisesRegex(poptorch.RecoverableError, "the agent is away"):
                self.training(self.x)
        self.assertIn(_LOST, "".join(lines.output))
        self.assertFalse(self.training.isAttachedToDevice())
        self.training._core = self.core

    def test_the_host_has_what_it_read_last(self):
        self.fail()
        self.assertTrue(torch.equal(self.model.fc.weight, self.read))
        self.model.load_state_dict({**self.model.state_dict(), "fc.weight": self.read * 2})
        self.assertTrue(torch.equal(self.model.fc.weight, self.read * 2))
        self.training.destroy()

    def test_the_next_call_goes_on_from_the_host(self):
        self.fail()
        expected = copy.deepcopy(self.model)
        expected(self.x).backward()
        wanted = expected.fc.weight - 0.1 * expected.fc.weight.grad
        self.training(self.x)
        torch.testing.assert_close(self.model.fc.weight.detach().clone(), wanted.detach())
        self.training.destroy()

    def test_the_model_can_be_left(self):
        self.training(self.x)
        self.training._core = _Failed(self.core)
        with self.assertLogs("poptorch::python", "WARNING"):
            with self.assertRaises(poptorch.RecoverableError):
                self.training.destroy()
        self.assertIs(type(self.model), Model)
        self.assertIs(type(self.model.fc.weight), nn.Parameter)
        self.assertTrue(torch.equal(self.model.fc.weight, self.read))
        self.training.destroy()

    def fail_idle(self):
        """The IPUs fail between two calls."""
        self.training(self.x)
        self.training._core = _Failed(self.core)

    def check_left(self):
        """The model has left its IPUs, and the next call attaches to others."""
        self.assertFalse(self.training.isAttachedToDevice())
        self.assertTrue(torch.equal(self.model.fc.weight, self.read))
        self.training._core = self.core
        self.training(self.x)
        self.assertFalse(torch.equal(self.model.fc.weight, self.read))
        self.training.destroy()

    def test_who_reads_weights_hears_of_it_once(self):
        for read in (
            lambda: self.model.fc.weight.sum(),
            lambda: self.model.state_dict(),
            lambda: self.training.copyWeightsToHost(),
            lambda: self.training.detachFromDevice(),
        ):
            self.setUp()
            self.fail_idle()
            with self.assertLogs("poptorch::python", "WARNING") as lines:
                with self.assertRaisesRegex(poptorch.RecoverableError, "the agent is away"):
                    read()
            self.assertEqual(len(lines.output), 1)
            self.check_left()

    def test_a_call_that_writes_weights(self):
        self.model.state_dict()
        self.training._core = _Failed(self.core)
        self.model.fc.weight.data.add_(0.0)
        with self.assertRaisesRegex(poptorch.RecoverableError, "the agent is away"):
            self.training(self.x)
        self.check_left()

    def test_ipus_that_do_not_come_back_at_once(self):
        self.fail()

        def load(*_):
            code = "FAILED_PRECONDITION"
            raise poptorch.poptorch_core.StatusError(code, "partition is not ACTIVE: p16")

        self.training._core = _Failed(self.core)
        self.training._core.load = load
        for _ in range(2):
            with self.assertRaisesRegex(poptorch.RecoverableError, "is not ACTIVE") as caught:
                self.training(self.x)
            self.assertEqual(caught.exception.recovery_action, "IPU_RESET")
        self.check_left()
        self.training._core = None
        self.training(self.x)
        self.training.detachFromDevice()
        self.training._core = _Failed(self.training._core)
        self.training._core.load = load
        with self.assertRaisesRegex(poptorch.Error, "is not ACTIVE") as caught:
            self.training(self.x)
        self.assertNotIsInstance(caught.exception, poptorch.RecoverableError)

    def test_a_run_that_is_cancelled(self):
        self.fail_idle()

        def cancelled(*_):
            raise KeyboardInterrupt

        self.training._core.run = cancelled
        with self.assertLogs("poptorch::python", "WARNING"):
            with self.assertRaises(KeyboardInterrupt):
                self.training(self.x)
        self.check_left()

    def test_a_profile_that_cannot_be_written_is_no_failure_of_ipus(self):
        options = poptorch.Options().showCompilationProgressBar(False)
        options.enableProfiling("/dev/null/profile")
        with self.assertRaisesRegex(poptorch.Error, "cannot make the directory") as caught:
            poptorch.inferenceModel(nn.Linear(3, 2), options)(self.x)
        self.assertNotIsInstance(caught.exception, poptorch.RecoverableError)


if __name__ == "__main__":
    unittest.main()
