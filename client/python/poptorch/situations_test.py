"""Situations that users of PopTorch have asked about in public, as they meet them."""

import concurrent.futures
import copy
import importlib.util
import os
import pty
import re
import select
import signal
import sys
import time
import unittest
from unittest import mock

import torch
from torch import nn
from torch.utils.data import BatchSampler, SequentialSampler, TensorDataset

# On a POD, the test's environment says 0.
os.environ.setdefault("POPTORCH_IPU_MODEL", "1")

import poptorch  # pylint: disable=wrong-import-position

_ROWS, _CLASSES = 24, 3


def quiet() -> poptorch.Options:
    """Options without a progress bar."""
    return poptorch.Options().showCompilationProgressBar(False)


def data() -> TensorDataset:
    """Rows with labels; the same each time."""
    generator = torch.Generator().manual_seed(5)
    return TensorDataset(
        torch.randn(_ROWS, 4, generator=generator), torch.arange(_ROWS) % _CLASSES
    )


class Classifier(nn.Module):
    """A layer and its loss; `results` makes more of them from the scores and labels."""

    def __init__(self, results=None):
        super().__init__()
        torch.manual_seed(1)
        self.fc, self.loss, self.results = nn.Linear(4, _CLASSES), nn.CrossEntropyLoss(), results

    def forward(self, x, labels):
        scores = self.fc(x)
        loss = self.loss(scores, labels)
        return loss if self.results is None else (loss, self.results(scores, labels))


class MetricsTest(unittest.TestCase):
    """Metrics that forward returns beside the loss."""

    def _train(self, results):
        model = Classifier(results)
        eager = copy.deepcopy(model)
        training = poptorch.trainingModel(
            model, quiet(), torch.optim.SGD(model.parameters(), lr=0.1)
        )
        self.addCleanup(training.destroy)
        batch = data().tensors
        return training(*batch), eager(*batch)

    def test_numbers_are_those_of_pytorch(self):
        for results in (
            lambda scores, labels: (scores.argmax(-1) == labels).float().mean(),
            lambda scores, labels: (scores.argmax(-1) == labels).sum(),
            lambda scores, labels: scores.softmax(-1).max(-1)[0].mean(),
        ):
            (loss, metric), (eager_loss, eager_metric) = self._train(results)
            torch.testing.assert_close(loss, eager_loss.detach(), rtol=1e-4, atol=1e-5)
            self.assertAlmostEqual(metric.item(), eager_metric.item(), places=4)

    def test_dictionaries_keep_their_names(self):
        (_, metrics), _ = self._train(
            lambda scores, labels: {"right": (scores.argmax(-1) == labels).sum(), "seen": 24}
        )
        self.assertEqual(sorted(metrics), ["right", "seen"])
        self.assertEqual(metrics["seen"], 24)
        self.assertTrue(0 <= metrics["right"].item() <= _ROWS)

    def test_numbers_of_the_host_are_refused_by_the_operator(self):
        for results in (
            lambda scores, labels: [each.item() for each in scores.argmax(-1)],
            lambda scores, labels: scores.argmax(-1).tolist(),
            lambda scores, labels: float(scores.mean()),
        ):
            with self.assertRaisesRegex(
                poptorch.Error, "aten::item is only supported in eager mode.* IPU to CPU copy"
            ):
                self._train(results)


