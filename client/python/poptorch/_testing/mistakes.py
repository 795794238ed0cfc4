"""Wrong uses of the package, and what tests of them share: a small model, and calls of it."""

import os
import unittest

import torch
from torch import nn
from torch.nn import functional as F

# On a POD, the test's environment says 0.
os.environ.setdefault("POPTORCH_IPU_MODEL", "1")

import poptorch  # pylint: disable=wrong-import-position

X, Y = torch.arange(24.0).reshape(4, 6) / 24, torch.tensor([0, 1, 2, 0])


class Mistakes:
    """A list of wrong uses, to which its calls add. Each has a title, an error and a function."""

    def __init__(self) -> None:
        self._uses = []

    def __len__(self) -> int:
        return len(self._uses)

    def __call__(self, kind, pattern, *arguments):
        """A decorator that adds a wrong use for each of the arguments, or one without any.

        Args:
            kind: the class of the exception, which must say more than Exception.
            pattern: a regular expression of its text.
            arguments: each is the argument of one use.
        """
        assert isinstance(kind, type) and kind not in (BaseException, Exception), kind

        def add(function):
            title = function.__name__.strip("_")
            if not arguments:
                self._uses.append((title, kind, pattern, function))
            for each in arguments:
                use = lambda each=each: function(each)
                self._uses.append((f"{title} {each!r}", kind, pattern, use))
            return function

        return add

    def check(self, test: unittest.TestCase) -> None:
        """Fails unless each use is refused."""
        for title, kind, pattern, use in self._uses:
            with test.subTest(title):
                with test.assertRaisesRegex(kind, pattern):
                    use()
        self._check_usable(test)

    @staticmethod
    def _check_usable(test: unittest.TestCase) -> None:
        """Fails unless the process can still train."""
        torch.manual_seed(0)
        model = Net()
        expected = F.cross_entropy(model.fc(X), Y).detach()
        executor = poptorch.trainingModel(model, quiet(), torch.optim.SGD(model.parameters(), 0.1))
        torch.testing.assert_close(executor(X, Y)[1], expected)
        executor.destroy()
        test.assertIs(type(model), Net)


def quiet():
    """Options without a progress bar."""
    return poptorch.Options().showCompilationProgressBar(False)


class Net(nn.Module):
    """A linear layer with a loss; `change` does something wrong with the features."""

    def __init__(self, change=None):
        super().__init__()
        self.fc, self.loss, self.change = nn.Linear(6, 3), nn.CrossEntropyLoss(), change
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x, labels=None):
        y = self.fc(x)
        if self.change is not None:
            y = self.change(self, y)
        return y if labels is None else (y, self.loss(y, labels))


def infer(change, options=None):
    """Runs a model that does something wrong."""
    return poptorch.inferenceModel(Net(change).eval(), options or quiet())(X)


def train(model=None, options=None, batch=(X, Y), optimizer=None):
    """Trains a model for one call."""
    executor = poptorch.trainingModel(model or Net(), options or quiet(), optimizer)
    try:
        return executor(*batch)
    finally:
        executor.destroy()
