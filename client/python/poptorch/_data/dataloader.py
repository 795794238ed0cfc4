"""DataLoader: torch's loader, which yields the rows that one call of a model takes."""

import itertools
import weakref
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence, Union

import torch

from .._errors import py_error
from .._logging import logger
from ..enums import DataLoaderMode
from . import texts
from .batch_sizes import Factors
from .batch_structure import concatenated
from .partition import PartitionSampler


class DataLoader(torch.utils.data.DataLoader):
    """Loads the combined batches that a model takes in one call.

    Each batch has `batch_size × d × (R / g) × a` rows (`combinedBatchSize`), with the device
    iterations d, replicas R, input group size g and gradient accumulation a of the options.
    Samplers, workers and collation are those of `torch.utils.data.DataLoader`.

    In a distributed program each process reads a range of the data set of its own.
    """

    def __init__(
        self,
        options: "poptorch.Options",
        dataset: torch.utils.data.Dataset,
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: Optional[bool] = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: Optional[Dict[str, Any]] = None,
        rebatched_worker_size: Optional[int] = None,
        batch_sampler: Optional[Union[torch.utils.data.Sampler, Iterable[Sequence[int]]]] = None,
        **kwargs: Any,
    ) -> None:
        """Creates a loader. The options cannot be changed from now on.

        Args:
            options: the options of the model that takes the batches.
            dataset: where the elements come from.
            batch_size: rows of a micro-batch, which is what `forward` sees. None: the elements of
                the data set are batches already.
            shuffle: permute the elements before each epoch.
            num_workers: processes that load elements.
            drop_last: leave the last batch out if it is incomplete. True, unlike in torch.
            persistent_workers: keep the workers from one epoch to the next; by default, if there
                are any.
            auto_distributed_partitioning: give each process of a distributed program its own range
                of the data set.
            mode: load in the calling process, or ahead of time in a process of its own
                (`AsynchronousDataAccessor`). Async becomes AsyncRebatched if incomplete batches
                are kept.
            async_options: arguments of the AsynchronousDataAccessor.
            rebatched_worker_size: AsyncRebatched: rows that a worker loads at a time, between 1
                and the combined batch size, which is the default.
            batch_sampler: yields the indices of one micro-batch at a time. It excludes
                `batch_size`, `shuffle` and, in a distributed program, the automatic ranges.
            kwargs: further arguments of `torch.utils.data.DataLoader`.

        Raises:
            poptorch.Error: `batch_sampler` with one of the arguments that it excludes.
            AssertionError: arguments that exclude each other; shuffled ranges without seed.
            ValueError: a process would have no complete batch.
            TypeError: the first argument is not a `poptorch.Options`, or `mode` is of another type.
        """
        if not hasattr(options, "device_iterations"):
            raise TypeError(texts.NOT_OPTIONS % type(options).__name__)
        if not isinstance(mode, DataLoaderMode):
            raise TypeError(texts.MODE % (mode,))
        getattr(options, "_freeze", lambda: None)()
        self._options = options
        self._accessor = None
        self._has_batch_sampler = batch_sampler is not None
        self._is_iterable = isinstance(dataset, torch.utils.data.IterableDataset)
        self._distributed = options.Distributed.numProcesses > 1
        if self._has_batch_sampler:
            self._check_batch_sampler(batch_size, shuffle, auto_distributed_partitioning)
            batch_size = getattr(batch_sampler, "batch_size", batch_size)
        if batch_size is not None and batch_size < 1:
            raise ValueError(texts.BATCH_SIZE % batch_size)
        self._multiplier = None if batch_size is None else Factors.of(options).product
        self._combined_batch_size = None if batch_size is None else batch_size * self._multiplier
        self._drops_last = bool(drop_last)

        if self._is_iterable:
            self._check_iterable(num_workers, auto_distributed_partitioning, kwargs)
        elif self._has_batch_sampler:
            self._warn_of_incomplete_group(batch_sampler, batch_size)
        else:
            self._warn_of_incomplete_batch(len(dataset))
            if self._distributed and auto_distributed_partitioning:
                kwargs["sampler"] = self._partition(len(dataset), bool(shuffle), kwargs)
                shuffle = False
            self._log_dropped(len(dataset), kwargs.get("sampler"))

        if persistent_workers is None:
            persistent_workers = num_workers > 0
        mode, rebatched_size = self._rebatched_mode(mode)
        worker_batch_size = self._worker_batch_size(rebatched_size, rebatched_worker_size)
        super().__init__(
            dataset,
            batch_size=worker_batch_size,
            shuffle=shuffle,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            # The process that builds the batches decides about the rows that are left.
            drop_last=self._drops_last and rebatched_size is None and not self._has_batch_sampler,
            persistent_workers=persistent_workers,
            **kwargs,
        )
        if mode == DataLoaderMode.Sync:
            return
        async_options = async_options or {}
        assert "rebatched_size" not in async_options, texts.REBATCHED_TWICE
        from .accessor import AsynchronousDataAccessor  # pylint: disable=cyclic-import

        self._accessor = AsynchronousDataAccessor(
            self, **async_options, rebatched_size=rebatched_size
        )
        # Without a cycle, the process ends as soon as the last reference to the loader does.
        self._accessor._dataset = weakref.proxy(self)

    @property
    def combinedBatchSize(self) -> Optional[int]:  # pylint: disable=invalid-name
        """Rows of the data set that one call of the model takes; None without `batch_size`."""
        return self._combined_batch_size

    @property
    def options(self) -> "poptorch.Options":
        """The options that the loader was created with."""
        return self._options

    def terminate(self) -> None:
        """Ends the process that loads ahead of time. It has no effect in mode Sync."""
        accessor = self.__dict__.get("_accessor")
        if accessor is not None:
            accessor.terminate()

    def __len__(self) -> int:
        """The batches of an epoch; an estimate for an IterableDataset, as in torch."""
        if self._has_batch_sampler:
            return self._groups(super().__len__(), self._multiplier, self._drops_last)
        if self._accessor is not None and self._accessor.rebatched_size:
            source = self.dataset if self._is_iterable else self.sampler
            return self._groups(len(source), self._accessor.rebatched_size, self._drops_last)
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:
        if self._accessor is not None:
            return iter(self._accessor)
        if self._has_batch_sampler and self._multiplier != 1:
            return self._combined(super().__iter__())
        return super().__iter__()

    def __getstate__(self) -> Dict[str, Any]:
        """A copy of a loader starts its own workers."""
        return {**self.__dict__, "_accessor": None, "_iterator": None}

    @staticmethod
    def _groups(count: int, size: int, drop_last: bool) -> int:
        return count // size if drop_last else -(-count // size)

    def _combined(self, micro_batches: Iterator[Any]) -> Iterator[Any]:
        """Joins the micro-batches of a batch sampler to batches of a call."""
        while True:
            group = list(itertools.islice(micro_batches, self._multiplier))
            if not group or (self._drops_last and len(group) < self._multiplier):
                return
            yield concatenated(group)

    # Checks of the arguments. They run before torch's constructor.

    def _check_batch_sampler(self, batch_size, shuffle, partitioning) -> None:
        if batch_size != 1 or shuffle:
            raise py_error(texts.BATCH_SAMPLER_BATCH)
        if self._distributed and partitioning:
            raise py_error(texts.BATCH_SAMPLER_PARTITION)

    def _check_iterable(self, num_workers, partitioning, kwargs) -> None:
        assert not (partitioning and self._distributed), texts.ITERABLE_PARTITION
        if num_workers > 1 and "worker_init_fn" not in kwargs:
            logger.warning(texts.ROWS_OF_WORKERS, num_workers, num_workers)

    def _warn_of_incomplete_batch(self, elements: int) -> None:
        if self._drops_last or self._combined_batch_size is None:
            return
        step = self._combined_batch_size * self._options.Distributed.numProcesses
        if elements % step != 0:
            logger.warning(texts.INCOMPLETE, elements, step, elements % step)

    def _warn_of_incomplete_group(self, batch_sampler, batch_size) -> None:
        if self._drops_last:
            return
        try:
            left = len(batch_sampler) % self._multiplier
        except (TypeError, NotImplementedError):
            logger.warning(texts.BATCH_SAMPLER_LENGTH, self._multiplier)
            return
        if left != 0:
            rows = left * batch_size
            logger.warning(texts.INCOMPLETE_BATCHES, len(batch_sampler), self._multiplier, rows)

    def _partition(self, elements: int, shuffle: bool, kwargs: Dict[str, Any]) -> PartitionSampler:
        """The range of this process, as a sampler."""
        options = self._options
        assert self._combined_batch_size is not None, texts.NO_BATCH_SIZE
        if kwargs.get("sampler") is not None:
            raise py_error(texts.SAMPLER_PARTITION)
        seed = options.random_seed if shuffle and options.exists("random_seed") else None
        assert not shuffle or seed is not None, texts.NO_SEED
        return PartitionSampler(
            elements,
            self._combined_batch_size,
            options.Distributed.numProcesses,
            options.Distributed.processId,
            drop_last=self._drops_last,
            shuffle=shuffle,
            seed=seed,
        )

    def _log_dropped(self, elements: int, sampler: Any) -> None:
        """Says how many elements an epoch leaves out."""
        if not self._drops_last or self._combined_batch_size is None:
            return
        processes, step = 1, self._combined_batch_size
        if isinstance(sampler, PartitionSampler):
            processes, dropped = self._options.Distributed.numProcesses, sampler.dropped
        elif sampler is None:
            dropped = elements % step
        else:
            elements = len(sampler)
            dropped = elements % step
        if elements < step:
            logger.warning(texts.NO_BATCH, elements, step)
        elif dropped:
            logger.info(texts.DROPPED, dropped, elements, processes, step)

    def _rebatched_mode(self, mode: DataLoaderMode):
        """The mode without AsyncRebatched, and the rows of a batch built in the accessor."""
        keeps_last = mode == DataLoaderMode.Async and not self._drops_last
        if mode != DataLoaderMode.AsyncRebatched and not keeps_last:
            return mode, None
        size = self._combined_batch_size
        if mode == DataLoaderMode.AsyncRebatched:
            assert size is not None, texts.NO_BATCH_SIZE_TO_REBATCH
        if self._has_batch_sampler:
            return DataLoaderMode.Async, None  # Its batches may differ in their rows.
        return DataLoaderMode.Async, size if size is not None and size > 1 else None

    def _worker_batch_size(self, rebatched_size, worker_size) -> Optional[int]:
        if self._has_batch_sampler:
            return 1  # The only value that torch takes beside a batch sampler.
        if rebatched_size is None or worker_size is None:
            return self._combined_batch_size
        size = self._combined_batch_size
        assert 1 <= worker_size <= size, texts.WORKER_SIZE % (worker_size, size)
        return worker_size
