"""Runs a program whose loaders end after some batches: shortened.py BATCHES PROGRAM [ARGUMENT…]"""

import itertools
import runpy
import sys

import poptorch

batches = int(sys.argv[1])
sys.argv = sys.argv[2:]


class Shortened(poptorch.DataLoader):
    """A loader that yields the first batches of each epoch."""

    def __len__(self) -> int:
        return min(super().__len__(), batches)

    def __iter__(self):
        return itertools.islice(super().__iter__(), batches)


poptorch.DataLoader = Shortened
runpy.run_path(sys.argv[0], run_name="__main__")
