"""Files with compiled models: what a model was captured as, its executable, and the program's part.

A file is, in this order,

    16 bytes    VPOD-POPTORCH, the number of the format, and zeros
    32 bytes    SHA-256 of the rest
     8 bytes    the size of the compiled part, the lowest byte first
    as many     the compiled part: a dictionary, pickled (protocol 4)
    rest        the program's part: the same; it has the model, its optimiser and its options

The pickled parts run code of the classes that they name, as those of torch.load do: load only files
that you trust.
"""

import copy
import hashlib
import os
import pickle
import struct
import tempfile
from typing import Any, Dict, NamedTuple, Optional, Tuple

from .. import _errors, enums
from .._capture.tape import Tape
from .._data.batch_sizes import Factors
from .._logging import logger
from .args import Description
from .core import call as core_call
from .hardware import uses_ipu_model
from .replica_groups import restore

_MAGIC = b"VPOD-POPTORCH\x01\0\0"
_HEADER = struct.Struct("<16s32sQ")
# How files of other programs begin that may be taken for those of PoplarExecutor.save.
_FOREIGN = {
    b"PK\x03\x04": "it is a file of torch.save",
    b"VIPUCACHE": "it is an executable of a cache",
}
# Ends the name of a file of Poplar's exchange format, or stands in its first bytes.
_POPEF = b"popef"


class Captured(NamedTuple):
    """A model as it was captured.

    Attributes:
        tape: its operators.
        results: the structure of forward's result.
        description: of the arguments.
    """

    tape: Tape
    results: Any
    description: Description


def _version() -> str:
    from .. import __version__  # pylint: disable=import-outside-toplevel

    return __version__


def _digest(*parts: bytes) -> bytes:
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part)
    return sha.digest()


def write_file(filename: str, compiled: Dict[str, Any], program: Dict[str, Any]) -> None:
    """Replaces a file, wholly or not at all.

    Args:
        filename: its name.
        compiled, program: the two parts.
    """
    first, second = (pickle.dumps(part, protocol=4) for part in (compiled, program))
    size = struct.pack("<Q", len(first))
    folder = os.path.dirname(filename) or "."
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(filename) + ".", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _digest(size, first, second) + size)
            file.write(first)
            file.write(second)
        os.chmod(temporary, 0o644)
        os.replace(temporary, filename)
    except BaseException:
        os.unlink(temporary)
        raise


def _invalid(filename: str, why: str) -> _errors.Error:
    return _errors.py_error(_errors.INVALID_FILE % (filename, why))


def _foreign(filename: str, content: bytes) -> _errors.Error:
    for beginning, what in _FOREIGN.items():
        if content.startswith(beginning):
            return _invalid(filename, f"{what}, and not of PoplarExecutor.save")
    is_popef = os.fsencode(filename).lower().endswith(b"." + _POPEF)
    if content and (is_popef or _POPEF in content[:64].lower()):
        return _invalid(filename, _errors.POPEF_FILE)
    return _invalid(filename, "it is not a file of PoplarExecutor.save")


def _parts(filename: str) -> Tuple[bytes, bytes]:
    """The pickled parts of a file.

    Raises:
        poptorch.Error: it cannot be read, is another kind of file, or is damaged.
    """
    try:
        with open(filename, "rb") as file:
            content = file.read()
    except OSError as error:
        raise _invalid(filename, f"it cannot be read: {error.strerror}") from None
    if not content.startswith(_MAGIC):
        raise _foreign(filename, content)
    if len(content) < _HEADER.size:
        raise _invalid(filename, "it is truncated")
    _, digest, size = _HEADER.unpack_from(content)
    parts = content[_HEADER.size : _HEADER.size + size], content[_HEADER.size + size :]
    if _digest(struct.pack("<Q", size), *parts) != digest:
        raise _invalid(filename, "it is truncated or damaged")
    return parts


