"""AsynchronousDataAccessor: loads batches ahead of time, in a process of its own."""

import math
from typing import Any, Optional

from .._errors import py_error
from ..enums import SharingStrategy
from . import texts
from .accessor_process import AsynchronousWorker
from .dataloader import DataLoader


class AsynchronousDataAccessor:
    """An iterable of the batches of a data set, which another process loads ahead of time.

    That process copies them into a ring of shared memory. **The tensors of a batch are overwritten
    after the next batch has been asked for**: clone what is to be kept.

    The program needs `if __name__ == "__main__":` around what it runs, because the process imports
    its main file. Whichever of the two processes ends first, the other one notices: the loading
    process ends, the program gets an error with its next batch.

    An error of the data set is raised in the program in its place, after the batches before it,
    with its type and traceback; the next iteration starts anew.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: Optional[int] = None,
    ) -> None:
        """Starts the process, and waits until it has loaded the first batch.

        Args:
            dataset: a DataLoader or any other iterable of tensors, or of flat lists, tuples,
                dictionaries or objects of tensors (`registerCustomArgParser`); or a data set with
                indices.
            buffer_size: batches of the ring, the one in use included.
            miss_sleep_time_in_ms: has no effect: both processes wait for each other without
                polling.
            load_indefinitely: load the first batches of the next iteration while the last ones of
                this one are in use; else when the next iteration begins.
            early_preload: fill the ring at once; else load one batch, and the others when the
                first iteration begins.
            sharing_strategy: how the data set gets into the process. SharedMemory: a new
                interpreter, tensors in shared memory. FileSystem: a new interpreter, all in a file,
                if shared memory is too small. Fork: the memory of this process; it must not have
                threads that the data set needs. ForkServer: as SharedMemory, but a server process
                starts the interpreter faster.
            rebatched_size: join the rows of the batches to batches of this many rows.

        Raises:
            poptorch.Error: the process failed to start, because the data set is empty or raised an
                error (its cause) or the program's main file is not guarded; or a DataLoader loads
                ahead of time itself.
            AssertionError: arguments that exclude each other.
            ValueError: an argument is out of range.
        """
        self._worker: Optional[AsynchronousWorker] = None
        if isinstance(dataset, DataLoader):
            _check_loader(dataset, rebatched_size)
        assert rebatched_size is None or rebatched_size > 1, texts.REBATCHED_SIZE
        if not isinstance(buffer_size, int) or buffer_size < 1:
            raise ValueError(texts.BUFFER_SIZE % (buffer_size,))
        if not miss_sleep_time_in_ms >= 0:
            raise ValueError(texts.MISS_SLEEP % (miss_sleep_time_in_ms,))
        self._dataset = dataset
        self.rebatched_size = rebatched_size
        self._worker = AsynchronousWorker(
            dataset,
            buffer_size=buffer_size,
            load_indefinitely=load_indefinitely,
            early_preload=early_preload,
            sharing_strategy=SharingStrategy(sharing_strategy),
            rebatched_size=rebatched_size,
        )

    def terminate(self) -> None:
        """Ends the process and waits for its end. Batches that were returned stay valid."""
        worker, self._worker = self.__dict__.get("_worker"), None
        if worker is not None:
            worker.terminate()

    def __del__(self) -> None:
        self.terminate()

    def __len__(self) -> int:
        length = len(self._dataset)
        if self.rebatched_size and getattr(self._dataset, "_accessor", None) is not self:
            rows = length * (getattr(self._dataset, "batch_size", None) or 1)
            return math.floor(rows / self.rebatched_size)
        return length

    def __iter__(self) -> "_Iteration":
        """Begins an iteration. There is one at a time: earlier ones are at their end."""
        assert self._worker is not None, texts.TERMINATED
        self._worker.resetIterator()
        return _Iteration(self, self._worker)

    def __next__(self) -> Any:
        assert self._worker is not None, texts.TERMINATED
        self._worker.releaseElement()
        return self._worker.acquireElement()


class _Iteration:
    """One iteration of an accessor. Iterating it again goes on with it."""

    def __init__(self, accessor: AsynchronousDataAccessor, worker: AsynchronousWorker) -> None:
        self._accessor = accessor
        self._worker = worker
        self._epoch = worker.epoch

    def __len__(self) -> int:
        return len(self._accessor)

    def __iter__(self) -> "_Iteration":
        return self

    def __next__(self) -> Any:
        if self._worker.epoch != self._epoch:
            raise StopIteration
        return next(self._accessor)


def _check_loader(loader: DataLoader, rebatched_size: Optional[int]) -> None:
    if loader._accessor is not None:
        raise py_error(texts.HAS_ACCESSOR)
    if rebatched_size is None and not loader._drops_last and not loader._has_batch_sampler:
        assert loader.combinedBatchSize in (None, 1), texts.KEEPS_LAST
