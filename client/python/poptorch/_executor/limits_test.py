"""Calls that are too large, and IPUs that the program has already: messages say what to do."""

import os
import socket
import unittest

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from poptorch._executor import core  # pylint: disable=wrong-import-position


class Classifier(nn.Module):
    """A linear layer for images, with a loss."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(pixels, 10)

    def forward(self, images, labels=None):
        y = self.fc(images.flatten(1))
        return y if labels is None else nn.functional.cross_entropy(y, labels)


def _options(**values) -> poptorch.Options:
    result = poptorch.Options().showCompilationProgressBar(False).deviceIterations(1000)
    for name, value in values.items():
        getattr(result, name)(value)
    return result


class StreamsTest(unittest.TestCase):
    def test_a_thousand_batches_of_64_images_run(self):
        torch.manual_seed(0)
        model = Classifier(64)
        images, labels = torch.rand(64000, 1, 8, 8), torch.randint(10, (64000,))
        training = poptorch.trainingModel(
            model, _options(), torch.optim.SGD(model.parameters(), lr=0.0)
        )
        expected = model(images[-64:], labels[-64:]).detach()
        torch.testing.assert_close(training(images, labels), expected, rtol=1e-4, atol=1e-5)
        training.destroy()

    def refuse(self, model, argument, *parts: str) -> None:
        with self.assertRaises(poptorch.Error) as raised:
            model.compile(argument)
        for part in parts:
            self.assertIn(part, str(raised.exception))
        self.assertFalse(model.isCompiled())

    def test_inputs_that_are_too_large(self):
        images = torch.empty(64000, 1, 66, 66)  # whose elements nobody reads
        self.refuse(
            poptorch.inferenceModel(Classifier(66 * 66), _options()),
            images,
            "take more than the 1073741824 bytes that a replica has for them:",
            "input 'images' has 1115136 bytes in each of 1000 micro-batches.",
            "Set Options.deviceIterations, which is 1000, to 960 or less.",
        )

    def test_as_many_as_the_message_says_fit(self):
        images = torch.empty(64 * 960, 1, 66, 66)
        model = poptorch.inferenceModel(Classifier(66 * 66), _options(deviceIterations=960))
        model.compile(images)
        model.destroy()

    def test_micro_batches_that_are_too_large(self):
        rows = torch.empty(17, 2**24)
        self.refuse(
            poptorch.inferenceModel(lambda x: x[:, :4] * 2, _options(deviceIterations=1)),
            rows,
            "input 'x' has 1140850688 bytes in each of 1 micro-batch.",
            "Choose a smaller batch_size of the DataLoader.",
        )

    def test_results_that_are_too_large(self):
        spread = lambda x: x * torch.ones(300000, device="ipu")
        self.refuse(
            poptorch.inferenceModel(spread, _options()),
            torch.ones(1000, 1),
            "result 0 of forward has 1200000 bytes in each of 1000 micro-batches.",
            "to 894 or less. OutputMode.Final, Sum and EveryN return fewer results.",
        )


class HeldIpusTest(unittest.TestCase):
    def message(self, pid: int, host: str, namespace: str = "", holders=()) -> str:
        """What the program is told when a process holds the IPUs, and models of this one do."""
        told = (
            f"Failed to acquire 1 IPU(s): device 0 is in use by process {pid}{namespace} (python3)"
            f" of alice on {host}, attached 3s ago; no IPU of partition p1 is free. "
        )

        class Busy:
            """A model that no IPUs are free for."""

            def load(self, *device):
                raise poptorch.poptorch_core.StatusError("RESOURCE_EXHAUSTED", told)

        with self.assertRaises(poptorch.Error) as raised:
            core.load(Busy(), holders=holders)
        self.assertTrue(raised.exception.message.startswith(told.rstrip(". ")))
        return raised.exception.message

    def test_this_process(self):
        self.assertIn(
            "is free. That is this process: call detachFromDevice() or destroy()",
            self.message(os.getpid(), socket.gethostname()),
        )

    def test_models_of_this_process(self):
        here = os.getpid(), socket.gethostname()
        for holders, words in (
            (["training"], "model 'training'"),
            (["a", "b", "c"], "models 'a', 'b' and 'c'"),
        ):
            self.assertIn(
                f"That is this process, {words}: call detachFromDevice()",
                self.message(*here, holders=holders),
            )

    def test_other_processes(self):
        for process in (
            (os.getpid() + 1, socket.gethostname()),
            (os.getpid(), "elsewhere"),
            (os.getpid(), socket.gethostname(), " of another PID namespace"),
        ):
            self.assertNotIn("detachFromDevice", self.message(*process))


if __name__ == "__main__":
    unittest.main()
