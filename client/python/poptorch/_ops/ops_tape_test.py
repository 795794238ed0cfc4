"""What functions of poptorch.ops put on a tape, and which captures they refuse."""

import unittest

import torch
from torch import nn

import poptorch
from poptorch._capture.capture import capture
from poptorch._executor.segments import split
from poptorch._ops.overlap import check_overlaps

_MODES = poptorch.MatMulSerializationMode
_LOOP = poptorch.OverlapMode.OverlapAccumulationLoop
_X = torch.arange(8.0)
_SQUARE = torch.randn(4, 4)


def tape_of(forward, *inputs, training=False):
    return capture(forward, inputs, {}, training=training)[0]


def operators(tape):
    return [tape.operators[record[0]] for record in tape.records]


class Convolutions(nn.Module):
    """Two convolutions in a context."""

    def __init__(self, context) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3, bias=False)
        self.context = context

    def forward(self, x):
        with self.context:
            return self.a(x) + self.b(x.abs())


class CaptureTest(unittest.TestCase):
    def test_checkpoints(self):
        def forward(x):
            y = x + 1
            return poptorch.recomputationCheckpoint(x, y)[1] * 2

        tape = tape_of(forward, _X)
        self.assertEqual(tape.checkpoints, [tape.records[0][2][0]])  # an input is kept anyway

    def test_available_memory_finds_products(self):
        weight, bias = torch.randn(6, 4), torch.randn(6)

        def shares(forward, *inputs):
            tape = tape_of(forward, *inputs)
            names = {r[2][0]: tape.operators[r[0]] for r in tape.records}
            return [(names[value], share) for value, share in tape.available_memory]

        def linear(x, w, b):
            y = torch.nn.functional.linear(x, w, b)
            return poptorch.set_available_memory(y.relu() if x.dim() == 1 else y, 0.25)

        found = shares(linear, torch.randn(2, 4), weight, bias)
        self.assertEqual(found, [("addmm.default", 0.25)])
        found = shares(linear, torch.randn(3, 2, 4), weight, bias)
        self.assertEqual([share for _, share in found], [0.25])
        found = shares(linear, torch.randn(5, 3, 2, 4), weight, bias)
        self.assertEqual(found, [("mm.default", 0.25)])
        # Behind an activation there is nothing to limit.
        self.assertEqual(shares(linear, torch.randn(4), weight, bias), [])
        nothing = lambda x: poptorch.set_available_memory(x + 1, 0.0) @ x
        self.assertEqual(shares(nothing, _SQUARE), [])
        least = shares(lambda x: poptorch.set_available_memory(x @ x, 0), _SQUARE)
        self.assertGreater(least[0][1], 0)

    def test_serialized_products(self):
        for mode, part in ((_MODES.InputChannels, (2, 4)), (_MODES.ReducingDim, (4, 4)),
                           (_MODES.OutputChannels, (4, 2))):  # fmt: skip
            forward = lambda x: poptorch.set_available_memory(
                poptorch.serializedMatMul(x, x, mode, 2), 0.5
            )
            tape = tape_of(forward, _SQUARE)
            made = [tape.values[r[2][0]][1] for r in tape.records if "mm" in tape.operators[r[0]]]
            self.assertEqual(made, [part, part], mode)
            self.assertEqual(len(tape.available_memory), 2, mode)
        for factor in (0, 3, -1):
            forward = lambda x: poptorch.serializedMatMul(x, x, _MODES.ReducingDim, factor)
            with self.assertRaisesRegex(poptorch.Error, f"is {factor}, must divide the 4"):
                tape_of(forward, _SQUARE)

    def test_name_scope(self):
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.outer = nn.Sequential(nn.Linear(4, 4))

            def forward(self, x):
                with poptorch.NameScope("a"):
                    x = x + 1
                    with poptorch.NameScope("b"):
                        x = self.outer(x)
                return x * 2

        self.assertEqual(tape_of(Model(), _SQUARE).scopes, ["a", "a.b.outer.0", ""])

    def test_multi_conv(self):
        image = torch.randn(1, 1, 8, 8)
        context = poptorch.MultiConv().availableMemoryProportions((0.5, 0.25))
        context.partialsTypes(torch.half).planType(poptorch.MultiConvPlanType.Serial)
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            tape = tape_of(Convolutions(context), image)
        self.assertIn("planType changes nothing", logs.output[0])
        self.assertEqual([share for _, share in tape.available_memory], [0.5, 0.25])
        self.assertEqual([dtype for _, dtype in tape.partials], [5, 5])
        for context, text in (
            (poptorch.MultiConv().availableMemoryProportions([0.1, 0.2, 0.3]),
             "availableMemoryProportions of poptorch.MultiConv has 3 values for 2 convolutions"),
        ):  # fmt: skip
            with self.assertRaisesRegex(poptorch.Error, text):
                tape_of(Convolutions(context), image)

    def test_multi_conv_nests_nothing(self):
        def nested(x):
            with poptorch.MultiConv(), poptorch.MultiConv():
                return x + 1

        def empty(x):
            with poptorch.MultiConv():
                return x + 1

        with self.assertRaisesRegex(poptorch.Error, "Nested poptorch.MultiConv is not supported"):
            tape_of(nested, _X)
        with self.assertRaisesRegex(poptorch.Error, "Unexpected end_multi_conv"):
            tape_of(empty, _X)

    def test_dynamic_slice_wants_a_factor(self):
        text = r"The size of the slice \(7\) must be a factor of the slicing dimension \(8\)\."
        forward = lambda x, i: poptorch.dynamic_slice(x, 0, i, 7, 1)
        with self.assertRaisesRegex(poptorch.Error, text):
            tape_of(forward, _X, torch.tensor([1]))

    def test_loops_only_in_inference(self):
        forward = lambda x: poptorch.for_loop(2, lambda t: t * 2, [x])[0]
        self.assertEqual(operators(tape_of(forward, _X)).count("mul.Tensor"), 2)
        text = r"poptorch.for_loop\(\) is only supported in inference"
        with self.assertRaisesRegex(poptorch.Error, text):
            tape_of(forward, _X, training=True)

    def test_prints_are_results(self):
        def forward(x):
            y = poptorch.ipu_print_tensor(x + 1, "y", digits=2)
            y += 1  # the print has the value before
            return y

        tape = tape_of(forward, _X)
        ((value, title, text_format),) = tape.prints
        self.assertEqual((value, title), (tape.records[0][2][0], "y"))
        self.assertEqual(text_format[3], 2)
        self.assertEqual(tape.results, [tape.records[1][2][0], value])

    def test_custom_ops_are_listed(self):
        def forward(x):
            (y,) = poptorch.custom_op([x], "Cube", "custom.ops", 1, [x], {"alpha": 0.5})
            (z,) = poptorch.custom_op([y], "Other", "custom.ops", 1, [x])
            return z

        text = r"Unsupported ops found in compiled model: \[custom.ops::Cube, custom.ops::Other\]"
        with self.assertRaisesRegex(poptorch.Error, text):
            tape_of(forward, _X)

    def test_what_ipus_have_not(self):
        def forward(x, lengths):
            return poptorch.ctc_beam_search_decoder(x, lengths, top_paths=2)

        text = r"Unsupported ops found in compiled model: \[poptorch::ctc_beam_search_decoder\]"
        with self.assertRaisesRegex(poptorch.Error, text):
            tape_of(forward, torch.randn(5, 3, 4), torch.tensor([5, 4, 3]))
        with self.assertRaisesRegex(poptorch.Error, r"lengths of shape \[batch\], but got"):
            tape_of(forward, torch.randn(5, 3, 4), torch.tensor([5]))
        with self.assertRaisesRegex(poptorch.Error, "neither the host nor these IPUs"):
            forward(torch.randn(5, 3, 4), torch.tensor([5, 4, 3]))

    def test_host_calls(self):
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(4, 4)
                self.host = poptorch.CPU(self.on_host, "host")

            def on_host(self, x, *, number):
                assert not poptorch.isRunningOnIpu()
                assert not x.is_meta and not self.layer.weight.is_meta
                return self.layer(x) + torch.ones(4) * number

            def forward(self, x):
                y = self.host(x + 1, number=2)
                assert y.device.type == "ipu" and self.layer.weight.is_meta
                return torch.zeros(4) + self.layer(y)

        model = Model()
        tape = tape_of(model, _SQUARE)
        (made,) = tape.host_calls
        self.assertEqual((made[0], made[1], made[2]), (1, "host", list(tape.records[0][2])))
        self.assertFalse(model.layer.weight.is_meta)
        self.assertEqual(operators(tape).count("addmm.default"), 1)

    def test_host_calls_are_refused(self):
        for function, text in (
            (lambda x: 3, "returned no tensor, must return tensors with elements on the host"),
            (lambda x: x[:0], r"returned a tensor of shape \[0\] on cpu"),
        ):
            host = poptorch.CPU(function, "wrong")
            with self.assertRaisesRegex(poptorch.Error, r"poptorch.CPU\('wrong'\) " + text):
                tape_of(lambda x: host(x) * 2, _X)
        host = poptorch.CPU(lambda x: x, "same")
        with self.assertRaisesRegex(poptorch.Error, "in a model that trains"):
            tape_of(lambda x: host(x) * 2, _X, training=True)

    def test_segments(self):
        first, second = poptorch.CPU(lambda x: x, "a"), poptorch.CPU(lambda x: x, "b")

        def forward(x, y):
            z = x + 1
            a = first(z)
            b = second(a * y)
            return b.sin() + z, a

        segments = split(tape_of(forward, _X, _X))
        names = [operators(segment.tape) for segment in segments]
        self.assertEqual(names[:2], [["add.Tensor"], ["mul.Tensor"]])
        tape = segments[0].tape
        (_, _, (z,), (a,)), (_, _, (product,), (b,)) = tape.host_calls
        x, y = (value for _, value, _ in tape_of(forward, _X, _X).inputs)
        self.assertEqual((segments[0].inputs, segments[0].results), ([x], [z]))
        self.assertEqual((segments[1].inputs, segments[1].results), (sorted([y, a]), [product]))
        self.assertEqual(segments[2].inputs, sorted([z, b]))
        self.assertEqual(len(segments[2].results), 1)

    def test_segments_share_no_written_state(self):
        class Counter(nn.Module):
            def __init__(self, again) -> None:
                super().__init__()
                self.register_buffer("count", torch.zeros(8))
                self.host, self.again = poptorch.CPU(lambda x: x, "host"), again

            def forward(self, x):
                self.count += 1
                y = self.host(x + self.count)
                return y + self.count if self.again else y + 1

        split(tape_of(Counter(False), _X))
        split(tape_of(Counter(True), _X))  # the new value is handed on

        class Late(Counter):
            def forward(self, x):
                y = self.host(x + self.count)
                self.count += 1
                return y

        with self.assertRaisesRegex(
            poptorch.Error, "'count' is written by a model with poptorch.CPU"
        ):
            split(tape_of(Late(False), _X))

    def test_prints_tell_tapes_apart(self):
        def plain(title):
            return tape_of(lambda x: poptorch.ipu_print_tensor(x + 1, title), _X).plain()

        self.assertEqual(plain("a"), plain("a"))
        self.assertNotEqual(plain("a"), plain("b"))


