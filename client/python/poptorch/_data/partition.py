"""Which elements of a data set each process of a distributed program reads."""

from typing import Iterator, List, Optional

import torch

from .texts import SHUFFLE_SEED, TOO_SMALL_TO_PARTITION


class PartitionSampler(torch.utils.data.Sampler):
    """Yields the indices of one process: a contiguous range of the, perhaps shuffled, data set.

    All processes take equally many steps when incomplete batches are dropped, so that none waits
    for another in a collective. The ranges then leave fewer than `step * processes` elements over.
    When the data set is shuffled, every second epoch moves the ranges to its other end and puts
    the elements that the epoch before left over inside them: two epochs read every element.

    The permutations are the same in all processes, because all start from one seed.
    """

    def __init__(
        self,
        elements: int,
        step: int,
        processes: int,
        process: int,
        *,
        drop_last: bool,
        shuffle: bool,
        seed: Optional[int] = None,
    ) -> None:
        """Computes the range.

        Args:
            elements: elements of the whole data set.
            step: elements that one process takes at each step (the combined batch size).
            processes: the number of processes.
            process: the number of this process, from 0.
            drop_last: leave incomplete batches out; else all elements are dealt as evenly as
                possible.
            shuffle: permute the data set before each epoch.
            seed: the seed of the permutations.

        Raises:
            ValueError: a process would have no complete step.
            AssertionError: shuffled without seed.
        """
        super().__init__(None)
        assert not shuffle or seed is not None, SHUFFLE_SEED
        self._elements = elements
        self._generator = torch.Generator().manual_seed(seed) if shuffle else None
        self._epoch = 0
        self._left_over: List[int] = []
        if drop_last:
            self._length = step * (elements // (step * processes))
            if self._length == 0:
                needed = step * processes
                raise ValueError(TOO_SMALL_TO_PARTITION % (elements, processes, step, needed))
            self._offset = process * self._length
            self._dropped = elements - processes * self._length
        else:
            share, rest = divmod(elements, processes)
            self._length = share + (process < rest)
            self._offset = process * share + min(process, rest)
            self._dropped = 0

    @property
    def dropped(self) -> int:
        """Elements of the whole data set that no process reads in an epoch."""
        return self._dropped

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        if self._generator is None:
            return iter(range(self._offset, self._offset + self._length))
        return iter(self._next_permutation())

    def __getstate__(self):
        state = self.__dict__.copy()
        if self._generator is not None:
            # Not as a tensor: torch shares those, and this one would be gone before it is read.
            state["_generator"] = bytes(self._generator.get_state().tolist())
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self._generator is not None:
            self._generator = torch.Generator()
            self._generator.set_state(torch.tensor(list(state["_generator"]), dtype=torch.uint8))

    def _next_permutation(self) -> List[int]:
        order = torch.randperm(self._elements, generator=self._generator)
        used = self._elements - self._dropped
        moved = self._epoch % 2 == 1
        self._epoch += 1
        if moved:
            # The first elements are left out now: none of those that were left out before.
            before = torch.zeros(self._elements, dtype=torch.bool)
            before[self._left_over] = True
            order = torch.cat([order[~before[order]], order[before[order]]])
            order = order[self._dropped :]
        else:
            self._left_over = order[used:].tolist()
        return order[self._offset : self._offset + self._length].tolist()
