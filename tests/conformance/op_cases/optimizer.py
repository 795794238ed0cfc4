"""Optimisers over some steps with a given gradient, loss scaling, and the test for finite gradients."""

import numpy
import torch

from layerwise import Lamb, Lars

from .case import FLOATS, Value, single
from .checks import close, equal

LOSS_SCALE_INTERVAL = 2  # as in run_cases.cc


def _sgd(case):
    momentum = case.one_of([0, 0.9])
    nesterov = momentum > 0 and case.chance(0.4)
    return {
        "lr": case.one_of([0.1, 0.01]),
        "momentum": single(momentum),
        "dampening": 0 if nesterov or momentum == 0 else single(case.one_of([0, 0.3])),
        "weight_decay": single(case.one_of([0, 0.05])),
        "nesterov": nesterov,
        "maximize": case.chance(0.3),
    }


def _adam(case):
    return {
        "lr": case.one_of([0.1, 0.01]),
        "betas": [single(0.9), single(case.one_of([0.99, 0.999]))],
        "eps": single(case.one_of([1e-8, 1e-3])),
        "weight_decay": single(case.one_of([0, 0.05])),
        "amsgrad": case.chance(0.4),
        "maximize": case.chance(0.3),
    }


def _rms_prop(case):
    return {
        "lr": case.one_of([0.1, 0.01]),
        "alpha": single(case.one_of([0.9, 0.99])),
        "eps": single(case.one_of([1e-8, 1e-3])),
        "weight_decay": single(case.one_of([0, 0.05])),
        "momentum": single(case.one_of([0, 0.9])),
        "centered": case.chance(0.4),
    }


def _lamb(case):
    return {
        "lr": case.one_of([0.1, 0.01]),
        "betas": [single(0.9), single(case.one_of([0.99, 0.999]))],
        "eps": single(case.one_of([1e-6, 1e-3])),
        "weight_decay": single(case.one_of([0, 0.05])),
    }


def _lars(case):
    return {
        "lr": case.one_of([0.1, 0.01]),
        "momentum": single(case.one_of([0, 0.9])),
        "weight_decay": single(case.one_of([0, 0.05])),
        "trust": single(case.one_of([0.001, 0.5])),
        "eps": single(1e-8),
    }


# By kind: the function that chooses options, the name in run_cases.cc, and the reference.
KINDS = {
    "sgd": (_sgd, "sgd", torch.optim.SGD),
    "adam": (_adam, "adam", torch.optim.Adam),
    "adamw": (_adam, "adam", torch.optim.AdamW),
    "rms_prop": (_rms_prop, "rms_prop", torch.optim.RMSprop),
    "lamb": (_lamb, "lamb", Lamb),
    "lars": (_lars, "lars", Lars),
}


def _clip(weights, clip):
    if "clip_value" in clip:
        torch.nn.utils.clip_grad_value_([weights], clip["clip_value"])
    if "clip_norm" in clip:
        torch.nn.utils.clip_grad_norm_([weights], clip["clip_norm"])


def _train(make, weights, gradients, steps, scale, half, clip):
    """The weights, and the loss scale by the rule of PyTorch's GradScaler."""
    weights = torch.nn.Parameter(weights.clone())
    optimizer = make([weights])
    good = 0
    for _ in range(steps):
        scaled = gradients * (scale or 1)
        if half:
            scaled = torch.tensor(scaled.numpy().astype(numpy.float16).astype(numpy.float64))
        if scale and not scaled.isfinite().all():
            scale, good = scale / 2, 0
            continue
        weights.grad = scaled.mean(0) / (scale or 1)
        _clip(weights, clip)
        optimizer.step()
        good += 1
        if scale and good == LOSS_SCALE_INTERVAL:
            scale, good = scale * 2, 0
    return weights.detach(), scale


def optimizer(case, kind):
    type_name = case.one_of(FLOATS)
    case.special = False
    dims = case.shape(0, 3, empty=False)
    steps = int(case.random.integers(1, 5))
    choose, name, reference = KINDS[kind]
    options = choose(case)
    options["lr"] = single(options["lr"])
    scale = case.one_of([None, 64.0, 2.0**17])
    clip = {name: single(case.one_of(limits)) for name, limits in {"clip_value": [0.5, 1], "clip_norm": [0.25, 4]}.items()
            if case.chance(0.2)}
    case.words.append(f"{type_name} {dims} {options} {steps} steps, loss scale {scale} {clip}")
    weights = case.input(case.floats(type_name, dims, 0.5, 2), kind="variable")
    # A gradient for each micro-batch, of which the update takes the mean.
    accumulation = case.one_of([1, 1, 2, 4])
    gradients = numpy.round(case.random.uniform(-2, 2, [accumulation, *dims]) * 64) / 64
    gradient = case.input(numpy.array(gradients[0], numpy.float32))
    case.data[-1] = (case.data[-1][0], gradients.astype(numpy.float32))
    # The gradient of the product is the factor.
    loss = case.op({"binary": {"operator": "MULTIPLY"}}, [case.cast(weights, "FLOAT32"), gradient], torch.mul)
    case.train = {"loss": loss.number, "steps": steps, "accumulation": accumulation, name: dict(options), **clip}
    if scale:
        case.train["loss_scale"] = scale
    if name == "adam":
        case.train[name]["decoupled"] = kind == "adamw"
    make = lambda parameters: reference(parameters, **options)
    exact, scale = _train(make, weights.exact.detach(), torch.tensor(gradients), steps, scale, type_name == "FLOAT16",
                          clip)
    size = exact.abs() + weights.exact.detach().abs()
    # Weights of float16 are rounded in each step; they come back as float32.
    part = 2.0**-11 * steps if type_name == "FLOAT16" else 1e-5
    case.want(Value(weights.number, "FLOAT32", exact, size), close(part=part), "weights")
    if scale:
        scale = torch.tensor(scale, dtype=torch.float64)
        case.want(Value(None, "FLOAT32", scale, scale), equal, "loss scale")


def all_finite(case):
    arrays = []
    for _ in range(int(case.random.integers(1, 4))):
        arrays.append(case.floats(case.one_of(FLOATS), case.shape()))
    inputs = [case.operand(array) for array in arrays]
    reference = lambda *tensors: torch.tensor(all(bool(tensor.isfinite().all()) for tensor in tensors))
    case.want(case.op({"all_finite": {}}, inputs, reference, types=["BOOL"]), equal)


def generators():
    for kind in KINDS:
        yield kind, lambda case, kind=kind: optimizer(case, kind)
    yield "all_finite", all_finite
