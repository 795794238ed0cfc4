"""Programs that accessor_processes_test starts and ends in various ways, by the name of a function.

Each prints a line "ready" once it is in the state that the test wants to end it in.
"""

import os
import signal
import sys
import time

from poptorch import DataLoaderMode
from poptorch._data.accessor import AsynchronousDataAccessor
from poptorch._data.dataloader import DataLoader

from loader_testing import Failing, Numbers, Options, first_numbers, wait_until


class Slow(Numbers):
    """One of its elements never comes."""

    def __init__(self, length, index):
        super().__init__(length)
        self.index = index

    def __getitem__(self, index):
        while index == self.index:
            time.sleep(1)
        return super().__getitem__(index)


def _loader(**arguments):
    mode = DataLoaderMode.Async
    return DataLoader(Options(2), Numbers(40), batch_size=2, mode=mode, **arguments)


def _ready(*values):
    print("ready", *values, flush=True)


def _wait():
    while True:
        time.sleep(1)


def full_ring():
    """Both processes wait, the child with workers."""
    loader = _loader(num_workers=2)
    next(iter(loader))
    _ready(loader._accessor._worker._child.pid)
    _wait()


def slow_dataset():
    """The child is inside the data set, and the parent waits for it."""
    iterator = iter(AsynchronousDataAccessor(Slow(3, 1), early_preload=True))
    next(iterator)
    _ready()
    next(iterator)


def starting():
    """The child has no first batch yet."""
    _ready()
    AsynchronousDataAccessor(Slow(3, 0))


def leaves_the_loop():
    """Ends normally in the middle of an iteration, with a process that it does not terminate."""
    for batch in _loader(num_workers=1):
        print(first_numbers(batch))
        sys.exit(3)


def interrupted():
    """Goes on after Ctrl-C."""
    loader = _loader(num_workers=1)
    iterator = iter(loader)
    next(iterator)
    try:
        _ready(loader._accessor._worker._child.pid)
        _wait()
    except KeyboardInterrupt:
        print([first_numbers(batch)[0] for batch in iterator])
        print(len(list(loader)))


def stopped():
    """Goes on after Ctrl-Z and `fg`."""
    loader = _loader(num_workers=2)
    iterator = iter(loader)
    next(iterator)
    ring = loader._accessor._worker._data_buffers
    wait_until(lambda: ring.is_full)
    # The blocked signal continues the process all the same.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    _ready(loader._accessor._worker._child.pid)
    signal.sigwait({signal.SIGCONT})
    print([first_numbers(batch)[0] for batch in iterator])
    print(len(list(loader)))


def broken_first_element():
    try:
        AsynchronousDataAccessor(Failing(3, 0, AssertionError))
    except Exception as error:  # pylint: disable=broad-except
        print(type(error).__name__, error)
        print("because of", type(error.__cause__).__name__)


def in_a_forked_process():
    """A fork of the program does not end the process that loads."""
    loader = _loader()
    iterator = iter(loader)
    next(iterator)
    pid = os.fork()
    if pid == 0:
        del iterator, loader
        os._exit(0)
    os.waitpid(pid, 0)
    print(len(list(iterator)))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
