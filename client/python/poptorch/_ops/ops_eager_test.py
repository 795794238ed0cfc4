"""poptorch.ops on tensors of the host, and what its functions refuse."""

import contextlib
import io
import sys
import types
import unittest
from unittest import mock

import torch
from torch import nn

import poptorch

_MODES = poptorch.MatMulSerializationMode
_LOOP = poptorch.OverlapMode.OverlapAccumulationLoop
_X = torch.arange(8.0)
_SQUARE = torch.randn(4, 4)


class EagerTest(unittest.TestCase):
    """On tensors of the host the functions act as PyTorch's."""

    def test_marks_give_their_argument(self):
        self.assertIs(poptorch.nop(_X), _X)
        self.assertIs(poptorch.set_available_memory(_X, 0.5), _X)
        self.assertIs(poptorch.recomputationCheckpoint(_X), _X)
        self.assertIsInstance(poptorch.recomputationCheckpoint(_X, _SQUARE), tuple)
        self.assertIs(poptorch.recomputationCheckpoint([_X, _SQUARE])[1], _SQUARE)
        structure = {"a": [_X], "b": (_SQUARE,)}
        marked = poptorch.set_overlap_for_input(structure, _LOOP)
        self.assertIs(marked["a"][0], _X)
        self.assertIs(poptorch.set_overlap_for_output(structure, _LOOP)["b"][0], _SQUARE)

    def test_contexts(self):
        with poptorch.NameScope("a"), poptorch.MultiConv(), poptorch.MultiConv():
            self.assertTrue(torch.equal(_X + 1, torch.arange(1.0, 9.0)))

    def test_matmul(self):
        for mode in _MODES:
            product = poptorch.serializedMatMul(_SQUARE, _SQUARE.t(), mode, 3)
            self.assertTrue(torch.equal(product, _SQUARE @ _SQUARE.t()))

    def test_dynamic_slice(self):
        at = lambda *values: torch.tensor(values)
        slice_ = lambda *args: poptorch.dynamic_slice(_X, 0, *args).tolist()
        self.assertEqual(slice_(at(2), 4, 1), [2, 3, 4, 5])
        self.assertEqual(slice_(at(1), 4, 3), [1, 4])
        self.assertEqual(slice_(torch.tensor(6), 4, 1), [6, 7, 0, 1])
        columns = poptorch.dynamic_slice(_SQUARE, -1, at(1), 2, 1)
        self.assertTrue(torch.equal(columns, _SQUARE[:, 1:3]))

    def test_dynamic_update(self):
        update = poptorch.dynamic_update(_X, -torch.ones(3), 0, torch.tensor([6]), 3)
        self.assertEqual(update.tolist(), [-1, 1, 2, 3, 4, 5, -1, -1])
        self.assertEqual(_X.tolist(), list(range(8)))
        columns = poptorch.dynamic_update(_SQUARE, torch.zeros(4, 2), 1, torch.tensor([1]), 2)
        self.assertTrue(torch.equal(columns[:, 0], _SQUARE[:, 0]))
        self.assertEqual(float(columns[:, 1:3].abs().sum()), 0)

    def test_loop(self):
        y = torch.ones(2)

        def body(y):
            y += 1
            return y

        self.assertEqual(poptorch.for_loop(3, body, [y])[0].tolist(), [4, 4])
        self.assertEqual(y.tolist(), [1, 1])
        both = poptorch.for_loop(2, lambda a, b: (b, a + b), [y, y])
        self.assertEqual([t.tolist() for t in both], [[2, 2], [3, 3]])
        self.assertEqual(poptorch.for_loop(0, body, [y])[0].tolist(), [1, 1])

    def test_print(self):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            y = poptorch.ipu_print_tensor(x * 2, "y")
            y.sum().backward()
        self.assertEqual(printed.getvalue(), "y: (2.000, 4.000)\ny_gradient: (1.000, 1.000)\n")
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            poptorch.ipu_print_tensor(x * 2, print_gradient=False).sum().backward()
        self.assertEqual(printed.getvalue(), "(2.000, 4.000)\n")

    def test_custom_op_is_refused(self):
        with self.assertRaisesRegex(poptorch.Error, "custom operator custom.ops::Cube, version 1"):
            poptorch.custom_op([_X], "Cube", "custom.ops", 1, [_X])

    def test_cpu(self):
        self.assertEqual(poptorch.CPU(lambda x, *, y: x * y, "product")(3, y=5), 15)
        layer = nn.Linear(4, 4)
        self.assertEqual(poptorch.CPU(layer, "layer")(_SQUARE).shape, (4, 4))
        self.assertFalse(layer.weight.requires_grad)
        with self.assertRaisesRegex(
            poptorch.Error, "a function or a module, but got <class 'int'>"
        ):
            poptorch.CPU(3, "three")


