"""Models of PyTorch on IPUs: their losses, weights and outputs against eager PyTorch."""

import copy
import os
import signal
import threading
import unittest

import torch
from torch import nn
from torch.nn import functional as F

# On a POD, the test's environment says 0.
os.environ.setdefault("POPTORCH_IPU_MODEL", "1")

import poptorch  # pylint: disable=wrong-import-position

# Sums in another order differ by the last bits of float32.
_TOLERANCES = {"rtol": 1e-4, "atol": 1e-5}


def options(**values) -> poptorch.Options:
    """Options without a progress bar: deviceIterations=2, …"""
    result = poptorch.Options().showCompilationProgressBar(False)
    for name, value in values.items():
        getattr(result, name)(value)
    return result


class Mnist(nn.Module):
    """The network of the tutorials, smaller: two convolutions and two linear layers."""

    def __init__(self, blocks: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.conv2 = nn.Conv2d(4, 8, 3)
        self.fc1 = nn.Linear(8 * 25, 16)
        self.fc2 = nn.Linear(16, 10)
        self.loss = nn.CrossEntropyLoss()
        self.blocks = blocks

    def features(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return x.flatten(1)

    def head(self, x):
        return self.fc2(torch.relu(self.fc1(x)))

    def forward(self, x, labels=None):
        if self.blocks:
            with poptorch.Block("features", ipu_id=0):
                x = self.features(x)
            with poptorch.Block("head", ipu_id=1):
                x = self.head(x)
                return (x, self.loss(x, labels)) if labels is not None else x
        x = self.head(self.features(x))
        return (x, self.loss(x, labels)) if labels is not None else x


class Digits(torch.utils.data.Dataset):
    """Images with a pattern of their label."""

    def __init__(self, count: int = 64) -> None:
        generator = torch.Generator().manual_seed(3)
        patterns = torch.randn(10, 1, 28, 28, generator=generator)
        self.labels = torch.randint(0, 10, (count,), generator=generator)
        noise = torch.randn(count, 1, 28, 28, generator=generator)
        self.images = patterns[self.labels] + 0.5 * noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def train_eagerly(model, batches, optimizer, accumulation: int = 1):
    """The losses of all micro-batches."""
    losses = []
    for number, (images, labels) in enumerate(batches):
        _, loss = model(images, labels)
        (loss / accumulation).backward()
        losses.append(loss.detach())
        if (number + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    return torch.stack(losses)


def micro_batches(loader, batch_size: int):
    """The micro-batches of the batches of calls."""
    for images, labels in loader:
        yield from zip(images.split(batch_size), labels.split(batch_size))


class TrainingTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def train(self, model, opts, optimizer, batch_size=4):
        """Compares an epoch with eager PyTorch; returns the executor."""
        reference = copy.deepcopy(model)
        accumulation = opts.Training.gradient_accumulation
        opts.outputMode(poptorch.OutputMode.All)
        loader = poptorch.DataLoader(opts, Digits(), batch_size=batch_size)
        expected = train_eagerly(
            reference,
            micro_batches(loader, batch_size),
            optimizer(reference.parameters()),
            accumulation * opts.replication_factor,
        )
        first = {name: value.clone() for name, value in model.state_dict().items()}
        executor = poptorch.trainingModel(model, opts, optimizer(model.parameters()))
        losses = torch.cat([executor(images, labels)[1].reshape(-1) for images, labels in loader])
        torch.testing.assert_close(losses, expected, **_TOLERANCES)
        for name, parameter in reference.named_parameters():
            ours = dict(model.named_parameters())[name].detach()
            self.assertFalse(torch.equal(ours, first[name]), name)
            torch.testing.assert_close(ours, parameter.detach(), msg=name, rtol=1e-3, atol=1e-4)
        return executor

    def test_mnist(self):
        sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.05)
        self.train(Mnist(), options(), sgd).destroy()

    def test_device_iterations(self):
        sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.05)
        self.train(Mnist(), options(deviceIterations=4), sgd).destroy()

    def test_accumulation_and_replicas(self):
        sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
        opts = options(replicationFactor=2)
        opts.Training.gradientAccumulation(2)
        self.train(Mnist(), opts, sgd).destroy()

    def test_adam(self):
        adam = lambda parameters: torch.optim.AdamW(parameters, lr=0.002)
        self.train(Mnist(), options(), adam).destroy()

    def test_pipeline(self):
        sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
        opts = options()
        opts.Training.gradientAccumulation(4)
        opts._Popart.set("autoRecomputation", 0)
        self.train(Mnist(blocks=True), opts, sgd, batch_size=2).destroy()

    def test_sharded(self):
        sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.05)
        opts = options().setExecutionStrategy(poptorch.ShardedExecution())
        self.train(Mnist(blocks=True), opts, sgd).destroy()

    def test_batch_norm_statistics(self):
        torch.manual_seed(0)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.fc = nn.BatchNorm1d(3), nn.Linear(3, 1)

            def forward(self, x, y):
                return nn.functional.mse_loss(self.fc(self.norm(x)), y)

        model = Model()
        reference = copy.deepcopy(model)
        x, y = torch.randn(8, 3) * 3 + 1, torch.randn(8, 1)
        executor = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), 0.1))
        optimizer = torch.optim.SGD(reference.parameters(), 0.1)
        for _ in range(3):
            loss = reference(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.testing.assert_close(executor(x, y), loss.detach(), **_TOLERANCES)
        self.assertEqual(model.norm.num_batches_tracked.item(), 3)
        torch.testing.assert_close(
            model.norm.running_var.detach(), reference.norm.running_var, **_TOLERANCES
        )
        executor.destroy()


class WeightsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2)
        self.x, self.y = torch.randn(4, 3), torch.randn(4, 2)

    def training(self, opts=None):
        inner = self.model

        class WithLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = inner

            def forward(self, x, y):
                return nn.functional.mse_loss(self.inner(x), y)

        model = WithLoss()
        return poptorch.trainingModel(
            model, opts or options(), torch.optim.SGD(model.parameters(), lr=0.5)
        )

    def test_host_sees_trained_weights(self):
        before = self.model.weight.detach().clone()
        executor = self.training()
        executor(self.x, self.y)
        self.assertEqual(type(self.model.weight).__name__, "PoptorchParameter")
        self.assertFalse(torch.equal(self.model.weight.detach(), before))
        self.assertIs(type(self.model.state_dict()["weight"]), torch.Tensor)
        executor.destroy()
        self.assertIs(type(self.model.weight), nn.Parameter)

    def test_inference_uses_trained_weights(self):
        training = self.training()
        inference = poptorch.inferenceModel(self.model, options())
        for _ in range(2):
            training(self.x, self.y)
            output = inference(self.x)
            torch.testing.assert_close(output, self.model(self.x).detach(), **_TOLERANCES)
        training.destroy()
        inference.destroy()

    def test_models_keep_the_mode_that_they_were_wrapped_in(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 2)

            def forward(self, x, y=None):
                out = self.fc(x)
                return nn.functional.mse_loss(out, y) if self.training else out

        model = Model().eval()
        inference = poptorch.inferenceModel(model, options())
        model.train()
        training = poptorch.trainingModel(model, options())
        model.eval()
        loss = nn.functional.mse_loss(model(self.x), self.y).detach()
        torch.testing.assert_close(training(self.x, self.y), loss, **_TOLERANCES)
        model.train()
        output = inference(self.x)
        torch.testing.assert_close(output, model.fc(self.x).detach(), **_TOLERANCES)
        self.assertIs(training.model, model)
        training.destroy()
        inference.destroy()

    def test_host_changes_weights(self):
        training = self.training()
        training(self.x, self.y)
        self.model.load_state_dict({"weight": torch.zeros(2, 3), "bias": torch.zeros(2)})
        loss = training(self.x, self.y)
        torch.testing.assert_close(loss, (self.y**2).mean(), **_TOLERANCES)
        training.destroy()

    def test_detach_and_attach(self):
        training = self.training()
        first = training(self.x, self.y)
        training.detachFromDevice()
        self.assertFalse(training.isAttachedToDevice())
        weights = self.model.weight.detach().clone()
        training.attachToDevice()
        second = training(self.x, self.y)
        self.assertLess(second, first)
        self.assertFalse(torch.equal(self.model.weight.detach(), weights))
        training.destroy()

    def test_an_error_of_the_program_leaves_the_model(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(3, 4)

            def forward(self, x, labels):
                return nn.functional.cross_entropy(self.fc(x), labels)

        model = Model()
        training = poptorch.trainingModel(model, options(), torch.optim.SGD(model.parameters(), 0.1))
        first = training(self.x, torch.tensor([0, 1, 2, 3]))
        with self.assertRaisesRegex(poptorch.Error, "label 4 in row 1 is outside 0 to 3"):
            training(self.x, torch.tensor([0, 4, 2, 3]))
        weights = model.fc.weight.detach().clone()
        second = training(self.x, torch.tensor([0, 1, 2, 3]))
        self.assertLess(second, first)
        self.assertFalse(torch.equal(model.fc.weight.detach(), weights))
        training.destroy()

    def test_control_c_leaves_the_weights(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(512, 512))

            def forward(self, x):
                return poptorch.identity_loss((self.w @ self.w).mean() * x, "sum")

        model = Model()
        opts = options(deviceIterations=20000)
        training = poptorch.trainingModel(model, opts, torch.optim.SGD(model.parameters(), 1e-6))
        x = torch.ones(20000)
        training.compile(x)
        interrupt = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        interrupt.start()
        with self.assertRaises(KeyboardInterrupt):
            training(x)
        interrupt.join()
        self.assertFalse(training.isAttachedToDevice())
        self.assertTrue(bool(torch.isfinite(model.w).all()))
        training.destroy()

    def test_set_optimizer(self):
        training = self.training()
        training(self.x, self.y)
        training.setOptimizer(torch.optim.SGD(training.model.parameters(), lr=0.0))
        weights = self.model.weight.detach().clone()
        training(self.x, self.y)
        torch.testing.assert_close(self.model.weight.detach(), weights, rtol=0, atol=0)
        training.destroy()

    def test_wrapping_twice(self):
        training = self.training()
        with self.assertRaisesRegex(RuntimeError, "has already been wrapped"):
            poptorch.trainingModel(training.model, options())
        training.model.destroy()
        again = poptorch.trainingModel(training.model, options())
        again.destroy()


class RandomNumbersTest(unittest.TestCase):
    def test_state_is_restored(self):
        model = poptorch.inferenceModel(torch.bernoulli, options().randomSeed(7))
        x = torch.full((64,), 0.5)
        first = model(x)
        state = model.rng_state
        self.assertEqual(state[0], 7)
        second = model(x)
        self.assertFalse(torch.equal(first, second))
        model.rng_state = state
        self.assertTrue(torch.equal(model(x), second))
        model.detachFromDevice()
        model.attachToDevice()
        third = model(x)
        self.assertFalse(torch.equal(third, first) or torch.equal(third, second))
        model.destroy()


class CallsTest(unittest.TestCase):
    def test_inference_has_no_dropout(self):
        class Model(nn.Module):
            """Dropouts of each kind, in training mode."""

            def __init__(self):
                super().__init__()
                self.dropouts = nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout())
                self.scale = nn.Parameter(torch.tensor(2.0))

            def forward(self, x):
                y = torch.dropout(self.dropouts(x) * self.scale, 0.5, True)
                return poptorch.identity_loss(F.dropout(y, 0.5, inplace=True), "none")

        x = torch.ones(2, 8, 4, 4)
        torch.testing.assert_close(poptorch.inferenceModel(Model(), options())(x), x * 2)
        executor = poptorch.trainingModel(Model(), options().outputMode(poptorch.OutputMode.All))
        self.assertGreater((executor(x) == 0).sum(), 32)
        executor.destroy()

    def test_structure_of_results(self):
        class Model(nn.Module):
            def forward(self, x, pair, *, scale=1.0):
                return {"sum": x + pair[0], "rest": [pair[1] * scale, x]}

        model = poptorch.inferenceModel(Model(), options(deviceIterations=2))
        x, y, z = torch.arange(4.0), torch.ones(4), torch.arange(4, dtype=torch.int64)
        result = model(x, (y, z), scale=2)
        torch.testing.assert_close(result["sum"], x + y)
        torch.testing.assert_close(result["rest"][0], (z * 2).int())
        torch.testing.assert_close(result["rest"][1], x)
        model.destroy()

    def test_output_modes(self):
        class Model(nn.Module):
            def forward(self, x):
                return x * 2, x.sum()

        x = torch.arange(8.0)
        for mode, doubled, total in (
            (poptorch.OutputMode.All, x * 2, torch.tensor([1.0, 5.0, 9.0, 13.0])),
            (poptorch.OutputMode.Final, torch.tensor([12.0, 14.0]), torch.tensor(13.0)),
            (poptorch.OutputMode.Sum, torch.tensor([24.0, 32.0]), torch.tensor(28.0)),
        ):
            opts = options(deviceIterations=4).outputMode(mode)
            model = poptorch.inferenceModel(Model(), opts)
            result = model(x)
            torch.testing.assert_close(result[0], doubled, msg=str(mode))
            torch.testing.assert_close(result[1], total, msg=str(mode))
            model.destroy()

    def test_inputs_are_written(self):
        class Model(nn.Module):
            def forward(self, x):
                x += 1
                return x.sum()

        model = poptorch.inferenceModel(Model(), options())
        x = torch.zeros(3)
        self.assertEqual(model(x), 3)
        torch.testing.assert_close(x, torch.ones(3))
        model.destroy()

    def test_other_shapes(self):
        model = poptorch.inferenceModel(nn.ReLU(), options())
        model(torch.zeros(3))
        with self.assertRaisesRegex(poptorch.Error, "Shape mismatch for input: expected"):
            model(torch.zeros(4))
        with self.assertRaisesRegex(AssertionError, "Invalid batch dimension"):
            poptorch.inferenceModel(nn.ReLU(), options(deviceIterations=2))(torch.zeros(3))
        model.destroy()

    def test_errors(self):
        training = poptorch.trainingModel(nn.Linear(2, 2), options())
        with self.assertRaisesRegex(poptorch.Error, "Couldn't find a loss in graph!"):
            training(torch.zeros(1, 2))
        training.destroy()
        opts = options()
        opts.Training.gradientAccumulation(2)
        with self.assertRaisesRegex(poptorch.Error, "leave it as its default value"):
            poptorch.inferenceModel(nn.ReLU(), opts)


if __name__ == "__main__":
    unittest.main()