class OverlapTest(unittest.TestCase):
    def refused(self, text, forward, options=None):
        with self.assertRaisesRegex(poptorch.Error, text):
            self.check(forward, options)

    def check(self, forward, options=None):
        options = options or poptorch.Options()
        if options.defaultOutputMode():
            options.outputMode(poptorch.OutputMode.All)
        check_overlaps(tape_of(forward, _X), options)

    def sharded(self, tiles=32):
        options = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
        if tiles:
            options.TensorLocations.numIOTiles(tiles)
        return options

    def test_inputs(self):
        mark = lambda x: poptorch.set_overlap_for_input(x, _LOOP)
        self.refused("must be the only op applied to an input. This is not the case for input 0",
                     lambda x: (x + 1, mark(x)))  # fmt: skip
        self.refused("which is not a tensor input to the model", lambda x: mark(x + 1))
        good = lambda x: mark(x) + 1
        self.refused("Overlapped IO is not supported with poptorch.PipelinedExecution", good)
        self.refused("No IO tiles allocated. You must allocate at least 32", good, self.sharded(0))
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            self.check(good, self.sharded())
        self.assertIn("do not change the time of a run", logs.output[0])
        final = self.sharded().outputMode(poptorch.OutputMode.Final)
        self.check(good, final)

    def test_outputs(self):
        mark = lambda x: poptorch.set_overlap_for_output(x, _LOOP)

        def twice(x):
            y = x + 1
            return y, mark(y)

        def used_before(x):
            y = x + 1
            z = y + 1
            return mark(y), z

        def used_behind(x):
            y = mark(x + 1)
            return y, y + 1

        self.refused("cannot be used with a tensor that is returned twice", twice)
        self.refused("which is not a tensor output to the model", lambda x: mark(x) + 1)
        self.check(used_before, self.sharded())
        self.check(used_behind, self.sharded())
        final = self.sharded().outputMode(poptorch.OutputMode.Final)
        self.refused("Unsupported output mode for overlapped IO.", used_before, final)

    def test_no_overlap_needs_nothing(self):
        self.check(lambda x: poptorch.set_overlap_for_input(x, poptorch.OverlapMode.NoOverlap) + 1)


if __name__ == "__main__":
    unittest.main()
