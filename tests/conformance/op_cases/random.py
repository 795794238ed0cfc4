"""Random ops, compared by distribution: with samples of PyTorch by the test of Kolmogorov and Smirnov, at a level of
one in a million."""

import numpy
import torch

from .case import FLOATS, single
from .checks import equal

COUNT = 4096
LARGEST_DISTANCE = 2.69 * (2 / COUNT) ** 0.5


def _distance(a, b):
    """The largest distance of two samples' distribution functions."""
    places = numpy.concatenate([a, b])
    below = lambda sample: numpy.searchsorted(numpy.sort(sample), places, side="right") / sample.size
    return numpy.abs(below(a) - below(b)).max()


def _like(sample):
    def check(result, exact, size, type_name):
        distance = _distance(result.astype(numpy.float64).ravel(), sample)
        if distance > LARGEST_DISTANCE:
            return f"the distribution is {distance:.4f} from PyTorch's, may be {LARGEST_DISTANCE:.4f}"
        return None

    return check


def random(case, distribution):
    type_name = "UINT32" if distribution == "BITS" else case.one_of(FLOATS)
    case.words.append(type_name)
    bits = lambda dims: case.input(numpy.array(case.integers("UINT32", dims)))
    inputs = [bits([2]), bits([]), bits([])]
    generator = torch.Generator().manual_seed(int(case.random.integers(2**31)))
    draw = torch.randn if distribution == "NORMAL" else torch.rand
    sample = draw(COUNT, generator=generator, dtype=torch.float64)
    if distribution == "BITS":
        sample = (sample * 2**32).floor().long()
    dims = case.one_of([[COUNT], [64, 64], [2, 2, 1024], [3, 0]])
    if 0 in dims:
        sample = sample[:0]
    attributes = {"distribution": distribution, "type": type_name, "dims": dims, "number": int(case.random.integers(1000))}
    y = case.op({"random": attributes}, inputs, lambda *_: sample.reshape(dims), lambda *_: sample, types=[type_name])
    case.want(y, _like(sample.numpy()) if sample.numel() else equal)


def dropout(case):
    """The kept elements are exact; how many there are is within five deviations."""
    type_name = case.one_of(FLOATS)
    probability = single(case.one_of([0.0, 0.1, 0.5, 0.9, 1.0]))
    case.words.append(f"{type_name} {probability}")
    case.special = False
    x = case.operand(case.floats(type_name, [COUNT], 0.5, 3))
    y = case.composed({"dropout": probability}, [x], lambda x: x)

    def check(result, exact, size, type_name):
        kept = result != 0
        if abs(kept.sum() - COUNT * (1 - probability)) > 5 * (COUNT * probability * (1 - probability)) ** 0.5:
            return f"{kept.sum()} of {COUNT} elements are kept"
        scale = numpy.asarray(1 / (1 - probability) if probability < 1 else 0, result.dtype).astype(numpy.float64)
        return equal(result, exact * kept * scale, size, type_name)

    case.want(y, check)


def generators():
    for distribution in ("BITS", "UNIFORM", "NORMAL"):
        yield f"random {distribution}", lambda case, distribution=distribution: random(case, distribution)
    yield "dropout", dropout