class BatchSamplerTest(unittest.TestCase):
    """A loader with a batch sampler, for two replicas."""

    def _loader(self, options, micro_batch):
        dataset = data()
        sampler = BatchSampler(SequentialSampler(dataset), micro_batch, drop_last=True)
        return poptorch.DataLoader(options, dataset, batch_sampler=sampler)

    def test_each_replica_gets_a_batch_of_the_sampler(self):
        options = quiet().replicationFactor(2).outputMode(poptorch.OutputMode.All)
        model = Classifier(lambda scores, labels: labels * 1)
        eager = copy.deepcopy(model)
        optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
        training = poptorch.trainingModel(
            model, options, torch.optim.SGD(model.parameters(), lr=0.1)
        )
        self.addCleanup(training.destroy)
        loader = self._loader(options, 4)
        self.assertEqual((len(loader), loader.combinedBatchSize), (_ROWS // 8, 8))
        for rows, labels in loader:
            losses, seen = training(rows, labels)
            self.assertEqual(seen.tolist(), labels.tolist())
            for each, part in zip(losses, (slice(0, 4), slice(4, 8)), strict=True):
                expected = eager(rows[part], labels[part])[0].detach()
                torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-5)
            optimizer.zero_grad()
            eager(rows, labels)[0].backward()
            optimizer.step()
        torch.testing.assert_close(
            model.fc.weight.detach().clone(), eager.fc.weight.detach(), rtol=1e-4, atol=1e-5
        )

    def test_rows_that_the_model_does_not_take_are_refused(self):
        options = quiet().replicationFactor(2)
        model = Classifier()
        training = poptorch.trainingModel(
            model, options, torch.optim.SGD(model.parameters(), lr=0.1)
        )
        self.addCleanup(training.destroy)
        training(*next(iter(self._loader(options, 4))))
        with self.assertRaisesRegex(poptorch.Error, r"Shape mismatch for x: expected .*8, 4.*6, 4"):
            training(*next(iter(self._loader(options, 3))))


# Deep networks: their compilation takes long enough to be watched.
_CHAIN = """
import torch, poptorch
from torch import nn

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(8 + i, 9 + i, 3, padding=1) for i in range(60)]
        self.layers, self.loss = nn.Sequential(*layers), nn.MSELoss()

    def forward(self, x):
        y = self.layers(x)
        return self.loss(y, torch.zeros_like(y))

model = Deep()
options = poptorch.Options()
training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
training.compile(torch.ones(16, 8, 16, 16))
print("compiled", flush=True)
"""
_RESNET50 = """
import torch, torchvision, poptorch
from torch import nn

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.network, self.loss = torchvision.models.resnet50(), nn.CrossEntropyLoss()

    def forward(self, images, labels):
        return self.loss(self.network(images), labels)

model = Classifier()
options = poptorch.Options().connectionType(poptorch.ConnectionType.OnDemand)
training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
training.compile(torch.ones(16, 3, 224, 224), torch.zeros(16, dtype=torch.long))
print("compiled", flush=True)
"""
_KEY_INTERRUPT = b"\x03"
_NOTHING = r"(?!)"  # a pattern that no text matches
_PATIENCE = 120.0  # seconds


class Terminal:
    """A program of Python on a terminal of its own."""

    def __init__(self, program: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", program])
        self.text = ""

    def read_until(self, pattern: str) -> bool:
        """Whether the text came to match before the program ended."""
        end = time.monotonic() + _PATIENCE
        while not re.search(pattern, self.text):
            if not select.select([self._terminal], [], [], max(0.0, end - time.monotonic()))[0]:
                return False
            try:
                read = os.read(self._terminal, 4096)
            except OSError:  # the program has closed it
                return False
            self.text += read.decode(errors="replace")
        return True

    def press(self, key: bytes) -> None:
        """Types a key."""
        os.write(self._terminal, key)

    def end(self) -> int:
        """Reads the rest, and returns the exit code, or minus the signal."""
        self.read_until(_NOTHING)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


class ProcessesTest(unittest.TestCase):
    """Threads and forks of a program."""

    def test_threads_wait_with_their_captures(self):
        def infer(number):
            model = nn.Linear(4, number)
            result = poptorch.inferenceModel(model, quiet())(torch.ones(2, 4))
            torch.testing.assert_close(result, model(torch.ones(2, 4)).detach())

        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            for each in [threads.submit(infer, number) for number in range(1, 9)]:
                each.result()

    def test_a_fork_leaves_the_model_alone(self):
        labels = torch.tensor([0, 1])
        training = poptorch.trainingModel(Classifier(), quiet())
        training(torch.ones(2, 4), labels)
        child = os.fork()
        if child == 0:
            with mock.patch.object(poptorch.logger, "error", lambda *_: os._exit(3)):
                del training
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        training(torch.ones(2, 4), labels)
        training.destroy()


class TerminalTest(unittest.TestCase):
    """A compilation that somebody watches."""

    program = _CHAIN

    def test_the_bar_moves(self):
        terminal = Terminal(self.program)
        self.assertEqual(terminal.end(), 0, terminal.text)
        shares = [int(each) for each in re.findall(r"\rGraph compilation: +(\d+)%", terminal.text)]
        self.assertEqual(shares, sorted(shares))
        self.assertEqual((shares[0], shares[-1]), (0, 100))
        self.assertGreater(len(set(shares)), 4, terminal.text)
        self.assertIn("100/100", terminal.text)

    def test_control_c_ends_it(self):
        terminal = Terminal(self.program)
        self.assertTrue(terminal.read_until("Graph compilation"), terminal.text)
        terminal.press(_KEY_INTERRUPT)
        self.assertEqual(terminal.end(), -signal.SIGINT, terminal.text)
        self.assertIn("KeyboardInterrupt", terminal.text)
        self.assertNotRegex(terminal.text, r"(?m)^compiled")


@unittest.skipIf(
    importlib.util.find_spec("torchvision") is None,
    "python3-torchvision is not installed (deploy/packages-test.txt)",
)
class ResNet50Test(TerminalTest):
    """Training of ResNet-50 with micro-batches of 16 images is compiled."""

    program = _RESNET50


if __name__ == "__main__":
    unittest.main()