def _unpickled(filename: str, part: bytes) -> Dict[str, Any]:
    try:
        return pickle.loads(part)
    except (AttributeError, ImportError) as error:
        raise _invalid(filename, f"this program lacks what it was saved with: {error}") from None


def _compiled_part(filename: str, part: bytes) -> Dict[str, Any]:
    content = _unpickled(filename, part)
    theirs, ours = content["version"], _version()
    assert theirs == ours, _errors.FILE_VERSION % (filename, theirs, ours)
    return content


def read_program(filename: str) -> Dict[str, Any]:
    """The program's part of a file, as `PoplarExecutor.save` writes it.

    Raises:
        AssertionError: the file was saved without the model, or by another version.
        poptorch.Error: see `_parts`.
    """
    compiled, program = _parts(filename)
    _compiled_part(filename, compiled)
    content = _unpickled(filename, program)
    assert content["model"] is not None, _errors.NO_MODEL_IN_FILE % (filename, filename)
    options = content["options"]
    options._unfreeze()
    # A model that was compiled for an offline target runs on the devices of this system.
    options.deleteIfExists("ipu_version")
    if options.connection_type == enums.ConnectionType.Never:
        options.connectionType(enums.ConnectionType.Always)
    return content


def _destination(filename: str) -> str:
    folder = os.path.dirname(filename)
    if folder and not os.path.exists(folder):
        os.makedirs(folder)
    assert not folder or os.path.isdir(folder), _errors.NO_FOLDER % folder
    if not os.path.isdir(filename):
        return filename
    inside = os.path.join(filename, "model.poptorch")
    logger.warning("save(): %s is a directory, saving model to %s", filename, inside)
    return inside


def _with_functions(tape: Tape, functions: list) -> Tape:
    """A tape with these functions of the host."""
    changed = copy.copy(tape)
    changed.host_functions = functions
    return changed


