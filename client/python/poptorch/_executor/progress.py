"""The progress of compilation: a bar on standard error, and lines in the log."""

import contextlib
import shutil
import sys
import time
from typing import Iterator, Optional

from .._logging import native

_BLOCKS = " ▏▎▍▌▋▊▉█"
_WIDTH = 10  # Characters of the bar where the width of the terminal is not known.
_INTERVAL = 0.1  # Seconds between two updates, if they are near each other:
_STEP = 0.1  # A larger share is shown at once, because the step behind it may take long.


def _clock(seconds: Optional[float]) -> str:
    """A time as MM:SS, or H:MM:SS."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _bar(share: float, width: int) -> str:
    """A bar of this many characters, of which a share is filled."""
    eighths = int(share * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[part] if full < width else "")).ljust(width)


class CompilationProgressBar:
    """Shows on standard error how much of a model has been compiled.

    It is called with the steps done and the steps in all. A bar begins with the first call and
    ends when all are done, as in

        Graph compilation:  45%|████▌     | 45/100 [00:09<00:11]
    """

    def __init__(self) -> None:
        self._start: Optional[float] = None
        self._shown = 0.0  # When.
        self._share = 0.0  # That is shown.

    def __call__(self, progress: int, total: int) -> None:
        """
        Args:
            progress: the steps done so far.
            total: the steps in all.
        """
        now = time.monotonic()
        share = min(progress / total, 1.0) if total > 0 else 1.0
        if self._start is None:
            self._start = now
        elif share < 1 and share - self._share <= _STEP and now - self._shown < _INTERVAL:
            return
        self._shown, self._share = now, share
        sys.stderr.write("\r" + self._line(progress, total, now - self._start))
        sys.stderr.flush()
        if progress >= total:
            self.close()

    def close(self) -> None:
        """Ends the line of the bar, also if compilation failed."""
        if self._start is not None:
            self._start = None
            sys.stderr.write("\n")
            sys.stderr.flush()

    @staticmethod
    def _line(progress: int, total: int, elapsed: float) -> str:
        share = min(progress / total, 1.0) if total > 0 else 1.0
        remaining = elapsed * (1 - share) / share if share > 0 else None
        left = f"Graph compilation: {int(share * 100):3}%|"
        right = f"| {progress}/{total} [{_clock(elapsed)}<{_clock(remaining)}]"
        width = _WIDTH
        if sys.stderr.isatty():
            columns = shutil.get_terminal_size().columns
            width = max(columns - len(left) - len(right) - 1, _WIDTH)
        return left + _bar(share, width) + right

    def __deepcopy__(self, memory) -> "CompilationProgressBar":
        return type(self)()

    def __repr__(self) -> str:
        return "CompilationProgressBar()"


class CompilerProgress:
    """Shows the steps of poptorch_core.Model.compile on a bar, and logs their seconds at INFO."""

    def __init__(self, with_bar: bool) -> None:
        """
        Args:
            with_bar: whether there is a bar.
        """
        self._bar = CompilationProgressBar() if with_bar else None
        self._step: Optional[str] = None
        self._start = 0.0  # of the step
        self._is_done = False

    def __call__(self, step: str, done: int, total: int) -> None:
        """
        Args:
            step: the name of the step that begins.
            done: the steps done so far.
            total: the steps in all.
        """
        if self._bar is not None:
            self._bar(done * 100 // max(total, 1), 100)
        if step != self._step:  # the compiler reports some steps several times
            self._log_step()
            self._step, self._start = step, time.monotonic()
        self._is_done = done >= total

    @property
    def has_steps(self) -> bool:
        """Whether there was a step: there is none for an executable of the cache."""
        return self._step is not None

    def close(self) -> None:
        """Ends the line of the bar, also if compilation failed."""
        if self._bar is not None:
            self._bar.close()
        if self.has_steps and not self._is_done:
            self._log_step()

    def _log_step(self) -> None:
        if self.has_steps:
            _log_seconds(f"Compilation, {self._step}", self._start)


@contextlib.contextmanager
def timed(phase: str) -> Iterator[None]:
    """Logs how long a phase before the compilation took, at level INFO.

    Args:
        phase: its name.
    """
    start = time.monotonic()
    yield
    _log_seconds(phase, start)


def _log_seconds(phase: str, start: float) -> None:
    native.info("%s: %.3f s", phase, time.monotonic() - start)
