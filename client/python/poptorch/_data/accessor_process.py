"""The parent's side of the process that loads batches for an AsynchronousDataAccessor."""

import logging
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.spawn
import multiprocessing.util
import os
import pickle
import signal
import tempfile
from multiprocessing.connection import wait
from typing import Any, List, Optional

import torch._utils

from .._errors import Error, py_error
from .._logging import logger
from ..enums import SharingStrategy
from . import accessor_child, texts
from .accessor_child import Description, Handle, Settings, Shared
from .batch_structure import with_tensors
from .ring import BATCH, ERROR, Event, Ring

_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}
# Seconds that a process gets to finish what it does and to stop its workers, before it is killed.
_GRACE = 10.0


class Child:
    """A running process: how to talk to it, to see whether it lives, and to end it."""

    def __init__(self, strategy: SharingStrategy, shared: Shared, settings: Settings, dataset: Any):
        context = multiprocessing.get_context(_METHODS[strategy])
        if strategy == SharingStrategy.ForkServer:
            _preload()
        self.connection, other = context.Pipe(duplex=False)
        self.ring: Optional[Ring] = None
        self._to_child = Event(shared.to_child.descriptor)
        self._descriptor: Optional[int] = None
        arguments = (other, shared, settings, dataset)
        self._process = context.Process(target=accessor_child.main, args=arguments)
        try:
            self._process.start()
            self._descriptor = os.pidfd_open(self._process.pid)
        except ProcessLookupError:
            pass  # It has ended already; its message, if any, is in the connection.
        except BaseException:
            self.kill()
            raise
        finally:
            other.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._descriptor is not None and not wait([self._descriptor], 0)

    def readable(self, source: Any) -> bool:
        """Waits for a connection or descriptor; False if the process ended and nothing came."""
        if self._descriptor is not None:
            wait([source, self._descriptor])
        return bool(wait([source], 0))

    def receive(self) -> Any:
        """A message of the process; None if it ended without one."""
        try:
            return self.connection.recv() if self.readable(self.connection) else None
        except (EOFError, OSError):
            return None

    def how_it_ended(self) -> str:
        """Waits for the process's end, and says how it was, for an error."""
        self._process.join()
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"was ended by signal {-code} ({signal.Signals(-code).name})"
        return f"ended with exit code {code}"

    def end(self) -> None:
        """Asks the process to end, and ends it if it does not."""
        try:
            if self.ring is not None and self._descriptor is not None:
                self.ring.set_quit()
                self._to_child.set()
                wait([self._descriptor], _GRACE)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the process, if it runs, and waits for that."""
        if self._descriptor is not None:
            try:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.close(self._descriptor)
            self._descriptor = None
        elif self._process.pid is not None:
            self._process.kill()
        if self._process.pid is not None:
            self._process.join()
        self.connection.close()


class AsynchronousWorker:
    """Starts the process, and takes batches from its ring."""

    def __init__(
        self,
        dataset: Any,
        *,
        buffer_size: int,
        load_indefinitely: bool,
        early_preload: bool,
        sharing_strategy: SharingStrategy,
        rebatched_size: Optional[int],
    ) -> None:
        """Starts the process and waits for its first batch.

        Raises:
            poptorch.Error: the process failed to start. If the data set raised an error, that is
                its cause.
        """
        logger.debug(texts.PARENT_PROCESS, os.getpid())
        # An unguarded program that the child imports ends here.
        multiprocessing.spawn._check_not_importing_main()
        # The child and torch's workers put their sockets where this process's are, and this
        # process removes them at its end.
        directory = multiprocessing.util.get_temp_dir()
        settings = Settings(
            buffer_size,
            load_indefinitely,
            early_preload,
            rebatched_size,
            logger.level or logging.WARNING,
            directory if multiprocessing.parent_process() is None else None,
        )
        memory = os.memfd_create("poptorch-batches")
        parent = os.pidfd_open(os.getpid())
        self._to_child = Event.create()
        self._to_parent = Event.create()
        descriptors = (memory, self._to_child.descriptor, self._to_parent.descriptor, parent)
        self._child: Optional[Child] = None
        # It also runs at the end of the program, before multiprocessing waits for the process.
        self._finish = multiprocessing.util.Finalize(
            self, _finish, args=(self.__dict__, descriptors), exitpriority=20
        )
        self._epoch = -1
        self._position = 0  # Of the entry that comes next. That before it may be held.
        self._was_used = False
        self._ended = True
        try:
            self._start(Shared(*map(Handle, descriptors)), settings, sharing_strategy, dataset)
        except BaseException:
            self.terminate()
            raise

    @property
    def epoch(self) -> int:
        """The number of the iteration that began last; -1 before the first one."""
        return self._epoch

    @property
    def _data_buffers(self) -> Ring:
        return self._ring

    def terminate(self) -> None:
        """Ends the process; batches that were taken stay valid."""
        self._finish()

    def resetIterator(self) -> None:
        """Begins an iteration of the data set; gives the one up that is under way, if any."""
        if self._epoch >= 0 and not self._was_used and not self._ended:
            return
        self.releaseElement()
        self._epoch += 1
        self._was_used = False
        self._ended = False
        self._ask()

    def acquireElement(self) -> Any:
        """Waits for the next batch. Its tensors are overwritten once it is released.

        Raises:
            StopIteration: the iteration is at its end.
            poptorch.Error: the process has ended.
            Exception: what the data set raised, with its traceback in the text.
        """
        ring = self._ring
        assert ring.read == self._position, texts.NOT_RELEASED
        self._was_used = True
        while not self._ended:
            self._wait_for_entry()
            kind, epoch = ring.kind(self._position), ring.epoch(self._position)
            self._position += 1
            if kind == BATCH and epoch == self._epoch:
                return with_tensors(self._template, iter(ring.batch(self._position - 1)))
            error = self._child.receive() if kind == ERROR else None
            self.releaseElement()
            if epoch == self._epoch:
                self._ended = True
                if error is not None:
                    error.reraise()
                if kind == ERROR:
                    raise self._end_of_child()  # It came no further than to announce the error.
        raise StopIteration

    def releaseElement(self) -> None:
        """Lets the process overwrite the batch that was acquired last."""
        if self._ring.read != self._position:
            self._ring.read = self._position
            self._to_child.set()

    def _wait_for_entry(self) -> None:
        while self._ring.written == self._position:
            self._ask()
            if self._child.readable(self._to_parent.descriptor):
                self._to_parent.wait()
            elif self._ring.written == self._position:
                self._ended = True
                raise self._end_of_child()

    def _end_of_child(self) -> Error:
        return py_error(texts.ENDED % (self._child.pid, self._child.how_it_ended()))

    def _ask(self) -> None:
        """Says which epoch is wanted; once more before each wait, if Ctrl-C came in between."""
        self._ring.wanted = self._epoch
        self._to_child.set()

    def _start(self, shared: Shared, settings: Settings, strategy: SharingStrategy, dataset: Any):
        try:
            if strategy == SharingStrategy.FileSystem:
                self._child = _child_with_file(strategy, shared, settings, dataset)
            else:
                self._child = Child(strategy, shared, settings, dataset)
        except ValueError as error:
            # A fork server passes about 250 descriptors: one for each storage of the data set.
            if "too many fds" not in str(error):
                raise
            self._child = _child_with_file(strategy, shared, settings, dataset)
        except (EOFError, ConnectionError):
            raise py_error(texts.NOT_STARTED) from None  # The fork server has ended.
        answer = self._child.receive()
        if not isinstance(answer, Description):
            raise py_error(texts.NOT_STARTED) from _error_in(answer)
        self._template = answer.template
        self._ring = Ring(shared.memory.descriptor, settings.entries, answer.specs, create=False)
        self._child.ring = self._ring


def _finish(members: dict, descriptors: List[int]) -> None:
    child = members.get("_child")
    try:
        if child is not None:
            child.end()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _preload() -> None:
    """Has a fork server import torch once, for all processes to come."""
    server = multiprocessing.forkserver._forkserver
    if server._forkserver_pid is None and server._preload_modules == ["__main__"]:
        server.set_forkserver_preload(["__main__", accessor_child.__name__])


def _child_with_file(
    strategy: SharingStrategy, shared: Shared, settings: Settings, dataset: Any
) -> Child:
    """Starts a process that reads the data set from a file, which has no name."""
    logger.debug(texts.IN_A_FILE)
    with tempfile.TemporaryFile() as file:
        pickle.dump(dataset, file, protocol=4)
        file.flush()
        return Child(strategy, shared, settings, Handle(file.fileno()))


def _error_in(answer: Any) -> Optional[Exception]:
    """The error that the process sent, as it would be raised here."""
    if not isinstance(answer, torch._utils.ExceptionWrapper):
        return None
    try:
        answer.reraise()
    except Exception as error:  # pylint: disable=broad-except
        return error
