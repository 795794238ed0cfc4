"""How the processes of an AsynchronousDataAccessor, torch's workers too, end with one another."""

import ctypes
import multiprocessing
import multiprocessing.util
import os
import shutil
import signal
import sys
import tempfile
import threading
from multiprocessing.connection import wait
from typing import Callable

_PR_SET_PDEATHSIG = 1  # From <sys/prctl.h>.


def end_with(process: int, end: Callable[[], None]) -> None:
    """Calls a function as soon as the process of a process descriptor ended."""

    def watch() -> None:
        wait([process])
        end()

    threading.Thread(target=watch, name="poptorch-watch", daemon=True).start()


class WorkerInit:
    """Has torch's workers end with this process and leave nothing, also if they are killed."""

    def __init__(self, then) -> None:
        self._then = then
        self._loader = os.getpid()

    def __call__(self, worker: int) -> None:
        # Python handles signals between two of its instructions, and thus not while torch makes
        # a file in shared memory and has not removed its name yet.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        if os.getppid() == self._loader:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self._loader:
            try:
                # A fork server is the parent.
                end_with(os.pidfd_open(self._loader), lambda: os.kill(os.getpid(), signal.SIGTERM))
            except ProcessLookupError:
                os._exit(0)
        sys.excepthook = _hook_without_lost_peers(sys.excepthook)
        _use_own_directory()
        if self._then is not None:
            self._then(worker)


def _hook_without_lost_peers(hook):
    """The thread that hands tensors over does not complain if their receiver is killed."""

    def ours(kind, error, trace) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main or not isinstance(error, (ConnectionError, EOFError)):
            hook(kind, error, trace)

    return ours


def _use_own_directory() -> None:
    """Puts the sockets of this process into a directory inside that of the program.

    This process removes it at its end, or the program does if this process is killed.
    """
    directory = tempfile.mkdtemp(dir=multiprocessing.util.get_temp_dir())
    multiprocessing.current_process()._config["tempdir"] = directory
    multiprocessing.util.Finalize(
        None, shutil.rmtree, args=(directory,), kwargs={"ignore_errors": True}, exitpriority=-100
    )
