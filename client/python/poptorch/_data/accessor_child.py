"""The process of an AsynchronousDataAccessor that loads batches into the ring."""

import multiprocessing.reduction
import os
import pickle
import shutil
import signal
import sys
import traceback
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch._utils

from .._custom_parsers import parser_of
from .._errors import py_error
from .._logging import logger
from . import texts
from .accessor_workers import WorkerInit, end_with
from .batch_structure import tensors_of, with_tensors
from .ring import BATCH, END, ERROR, Event, Ring, TensorSpec

# Iterators that a fork has from its parent. Without a reference, they would end its workers.
_of_parent: List[Any] = []


class Handle:
    """An open descriptor that can be an argument of a new process, however that is started."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __getstate__(self):
        return multiprocessing.reduction.DupFd(self.descriptor)

    def __setstate__(self, duplicate):
        self.descriptor = duplicate.detach()


class Settings(NamedTuple):
    """What the process is to do."""

    entries: int
    load_indefinitely: bool
    early_preload: bool
    rebatched_size: Optional[int]
    log_level: int
    #: The directory of multiprocessing's sockets, if nobody is left who removes it.
    temporary_directory: Optional[str]


class Shared(NamedTuple):
    """What both processes hold: descriptors, by handle."""

    memory: Handle
    #: Set by the parent: it has read an entry, or wants something else.
    to_child: Handle
    #: Set by the child: it has written an entry.
    to_parent: Handle
    parent: Handle


class Description(NamedTuple):
    """The answer of the process once it has the first batch."""

    template: Any
    specs: List[TensorSpec]


class _Quit(Exception):
    """The parent asked the process to end."""


class _Abandoned(Exception):
    """The parent reads a later epoch."""


def main(connection, shared: Shared, settings: Settings, dataset: Any) -> None:
    """Loads until the parent asks it to end, or is no more.

    Args:
        connection: to the parent, for a Description or an error, and errors of the data set later.
        shared: memory, events, and the parent's process descriptor.
        settings: what to do.
        dataset: an iterable, or the Handle of a file that holds one.
    """
    # A terminal sends Ctrl-C to all processes of a job: the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with(shared.parent.descriptor, lambda: _orphaned(settings.temporary_directory))
    logger.setLevel(settings.log_level)
    logger.debug(texts.WORKER_PROCESS, os.getpid())
    producer = _Producer(connection, shared, settings)
    try:
        dataset = _loaded(dataset)
        producer.run(dataset)
    except _Quit:
        _stop_workers(dataset)
    except Exception as error:  # pylint: disable=broad-except
        # An error before the first batch. Later ones travel through the ring.
        traceback.print_exc()
        _send(connection, _wrapped(error))
        sys.exit(1)
    logger.debug(texts.CLEAN_EXIT)


def _orphaned(directory: Optional[str]) -> None:
    """Ends this process at once, and removes the parent's directory."""
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


def _loaded(dataset: Any) -> Any:
    if isinstance(dataset, Handle):
        with open(dataset.descriptor, "rb") as file:
            file.seek(0)
            dataset = pickle.load(file)
    if isinstance(dataset, torch.utils.data.DataLoader):
        dataset.worker_init_fn = WorkerInit(dataset.worker_init_fn)
        _of_parent.append(dataset._iterator)
        dataset._iterator = None
        if dataset.num_workers > 0 and dataset.multiprocessing_context is None:
            # Otherwise the workers would be started as this process was, and import the program.
            dataset.multiprocessing_context = "fork"
    return dataset


def _stop_workers(dataset: Any) -> None:
    """Has workers that persist between epochs finish what they do; their iterator waits for it."""
    if isinstance(dataset, torch.utils.data.DataLoader):
        dataset._iterator = None


