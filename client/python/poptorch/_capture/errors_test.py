"""What the capture refuses, with which text, and what it leaves behind: nothing."""

import logging
import os
import threading
import unittest
import warnings

import torch
import torch.utils.checkpoint
from capture_programs import Body, Sign
from torch import nn
from torch.nn import functional as F

import poptorch
from poptorch import _block_state
from poptorch._capture import recorder
from poptorch._capture.capture import capture
from poptorch._errors import Error
from poptorch._capture.structure import flatten, rebuild

logging.getLogger("poptorch::python").setLevel(logging.ERROR)
warnings.simplefilter("ignore")

_HOST = torch.arange(4.0)
_READ = (
    "aten::item is only supported in eager mode, but was intercepted in a static graph. This means"
    " an IPU to CPU copy was triggered before the end of the graph, for example by calling"
    " tensor.item(). Please ensure that any such copies are removed."
)
_MOVE = (
    'Illegal move to CPU (via `.to("cpu")`) when using the dispatcher. Instead, return this output'
    " as an IPU tensor."
)
_DYNAMIC = (
    "Operations using aten::nonzero are unsupported because the output shape is determined by the"
    " tensor values. The IPU cannot support dynamic output shapes."
)


def _body(function, **buffers):
    return Body(function, {"w": (4, 4)}, buffers)


def _tape(function, *inputs, supported=None, **buffers):
    inputs = inputs or (torch.randn(4, 4),)
    return capture(_body(function, **buffers), inputs, {}, supported=supported)[0]


def _operators(tape):
    return [tape.operators[record[0]] for record in tape.records]


