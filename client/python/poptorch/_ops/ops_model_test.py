"""poptorch.ops in models on the IPUModel: values, training, prints by output mode."""

import contextlib
import io
import os
import unittest

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

os.environ.setdefault("POPTORCH_IPU_MODEL", "1")

import poptorch  # pylint: disable=wrong-import-position

_MODES = poptorch.MatMulSerializationMode


def options(**values) -> poptorch.Options:
    """Options without a progress bar: deviceIterations=2, …"""
    result = poptorch.Options().showCompilationProgressBar(False)
    for name, value in values.items():
        getattr(result, name)(value)
    return result


class Body(nn.Module):
    """A module with a weight, whose forward is a function."""

    def __init__(self, body) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.body = body

    def forward(self, *inputs):
        return self.body(self, *inputs)


class OpsModelTest(unittest.TestCase):
    def run_once(self, forward, *inputs, opts=None):
        executor = poptorch.inferenceModel(Body(forward), opts or options())
        self.addCleanup(executor.destroy)
        return executor(*inputs)

    def check(self, forward, *inputs, expected=None):
        """Compares inference with the eager result, or that of another forward."""
        got = self.run_once(forward, *(tensor.clone() for tensor in inputs))
        wanted = Body(expected or forward)(*(tensor.clone() for tensor in inputs))
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-4, atol=1e-5)

    def check_training(self, forward, *inputs):
        """Compares a training step with the eager one."""
        model, reference = Body(forward), Body(forward)
        sgd = lambda m: torch.optim.SGD(m.parameters(), lr=0.1)
        executor = poptorch.trainingModel(model, options(), sgd(model))
        self.addCleanup(executor.destroy)
        loss = executor(*inputs)
        optimizer = sgd(reference)
        expected = reference(*inputs)
        expected.backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
        weight = model.weight.detach()
        torch.testing.assert_close(weight, reference.weight.detach(), rtol=1e-4, atol=1e-5)

    # --- Products.

    def test_serialized_matmul(self):
        x = torch.randn(6, 4)
        for mode in _MODES:
            self.check(lambda m, x: poptorch.serializedMatMul(x, m.weight.t(), mode, 2), x)

        def loss(m, x):
            y = poptorch.serializedMatMul(x, m.weight.t(), _MODES.ReducingDim, 2)
            y = poptorch.serializedMatMul(y, m.weight, _MODES.InputChannels, 3)
            y = poptorch.serializedMatMul(y, m.weight, _MODES.OutputChannels, 4)
            return poptorch.identity_loss(y.tanh(), "mean")

        self.check_training(loss, x)

    def test_serialized_matmul_keeps_precision(self):
        # The sum of parts that are each rounded to float16 loses the second one.
        left = torch.tensor([[2048.0, 1.0, 1.0, 0.0]]).half()
        right = torch.ones(4, 1).half()

        def product(keep):
            return lambda m, x, y: poptorch.serializedMatMul(x, y, _MODES.ReducingDim, 4, keep)

        self.assertEqual(float(self.run_once(product(False), left, right)), 2048)
        self.assertEqual(float(self.run_once(product(True), left, right)), 2050)

    def test_available_memory(self):
        x = torch.randn(64, 4)
        for share in (0, 0.01, 1):
            self.check(lambda m, x: poptorch.set_available_memory(x @ m.weight, share), x)

    def test_multi_conv(self):
        image, kernels = torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3)

        def forward(m, image, kernels):
            context = poptorch.MultiConv().availableMemoryProportions(0.3)
            with context.partialsTypes([torch.half, torch.float]):
                conv = torch.nn.functional.conv2d
                return conv(image, kernels) + conv(image.abs(), kernels)

        self.check(forward, image, kernels)
        half = self.run_once(forward, image.half(), kernels.half())
        expected = forward(None, image, kernels)
        torch.testing.assert_close(half.float(), expected, rtol=2e-2, atol=5e-2)

    # --- Slices and loops.

    def test_dynamic_slice(self):
        x = torch.arange(32.0).reshape(8, 4)
        opts = options()
        for dim, start, size, step in ((0, 3, 4, 1), (0, 6, 4, 1), (0, 2, 4, 3), (1, 1, 2, 1)):
            forward = lambda m, x, i: poptorch.dynamic_slice(x, dim, i, size, step)
            executor = poptorch.inferenceModel(Body(forward), opts)
            # The place is not part of the compiled model.
            for place in (start, 0):
                got = executor(x, torch.tensor([place]))
                self.assertTrue(torch.equal(got, forward(None, x, torch.tensor([place]))))
            executor.destroy()

    def test_dynamic_update(self):
        x, part = torch.randn(8, 4), torch.randn(3, 4)
        for start in (0, 4, 6):
            forward = lambda m, x, part, i: poptorch.dynamic_update(x, part, 0, i, 3)
            got = poptorch.inferenceModel(Update(), options())(x, part, torch.tensor([start]))
            self.assertTrue(torch.equal(got, forward(None, x, part, torch.tensor([start]))))

    def test_slices_train(self):
        def loss(m, x, i):
            y = poptorch.dynamic_slice(x @ m.weight, 0, i, 4, 1)
            y = poptorch.dynamic_update(y, m.weight[:2], 0, i, 2)
            return poptorch.identity_loss(y.sin(), "sum")

        self.check_training(loss, torch.randn(8, 4), torch.tensor([6]))

    def test_loop(self):
        def forward(m, x):
            y, z = poptorch.for_loop(3, lambda a, b: (a @ m.weight, b + a), [x, x * 0])
            return y + z

        self.check(forward, torch.randn(2, 4))

    def test_loop_takes_values(self):
        def body(y):
            y += 1
            return y

        def forward(m, x):
            x += 1
            z = poptorch.for_loop(3, body, [x])[0]
            x += 1
            return z

        x = torch.ones(1, 5, dtype=torch.int32)
        self.assertEqual(self.run_once(forward, x).tolist(), [[5] * 5])
        self.assertEqual(x.tolist(), [[3] * 5])

    def test_loop_does_not_train(self):
        forward = lambda m, x: poptorch.identity_loss(
            poptorch.for_loop(2, lambda t: t @ m.weight, [x])[0], "sum"
        )
        model = Body(forward)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        executor = poptorch.trainingModel(model, options(), sgd)
        with self.assertRaisesRegex(poptorch.Error, "only supported in inference"):
            executor(torch.randn(2, 4))
        executor.destroy()

    # --- Recomputation.

    def test_recomputation(self):
        def loss(m, x):
            y = poptorch.recomputationCheckpoint(torch.tanh(x @ m.weight))
            y = checkpoint(lambda t: torch.sin(torch.tanh(t) * 2), y)
            y = checkpoint(lambda t: torch.cos(t @ m.weight), y)
            return poptorch.identity_loss(y, "mean")

        self.check_training(loss, torch.randn(8, 4))

    # --- Prints.

    def printed(self, opts, rows, training=False):
        """What a call prints, and what it returns: x + 1 and the loss of each micro-batch."""

        def forward(m, x):
            y = poptorch.ipu_print_tensor(x + 1, "y", print_gradient=False, digits=2)
            return y, poptorch.identity_loss(y * m.weight[0, 0] * 0 + y, "sum")

        x = torch.arange(rows, dtype=torch.float32)
        model = Body(forward)
        if training:
            sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            executor = poptorch.trainingModel(model, opts, sgd)
        else:
            executor = poptorch.inferenceModel(model, opts)
        self.addCleanup(executor.destroy)
        with contextlib.redirect_stderr(io.StringIO()) as text:
            y, loss = executor(x)
        return text.getvalue(), y.tolist(), loss.tolist()

    def test_prints_each_micro_batch(self):
        text, y, loss = self.printed(options(deviceIterations=2), 4)
        self.assertEqual(text, "y: (1.0, 2.0)\ny: (3.0, 4.0)\n")
        self.assertEqual((y, loss), ([1, 2, 3, 4], [3, 7]))

    def test_prints_whatever_the_output_mode(self):
        every = "".join(f"y: ({i + 1}.0)\n" for i in range(8))
        modes = poptorch.OutputMode
        for mode, y, loss in (
            ((modes.All,), [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7, 8]),
            ((modes.Final,), [7, 8], [7, 8]),
            ((modes.Sum,), [16, 20], [16, 20]),
            ((modes.EveryN, 2), [5, 6, 7, 8], [5, 6, 7, 8]),
        ):
            opts = options(deviceIterations=2, replicationFactor=2).outputMode(*mode)
            opts.Training.gradientAccumulation(2)
            self.assertEqual(self.printed(opts, 8, training=True), (every, y, loss), mode)

    def test_outputs_without_prints_are_the_same(self):
        for mode in (("Final",), ("Sum",), ("EveryN", 2)):
            mode = (getattr(poptorch.OutputMode, mode[0]), *mode[1:])
            results = []
            for show in (lambda x: x, lambda x: poptorch.ipu_print_tensor(x, "y")):
                forward = lambda m, x: (show(x @ m.weight), x.sum())
                opts = options(deviceIterations=4).outputMode(*mode)
                with contextlib.redirect_stderr(io.StringIO()):
                    torch.manual_seed(3)
                    results.append(self.run_once(forward, torch.randn(8, 4), opts=opts))
            for plain, shown in zip(*results):
                self.assertTrue(torch.equal(plain, shown), mode)

    def test_written_inputs_follow_the_output_mode(self):
        def forward(m, x):
            x += poptorch.ipu_print_tensor(x + 1)
            return x.sum()

        x = torch.zeros(4)
        opts = options(deviceIterations=2).outputMode(poptorch.OutputMode.Final)
        with contextlib.redirect_stderr(io.StringIO()):
            self.run_once(forward, x, opts=opts)
        self.assertEqual(x.tolist(), [0, 0, 1, 1])

    def test_gradients_are_not_printed_and_it_says_so(self):
        forward = lambda m, x: poptorch.identity_loss(
            poptorch.ipu_print_tensor(x @ m.weight, "product"), "sum"
        )
        with contextlib.redirect_stderr(io.StringIO()) as text, self.assertLogs(
            "poptorch::python", "WARNING"
        ) as logs:
            self.check_training(forward, torch.ones(1, 4))
        self.assertIn("the gradient of 'product' is not printed", logs.output[0])
        self.assertIn("product: (", text.getvalue())

    # --- Calls of the host.

    def test_host_call(self):
        calls = []

        def on_host(x, y):
            calls.append(x.clone())
            return x * torch.from_numpy(y.numpy()), (x + y).sum()

        host = poptorch.CPU(on_host, "host")

        def forward(m, x, y):
            product, total = host(x @ m.weight, y)
            return product * 3, total, x + total

        executor = poptorch.inferenceModel(Body(forward), options(deviceIterations=2))
        self.addCleanup(executor.destroy)
        for _ in range(2):
            x, y = torch.randn(4, 4), torch.randn(4, 4)
            calls.clear()
            got = executor(x, y)
            self.assertEqual(len(calls[-2:]), 2)
            parts = [Body(forward)(*each) for each in zip(x.split(2), y.split(2))]
            expected = [torch.cat([each.reshape(-1, *each.shape[1:]) for each in all_of])
                        for all_of in zip(*parts)]  # fmt: skip
            for tensor, wanted in zip(got, expected):
                torch.testing.assert_close(tensor, wanted.detach(), rtol=1e-4, atol=1e-5)

    def test_host_calls_in_a_row(self):
        double = poptorch.CPU(lambda x: x * 2, "double")
        layer = nn.Linear(4, 3)
        dense = poptorch.CPU(layer, "dense")

        def forward(m, x):
            return dense(double(double(x)) + m.weight[0]), x

        x = torch.randn(2, 4)
        got, same = self.run_once(forward, x)
        expected = layer(4 * x + Body(forward).weight[0]).detach()
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        self.assertTrue(torch.equal(same, x))

    def test_host_call_with_integers_and_output_modes(self):
        host = poptorch.CPU(lambda x: x + torch.ones_like(x), "one")
        forward = lambda m, x: host(x * 2) * 2
        x = torch.arange(8)
        for mode, expected in (
            ((poptorch.OutputMode.All,), (x * 2 + 1) * 2),
            ((poptorch.OutputMode.Final,), ((x * 2 + 1) * 2)[4:]),
        ):
            opts = options(deviceIterations=2, replicationFactor=2).outputMode(*mode)
            got = self.run_once(forward, x, opts=opts)
            self.assertEqual(got.dtype, torch.int32)
            self.assertEqual(got.tolist(), expected.tolist())

    def test_host_call_keeps_state_and_writes_inputs(self):
        class Counter(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("count", torch.zeros(2))
                self.host = poptorch.CPU(lambda x: x + 1, "host")

            def forward(self, x):
                y = self.host(x)
                self.count += 1
                x += y
                return y * self.count

        model = Counter()
        executor = poptorch.inferenceModel(model, options())
        self.addCleanup(executor.destroy)
        x = torch.zeros(2)
        self.assertEqual(executor(x).tolist(), [1, 1])
        self.assertEqual(executor(x).tolist(), [4, 4])
        self.assertEqual(x.tolist(), [3, 3])
        executor.copyWeightsToHost()
        self.assertEqual(model.count.tolist(), [2, 2])
        executor.detachFromDevice()
        self.assertEqual(executor(x).tolist(), [12, 12])

    def test_host_call_must_not_change_its_results(self):
        lengths = [1, 1]

        def on_host(x):
            return x[: lengths.pop()]

        host = poptorch.CPU(on_host, "odd")
        lengths[0] = 2  # when it runs
        text = r"poptorch.CPU\('odd'\) returned .*\[2\], must return .*\[1\], as when the model was"
        with self.assertRaisesRegex(poptorch.Error, text):
            self.run_once(lambda m, x: host(x + 1) * 2, torch.ones(4))

    # --- Compilation.

    def test_hooks(self):
        calls = []
        handles = [
            poptorch.registerPreCompileHook(lambda: calls.append("before")),
            poptorch.registerPreCompileHook(lambda: calls.append("again")),
            poptorch.registerPostCompileHook(lambda: calls.append("after")),
        ]
        handles[1].remove()
        try:
            self.run_once(lambda m, x: x + 1, torch.ones(2))
            self.assertEqual(calls, ["before", "after"])
        finally:
            for handle in handles:
                handle.remove()
        self.run_once(lambda m, x: x + 1, torch.ones(2))
        self.assertEqual(calls, ["before", "after"])

    def test_overlap(self):
        def forward(m, x):
            x = poptorch.set_overlap_for_input(x, poptorch.OverlapMode.OverlapDeviceIterationLoop)
            y = x @ m.weight
            return poptorch.set_overlap_for_output(y, poptorch.OverlapMode.OverlapAccumulationLoop)

        x = torch.randn(4, 4)
        with self.assertRaisesRegex(poptorch.Error, "Overlapped IO is not supported"):
            self.run_once(forward, x)
        opts = options().setExecutionStrategy(poptorch.ShardedExecution())
        opts.TensorLocations.numIOTiles(32)
        with self.assertLogs("poptorch::python", "WARNING"):
            got = self.run_once(forward, x, opts=opts)
        torch.testing.assert_close(got, x @ Body(forward).weight.detach())


class Update(nn.Module):
    """A dynamic update."""

    def forward(self, x, part, start):
        return poptorch.dynamic_update(x, part, 0, start, 3)


if __name__ == "__main__":
    unittest.main()
