"""Log lines of weights, state and random numbers: what moves when, and that nothing else does."""

import logging
import os
import unittest
from unittest import mock

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from poptorch._logging import logger, native  # pylint: disable=wrong-import-position
from saving_test import FilesTest  # pylint: disable=wrong-import-position

_IMPLICIT = "Implicit copyWeightsToHost()"
_READ = "Writing weights from IPU to host."
_IMPLICITLY_WRITTEN = "Implicit copyWeightsToDevice()"
_WRITTEN = "Writing weights from host to IPU memory."
_OPTIMIZER_READ = "Writing optimiser state tensors from IPU to host."
_OPTIMIZER_WRITTEN = "Writing optimiser state tensors from host to IPU memory."
_RANDOM_READ = ["Reading random seed", "Reading RNG state"]
_RANDOM_WRITTEN = ["Setting random seed to: 5", "Setting RNG state"]
_BEGINNINGS = ("Writing ", "Reading ", "Setting ", "Implicit ", "load_state_dict", "Detached from",
               "Using cached")  # fmt: skip


class Model(nn.Module):
    """A layer with dropout and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, labels=None):
        y = torch.dropout(self.fc(x), 0.5, self.training)
        return y if labels is None else (y, nn.functional.cross_entropy(y, labels))


class _Lines(logging.Handler):
    """Keeps lines about transfers."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = []

    def emit(self, record) -> None:
        line = record.getMessage()
        if line.startswith(_BEGINNINGS):
            self.lines.append(line)


class TransfersTest(FilesTest):
    def setUp(self):
        super().setUp()
        self.handler = _Lines()
        for each in (logger, native):
            patch = mock.patch.object(each, "handlers", [self.handler])
            patch.start()
            self.addCleanup(patch.stop)
        poptorch.setLogLevel("DEBUG")
        self.addCleanup(poptorch.setLogLevel, "WARN")
        torch.manual_seed(6)
        self.model = Model()
        self.batch = torch.randn(2, 4), torch.tensor([0, 2])

    def lines(self):
        """The lines since the last call."""
        lines, self.handler.lines = self.handler.lines, []
        return lines

    def training(self, make=None):
        options = poptorch.Options().showCompilationProgressBar(False).randomSeed(5)
        make = make or (lambda parameters: poptorch.optim.Adam(parameters, lr=0.01))
        self.optimizer = make(self.model.parameters())
        training = poptorch.trainingModel(self.model, options, self.optimizer)
        training(*self.batch)
        return training

    def test_calls_with_nothing_stale_are_silent(self):
        training = self.training()
        self.assertEqual(
            self.lines(), ["Setting random seed to: 5", _IMPLICITLY_WRITTEN, _WRITTEN]
        )
        training(*self.batch)
        training.setOptimizer(poptorch.optim.Adam(self.model.parameters(), lr=0.1))
        training(*self.batch)
        self.assertEqual(self.lines(), [])

    def test_weights_are_read_when_they_are_wanted(self):
        training = self.training()
        self.lines()
        self.model.fc.weight.sum()
        self.assertEqual(self.lines(), [_IMPLICIT, _READ])
        self.model.fc.bias.sum()
        training(*self.batch)
        self.assertEqual(self.lines(), [])
        training.copyWeightsToHost()
        self.assertEqual(self.lines(), [_READ])
        training.copyWeightsToDevice()
        self.assertEqual(self.lines(), [_WRITTEN])

    def test_weights_of_a_dictionary(self):
        training = self.training()
        state = {name: value.clone() for name, value in training.state_dict().items()}
        self.lines()
        training.load_state_dict(state)
        self.assertEqual(self.lines(), ["load_state_dict: implicit copyWeightsToDevice()", _WRITTEN])
        training(*self.batch)
        self.assertEqual(self.lines(), [])

    def test_state_of_the_optimizer(self):
        training = self.training()
        self.lines()
        state = self.optimizer.state_dict()
        self.assertEqual(self.lines(), [_OPTIMIZER_READ])
        self.optimizer.state_dict()
        self.assertEqual(self.lines(), ["Using cached optimiser state dict"])
        training(*self.batch)
        self.optimizer.load_state_dict(state)
        self.assertEqual(self.lines(), [_IMPLICIT, _READ])
        training(*self.batch)
        self.assertEqual(self.lines(), [_OPTIMIZER_WRITTEN])

    def test_devices_that_are_left(self):
        for make in (None, lambda parameters: torch.optim.Adam(parameters, lr=0.01)):
            training = self.training(make)
            self.lines()
            training.detachFromDevice()
            lines = self.lines()
            self.assertEqual(lines[-1], "Detached from device")
            expected = [_OPTIMIZER_READ, *_RANDOM_READ, _IMPLICIT, _READ]
            self.assertEqual(sorted(lines[:-1]), sorted(expected))
            training(*self.batch)
            written = [_OPTIMIZER_WRITTEN, *_RANDOM_WRITTEN, _IMPLICITLY_WRITTEN, _WRITTEN]
            self.assertEqual(self.lines(), written)
            training.destroy()

    def test_files(self):
        training = self.training()
        self.lines()
        training.save(self.file)
        expected = sorted([_OPTIMIZER_READ, *_RANDOM_READ, _IMPLICIT, _READ])
        self.assertEqual(sorted(self.lines()), expected)
        loaded = poptorch.load(self.file)
        expected = sorted([_OPTIMIZER_WRITTEN, *_RANDOM_WRITTEN, _IMPLICITLY_WRITTEN, _WRITTEN])
        lines = self.lines()
        self.assertEqual(sorted(set(lines)), expected)
        loaded(*self.batch)
        self.assertEqual(self.lines(), [])

    def test_inference_takes_trained_weights(self):
        training = self.training()
        inference = poptorch.inferenceModel(training)
        inference(self.batch[0])
        self.lines()
        inference(self.batch[0])
        self.assertEqual(self.lines(), [])
        training(*self.batch)
        inference(self.batch[0])
        self.assertEqual(self.lines(), [_IMPLICIT, _READ, _IMPLICITLY_WRITTEN, _WRITTEN])


if __name__ == "__main__":
    unittest.main()