class RefusedTest(unittest.TestCase):
    """Programs that cannot be compiled."""

    def _refuses(self, text, function, *inputs, **settings):
        with self.assertRaises(Error) as caught:
            _tape(function, *inputs, **settings)
        self.assertIn(text, str(caught.exception))

    def test_item(self):
        self._refuses(_READ, lambda m, x: x * x.max().item())
        self._refuses(_READ, lambda m, x: x * float(x.max()))
        self._refuses(_READ, lambda m, x: sum(x for _ in range(x.long().sum())))
        self._refuses(_READ, lambda m, x: x * x[0].tolist()[0])
        self._refuses(_READ, lambda m, x: torch.tensor([x.sum(), 1.0]))

    def test_bool(self):
        self._refuses(_READ, lambda m, x: x if (x > 0).any() else -x)

    def test_equal(self):
        self._refuses("aten::equal is only", lambda m, x: x if torch.equal(x, x) else -x)

    def test_numpy(self):
        self._refuses("Illegal move to CPU (via `.numpy()`)", lambda m, x: x.detach().numpy())

    def test_cpu(self):
        self._refuses(_MOVE, lambda m, x: x.cpu())
        self._refuses(_MOVE, lambda m, x: x.to("cpu"))
        self._refuses(_MOVE, lambda m, x: x.to(_HOST))

    def test_host_tensor(self):
        text = (
            "Expected an IPU tensor but got tensor(device=cpu, shape=[4], dtype=Float). Constant"
            ' tensors should be moved explicitly to the IPU, via cpu_tensor.to("ipu").'
        )
        self._refuses(text, lambda m, x: x + _HOST)
        self._refuses(text, lambda m, x: torch.zeros(4).copy_(_HOST))
        self._refuses("shape=[2], dtype=Long", lambda m, x: x[torch.LongTensor([0, 1])])

        def kept(m, x):
            m.kept = m.__dict__.get("kept", torch.zeros(4, device="cpu")) + 1
            return x + m.kept

        self._refuses("Expected an IPU tensor", kept)

    def test_dynamic_shapes(self):
        self._refuses(_DYNAMIC, lambda m, x: x.nonzero())
        self._refuses(_DYNAMIC, lambda m, x: x[x > 0])
        self._refuses("aten::masked_select", lambda m, x: x.masked_select(x > 0))
        self._refuses("aten::_unique2", lambda m, x: x.unique())

    def test_unsupported_operators_all_at_once(self):
        def forward(m, x):
            y = torch.sin(x @ m.w)
            return y.cos_() + torch.cos(x)

        supported = lambda name: not name.startswith(("sin", "cos"))
        with self.assertRaises(Error) as caught:
            _tape(forward, supported=supported)
        first, *lines = str(caught.exception).splitlines()
        self.assertEqual(
            first,
            "Unsupported ops found in compiled model: [aten::sin, aten::cos_, aten::cos]. Not all"
            " operations are supported yet by Graphcore's PyTorch compiler. If you believe any of"
            " these should be, please report this message to support@graphcore.ai.",
        )
        self.assertEqual(len(lines), 3)
        line = forward.__code__.co_firstlineno
        self.assertIn(f"aten::sin (by sin) in the model at {__file__}:{line + 1}", lines[0])
        self.assertIn(f":{line + 2}", lines[2])

    def test_unsupported_names_the_module(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh()))
        with self.assertRaises(Error) as caught:
            capture(model, (torch.randn(4, 4),), {}, supported=lambda name: "tanh" not in name)
        self.assertIn("aten::tanh (by tanh) in module '1.0'", str(caught.exception))

    def test_no_shape_known(self):
        self._refuses("[aten::sin, aten::multinomial]",
                      lambda m, x: x.sin().softmax(1).multinomial(2),
                      supported=lambda name: name != "sin.default")  # fmt: skip

    def test_operators_without_meta_kernels_do_not_end_the_capture(self):
        def state_after(refused, function):
            torch.manual_seed(1)
            self._refuses(refused, function, supported=lambda name: name != "sin.default")
            return torch.get_rng_state()

        drawn = state_after(
            "[aten::linalg_matrix_exp, aten::histc, aten::binomial, aten::sin]",
            lambda m, x: torch.linalg.matrix_exp(x[:2, :2]).sum()
            + torch.histc(x).cos()
            + torch.binomial(x, x)[0, 0]
            + x.sin().sum(),
        )
        self.assertTrue(torch.equal(drawn, state_after("[aten::sin]", lambda m, x: x.sin())))
        # One with very many elements is not run, and ends the capture.
        state_after("[aten::histc]", lambda m, x: torch.histc(x.repeat(1024, 1024)) + x.sin())

    def test_zero_sized(self):
        self._refuses("Zero-sized tensors are unsupported (Got shape [0, 4])", lambda m, x: x[:0])
        self._refuses("Zero-sized tensors", lambda m, x: torch.cat([torch.empty(0), x[0]]))

    def test_types(self):
        self._refuses("torch.bfloat16", lambda m, x: x.bfloat16())
        self._refuses("torch.complex64", lambda m, x: torch.fft.fft(x))

    def test_empty(self):
        self._refuses("Your compiled model is empty", lambda m, x: None)

    def test_one_hot(self):
        text = "OneHot num classes must be specified and must be constant."
        self._refuses(text, lambda m, x: F.one_hot(x.long()))

    def test_requires_grad_of_input(self):
        text = (
            "An input tensor to an IPU model can not have requires_grad set to True, however input"
            " 0 does: inputs.0\nYou can set requires_grad=True from within the model as an"
            " alternative, and return gradients as outputs to your model, if required."
        )
        self._refuses(text, lambda m, x: x.requires_grad_() @ m.w)

    def test_reassigned_buffer(self):
        def reassigns(m, x):
            m.y = m.y * 2
            return x + m.y

        def removes(m, x):
            del m.y
            return x

        self._refuses(
            "Buffer y is reassigned within the model when calling the forward method. This is not"
            " supported. Consider using self.y.copy_(src) to copy data from a source tensor, where"
            " src is the name of the source tensor.",
            reassigns,
            y=torch.zeros(4),
        )
        text = "Buffer y is removed from the model when calling the forward method."
        self._refuses(text, removes, y=torch.zeros(4))

    def test_values_without_history(self):
        """No element of a meta tensor is invented, whoever made it."""
        self._refuses("was made by no operator", lambda m, x: x + _UNKNOWN)
        self._refuses("was made by no operator", lambda m, x: recorder.active().constant(x))

    def test_write_in_backward(self):
        class Writes(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 1

            @staticmethod
            def backward(ctx, gradient):
                return gradient * ctx.saved_tensors[0].detach().mul_(2)

        self._refuses("A backward function writes into a tensor of forward",
                      lambda m, x: Writes.apply(x @ m.w))  # fmt: skip

    def test_nested(self):
        inner = lambda m, x: capture(m, (x,), {})
        self._refuses("models cannot be captured inside one another", inner)


_UNKNOWN = torch.empty(4, device="meta")


class TapeTest(unittest.TestCase):
    """What is on a tape."""

    def test_host_operators_run_once(self):
        tape = _tape(lambda m, x: x * (_HOST.sum() + 1))
        self.assertEqual(_operators(tape), ["mul.Tensor"])
        value = tape.records[0][1][1][0]
        self.assertIn((value, bytes(torch.tensor([7.0]).numpy())), tape.constants)

    def test_moved_to_device(self):
        self.assertEqual(len(_tape(lambda m, x: x + _HOST.to("ipu")).constants), 1)

    def test_device_reads_ipu(self):
        seen = []
        _tape(lambda m, x: seen.append((x.device, m.w.device, _HOST.device)) or x)
        self.assertEqual([str(d) for d in seen[0]], ["ipu:0", "ipu:0", "cpu"])
        self.assertEqual(_HOST.device.type, "cpu")

    def test_other_threads(self):
        """PyTorch is what it is in threads that do not capture."""
        seen = []

        def elsewhere():
            made = torch.zeros(2) + torch.tensor([1.0, 2.0])
            seen.extend((made.device.type, made.sum().item(), recorder.active()))

        def forward(m, x):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            return x + torch.zeros(4)

        tape = _tape(forward)
        self.assertEqual(seen, ["cpu", 3.0, None])
        self.assertEqual(_operators(tape), ["zeros.default", "add.Tensor"])

    def test_factory_warns_once(self):
        logger = logging.getLogger("poptorch::python")
        with self.assertLogs(logger, logging.WARNING) as logs:
            _tape(lambda m, x: x + torch.zeros(4) + torch.zeros(4))
        messages = [record.getMessage() for record in logs.records]
        self.assertEqual(messages, ["No device set in torch.zeros(): forcing to IPU"])

    def test_input_with_grad_warns(self):
        with self.assertLogs(logging.getLogger("poptorch::python"), logging.WARNING) as logs:
            _tape(lambda m, x: x, torch.randn(4, 4, requires_grad=True))
        self.assertIn("This tensor will be detached", logs.output[0])

    def test_losses(self):
        def forward(m, x):
            a = F.l1_loss(x @ m.w, x)
            b = nn.CrossEntropyLoss()(x @ m.w, torch.arange(4))
            return a + b

        tape = _tape(forward)
        self.assertEqual([name for _, name in tape.losses], ["l1_loss", "cross_entropy"])
        outputs = [record[2][0] for record in tape.records]
        self.assertTrue(all(value in outputs for value, _ in tape.losses))

    def test_scopes_and_lines(self):
        class Inner(nn.Module):
            def forward(self, x):
                return x.sin()

        model = nn.Sequential(Inner(), nn.ModuleDict({"a": Inner()})["a"])
        tape = capture(model, (torch.randn(3),), {})[0]
        self.assertEqual(tape.scopes, ["0", "1"])
        line = Inner.forward.__code__.co_firstlineno + 1
        self.assertEqual(tape.lines, [f"{os.path.basename(__file__)}:{line}"])

    def test_lines_of_excluded_files_are_no_source(self):
        def forward(x):
            return F.relu6(x)

        def line(*excludes):
            return capture(forward, (_HOST,), {}, excludes=excludes)[0].lines[-1]

        here = os.path.basename(__file__)
        self.assertEqual(line("elsewhere"), f"{here}:{forward.__code__.co_firstlineno + 1}")
        self.assertNotIn(here, line("elsewhere", here))

    def test_structure(self):
        def forward(m, x):
            return {"a": x, "b": (x + 1, [x.sum(), None, 3])}

        tape, structure = capture(_body(forward), (torch.randn(4, 4),), {})
        self.assertEqual(len(tape.results), 3)
        rebuilt = rebuild(structure, [10, 11, 12])
        self.assertEqual(rebuilt, {"a": 10, "b": (11, [12, None, 3])})
        tensors, again = flatten(rebuild(structure, [_HOST, _HOST, _HOST]))
        self.assertEqual((len(tensors), again), (3, structure))

    def test_nested_inputs(self):
        class Sum(nn.Module):
            def forward(self, pair, *, scale=2, named=None):
                return pair[0] + pair[1][0] * scale + named["x"]

        inputs = ((_HOST, [_HOST]),), {"named": {"x": _HOST}}
        tape = capture(Sum(), *inputs)[0]
        self.assertEqual([name for name, *_ in tape.inputs], ["pair.0", "pair.1.0", "named.x"])

    def test_function(self):
        tape, _ = capture(lambda a, b: a + b, (_HOST,), {"b": _HOST})
        self.assertEqual([name for name, *_ in tape.inputs], ["a", "b"])

    def test_marks(self):
        def forward(m, x):
            y = x @ m.w
            recorder.active().mark_checkpoint(y)
            recorder.active().mark_available_memory(y, 0.25)
            return y

        tape = _tape(forward)
        value = tape.records[0][2][0]
        self.assertEqual(tape.checkpoints, [value])
        self.assertEqual(tape.available_memory, [(value, 0.25)])

    def test_region(self):
        tape = _tape(lambda m, x: Sign.apply(x @ m.w))
        names = ["mm.default", "sign.default", "poptorch::region.default"]
        self.assertEqual(_operators(tape), names)
        (product,), (sign,) = tape.records[0][2], tape.records[1][2]
        values, inputs, number = tape.records[2][1]
        self.assertEqual((values, inputs, number), ([(sign, True)], [(product, False)], 0))
        name, cotangents, gradients, records = tape.regions[0]
        self.assertEqual((name, len(records), len(cotangents)), ("Sign", 1, 1))
        self.assertEqual(gradients, list(records[0][2]))

    def test_region_has_no_marks(self):
        def forward(m, x):
            y = x @ m.w

            def hook(gradient):
                recorder.active().mark_checkpoint(gradient)
                return gradient * F.mse_loss(gradient, y)

            y.register_hook(hook)
            return F.l1_loss(y, x)

        tape = _tape(forward)
        self.assertEqual([name for _, name in tape.losses], ["l1_loss"])
        self.assertEqual((len(tape.regions), tape.checkpoints), (1, []))

    def test_backward_hook_warns(self):
        model = nn.Linear(4, 4)
        model.register_full_backward_hook(lambda *_: None)
        with self.assertLogs(logging.getLogger("poptorch::python"), logging.WARNING) as logs:
            capture(model, (torch.randn(4, 4),), {})
        self.assertIn("Backward hooks of modules have no effect", logs.output[0])

    def test_recomputed_span(self):
        def forward(m, x):
            return torch.utils.checkpoint.checkpoint(lambda t: t.sin().cos(), x + 1) + 1

        self.assertEqual(_tape(forward).recomputed, [(1, 3)])

    def test_blocks(self):
        import capture_networks as networks

        inputs = torch.randn(1, 1, 28, 28), torch.zeros(1).long()
        with _block_state.capturing(poptorch.PipelinedExecution()):
            tape = capture(networks.Digits(), inputs, {})[0]
        self.assertEqual(tape.blocks, [(i, i, -1) for i in range(4)])
        order = [record[5] for record in tape.records]
        self.assertEqual(order, sorted(order))
        self.assertNotIn(-1, order)

if __name__ == "__main__":
    unittest.main()
