#!/usr/bin/python3
"""Turns a PyTorch state dict into the .npz file that session::Session::Load takes, and back.

    state_dict_npz.py resnet18.pt resnet18.npz     the variables of a model of client/models, by their names
    state_dict_npz.py resnet18.npz resnet18.pt     what Session::Save has written

Names are unchanged and floating-point values are float32. Counters of batches (num_batches_tracked), which our models do not have,
are left out; so are, on the way back, the variables of the optimiser and of random numbers. Every tensor that is left
out is named.
"""

import argparse
import os
import shutil
import sys
import zipfile

import numpy
import torch

# Prefixes of the names of variables that are the compiler's own: the optimiser's (client/compiler/lowering.h) and those
# of random numbers (client/graph/graph.h).
OWN_PREFIXES = ("Accl___", "Accl1___", "Accl2___", "AcclMax___", "optimizer/", "random/")


# The types that a state dict has in the place of types that PyTorch lacks, and float32 for all floats.
TORCH_TYPES = {"float16": "float32", "uint16": "int32", "uint32": "int64"}


def to_arrays(state):
    """Arrays of float32 by name, and the names that were left out."""
    arrays, left_out = {}, []
    for name, tensor in state.items():
        if name.endswith("num_batches_tracked"):
            left_out.append(name)
            continue
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            what = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise ValueError(f"'{name}' is {what}, must be a tensor of a floating-point type")
        arrays[name] = numpy.ascontiguousarray(tensor.detach().to("cpu", torch.float32).numpy())
    return arrays, left_out


def to_state_dict(arrays):
    """Tensors by name, and the names that were left out."""
    state, left_out = {}, []
    for name in arrays:
        if name.startswith(OWN_PREFIXES):
            left_out.append(name)
        else:
            array = arrays[name]
            state[name] = torch.from_numpy(array.astype(TORCH_TYPES.get(array.dtype.name, array.dtype)))
    return state, left_out


def load_state_dict(path):
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    # Training scripts keep it beside other things.
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict):
        raise ValueError(f"it has a {type(loaded).__name__}, must be a state dict")
    return loaded


def write(path, save):
    """Replaces the file, whole or not at all, and keeps its mode; of a link, the file that it leads to."""
    path = os.path.realpath(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            save(file)
        if os.path.exists(path):
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def convert(source, target):
    """Returns how many tensors were written, and the names that were left out."""
    if source.endswith(".npz"):
        with numpy.load(source, allow_pickle=False) as arrays:
            state, left_out = to_state_dict(arrays)
        write(target, lambda file: torch.save(state, file))
        return len(state), left_out
    arrays, left_out = to_arrays(load_state_dict(source))

    # Not by numpy.savez, which takes names as keywords: a tensor may be called "file" as its own argument is.
    def save(file):
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    numpy.lib.format.write_array(entry, array, version=(1, 0), allow_pickle=False)

    write(target, save)
    return len(arrays), left_out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a state dict that torch.save has written, or an .npz file")
    parser.add_argument("target", help="the other of the two; one of them ends in .npz")
    arguments = parser.parse_args()
    if arguments.source.endswith(".npz") == arguments.target.endswith(".npz"):
        parser.error("one of source and target must end in .npz, and the other must not")
    try:
        count, left_out = convert(arguments.source, arguments.target)
    except Exception as error:  # torch.load and numpy.load raise many kinds
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"state_dict_npz.py: error: {arguments.source}: {message}", file=sys.stderr)
        return 1
    for name in left_out:
        print(f"left out: {name}")
    print(f"{arguments.target}: {count} tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
