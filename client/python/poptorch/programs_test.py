"""The programs of the capture's tests on the IPUModel: one training step against eager PyTorch.

Programs that draw random numbers are left out: a device draws others than PyTorch.
"""

import copy
import logging
import os
import unittest
import warnings

import torch
from torch import nn

os.environ.setdefault("POPTORCH_IPU_MODEL", "1")

# pylint: disable=wrong-import-position
import capture_gradient_programs  # adds its programs
import capture_operator_programs  # noqa: F401
import capture_programs
import capture_write_programs  # noqa: F401
import poptorch

logging.getLogger("poptorch::python").setLevel(logging.ERROR)
warnings.simplefilter("ignore")

_SEED = 11
_RATE = 0.01
_RANDOM = ("digits", "sampled", "random_sources")


class WithLoss(nn.Module):
    """A program with its last result as the loss."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, *inputs):
        results = self.program(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        with poptorch.Block("loss", ipu_id=0):
            return (*results, poptorch.identity_loss(results[-1], "sum"))


def _model(program) -> WithLoss:
    torch.manual_seed(_SEED)
    model = WithLoss(program.make())
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    return model


def _trained(model: nn.Module):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _eager_step(model, inputs):
    results = model(*inputs)
    results[-1].backward()
    torch.optim.SGD(_trained(model), lr=_RATE).step()
    return [result.detach() for result in results]


def _equal(got, expected, tolerance) -> bool:
    got, expected = got.detach().double(), expected.detach().double()
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    return got.shape == expected.shape and torch.allclose(
        got, expected, rtol=2e-3, atol=tolerance * (1 + largest), equal_nan=True
    )


def _gradient(before, after):
    """What a step of SGD has taken for the gradient of a parameter."""
    return (before.detach().double() - after.detach().double()) / _RATE


def _equal_gradients(before, got, expected) -> bool:
    # Weights are rounded to 2^-24 of themselves, which hides as much of a gradient.
    hidden = float(before.abs().max()) * 2.0**-23 / _RATE
    got, expected = _gradient(before, got), _gradient(before, expected)
    largest = float(expected.abs().max())
    return torch.allclose(got, expected, rtol=2e-3, atol=1e-3 * largest + 1e-5 + hidden)


class ProgramsTest(unittest.TestCase):
    """Every program: results, weights, buffers and written inputs after one step."""

    def check(self, program):
        model, reference = _model(program), _model(program)
        before = {name: value.clone() for name, value in reference.state_dict().items()}
        torch.manual_seed(_SEED)
        inputs = program.inputs()
        options = poptorch.Options().showCompilationProgressBar(False)
        options.setExecutionStrategy(poptorch.ShardedExecution()).autoRoundNumIPUs(True)
        optimizer = torch.optim.SGD(_trained(model), lr=_RATE)
        executor = poptorch.trainingModel(model, options, optimizer)
        ours, theirs = ([tensor.clone() for tensor in inputs] for _ in range(2))
        try:
            results = executor(*ours)
            expected = _eager_step(reference, theirs)
            state, wanted = model.state_dict(), reference.state_dict()
        finally:
            executor.destroy()
        pairs = [(f"result {i}", *each, 1e-4) for i, each in enumerate(zip(results, expected))]
        pairs += [(name, state[name], wanted[name], 2e-5) for name in wanted]
        pairs += [(f"input {i}", *each, 1e-4) for i, each in enumerate(zip(ours, theirs))]
        self.assertEqual([name for name, *values in pairs if not _equal(*values)], [])
        trained = [name for name, each in reference.named_parameters() if each.requires_grad]
        wrong = [n for n in trained if not _equal_gradients(before[n], state[n], wanted[n])]
        self.assertEqual(wrong, [], "gradients")


class _Staged(nn.Module):
    """Two stages; the first ends with a function, and hooks are registered in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            start = torch.tanh(self.first(x))
            y = capture_gradient_programs.Leaky.apply(start, 2.0)
        with poptorch.Block("second", ipu_id=1):
            self.second.weight.register_hook(lambda gradient: gradient * 3)
            z = self.second(y)
            start.register_hook(lambda gradient: gradient + z.detach() * 0.5)
            return z, poptorch.identity_loss((z * z).sum(), "none")


class PipelineTest(unittest.TestCase):
    """Gradients of the program's own belong to the stage of what they are gradients of."""

    def test_regions(self):
        torch.manual_seed(_SEED)
        model, batches = _Staged(), torch.randn(4, 2, 4)
        reference = copy.deepcopy(model)
        losses, sums = [], [torch.zeros_like(p) for p in reference.parameters()]
        for batch in batches:
            # Each forward registers its hooks again.
            once = copy.deepcopy(reference)
            losses.append(once(batch)[1])
            losses[-1].backward()
            for total, parameter in zip(sums, once.parameters()):
                total += parameter.grad
        options = poptorch.Options().showCompilationProgressBar(False)
        options.Training.gradientAccumulation(len(batches))
        options.outputMode(poptorch.OutputMode.All)
        optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
        executor = poptorch.trainingModel(model, options, optimizer)
        try:
            _, ours = executor(batches.flatten(0, 1))
        finally:
            executor.destroy()
        torch.testing.assert_close(ours.flatten(), torch.stack(losses).detach(), rtol=1e-4, atol=0)
        for name, parameter in reference.named_parameters():
            total = sums.pop(0)
            wanted = parameter.detach() - _RATE * total / len(batches)
            torch.testing.assert_close(
                model.state_dict()[name], wanted, rtol=1e-4, atol=1e-6, msg=name
            )


def _add_test(name, program):
    setattr(ProgramsTest, f"test_{name}", lambda self: self.check(program))


for _name, _program in capture_programs.PROGRAMS.items():
    if _program.replays and _name not in _RANDOM:
        _add_test(_name, _program)


if __name__ == "__main__":
    unittest.main()