class RefusedTest(unittest.TestCase):
    def refused(self, kind, text, function, *args, **kwargs):
        with self.assertRaisesRegex(kind, text):
            function(*args, **kwargs)

    def test_arguments(self):
        refused, error = self.refused, poptorch.Error
        must = r"must take a torch.tensor input. <class 'int'> is not supported."
        refused(error, f"nop {must}", poptorch.nop, 1)
        refused(error, f"ipu_print_tensor {must}", poptorch.ipu_print_tensor, 1)
        refused(error, f"set_available_memory {must}", poptorch.set_available_memory, 1, 0.5)
        refused(error, "is 1.5, must be a number from 0 to 1",
                poptorch.set_available_memory, _X, 1.5)  # fmt: skip
        refused(ValueError, "takes tensors", poptorch.recomputationCheckpoint, _X, 3)
        refused(error, f"set_overlap_for_input {must}",
                poptorch.set_overlap_for_input, [_X, 3], _LOOP)  # fmt: skip
        refused(error, "must be one of poptorch.OverlapMode",
                poptorch.set_overlap_for_output, _X, "loop")  # fmt: skip
        refused(AssertionError, "mode", poptorch.serializedMatMul, _X, _X, "none")
        refused(AssertionError, "Parameter to NameScope must be a string", poptorch.NameScope, 1)

    def test_slices(self):
        refused, error = self.refused, poptorch.Error
        slice_, update, at = poptorch.dynamic_slice, poptorch.dynamic_update, torch.tensor([1])
        refused(error, "dynamic_slice must take a torch.tensor input", slice_, 1, 0, at, 2, 1)
        refused(error, "Dimension must be an integer.", slice_, _X, 0.5, at, 2, 1)
        refused(error, "Dimension is 3, must be one of the 1", slice_, _X, 3, at, 2, 1)
        refused(error, "The start of dynamic_slice must take", slice_, _X, 0, 1, 2, 1)
        refused(error, "start must be an integer tensor", slice_, _X, 0, _X, 2, 1)
        refused(error, "Size must be an integer.", slice_, _X, 0, at, at, 1)
        refused(error, "Step must be an integer.", slice_, _X, 0, at, 2, None)
        refused(error, "The step of a slice is 0", slice_, _X, 0, at, 2, 0)
        refused(error, "The start and end of a slice must be different.", slice_, _X, 0, at, 0, 1)
        refused(error, "with the end less than the start", slice_, _X, 0, at, -2, 1)
        refused(error, r"\(9\) must be at most that .* \(8\)", slice_, _X, 0, at, 9, 1)
        refused(error, r"same dimensionality. \(2\) vs \(1\)", update, _SQUARE, _X, 0, at, 1)
        refused(error, r"same dtype. \(torch.float32 vs torch.int32\)",
                update, _X, _X.int(), 0, at, 8)  # fmt: skip
        refused(error, r"src has the shape \[8\], must have \[2\]", update, _X, _X, 0, at, 2)

    def test_loop(self):
        refused, loop, same = self.refused, poptorch.for_loop, lambda *tensors: tensors
        refused(ValueError, r"\(Object is not list\)", loop, 2, same, _X)
        refused(ValueError, "index 1 is not torch.tensor", loop, 2, same, [_X, 5])
        refused(ValueError, "count is -1, must be an integer", loop, -1, same, [_X])
        refused(ValueError, "returns 2 tensors, must return 1", loop, 1, lambda x: (x, x), [_X])
        refused(ValueError, "must be torch.float32 of shape", loop, 1, lambda x: x[:2], [_X])
        refused(ValueError, "must be a tensor", loop, 1, lambda x: 5, [_X])

    def test_custom_op(self):
        op = lambda attributes: poptorch.custom_op([_X], "Op", "ops", 1, [_X], attributes)
        for kind, text, attributes in (
            (ValueError, "All attribute keys must be strings.", {1: 2}),
            (ValueError, "Attribute values must be", {"a": None}),
            (
                ValueError,
                "The types in a list/tuple attribute must all be the same",
                {"a": [1, 2.0]},
            ),
            (ValueError, "aἀb contains non-ASCII characters.", {"a": "aἀb"}),
            (poptorch.Error, r"-1.79769e\+308 is too low for a Popart", {"a": -sys.float_info.max}),
            (poptorch.Error, r"1.79769e\+308 is too high for a Popart", {"a": sys.float_info.max}),
        ):
            self.refused(kind, text, op, attributes)

    def test_multi_conv(self):
        refused, conv = self.refused, poptorch.MultiConv()
        refused(ValueError, "Invalid partials types", conv.partialsTypes, "half")
        refused(AssertionError, "Invalid plan type", conv.planType, "parallel")
        refused(ValueError, "value must be bool or list of bools", conv.enableConvDithering, [1])
        refused(AssertionError, "Invalid available memory", conv.availableMemoryProportions, 2.0)
        refused(AssertionError, "cycleBackOff", conv.cycleBackOff, 1)


