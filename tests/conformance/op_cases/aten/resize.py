"""Images of another size."""

import re

from ..checks import close
from .harness import aten, define, draw, floats


def _image(case, name):
    rank = int(re.search(r"(\d)d", name)[1])
    return rank, draw(case, 1, 3, 2) + draw(case, 2, 7 if rank < 3 else 4, rank)


def _size(case, rank):
    """An output size, or scale factors that PyTorch takes for the distances between pixels, not the lengths' quotients."""
    if case.chance(0.5):
        return draw(case, 1, 12 if rank < 3 else 6, rank), None
    return None, [case.one_of([0.5, 0.8, 1.6, 2.0, 2.5]) for _ in range(rank)]


@define(*[f"{kind}{rank}d.vec" for kind in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)])
def nearest(case, name):
    case.special = False
    rank, dims = _image(case, name)
    aten(case, name, floats(case, dims), *_size(case, rank), check=close())


@define("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec", "upsample_bicubic2d.vec",
        "_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec")
def blended(case, name):
    case.special = False
    rank, dims = _image(case, name)
    size, scales = _size(case, rank)
    # Cubic weights have both signs.
    part = 2e-4 if "bicubic" in name else 4e-5
    aten(case, name, floats(case, dims), size, case.chance(0.5), scales, check=close(1, part=part), part=part)
