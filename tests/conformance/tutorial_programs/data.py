"""Puts data where programs look for it before they download it."""

import gzip
import pathlib
import subprocess
import sys
from typing import Iterable, Optional

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_HEADER_BYTES = {"images": 16, "labels": 8}  # The number of elements is a big-endian word at 4.
_ELEMENT_BYTES = {"images": 28 * 28, "labels": 1}


def first_elements(content: bytes, kind: str, count: int) -> bytes:
    """The file of the first elements of a file in MNIST's format.

    Args:
        content: the file.
        kind: "images" or "labels".
        count: of elements; the file has at least so many.
    """
    header, size = _HEADER_BYTES[kind], _ELEMENT_BYTES[kind]
    elements = content[header : header + count * size]
    if len(elements) != count * size:
        raise ValueError(f"{count} {kind} were asked for, and the file has fewer")
    return content[:4] + count.to_bytes(4, "big") + content[8:header] + elements


def place(source: pathlib.Path, folder: pathlib.Path, images: Optional[int] = None) -> None:
    """Writes the four files of MNIST or Fashion-MNIST, as torchvision unpacks them.

    Args:
        source: a folder with the files, with or without ".gz".
        folder: where they go.
        images: how many of each file, from the first; all if it is None.
    """
    folder.mkdir(parents=True)
    for name in _FILES:
        packed = source / f"{name}.gz"
        plain = source / name
        content = gzip.decompress(packed.read_bytes()) if packed.exists() else plain.read_bytes()
        if images is not None:
            content = first_elements(content, name.split("-")[1], images)
        (folder / name).write_bytes(content)


def is_there(source: pathlib.Path) -> bool:
    """Whether a folder has the four files."""
    return all((source / f"{name}.gz").exists() or (source / name).exists() for name in _FILES)


# Writes the weights that a constructor of torchvision.models makes from the seed 0.
_MAKE_WEIGHTS = """
import pathlib, sys, torch, torchvision
name, folder = sys.argv[1:]
weights = torchvision.models.get_model_weights(name).IMAGENET1K_V1
torch.manual_seed(0)
model = torchvision.models.get_model(name)
torch.save(model.state_dict(), pathlib.Path(folder, pathlib.Path(weights.url).name))
"""


def place_weights(models: Iterable[str], home: pathlib.Path) -> None:
    """Puts random weights of networks where PyTorch's hub keeps the trained ones.

    Args:
        models: names of torchvision's constructors.
        home: the user's directory.
    """
    folder = home / ".cache/torch/hub/checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    for model in models:
        words = [sys.executable, "-c", _MAKE_WEIGHTS, model, str(folder)]
        subprocess.run(words, check=True)