class ModulesTest(unittest.TestCase):
    def test_allclose(self):
        allclose = poptorch.testing.allclose
        self.assertTrue(allclose((_X, [_SQUARE]), (_X * (1 + 1e-6), [_SQUARE])))
        for other in (
            (_X,),
            [_X, [_SQUARE]],
            (_X, [_SQUARE + 1]),
            (_X, _SQUARE),
            (_X[:4], [_SQUARE]),
        ):
            self.assertFalse(allclose((_X, [_SQUARE]), other))
        with self.assertRaisesRegex(TypeError, "not supported"):
            allclose(3, 3)

    def test_channels_do_nothing_without_traces(self):
        with mock.patch.dict("os.environ"):
            poptorch.profiling.os.environ.pop("PVTI_OPTIONS", None)
            channel = poptorch.profiling.Channel("App")
            with channel.tracepoint("step"):
                self.assertIs(channel.instrument(_X, "sum"), _X)

    def test_channels_trace(self):
        pvti, calls = types.ModuleType("libpvti"), []
        pvti.createTraceChannel = lambda name: calls.append(("channel", name)) or name
        pvti.Tracepoint = lambda *args: calls.append(args) or contextlib.nullcontext()
        pvti.instrument = lambda *args: calls.append(args)
        with mock.patch.dict("os.environ", PVTI_OPTIONS="{}"), mock.patch.dict(
            sys.modules, libpvti=pvti
        ), mock.patch.dict(poptorch.profiling._channels, clear=True):
            for _ in range(2):
                channel = poptorch.profiling.Channel("App")
            with channel.tracepoint("step"):
                channel.instrument(_X, "sum", "mean")
        expected = [("channel", "App"), ("App", "App.step"), (_X, ["sum", "mean"], "App")]
        self.assertEqual(calls, expected)

    def test_hooks(self):
        for register in (poptorch.registerPreCompileHook, poptorch.registerPostCompileHook):
            with self.assertRaisesRegex(RuntimeError, "-compile hook must be callable"):
                register(2)

    def test_names(self):
        for name in poptorch.ops.__all__:
            self.assertIs(getattr(poptorch, name), getattr(poptorch.ops, name))


if __name__ == "__main__":
    unittest.main()
