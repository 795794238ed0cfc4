"""Images that are sampled at given places."""

import numpy

from ..checks import close
from .harness import aten, define, draw, floats


@define("grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(case, name):
    case.special = False
    rank = 2 if name == "grid_sampler_2d.default" else 3
    images, spatial = draw(case, 1, 3), draw(case, 2, 6 if rank == 2 else 4, rank)
    channels, corners = draw(case, 1, 3), case.chance(0.5)
    interpolation, padding = draw(case, 0, 3 if rank == 2 else 2), draw(case, 0, 3)
    # Places in pixels away from where pixels change, some of them outside the image; the middle between two pixels where
    # its coordinate is exact.
    parts = [0.5] if interpolation == 1 and corners and max(spatial) <= 3 else [0.25, 0.375, 0.625]
    shape = [images, *draw(case, 1, 4 if rank == 2 else 3, rank)]
    lengths = spatial[::-1]
    places = [numpy.floor(case.random.uniform(-3, length + 2, shape)) + case.one_of(parts) for length in lengths]
    grid = [(place * 2 / (length - 1) if corners else (place * 2 + 1) / length) - 1 for place, length in zip(places, lengths)]
    case.type = "FLOAT32"
    grid = case.operand(numpy.stack(grid, -1).astype(numpy.float32))
    case.words.append(f"interpolation {interpolation} padding {padding} corners {corners}")
    aten(case, name, floats(case, [images, channels, *spatial]), grid, interpolation, padding, corners,
         check=close(1, part=1e-4))


@define("affine_grid_generator.default")
def affine_grid(case, name):
    case.special = False
    images, rank = draw(case, 1, 3), case.one_of([2, 3])
    size = [images, draw(case, 1, 3), *draw(case, 1, 5, rank)]
    aten(case, name, floats(case, [images, rank, rank + 1]), size, case.chance(0.5), check=close(1))
