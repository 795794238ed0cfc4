"""Captures of models: their tapes compute what PyTorch computes, and leave no trace."""

import logging
import unittest
import warnings

import capture_gradient_programs  # noqa: F401  adds its programs
import capture_operator_programs  # noqa: F401
import capture_programs
import capture_write_programs  # noqa: F401
import torch
from capture_replay import replay, undefined_uses

import poptorch
from poptorch import _block_state
from poptorch._capture import capture as _capture

logging.getLogger("poptorch::python").setLevel(logging.ERROR)
warnings.simplefilter("ignore")
torch.set_num_threads(1)

_SEED = 11


def capture(model, inputs, kwargs):
    """A capture with the blocks of the program."""
    with _block_state.capturing(poptorch.PipelinedExecution()):
        return _capture.capture(model, inputs, kwargs, training=True)


def _equal(got, expected, tolerance) -> bool:
    if got.shape != expected.shape:
        return False
    got, expected = got.double(), expected.double()
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    absolute = tolerance / 10 * (1 + largest)
    return torch.allclose(got, expected, rtol=tolerance, atol=absolute, equal_nan=True)


def differences(model, inputs, tape, tolerance=1e-4):
    """Names of what differs between a tape and the model by more than the relative tolerance."""
    state = dict(model.named_parameters())
    state.update(model.named_buffers())
    got = replay(tape, {name: value.clone() for name, value in state.items()}, inputs, _SEED)
    torch.manual_seed(_SEED)
    inputs = [tensor.clone() for tensor in inputs]
    results = model(*inputs)
    results[-1].sum().backward()
    pairs = [(f"result {i}", a, b.detach()) for i, (a, b) in enumerate(zip(got.results, results))]
    for name, parameter in model.named_parameters():
        zero = torch.zeros_like(parameter)
        gradient = got.gradients[name]
        expected = parameter.grad
        pairs.append((f"gradient of {name}", zero if gradient is None else gradient,
                      zero if expected is None else expected))  # fmt: skip
        pairs.append((name, got.state[name], parameter.detach()))
    pairs.extend((name, got.state[name], buffer) for name, buffer in model.named_buffers())
    pairs.extend((f"input {i}", a, b) for i, (a, b) in enumerate(zip(got.inputs, inputs)))
    return [name for name, a, b in pairs if not _equal(a, b, tolerance)]


def _captured(name):
    program = capture_programs.PROGRAMS[name]
    torch.manual_seed(_SEED)
    model, inputs = program.make(), program.inputs()
    return model, inputs, capture(model, inputs, {})[0]


class ProgramsTest(unittest.TestCase):
    """Every program: replayed with real tensors, the tape gives what eager PyTorch gives."""


def _add_test(name, program):
    def test(self):
        model, inputs, tape = _captured(name)
        self.assertEqual(tape.plain(), capture(model, inputs, {})[0].plain())
        self.assertEqual(undefined_uses(tape), [])
        if program.replays:
            self.assertEqual(differences(model, inputs, tape), [])

    setattr(ProgramsTest, f"test_{name}", test)


for _name, _program in capture_programs.PROGRAMS.items():
    _add_test(_name, _program)


if __name__ == "__main__":
    unittest.main()
