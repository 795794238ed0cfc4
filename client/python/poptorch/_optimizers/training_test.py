"""Weights after training with the optimisers of poptorch.optim, against their formulas.

The references are written here in PyTorch, as the documentation of PopTorch has the formulas, and
work on gradients of eager PyTorch.
"""

import copy
import math
import os
import unittest
from typing import Callable, Dict, List

import torch
from torch import nn

os.environ.setdefault("POPTORCH_IPU_MODEL", "1")

import poptorch  # pylint: disable=wrong-import-position

_UPDATES = 4
_ROWS = 4  # of a micro-batch


def rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype).float()


class Reference:
    """An optimiser of one parameter.

    Attributes:
        state: what it keeps between updates, by names of its own.
    """

    def __init__(self, step: Callable, **hyper) -> None:
        """
        Args:
            step: takes the reference, the parameter and its gradient, and gives the new parameter.
            hyper: the attributes that it has.
        """
        self._step = step
        self.state: Dict[str, torch.Tensor] = {}
        self.updates = 0
        self.__dict__.update(hyper)

    def keep(self, name: str, first: torch.Tensor, update: Callable, dtype=torch.float32):
        """The state of this name, updated and rounded to its type."""
        self.state[name] = rounded(update(self.state.get(name, first)), dtype)
        return self.state[name]

    def step(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The parameter after an update."""
        self.updates += 1
        return self._step(self, parameter, gradient)


def sgd(ref: Reference, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    u = g + ref.weight_decay * w
    update = lambda v: ref.momentum * v + (1 - ref.dampening) * u
    v = ref.keep("v", torch.zeros_like(w), update, ref.velocity_type)
    return w - ref.lr * (u + ref.momentum * v if ref.nesterov else v)


def combined_sgd(ref: Reference, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    share = (1 - ref.dampening) * ref.velocity_scaling
    decay = share * ref.weight_decay
    v = ref.keep("v", decay * w, lambda v: v + share * g)
    w = w - ref.lr / ref.velocity_scaling * v
    ref.keep("v", None, lambda v: ref.momentum * v + decay * w)
    return w


def moments(ref: Reference, u: torch.Tensor) -> torch.Tensor:
    """The step of Adam."""
    none = torch.zeros_like(u)
    m = ref.keep("m", none, lambda m: ref.beta1 * m + (1 - ref.beta1) * u, ref.first_type)
    v = ref.keep("v", none, lambda v: ref.beta2 * v + (1 - ref.beta2) * u * u, ref.second_type)
    if ref.bias_correction:
        m = m / (1 - ref.beta1**ref.updates)
        v = v / (1 - ref.beta2**ref.updates)
    return m / (v.sqrt() + ref.eps)


def adam(ref: Reference, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return w - ref.lr * moments(ref, g + ref.weight_decay * w)


def adamw(ref: Reference, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return w - ref.lr * (moments(ref, g) + ref.weight_decay * w)


def lamb(ref: Reference, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    x = moments(ref, g) + ref.weight_decay * w
    norm, step = min(w.norm().item(), ref.max_weight_norm), x.norm().item()
    return w - ref.lr * (norm / step if norm > 0 and step > 0 else 1) * x


def rmsprop(ref: Reference, w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    u = g + ref.weight_decay * w
    none, first = torch.zeros_like(w), torch.full_like(w, 1.0 if ref.tf else 0.0)
    s = ref.keep("s", first, lambda s: ref.alpha * s + (1 - ref.alpha) * u * u, ref.second_type)
    if ref.centered:
        update = lambda c: ref.alpha * c + (1 - ref.alpha) * u
        s = s - ref.keep("c", none, update, ref.first_type) ** 2
    x = u / (s + ref.eps).sqrt() if ref.tf else u / (s.sqrt() + ref.eps)
    if ref.tf:
        return w - ref.keep("q", none, lambda q: ref.momentum * q + ref.lr * x, ref.first_type)
    return w - ref.lr * ref.keep("q", none, lambda q: ref.momentum * q + x, ref.first_type)


_SGD = {
    "lr": 0.1,
    "momentum": 0.9,
    "dampening": 0.5,
    "weight_decay": 0.1,
    "nesterov": False,
    "velocity_type": torch.float32,
    "velocity_scaling": 1.0,
}
_MOMENTS = {
    "lr": 0.05,
    "beta1": 0.75,
    "beta2": 0.875,
    "eps": 1e-3,
    "weight_decay": 0.1,
    "bias_correction": True,
    "first_type": torch.float32,
    "second_type": torch.float32,
    "max_weight_norm": math.inf,
}
_RMSPROP = {
    "lr": 0.05,
    "alpha": 0.75,
    "eps": 1e-2,
    "weight_decay": 0.1,
    "momentum": 0.0,
    "centered": False,
    "tf": False,
    "first_type": torch.float32,
    "second_type": torch.float32,
}


class Model(nn.Module):
    """Two layers and the mean square of their error."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.hidden = nn.Linear(6, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x, wanted):
        y = self.head(torch.tanh(self.hidden(x)))
        return poptorch.identity_loss((4 * (y - wanted)) ** 2, reduction="mean")


class OptimizerTest(unittest.TestCase):
    def setUp(self):
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(_UPDATES, 12, 6, generator=generator)
        self.wanted = torch.randn(_UPDATES, 12, 3, generator=generator)

    def expected(
        self, make: Callable, accumulation: int, half_accumulators: bool = False
    ) -> List[torch.Tensor]:
        """The parameters after training.

        Args:
            make: gives a Reference.
            accumulation: micro-batches of an update.
            half_accumulators: means of gradients are rounded to float16 after each micro-batch.
        """
        model = Model()
        references = [make() for _ in model.parameters()]
        for update in range(_UPDATES):
            means = [torch.zeros_like(p) for p in model.parameters()]
            for number in range(accumulation):
                rows = slice(number * _ROWS, (number + 1) * _ROWS)
                loss = model(self.x[update][rows], self.wanted[update][rows])
                gradients = torch.autograd.grad(loss, list(model.parameters()))
                for mean, gradient in zip(means, gradients):
                    mean += (gradient - mean) / (number + 1)
                    if half_accumulators:
                        mean.copy_(rounded(mean, torch.float16))
            with torch.no_grad():
                for reference, parameter, mean in zip(references, model.parameters(), means):
                    parameter.copy_(reference.step(parameter, mean))
        return [p.detach() for p in model.parameters()]

    def trained(self, optimizer: Callable, accumulation: int, replicas: int = 1) -> Model:
        """The model after training on IPUs; the state of its optimiser is in `self.state`."""
        model = Model()
        opts = poptorch.Options().showCompilationProgressBar(False)
        opts.Training.gradientAccumulation(accumulation // replicas)
        opts.replicationFactor(replicas)
        made = optimizer(model.parameters())
        training = poptorch.trainingModel(model, opts, made)
        rows = accumulation * _ROWS
        for update in range(_UPDATES):
            training(self.x[update][:rows], self.wanted[update][:rows])
        self.state = copy.deepcopy(made.state_dict().get("ipu_state"))
        training.destroy()
        return model

    def check(
        self, optimizer, step, defaults, accumulation=1, replicas=1, half=False, exact=True, **hyper
    ):
        """Compares training with a reference; the tolerance is float16's if not `exact`."""
        make = lambda: Reference(step, **{**defaults, **hyper})
        expected = self.expected(make, accumulation, half)
        model = self.trained(optimizer, accumulation, replicas)
        first = list(Model().parameters())
        tolerances = {"rtol": 1e-4, "atol": 1e-5} if exact else {"rtol": 2e-3, "atol": 2e-3}
        for number, (ours, theirs) in enumerate(zip(model.parameters(), expected)):
            self.assertFalse(torch.allclose(ours.detach(), first[number], **tolerances))
            torch.testing.assert_close(ours.detach(), theirs, **tolerances)
        return expected

    # --- SGD

    def sgd(self, **arguments):
        given = {name: _SGD[name] for name in ("lr", "momentum", "dampening", "weight_decay")}
        return lambda parameters: poptorch.optim.SGD(parameters, **{**given, **arguments})

    def test_first_gradient_is_dampened(self):
        self.check(self.sgd(), sgd, _SGD)
        expected = self.check(self.sgd(momentum=0.0), sgd, _SGD, momentum=0.0)
        # The step is not that of torch.optim, which dampens no gradient without momentum.
        model = self.trained(lambda p: torch.optim.SGD(p, 0.1, 0.0, 0.5, 0.1), 1)
        torch.testing.assert_close(list(model.parameters())[0].detach(), expected[0])

    def test_nesterov(self):
        optimizer = self.sgd(dampening=0.0, nesterov=True)
        self.check(optimizer, sgd, _SGD, dampening=0.0, nesterov=True)

    def test_combined_sgd(self):
        optimizer = self.sgd(use_combined_accum=True, velocity_scaling=4.0)
        self.check(optimizer, combined_sgd, _SGD, accumulation=2, velocity_scaling=4.0)
        # Types of accumulators have no effect on it, and do not change the reduction.
        optimizer = self.sgd(use_combined_accum=True, accum_type=torch.half, loss_scaling=8.0)
        self.check(optimizer, combined_sgd, _SGD, accumulation=2)

    def test_combined_sgd_takes_new_attributes_an_update_late(self):
        weights = {}
        for combined in (False, True):
            model = nn.Linear(1, 1, bias=False)
            nn.init.constant_(model.weight, 1.0)
            wrapped = _Sum(model)
            # The gradient is 1 in each update.
            optimizer = poptorch.optim.SGD(
                model.parameters(), lr=1.0, momentum=0.5, use_combined_accum=combined
            )
            opts = poptorch.Options().showCompilationProgressBar(False)
            training = poptorch.trainingModel(wrapped, opts, optimizer)
            x = torch.ones(1, 1)
            training(x)
            optimizer.param_groups[0]["momentum"] = 0.0
            training.setOptimizer(optimizer)
            training(x)
            weights[combined] = model.weight.item()
            training.destroy()
        self.assertAlmostEqual(weights[False], 1 - 1 - 1, places=6)
        self.assertAlmostEqual(weights[True], 1 - 1 - 1.5, places=6)

    def test_momentum_is_raised_from_zero_and_lowered_again(self):
        sgd, rmsprop = poptorch.optim.SGD, poptorch.optim.RMSprop
        combined = {"use_combined_accum": True}
        for kind, arguments, expected in (
            (sgd, {}, (0, -1.5, -2.5)),
            (sgd, combined, (0, -1, -2.5)),  # an update late
            (rmsprop, {"alpha": 0.0}, (0, -1.5, -2.5)),
        ):
            with self.subTest(kind.__name__, **arguments):
                model = nn.Linear(1, 1, bias=False)
                nn.init.constant_(model.weight, 1.0)
                optimizer = kind(model.parameters(), lr=1.0, momentum=0.0, **arguments)
                opts = poptorch.Options().showCompilationProgressBar(False)
                training = poptorch.trainingModel(_Sum(model), opts, optimizer)
                for momentum, wanted in zip((0.0, 0.5, 0.0), expected):
                    optimizer.param_groups[0]["momentum"] = momentum
                    training.setOptimizer(optimizer)
                    training(torch.ones(1, 1))  # The gradient is 1 in each update.
                    self.assertAlmostEqual(model.weight.item(), wanted, places=6)
                training.destroy()

    def test_half_velocities(self):
        optimizer = self.sgd(velocity_accum_type=torch.half)
        self.check(optimizer, sgd, _SGD, exact=False, velocity_type=torch.half)
        self.assertEqual(self.state["Accl___hidden.weight"].dtype, torch.float16)

    def test_parameters_that_are_named_like_state(self):
        names = ("fc", "Accl___fc", "optimizer/step", "optimizer", "random/seed", "model/fc")

        class Named(nn.Module):
            """A layer of each name, one after the other."""

            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(3)
                for name in names:
                    self.add_module(name, nn.Linear(2, 2, bias=False))

            def forward(self, x):
                for name in names:
                    x = getattr(self, name)(x)
                return poptorch.identity_loss(x, "sum")

        model, reference = Named(), Named()
        x = torch.ones(1, 2)
        eager = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.5)
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        opts = poptorch.Options().showCompilationProgressBar(False)
        opts.anchorTensor("velocity", "Accl___model/fc.weight")
        opts.anchorTensor("updated", "UpdatedVar___random/seed.weight")
        training = poptorch.trainingModel(model, opts, optimizer)
        for number in range(3):
            training(x)
            eager.zero_grad()
            reference(x).backward()
            eager.step()
            if number == 1:
                training.detachFromDevice()
        state = optimizer.state_dict()["ipu_state"]
        self.assertEqual(set(state), {f"Accl___{name}.weight" for name in names})
        for name in names:
            ours, theirs = (getattr(each, name).weight for each in (model, reference))
            torch.testing.assert_close(ours.detach(), theirs.detach(), msg=name)
            velocity = eager.state[theirs]["momentum_buffer"]
            torch.testing.assert_close(state[f"Accl___{name}.weight"], velocity, msg=name)
        anchored = training.getAnchoredTensor("velocity")
        torch.testing.assert_close(anchored, state["Accl___model/fc.weight"])
        anchored = training.getAnchoredTensor("updated")
        torch.testing.assert_close(anchored, getattr(model, "random/seed").weight.detach())
        training.destroy()

    # --- Adam, AdamW and LAMB

    def moments(self, kind, **arguments):
        given = {"lr": 0.05, "betas": (0.75, 0.875), "eps": 1e-3, "weight_decay": 0.1}
        return lambda parameters: kind(parameters, **{**given, **arguments})

    def test_adam(self):
        self.check(self.moments(poptorch.optim.Adam), adam, _MOMENTS)

    def test_adamw_without_bias_correction(self):
        for corrected in (True, False):
            optimizer = self.moments(poptorch.optim.AdamW, bias_correction=corrected)
            self.check(optimizer, adamw, _MOMENTS, bias_correction=corrected)

    def test_lamb(self):
        for corrected in (True, False):
            optimizer = self.moments(poptorch.optim.LAMB, bias_correction=corrected)
            self.check(optimizer, lamb, _MOMENTS, bias_correction=corrected)
        optimizer = self.moments(poptorch.optim.LAMB, max_weight_norm=0.75)
        self.check(optimizer, lamb, _MOMENTS, max_weight_norm=0.75)
        optimizer = self.moments(poptorch.optim.LAMB, max_weight_norm=None)
        self.check(optimizer, lamb, _MOMENTS)

    def test_half_moments(self):
        types = {
            "first_order_momentum_accum_type": torch.half,
            "second_order_momentum_accum_type": torch.half,
        }
        halves = {"first_type": torch.half, "second_type": torch.half}
        for kind, step in (
            (poptorch.optim.Adam, adam),
            (poptorch.optim.AdamW, adamw),
            (poptorch.optim.LAMB, lamb),
        ):
            with self.subTest(kind.__name__):
                optimizer = self.moments(kind, **types)
                self.check(optimizer, step, _MOMENTS, exact=False, **halves)
                for name in ("Accl1___hidden.weight", "Accl2___hidden.weight"):
                    self.assertEqual(self.state[name].dtype, torch.float16)

    def test_half_state_is_loaded_again(self):
        model = nn.Linear(1, 1, bias=False)
        made = self.moments(poptorch.optim.Adam, first_order_momentum_accum_type=torch.half)(
            model.parameters()
        )
        made.param_groups[0]["weight_decay"] = 0.0
        opts = poptorch.Options().showCompilationProgressBar(False)
        training = poptorch.trainingModel(_Sum(model), opts, made)
        training(torch.ones(1, 1))  # The gradient is 1 in each update.
        state = copy.deepcopy(made.state_dict())
        moment = state["ipu_state"]["Accl1___module.weight"]
        self.assertEqual((moment.dtype, moment.item()), (torch.float16, 0.25))
        moment.fill_(0.5)
        made.load_state_dict(state)
        training(torch.ones(1, 1))
        after = made.state_dict()["ipu_state"]["Accl1___module.weight"]
        self.assertEqual(after.item(), 0.75 * 0.5 + 0.25)
        training.destroy()

    # --- RMSprop

    def rmsprop(self, **arguments):
        given = {name: _RMSPROP[name] for name in ("lr", "alpha", "eps", "weight_decay")}
        return lambda parameters: poptorch.optim.RMSprop(parameters, **{**given, **arguments})

    def test_rmsprop_as_tensorflow(self):
        for tf in (False, True):
            for values in ({}, {"momentum": 0.5}, {"momentum": 0.5, "centered": True}):
                with self.subTest(tf=tf, **values):
                    optimizer = self.rmsprop(use_tf_variant=tf, **values)
                    self.check(optimizer, rmsprop, _RMSPROP, tf=tf, **values)

    def test_half_squares(self):
        optimizer = self.rmsprop(second_order_momentum_accum_type=torch.half, use_tf_variant=True)
        self.check(optimizer, rmsprop, _RMSPROP, exact=False, tf=True, second_type=torch.half)

    # --- Accumulators

    def test_half_accumulators(self):
        optimizer = self.moments(poptorch.optim.Adam, accum_type=torch.half)
        self.check(optimizer, adam, _MOMENTS, accumulation=3, half=True, exact=False)

    def test_accumulators_and_replicas(self):
        optimizer = self.moments(poptorch.optim.LAMB, bias_correction=False)
        self.check(optimizer, lamb, _MOMENTS, accumulation=2, replicas=2, bias_correction=False)

    def test_large_gradients_overflow_half_accumulators(self):
        for accum_type in (torch.float32, torch.half):
            model = nn.Linear(1, 1, bias=False)
            wrapped = _Sum(model)
            optimizer = poptorch.optim.SGD(
                model.parameters(), lr=1e-6, loss_scaling=2.0**17, accum_type=accum_type
            )
            opts = poptorch.Options().showCompilationProgressBar(False)
            opts.Training.gradientAccumulation(2)
            training = poptorch.trainingModel(wrapped, opts, optimizer)
            training(torch.ones(2, 1))
            finite = bool(torch.isfinite(model.weight).all())
            self.assertEqual(finite, accum_type == torch.float32)
            training.destroy()


class AutomaticLossScalingTest(unittest.TestCase):
    """The gradient of the weight is the loss scale, and large above 8188."""

    def setUp(self):
        self.opts = poptorch.Options().showCompilationProgressBar(False)
        self.opts.Training.setAutomaticLossScaling(True)

    def training(self, dtype=torch.half):
        model = nn.Linear(1, 1, bias=False).to(dtype)
        nn.init.constant_(model.weight, 1.0)
        optimizer = poptorch.optim.SGD(model.parameters(), lr=0.125, loss_scaling=1024.0)
        training = poptorch.trainingModel(_Sum(model), self.opts, optimizer)
        self.addCleanup(training.destroy)
        return model, optimizer, training

    def factors(self, optimizer, training, calls, dtype=torch.half):
        found = []
        for _ in range(calls):
            training(torch.ones(1, 1, dtype=dtype))
            found.append(optimizer.state_dict()["ipu_state"]["lossScaleUpdateFactor"].item())
        return found

    def test_factor_follows_the_gradients(self):
        model, optimizer, training = self.training()
        self.assertEqual(self.factors(optimizer, training, 5), [2, 4, 8, 4, 8])
        self.assertEqual(model.weight.item(), 1 - 5 * 0.125)

    def test_factor_is_loaded(self):
        _, optimizer, training = self.training()
        self.factors(optimizer, training, 1)
        state = optimizer.state_dict()
        state["ipu_state"]["lossScaleUpdateFactor"] = torch.tensor(0.25)
        optimizer.load_state_dict(state)
        self.assertEqual(self.factors(optimizer, training, 1), [0.5])

    def test_options_of_the_compiler(self):
        self.opts._Popart.set("automaticLossScalingSettings.updatePeriod", 2)
        self.opts._Popart.set("automaticLossScalingSettings.binEdgeLocation", 0.01)
        _, optimizer, training = self.training()
        self.assertEqual(self.factors(optimizer, training, 4), [1, 0.5, 0.5, 1])

    def test_float_gradients_have_no_influence(self):
        _, optimizer, training = self.training(torch.float32)
        self.assertEqual(self.factors(optimizer, training, 2, torch.float32), [1, 1])

    def test_wrong_options(self):
        for name, value, message in (
            ("gradientTensorTrackingMethod", 1, "gradientTensorTrackingMethod must be 0"),
            ("updatePeriod", 0, "updatePeriod is 0, must be from 1"),
            ("binEdgeLocation", 2.0, "bin edge of the loss scale is 2, must be above 0"),
        ):
            with self.subTest(name):
                self.setUp()
                self.opts._Popart.set(f"automaticLossScalingSettings.{name}", value)
                training = self.training()[2]
                with self.assertRaisesRegex(poptorch.Error, message):
                    training(torch.ones(1, 1, dtype=torch.half))


class _Sum(nn.Module):
    """The sum of what a module gives, as the loss."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x):
        return poptorch.identity_loss(self.module(x), reduction="sum")


if __name__ == "__main__":
    unittest.main()
