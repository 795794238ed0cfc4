"""The ring of batches that an AsynchronousDataAccessor shares with the process that loads them.

The memory has no name (memfd), and what wakes the processes are event descriptors. The kernel frees
all of them with the last process that holds them, however the processes end.

One process writes the entries in turn, the other one reads them in turn. Both publish how many
entries they are done with, and these two counts alone decide what may be written and read. So
Ctrl-C in the reader at any moment loses nothing but the batch it was about to return.
"""

import math
import mmap
import os
from typing import List, NamedTuple, Sequence, Tuple

import torch

#: What an entry holds. An error's text travels by the connection of the two processes.
BATCH, END, ERROR = range(3)

_ALIGNMENT = 64  # Bytes, a cache line.
_WORD = 8  # Bytes of an event, and of the integers in front of the tensors.

# Words of the whole ring, then words of each entry, then the rows of each tensor of the entry.
_QUIT, _WANTED, _WRITTEN, _READ, _RING_WORDS = range(5)
_EPOCH, _KIND, _ENTRY_WORDS = range(3)


class TensorSpec(NamedTuple):
    """Type and largest shape of one tensor of a batch; dimension 0 may be shorter."""

    shape: Tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * torch.empty(0, dtype=self.dtype).element_size()


class Event:
    """Wakes another process. Its descriptor can be polled."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def create(cls) -> "Event":
        return cls(os.eventfd(0, os.EFD_CLOEXEC))

    def set(self) -> None:
        os.eventfd_write(self.descriptor, 1)

    def wait(self) -> None:
        """Waits until it is set, and clears it."""
        os.read(self.descriptor, _WORD)  # It goes on after signals; eventfd_read does not.


class Ring:
    """The shared memory, as one of the two processes sees it."""

    def __init__(self, memory: int, entries: int, specs: Sequence[TensorSpec], create: bool):
        """Maps the memory.

        Args:
            memory: the descriptor of the memory.
            entries: batches that the ring holds.
            specs: the tensors of a batch.
            create: give the memory its size and first values; only the writer does.
        """
        self.entries = entries
        self.specs = list(specs)
        self._words_of_entry = _ENTRY_WORDS + len(specs)
        words = _RING_WORDS + entries * self._words_of_entry
        offset = _aligned(words * _WORD)
        offsets: List[List[int]] = []
        for _ in range(entries):
            offsets.append([])
            for spec in specs:
                offsets[-1].append(offset)
                offset = _aligned(offset + spec.bytes)
        if create:
            os.ftruncate(memory, offset)
        self._map = mmap.mmap(memory, offset)
        self._words = memoryview(self._map).cast("q")[:words]
        if create:
            self._words[_WANTED] = -1
        self._tensors = [
            [self._tensor(spec, place) for spec, place in zip(specs, places)] for places in offsets
        ]

    # What the reader wants.

    @property
    def quit(self) -> bool:
        """The writer is to end."""
        return self._words[_QUIT] != 0

    def set_quit(self) -> None:
        self._words[_QUIT] = 1

    @property
    def wanted(self) -> int:
        """The epoch that the reader reads; entries of earlier ones are of no use. -1: none yet."""
        return self._words[_WANTED]

    @wanted.setter
    def wanted(self, epoch: int) -> None:
        self._words[_WANTED] = epoch

    # Positions count entries from the beginning; they come round the ring.

    @property
    def written(self) -> int:
        """Entries that the writer is done with."""
        return self._words[_WRITTEN]

    @property
    def read(self) -> int:
        """Entries that the reader is done with."""
        return self._words[_READ]

    @read.setter
    def read(self, position: int) -> None:
        self._words[_READ] = position

    @property
    def is_full(self) -> bool:
        return self.written - self.read >= self.entries

    @property
    def indices_mem(self) -> torch.Tensor:
        """For each entry, 1 if it is written and the reader is not done with it."""
        ready = torch.zeros(self.entries, dtype=torch.long)
        for position in range(self.read, self.written):
            ready[position % self.entries] = 1
        return ready

    # The writer: it fills the tensors of the position `written`, then publishes them.

    def places(self) -> List[torch.Tensor]:
        """The tensors to be filled, with all their rows."""
        return self._tensors[self.written % self.entries]

    def publish(self, epoch: int, kind: int, rows: Sequence[int] = ()) -> None:
        """Gives the entry to the reader, with the rows that were filled of each tensor."""
        entry = self._word(self.written)
        self._words[entry + _EPOCH] = epoch
        self._words[entry + _KIND] = kind
        for i, count in enumerate(rows):
            self._words[entry + _ENTRY_WORDS + i] = count
        self._words[_WRITTEN] += 1

    # The reader: positions below `written`.

    def epoch(self, position: int) -> int:
        return self._words[self._word(position) + _EPOCH]

    def kind(self, position: int) -> int:
        return self._words[self._word(position) + _KIND]

    def batch(self, position: int) -> List[torch.Tensor]:
        """Tensors over the memory of an entry, each with the rows that were filled."""
        rows = self._word(position) + _ENTRY_WORDS
        return [
            tensor.narrow(0, 0, self._words[rows + i]) if tensor.dim() else tensor.detach()
            for i, tensor in enumerate(self._tensors[position % self.entries])
        ]

    def _word(self, position: int) -> int:
        """The index of the first word of an entry."""
        return _RING_WORDS + position % self.entries * self._words_of_entry

    def _tensor(self, spec: TensorSpec, offset: int) -> torch.Tensor:
        count = math.prod(spec.shape)
        if count == 0:
            return torch.empty(spec.shape, dtype=spec.dtype)
        flat = torch.frombuffer(self._map, dtype=spec.dtype, count=count, offset=offset)
        return flat.view(spec.shape)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
