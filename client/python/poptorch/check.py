"""python3 -m poptorch.check SCRIPT [ARGS…]: tells whether the models of a script can be compiled.

Runs the script as `python3 SCRIPT ARGS…` would, but without a device: the first call of each model
records its forward, and all calls return zeros in the shapes of the results. What the script
prints goes to standard error. Afterwards a line says of each operator that cannot be compiled
where it is called, and by which module. Nothing is compiled, so a model that has too much for the
memory of an IPU is not found.

The exit code is 0 if all models can be compiled, 1 if one cannot, if the script called none,
failed or cannot be read, and 2 for unknown arguments.
"""

import contextlib
import ctypes
import os
import runpy
import sys
import traceback
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from . import _errors
from ._capture import capture as _capture
from ._capture.tape import dtype_number, dtype_of
from ._executor import poplar_executor as _executor
from ._executor.core import core
from ._executor.wrapped_module import EXECUTOR

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}


class Report:
    """What was found, in the order in which it was found.

    Attributes:
        lines: what is wrong, each text once.
        models: (name of the model's class, number of operators, how many cannot be compiled).
    """

    def __init__(self) -> None:
        self.lines: List[str] = []
        self.models: List[Tuple[str, int, int]] = []

    def note(self, line: str) -> None:
        """Takes note of something that is wrong."""
        if line not in self.lines:
            self.lines.append(line)

    @property
    def is_good(self) -> bool:
        """Whether there are models, and nothing is wrong with them."""
        return bool(self.models) and not self.lines

    def print(self, script: str) -> None:
        """Prints all of it to standard output."""
        for line in self.lines:
            print(line)
        if not self.models and not self.lines:
            print(f"{script}: no model of poptorch was called")
        for name, operators, unsupported in dict.fromkeys(self.models):
            if unsupported:
                print(f"{name}: {unsupported} of {operators} operators cannot be compiled")
            else:
                print(f"{name}: all {operators} operators can be compiled")