def _wrapped(error: Exception) -> torch._utils.ExceptionWrapper:
    """An error with its traceback, for the parent."""
    where = texts.WHERE_CAUGHT
    wrapper = torch._utils.ExceptionWrapper((type(error), error, error.__traceback__), where)
    try:
        pickle.dumps(wrapper)
    except Exception:  # pylint: disable=broad-except
        wrapper.exc_type = RuntimeError  # A class that the parent cannot import.
    return wrapper


def _send(connection, message: Any) -> None:
    try:
        connection.send(message)
    except OSError:
        raise _Quit from None  # The parent has closed its end.


class _Producer:
    """Iterates the data set, epoch by epoch, and writes what it gives into the ring."""

    def __init__(self, connection, shared: Shared, settings: Settings) -> None:
        self._connection = connection
        self._memory = shared.memory.descriptor
        self._to_child = Event(shared.to_child.descriptor)
        self._to_parent = Event(shared.to_parent.descriptor)
        self._settings = settings
        self._ring: Optional[Ring] = None
        self._template: Any = None
        self._epoch = 0
        self._rows = 0  # Rows that are in the entry, when batches are built from smaller ones.
        self._rows_at_least = 0

    def run(self, dataset: Any) -> None:
        """Produces epochs until the parent wants no more.

        Raises:
            _Quit: it wants no more.
            Exception: of the data set, before there was a first batch.
        """
        self._rows_at_least = _rows_at_least(dataset)
        while True:
            pause = not self._settings.load_indefinitely
            try:
                self._produce(dataset)
                logger.debug(texts.END_OF_DATASET)
            except _Abandoned:
                logger.debug(texts.ABANDONED)
            except _Quit:
                raise
            except Exception as error:  # pylint: disable=broad-except
                if self._ring is None:
                    raise
                self._publish_error(error)
                pause = True
            self._epoch += 1
            self._rows = 0
            if pause:
                self._wait_for_epoch()

    def _produce(self, dataset: Any) -> None:
        """Produces one epoch."""
        # pylint: disable=stop-iteration-return
        for batch in _elements(dataset):
            if self._ring is None:
                self._open_ring(batch)
            self._check()
            tensors = self._flat(batch)
            if self._settings.rebatched_size is None:
                self._put(tensors)
            else:
                self._put_rows(tensors)
            if not self._settings.early_preload and self._epoch == 0:
                self._wait_for_epoch()
        if self._ring is None:
            raise py_error(texts.EMPTY)
        if self._rows and not getattr(dataset, "_drops_last", True):
            self._publish(BATCH, [self._rows] * len(self._ring.specs))
        self._rows = 0
        self._acquire()
        self._publish(END)

    # The form of a batch.

    def _open_ring(self, batch: Any) -> None:
        """Makes the ring from the first batch, and describes it to the parent."""
        tensors = list(_checked_tensors(batch))
        placeholders = (torch.empty(0, dtype=tensor.dtype) for tensor in tensors)
        self._template = with_tensors(batch, placeholders)
        specs = [TensorSpec(self._shape(tensor), tensor.dtype) for tensor in tensors]
        self._ring = Ring(self._memory, self._settings.entries, specs, create=True)
        _send(self._connection, Description(self._template, specs))

    def _shape(self, tensor: torch.Tensor) -> Tuple[int, ...]:
        if tensor.dim() == 0:
            return ()
        rows = self._settings.rebatched_size or max(len(tensor), self._rows_at_least)
        return (rows, *tensor.shape[1:])

    def _flat(self, batch: Any) -> List[torch.Tensor]:
        """The tensors of a batch, which must be like those of the first one."""
        if isinstance(batch, dict) and isinstance(self._template, dict):
            if batch.keys() != self._template.keys():
                raise ValueError(texts.OTHER_KEYS % (list(batch), list(self._template)))
            batch = {key: batch[key] for key in self._template}
        tensors = list(_checked_tensors(batch))
        specs = self._ring.specs
        if len(tensors) != len(specs):
            raise ValueError(texts.OTHER_COUNT % (len(tensors), len(specs)))
        for index, (tensor, spec) in enumerate(zip(tensors, specs)):
            shape = tuple(tensor.shape)
            fits = len(shape) == len(spec.shape) and shape[1:] == spec.shape[1:]
            if fits and shape and self._settings.rebatched_size is None:
                fits = shape[0] <= spec.shape[0]
            if not fits or not torch.can_cast(tensor.dtype, spec.dtype):
                found = (index, tensor.dtype, list(shape), spec.dtype, list(spec.shape))
                raise ValueError(texts.OTHER_SHAPE % found)
        return tensors

    # Writing.

    @torch.no_grad()
    def _put(self, tensors: List[torch.Tensor]) -> None:
        """Writes one batch."""
        self._acquire()
        rows = []
        for place, tensor in zip(self._ring.places(), tensors):
            rows.append(len(tensor) if tensor.dim() else 0)
            (place[: rows[-1]] if tensor.dim() else place).copy_(tensor)
        self._publish(BATCH, rows)

    @torch.no_grad()
    def _put_rows(self, tensors: List[torch.Tensor]) -> None:
        """Appends rows to the batch that is being built, and publishes it whenever it is full."""
        lengths = [len(tensor) if tensor.dim() else 0 for tensor in tensors]
        if len(set(lengths)) != 1 or tensors[0].dim() == 0:
            raise ValueError(texts.UNEQUAL_ROWS % lengths)
        size = self._settings.rebatched_size
        taken = 0
        while taken < lengths[0]:
            self._acquire()
            count = min(lengths[0] - taken, size - self._rows)
            for place, tensor in zip(self._ring.places(), tensors):
                place[self._rows : self._rows + count].copy_(tensor[taken : taken + count])
            taken += count
            self._rows += count
            if self._rows == size:
                self._publish(BATCH, [size] * len(tensors))
                self._rows = 0

    def _publish_error(self, error: Exception) -> None:
        wrapper = _wrapped(error)
        try:
            self._acquire()
        except _Abandoned:
            return
        self._publish(ERROR)
        _send(self._connection, wrapper)

    def _acquire(self) -> None:
        """Waits until the parent has read the next entry."""
        self._check()
        while self._ring.is_full:
            self._to_child.wait()
            self._check()

    def _publish(self, kind: int, rows: Sequence[int] = ()) -> None:
        self._ring.publish(self._epoch, kind, rows)
        self._to_parent.set()

    # What the parent wants.

    def _check(self) -> None:
        if self._ring.quit:
            raise _Quit
        if self._ring.wanted > self._epoch:
            raise _Abandoned

    def _wait_for_epoch(self) -> None:
        """Waits until the parent reads this epoch."""
        while self._ring.wanted < self._epoch:
            if self._ring.quit:
                raise _Quit
            self._to_child.wait()


def _rows_at_least(dataset: Any) -> int:
    """Rows that a batch may have although the first one has fewer: those of batch samplers."""
    if getattr(dataset, "_has_batch_sampler", False):
        return dataset.combinedBatchSize or 0
    return 0


def _elements(dataset: Any) -> Iterator[Any]:
    """Iterates a data set; one without iterator by its indices."""
    if hasattr(dataset, "__iter__") or not hasattr(dataset, "__len__"):
        yield from dataset
        return
    for index in range(len(dataset)):
        try:
            element = dataset[index]
        except StopIteration:
            return
        yield element


def _checked_tensors(batch: Any) -> Iterator[torch.Tensor]:
    """The tensors of a batch, which must be a flat container of dense tensors."""
    if parser_of(batch) is None and not isinstance(batch, torch.Tensor):
        members = batch.values() if isinstance(batch, dict) else batch
        for index, member in enumerate(members):
            assert isinstance(member, torch.Tensor), texts.NOT_A_TENSOR % (index, type(member))
    for index, tensor in enumerate(tensors_of(batch)):
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise ValueError(texts.NOT_DENSE % (index, tensor.layout, tensor.dtype))
        yield tensor
