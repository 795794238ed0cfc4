"""Checks how far results are from the exact ones. Each takes (result, exact, size, type) and gives what is wrong, or
None."""

import numpy

LARGEST = {"FLOAT32": numpy.finfo(numpy.float32).max, "FLOAT16": numpy.finfo(numpy.float16).max}


def spacing(exact, dtype):
    """The distance to the next number of a type."""
    with numpy.errstate(over="ignore", invalid="ignore"):
        return numpy.abs(numpy.spacing(numpy.abs(exact).astype(dtype)).astype(numpy.float64))


def _report(result, exact, wrong, why):
    if not wrong.any():
        return None
    place = tuple(int(i) for i in numpy.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{why} at {list(place)}: {result[place]!r}, PyTorch has {exact[place]!r} ({int(wrong.sum())} of {wrong.size} are wrong)"


def _compare(result, exact, allowed, type_name):
    """Numbers that are not finite are equal; a result that the type cannot hold is infinite."""
    result = result.astype(numpy.float64)
    with numpy.errstate(invalid="ignore"):
        apart = numpy.abs(result - exact)
        finite = numpy.isfinite(exact)
        allowed = numpy.where(numpy.isnan(allowed), 0, allowed)
        near = numpy.where(finite & numpy.isfinite(result), apart <= allowed, False)
        overflow = numpy.isinf(result) & (numpy.sign(result) == numpy.sign(exact))
        overflow &= numpy.abs(exact) + allowed >= LARGEST[type_name]
    equal = (result == exact) | (numpy.isnan(result) & numpy.isnan(exact))
    return _report(result, exact, ~(near | equal | overflow), "off")


def equal(result, exact, size, type_name):
    """The exact result, rounded once; integers are equal."""
    if type_name not in LARGEST:
        return _report(result, exact, numpy.asarray(result != exact), "unequal")
    with numpy.errstate(over="ignore", invalid="ignore"):
        rounded = numpy.asarray(exact, result.dtype)
    same = (result == rounded) | (numpy.isnan(result) & numpy.isnan(rounded))
    return _report(result, rounded, ~same, "unequal")


def same_zero(result, exact, size, type_name):
    """As `equal`, and zeros have the sign of PyTorch's."""
    wrong = equal(result, exact, size, type_name)
    if wrong:
        return wrong
    with numpy.errstate(over="ignore", invalid="ignore"):
        rounded = numpy.asarray(exact, result.dtype)
    signs = (result == 0) & (numpy.signbit(result) != numpy.signbit(rounded))
    return _report(result, rounded, signs, "sign of zero")


def close(roundings=0, part=1e-5):
    """Within 1e-5 of the size; in float16 half the last place more, and as much of the size for each of the values
    between that float16 rounds."""

    def check(result, exact, size, type_name):
        allowed = part * size + numpy.finfo(numpy.float32).smallest_subnormal
        if type_name == "FLOAT16":
            allowed = allowed + spacing(exact, numpy.float16) / 2 + roundings * (size * 2.0**-11 + 2.0**-24)
        return _compare(result, exact, allowed, type_name)

    return check


def last_places(result, exact, size, type_name):
    """4 units in the last place of float32; in float16 half of its own and 1e-5."""
    if type_name == "FLOAT16":
        return close()(result, exact, numpy.abs(exact), type_name)
    return _compare(result, exact, 4 * spacing(exact, numpy.float32), type_name)
