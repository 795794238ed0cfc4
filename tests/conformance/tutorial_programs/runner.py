"""Runs one program in a directory of its own."""

import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from . import data
from .table import Program

# Lists of packages, as deploy/install-packages takes them.
_PACKAGES = "tests/conformance/tutorial_programs/packages.txt"
_SHORTENED = pathlib.Path(__file__).parent / "shortened.py"
# Where programs look for the data sets: below the home directory and below their own.
_ROOTS = ("home/.torch/datasets", "program/mnist_data")


class Result(NamedTuple):
    """How a program ended.

    Attributes:
        outcome: "passed", "failed" or "skipped".
        why: it did not pass; empty if it did.
        seconds: it ran.
    """

    outcome: str
    why: str = ""
    seconds: float = 0.0


class Runner:
    """Runs programs whose repositories lie in one folder."""

    def __init__(
        self, folder: pathlib.Path, logs: pathlib.Path, environment: Dict[str, str]
    ) -> None:
        """
        Args:
            folder: has the repositories, and perhaps a folder `mnist` with MNIST's files.
            logs: for what the programs print.
            environment: of the programs.
        """
        self._folder = folder
        self._logs = logs
        self._environment = environment
        self.has_digits = data.is_there(folder / "mnist")

    def run(self, program: Program, label: str) -> Result:
        """Runs a program to its end.

        Args:
            program: what to run.
            label: the name of the log, without ".log".
        """
        why = self._missing(program)
        if why is not None:
            return Result("skipped", why)
        log = self._logs / f"{label}.log"
        with tempfile.TemporaryDirectory(prefix="tutorial-", ignore_cleanup_errors=True) as name:
            scratch = pathlib.Path(name)
            words = self._prepare(program, scratch)
            begin = time.monotonic()
            why = _run(words, scratch, self._environment_in(scratch), log, program.seconds)
            seconds = time.monotonic() - begin
        if why is None:
            digits = self.has_digits or program.fashion is None
            criterion = program.criterion if digits else program.fashion
            why = criterion(log.read_text(errors="replace"))
        if why is None:
            return Result("passed", seconds=seconds)
        return Result("failed", f"{why} ({log})", seconds)

    def _missing(self, program: Program) -> Optional[str]:
        """Why a program cannot be run here."""
        if not (self._folder / program.path).exists():
            return f"{self._folder / program.path} is missing"
        for package in program.packages:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed ({_PACKAGES})"
        if program.reads_mnist and not data.is_there(data.FASHION_MNIST):
            return "dataset-fashion-mnist is not installed (deploy/packages.txt)"
        return None

    def _prepare(self, program: Program, scratch: pathlib.Path) -> List[str]:
        """Lays out the directory of a program, and returns its command line."""
        source = self._folder / program.path
        own = scratch / "program"
        shutil.copytree(source.parent, own)
        (scratch / "tmp").mkdir()
        for name, place in program.files:
            (own / place).parent.mkdir(exist_ok=True)
            shutil.copy(own / name, own / place)
        if program.reads_mnist:
            self._place_data(program, scratch)
        (scratch / "home").mkdir(exist_ok=True)
        data.place_weights(program.weights, scratch / "home")
        if source.suffix == ".ipynb":
            return _notebook(source.name, program.seconds)
        limits = [] if program.batches is None else [str(_SHORTENED), str(program.batches)]
        return [sys.executable, *limits, source.name, *program.arguments]

    def _place_data(self, program: Program, scratch: pathlib.Path) -> None:
        digits = self._folder / "mnist" if self.has_digits else data.FASHION_MNIST
        for root in _ROOTS:
            data.place(digits, scratch / root / "MNIST/raw", program.images)
        data.place(data.FASHION_MNIST, scratch / _ROOTS[0] / "FashionMNIST/raw", program.images)

    def _environment_in(self, scratch: pathlib.Path) -> Dict[str, str]:
        return {
            **self._environment,
            "HOME": str(scratch / "home"),
            "TMPDIR": str(scratch / "tmp"),
            "POPLAR_EXECUTABLE_CACHE_DIR": str(scratch / "cache"),
            "MPLBACKEND": "Agg",
            "PIP_NO_INDEX": "1",  # Notebooks install packages that are there.
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            # Threads of PyTorch that wait must not take cores from the IPUs.
            "OMP_WAIT_POLICY": "passive",
        }


def _notebook(name: str, seconds: int) -> List[str]:
    """The command that executes a notebook and prints it with what its cells printed."""
    words = ["--to", "notebook", "--execute", "--stdout"]
    limit = f"--ExecutePreprocessor.timeout={seconds}"
    return [sys.executable, "-m", "nbconvert", *words, limit, name]


def _run(
    words: List[str],
    scratch: pathlib.Path,
    environment: Dict[str, str],
    log: pathlib.Path,
    seconds: int,
) -> Optional[str]:
    """Runs a command, and ends all its processes. Returns what is wrong with how it ended."""
    with open(log, "wb") as output:
        process = subprocess.Popen(
            words,
            cwd=scratch / "program",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"it had not ended after {seconds} s"
        finally:
            _end_group(process)
    if code == 0:
        return None
    how = f"it ended with status {code}" if code > 0 else f"signal {-code} ended it"
    last = _last_line(log)
    return f"{how}: {last}" if last else how


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kills what is left of a program's processes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _last_line(log: pathlib.Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    lines = [line for line in lines if line]
    return lines[-1][:300] if lines else ""


def run_all(runner: Runner, selection: Iterable[Tuple[str, Program]]) -> Dict[str, int]:
    """Runs programs one after the other, and prints a line of each.

    Args:
        runner: runs them.
        selection: their labels, and the programs.

    Returns:
        How many "passed", "failed" and were "skipped".
    """
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for label, program in selection:
        changes = f", {program.changes}" if program.changes else ""
        limit = f"at most {program.seconds} s"
        print(f"{label} {program.name} ({limit}{changes}): ", end="", flush=True)
        result = runner.run(program, label)
        counts[result.outcome] += 1
        time = f" ({result.seconds:.0f} s)" if result.outcome == "passed" else ""
        print(result.outcome + (f": {result.why}" if result.why else time), flush=True)
    return counts
