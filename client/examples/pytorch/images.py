"""Images for the examples: made up, or Fashion-MNIST of Debian's package."""

import gzip
import pathlib

import torch
from torch.utils.data import TensorDataset

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
CLASSES = 10


def made_up(count: int, channels: int = 1, size: int = 28, seed: int = 0) -> TensorDataset:
    """Images with a pattern of their class, under noise; equal arguments give equal images.

    Args:
        count: how many.
        channels, size: of an image, which is square; the size is a multiple of 4.
        seed: of the noise and the classes; the patterns are the same for all seeds.
    """
    # Four by four fields, so that pooling keeps the pattern.
    fields = torch.randn(CLASSES, channels, 4, 4, generator=torch.Generator().manual_seed(7))
    patterns = fields.repeat_interleave(size // 4, 2).repeat_interleave(size // 4, 3)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    noise = torch.randn(count, channels, size, size, generator=generator)
    return TensorDataset(patterns[labels] + noise, labels)


def fashion_mnist(split: str, count: int) -> TensorDataset:
    """The first images of Fashion-MNIST, 28 × 28 pixels from -0.5 to 0.5.

    Args:
        split: "train" or "t10k".
        count: how many.
    Raises:
        SystemExit: the package dataset-fashion-mnist is not installed.
    """
    try:
        with gzip.open(FASHION_MNIST / f"{split}-images-idx3-ubyte.gz") as file:
            pixels = file.read(16 + count * 28 * 28)[16:]
        with gzip.open(FASHION_MNIST / f"{split}-labels-idx1-ubyte.gz") as file:
            labels = file.read(8 + count)[8:]
    except FileNotFoundError as error:
        raise SystemExit(
            f"error: {error.filename} is missing: install the package dataset-fashion-mnist"
        ) from None
    images = torch.frombuffer(bytearray(pixels), dtype=torch.uint8)
    return TensorDataset(
        images.reshape(-1, 1, 28, 28).float() / 255 - 0.5,
        torch.frombuffer(bytearray(labels), dtype=torch.uint8).long(),
    )