class _Extension:
    """In the place of the extension, for the executors."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._refused = False
        self._name = ""

    def operators(self) -> List[str]:
        """Those that can be compiled."""
        return core().operators()

    def capture(self, module, args: tuple, kwargs: dict, **how: Any) -> tuple:
        """As _capture.capture, but goes on with operators that cannot be compiled.

        Raises:
            poptorch.Error: the model does what a compiled model cannot, such as reading elements.
        """
        self._name = _name_of(module)
        unsupported: list = []
        try:
            tape, structure = _capture.capture(module, args, kwargs, refused=unsupported, **how)
        except _errors.Error as error:
            unsupported += getattr(error, "operators", ())
            raise
        finally:
            for name, place in unsupported:
                self._report.note(_line_of(name, place, self._name))
        self._refused = bool(unsupported)
        calls = sum(1 for record in tape.records if "::" not in tape.operators[record[0]])
        self._report.models.append((self._name, calls, len(unsupported)))
        return tape, structure

    def Model(self, tape, options: Dict[str, Any], optimizer) -> "_Model":
        """A model that has no device. Builds its graph, which finds arguments that are refused."""
        if not self._refused:
            try:
                core().Model(tape, options, optimizer)
            except core().StatusError as error:
                self._report.note(f"{self._name}: {error.args[1]}")
        return _Model(tape, options)


class _Model:
    """In the place of poptorch_core.Model: runs give zeros, weights stay what they are."""

    def __init__(self, tape, options: Dict[str, Any]) -> None:
        self.is_compiled = False
        self.is_loaded = False
        written = [
            (i, final) for i, (_, value, final) in enumerate(tape.inputs) if value != final
        ]
        self.written_inputs = [i for i, _ in written]
        outputs = list(tape.results) + [final for _, final in written]
        returned = [_returned_micro_batches(options)] * len(outputs)
        for value, _, mode, period in options.get("anchors", []):
            outputs.append(value)
            own = {**options, "output_mode": mode, "output_period": period}
            returned.append(_returned_micro_batches(own))
        self._output_types = [_device_type(tape.values[value]) for value in outputs]
        self.output_copies = [options["replicas"] * count for count in returned]
        groups = options["replicas"] // options["input_group_size"]
        self.input_copies = groups * _micro_batches(options)

    def compile(self, progress=None) -> None:
        """Does nothing."""
        self.is_compiled = True

    def load(self, *device) -> None:
        """Does nothing."""
        self.is_loaded = True

    def detach(self) -> None:
        """Does nothing."""
        self.is_loaded = False

    def output_types(self) -> List[tuple]:
        """(PyTorch's number of the type, dimensions) of each result of one micro-batch."""
        return self._output_types

    def run(self, inputs, outputs) -> None:
        """Writes zeros."""
        for address, size in outputs:
            ctypes.memset(address, 0, size)

    def write_state(self, entries) -> None:
        """Does nothing."""

    def read_state(self, entries) -> None:
        """Does nothing."""

    def set_hyper_parameters(self, optimizer) -> None:
        """Does nothing."""

    def variables(self) -> Dict[str, tuple]:
        """The model has no variables on a device."""
        return {}

    def executable(self) -> bytes:
        """There is none."""
        return b""

    def take_executable(self, executable: bytes) -> bool:
        """Takes none: the model is compiled."""
        return False

    def transfers(self) -> Tuple[list, list]:
        """A run moves nothing."""
        return [], []

    def cycles(self) -> int:
        """A run takes none."""
        return 0


def _device_type(value: tuple) -> tuple:
    dtype = dtype_of(value[0])
    return dtype_number(_NARROWED.get(dtype, dtype)), value[1]


def _micro_batches(options: Dict[str, Any]) -> int:
    """How many micro-batches of each replica a call runs."""
    return options["device_iterations"] * options["gradient_accumulation"]


def _returned_micro_batches(options: Dict[str, Any]) -> int:
    """How many micro-batches of each replica a call returns."""
    if options["output_mode"] in ("final", "sum"):
        return 1
    return _micro_batches(options) // max(options.get("output_period", 1), 1)


def _name_of(model) -> str:
    """The name of a function, or of a module's class."""
    if not isinstance(model, torch.nn.Module):
        return getattr(model, "__name__", type(model).__name__)
    wrapped = EXECUTOR in vars(model)
    return (type(model).__base__ if wrapped else type(model)).__name__


# --- Places.


def _line_of(name: str, place, model: str) -> str:
    """A line such as "net.py:12: aten::fft_rfft (by torch.fft.rfft) in module 'encoder' of Net"."""
    where = f"{_relative(place.place[0])}:{place.place[1]}: " if place.place else ""
    by = f" (by {place.function})" if place.function else ""
    module = f"module '{place.scope}' of {model}" if place.scope else model
    return f"{where}{name}{by} in {module}"


def _relative(path: str) -> str:
    """A path below the current directory, from there."""
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path


def _failure(error: BaseException) -> str:
    """What an exception says that ended the script, and where the script was then."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, _TORCH, "<frozen"))
    ]
    if not frames:
        return f"{type(error).__name__}: {text}"
    last = frames[-1]
    return f"{_relative(last.filename)}:{last.lineno}: {type(error).__name__}: {text}"


# --- The script.


@contextlib.contextmanager
def _captures_only(report: Report):
    """Meanwhile executors capture, and use no device."""
    extension = _Extension(report)
    kept = (_executor.core, _executor.capture)
    _executor.core, _executor.capture = (lambda: extension), extension.capture
    try:
        yield
    finally:
        _executor.core, _executor.capture = kept


def check(script: str, arguments: Sequence[str]) -> Report:
    """Runs a script; its models are captured.

    Args:
        script: path of the script.
        arguments: those of the script.
    """
    report = Report()
    kept = (sys.argv, sys.path[:])
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        with _captures_only(report), contextlib.redirect_stdout(sys.stderr):
            runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            report.note(f"{script}: the script ended with {error.code}")
    except Exception as error:  # pylint: disable=broad-except
        report.note(f"{_failure(error)}. What comes after this line was not checked.")
    finally:
        sys.argv, sys.path[:] = kept
    return report


def _wrong(message: str, code: int = 2) -> int:
    print(f"poptorch.check: error: {message}", file=sys.stderr)
    return code


def main(arguments: Optional[List[str]] = None) -> int:
    """Checks a script and prints what was found. Returns the exit code.

    Args:
        arguments: of the command line, without the program's name.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if not arguments:
        return _wrong("no script is named. Try '--help'.")
    script = arguments[0]
    if script.startswith("-"):
        return _wrong(f"unknown argument '{script}'. Try '--help'.")
    try:
        with open(script, "rb"):
            core()
    except OSError as error:
        return _wrong(f"cannot read the script '{script}': {error.strerror}", code=1)
    except ImportError as error:
        return _wrong(str(error))
    report = check(script, arguments[1:])
    report.print(script)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