class SavedModels:
    """The part of PoplarExecutor that saves compiled models and takes them from files."""

    _core: Optional[Any]
    _captured: Optional[Captured]
    _options: Any
    _training: bool

    def compileAndExport(
        self, filename: str, *args: Any, export_model: bool = True, **kwargs: Any
    ) -> None:
        """Compiles the model for arguments like these, and saves it.

        Args:
            filename, export_model: see `save`.
            args, kwargs: as for a call.
        """
        self.compile(*args, **kwargs)
        self.save(filename, export_model)

    def save(self, filename: str, export_model: bool = True, save_rng_state: bool = True) -> None:
        """Saves the compiled model.

        Args:
            filename: the file, or a directory that gets a file model.poptorch. Its directory is
                made if there is none.
            export_model: also saves the model with its weights and its optimiser, so that
                poptorch.load makes an executor. Otherwise `loadExecutable` of an executor of an
                equal model takes what is saved.
            save_rng_state: also saves the state of random numbers.

        Raises:
            poptorch.Error: the model is not compiled, or cannot be pickled; or it is to be saved
                alone, and has functions of the host.
            AssertionError: the file's directory is a file.
        """
        self._check_compiled()
        captured = self._captured
        functions = captured.tape.host_functions
        if functions and not export_model:
            raise _errors.py_error(_errors.CPU_SAVED_ALONE)
        filename = _destination(filename)
        compiled = {
            "version": _version(),
            "training": self._training,
            "captured": tuple(captured._replace(tape=_with_functions(captured.tape, []))),
            "multiplier": Factors.of(self._options).product,
            "ipu_model": uses_ipu_model(self._options),
            "executable": core_call(self._core.executable),
        }
        program = {
            "training": self._training,
            "options": self._options,
            "model": None,
            "optimizer": None,
            "optimizer_state": {},
            "host_functions": functions,  # here, because methods among them are the model's
            "rng_state": self._saved_rng_state() if save_rng_state else None,
        }
        if export_model:
            self.copyWeightsToHostIfNeeded()
            program["model"] = self.model
            if self._training:
                self._device_optimizer.leave()
                program["optimizer"] = self._device_optimizer.optimizer
                program["optimizer_state"] = self._optimizer_state()
        try:
            write_file(filename, compiled, program)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise _errors.py_error(_errors.NOT_SAVED % (filename, error)) from None

    def _saved_rng_state(self):
        """None of a model that has not been on a device: it begins with its seed."""
        return self.rng_state if self._core.is_loaded else self._rng_state

    def loadExecutable(self, filename: str) -> None:
        """Takes the compiled model of a file of `save` in the place of a compilation.

        The file is of an equal model with equal options. If it was compiled for others, or by
        another version of the compiler, the model in it is compiled again.

        Raises:
            poptorch.Error: it is another kind of file, is damaged, or is of another model.
        """
        self._take_compiled(filename, [])

    def _go_on_from(self, filename: str, program: Dict[str, Any]) -> None:
        """Takes the compiled model of a file and the state in it, but not its model.

        Args:
            filename: the file.
            program: what `read_program` returned.
        """
        # Files of earlier versions lack some entries.
        self._take_compiled(filename, program.get("host_functions", []))
        restore(self._captured.tape, dict(self._tensors()), self._options.replication_factor)
        self._set_optimizer_state(program.get("optimizer_state", {}))
        if program["rng_state"] is not None:
            self.rng_state = program["rng_state"]
        if self.isAttachedToDevice():
            self._upload_all()

    def _take_compiled(self, filename: str, functions: list) -> None:
        try:
            content = _compiled_part(filename, _parts(filename)[0])
        except AssertionError as error:
            raise _errors.py_error(str(error)) from None
        captured = Captured(*content["captured"])
        self._check_file(filename, content, captured)
        if len(captured.tape.host_calls) != len(functions):
            raise _invalid(filename, _errors.CPU_LOADED_ALONE)
        captured = captured._replace(tape=_with_functions(captured.tape, functions))
        if self.isAttachedToDevice():
            self._leave_device()
        ipu_model = uses_ipu_model(self._options)
        model, anchors = self._build(captured, content["ipu_model"] and ipu_model)
        if not core_call(model.take_executable, content["executable"]):
            logger.info(_errors.COMPILED_AGAIN, filename)
            self._compile_core(model)
        self._install(captured, model, anchors)
        if self._options.connection_type == enums.ConnectionType.Always:
            self._load()

    def _check_file(self, filename: str, content: Dict[str, Any], captured: Captured) -> None:
        """Raises poptorch.Error if a file is not of this model."""
        if content["training"] != self._training:
            kind = "a training" if content["training"] else "an inference"
            raise _invalid(filename, f"it is of {kind} model, and this is none")
        product = Factors.of(self._options).product
        if content["multiplier"] != product:
            raise _invalid(
                filename,
                f"it was compiled for calls of {content['multiplier']} micro-batches, and the"
                f" options of this model say {product}",
            )
        tensors = dict(self._tensors())
        tape = captured.tape
        rows = {tape.parameters[number][0]: (groups,) for number, groups, _ in tape.groupings}
        for name, value, *_ in [*tape.parameters, *tape.buffers]:
            dims = (*rows.get(name, ()), *tape.values[value][1])
            if name not in tensors:
                raise _invalid(filename, f"its model has a tensor {name}, and this model has none")
            if tuple(tensors[name].shape) != dims:
                raise _invalid(
                    filename,
                    f"{name} is {list(dims)} there, and {list(tensors[name].shape)} in this model",
                )
        asked = self._groupings()
        given = {
            id(tensors[tape.parameters[number][0]]): (groups, orthogonal)
            for number, groups, orthogonal in tape.groupings
        }
        # A file that poptorch.load reads gives its model the groups.
        if asked and asked != given:
            raise _invalid(filename, "its parameters have other groups of replicas")
