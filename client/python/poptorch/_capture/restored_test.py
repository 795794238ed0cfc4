"""Whatever happens in a capture, PyTorch and the model are afterwards as before."""

import ctypes
import itertools
import logging
import sys
import unittest
import warnings

import torch
from capture_programs import Sign
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F
from torch.utils import _python_dispatch

from poptorch._capture import recorder
from poptorch._capture.capture import capture

logging.getLogger("poptorch::python").setLevel(logging.ERROR)
warnings.simplefilter("ignore")

_OWNERS = (
    torch,
    F,
    torch.Tensor,
    torch.nn.Module,
    torch.nn.Parameter,
    torch.autograd.Function,
    torch.utils.checkpoint,
    torch.utils.checkpoint.CheckpointFunction,
    torch.distributions.Distribution,
)


def _world(model):
    """Everything that a capture changes."""
    owners = _OWNERS + (Sign, torch.autograd.function.BackwardCFunction)
    found = {(i, name): value for i, o in enumerate(owners) for name, value in vars(o).items()}
    for path, module in model.named_modules():
        for table in (module._parameters, module._buffers, module.__dict__):
            found.update({(path, id(table), name): value for name, value in table.items()})
    found["grad"] = torch.is_grad_enabled()
    found["dispatch"] = _python_dispatch._len_torch_dispatch_stack()
    found["functions"] = torch._C._len_torch_function_stack()
    found["recorder"] = recorder.active()
    found["optimised"] = torch._C._get_graph_executor_optimize()
    return found


class _Model(nn.Module):
    """A module with all that is exchanged: ties, lists, buffers, attributes, hooks."""

    def __init__(self):
        super().__init__()
        self.cells, self.norm = nn.LSTM(4, 4), nn.BatchNorm1d(4)
        self.weighted = nn.utils.weight_norm(nn.Linear(4, 4))
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.weighted.weight_v
        self.last, self.kept = None, [self.tied.bias]

    def forward(self, x):
        y = self.norm(self.cells(x)[0])
        self.last = self.weighted(y)
        y.register_hook(lambda gradient: gradient * 2)
        z = torch.zeros(4, 4) + Sign.apply(y)
        z[0] = self.tied(self.last)[0] + self.kept[0]
        return F.mse_loss(z + torch.tensor([1.0, 2.0, 3.0, 4.0]), x)


_ONE, _TWO = torch.tensor(1.0), nn.Parameter(torch.tensor(2.0))


class _OfNumbers(nn.Module):
    """Makes a constant of tensors of one number, and a class of tensors."""

    made = None

    def forward(self, x):
        type(self).made = type("Made", (torch.Tensor,), {})
        return x[0] * torch.tensor([_ONE, _TWO])


_is_sequence = ctypes.pythonapi.PySequence_Check
_is_sequence.argtypes = [ctypes.py_object]


class _Indexed(torch.Tensor):
    """Gives an index a meaning of its own."""

    def __getitem__(self, index):
        return super().__getitem__(index) + 1


class RestoredTest(unittest.TestCase):
    """After a capture, PyTorch and the model are as before."""

    def _assert_same(self, before, after, where=None):
        differ = [name for name in before.keys() | after.keys()
                  if before.get(name) is not after.get(name)]  # fmt: skip
        self.assertEqual(differ, [], where)

    def test_success(self):
        model, x = _Model(), torch.randn(4, 4)
        model(x)
        before = _world(model)
        capture(model, (x,), {})
        self._assert_same(before, _world(model))
        self.assertEqual(model(x).device.type, "cpu")

    def test_exception_in_forward(self):
        model = _Model()
        before = _world(model)
        model.tied.register_forward_hook(lambda *_: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            capture(model, (torch.randn(4, 4),), {})
        after = _world(model)
        after.update({k: v for k, v in before.items() if k[-1] == "_forward_hooks"})
        self._assert_same(before, after)

    def test_exception_at_each_line(self):
        """An exception, or Control-C, at any line that a capture executes."""
        model, x = _Model(), torch.randn(4, 4)
        model(x)
        before = _world(model)
        kinds = itertools.cycle((KeyboardInterrupt, RuntimeError))
        lines = _lines_of_capture(model, x)
        self.assertGreater(len(lines), 150)
        for line, kind in zip(lines, kinds):
            self._interrupt(model, x, line, kind)
            self._assert_same(before, _world(model), line)
        capture(model, (x,), {})

    def test_tensors_of_tensors_of_one_number(self):
        # Python takes a class for a sequence once it has been given a __getitem__.
        capture(_OfNumbers(), (torch.ones(2, 2),), {})
        for kind in (torch.Tensor, _OfNumbers.made):
            numbers = [_ONE.detach().as_subclass(kind), _TWO]
            self.assertEqual(torch.tensor(numbers).tolist(), [1, 2], kind)
        classes = (torch.Tensor, nn.Parameter, _OfNumbers.made, _Indexed)
        tensors = [torch.zeros(2).as_subclass(kind) for kind in classes]
        self.assertEqual([_is_sequence(tensor) for tensor in tensors], [0, 0, 0, 1])
        self.assertEqual([tensor[0].item() for tensor in tensors], [0, 0, 0, 1])

    def _interrupt(self, model, x, line, kind):
        def local(frame, event, _):
            if event == "line" and _place(frame) == line:
                sys.settrace(None)
                raise kind("interrupted")
            return local

        def trace(frame, event, _):
            return local if _is_traced(frame) else None

        sys.settrace(trace)
        try:
            with self.assertRaises(kind):
                capture(model, (x,), {})
        finally:
            sys.settrace(None)


# The package's, and PyTorch's own that pops a mode for a moment.
_FILES = tuple(
    f"/_capture/{name}.py"
    for name in "capture twins inputs patches dispatch modes regions".split()
)
# What undoes changes, or holds the lock.
_UNDOING = frozenset(
    "capture restore leave _restore _restore_table _restore_attributes _on_meta".split()
)


def _is_traced(frame):
    code = frame.f_code
    undoing = not set(code.co_qualname.split(".")).isdisjoint(_UNDOING)
    return code.co_filename.endswith(_FILES) and not undoing


def _place(frame):
    return frame.f_code.co_filename, frame.f_lineno


def _lines_of_capture(model, x):
    """The lines that a capture executes, each once."""
    lines = {}

    def local(frame, event, _):
        if event == "line":
            lines[_place(frame)] = True
        return local

    sys.settrace(lambda frame, event, _: local if _is_traced(frame) else None)
    try:
        capture(model, (x,), {})
    finally:
        sys.settrace(None)
    return list(lines)


if __name__ == "__main__":
    unittest.main()
