"""python3 -m poptorch.doctor: says what keeps models from running here, and what to do about it.

Prints a line for each check, "ok …" or "error: … (what to do)". The exit code is 0 if all is well,
1 if anything is not, and 2 for unknown arguments. It also runs where the package cannot be
imported: the package calls it before it imports anything else.
"""

import importlib
import os
import sys

from . import _environment
from ._environment import Fault

_FIRST = "mend the errors above first"
_PARTITION = "see 'vipu list partitions'"
_POD = "start one with 'vpod up', or name its controller with IPUOF_VIPU_API_HOST"


def _core():
    """The extension, without the rest of the package; a Fault if it cannot be loaded."""
    if _environment.interpreter_fault():
        return Fault("the extension poptorch_core is for another interpreter", _FIRST)
    try:
        return importlib.import_module("poptorch.poptorch_core")
    except ImportError as error:
        return _environment.extension_fault(error)


def _interpreter():
    return _environment.interpreter_fault() or _environment.interpreter()


def _torch():
    version, file = _environment.torch_version()
    fault = _environment.torch_fault()
    if fault is None and _environment.interpreter_fault() is None:
        fault = _environment.torch_import_fault()
    return fault or "PyTorch %s (%s)" % (version, os.path.dirname(file))


def _library_path():
    return _environment.foreign_sdk_fault() or "LD_LIBRARY_PATH: no libraries of another SDK"


def _extension():
    core = _core()
    if isinstance(core, Fault):
        return core
    return "extension %s: %d operators" % (core.__file__, len(core.operators()))


def _pod():
    """What is found of the POD, and then of the partition."""
    if _ipu_model():
        return ["POD: none is needed, because %s is set" % _ipu_model()[0]]
    core = _core()
    if isinstance(core, Fault):
        return [Fault("the POD cannot be looked for without the extension", _FIRST)]
    try:
        partition, gcd, ipus, where = core.active_partition()
        return ["POD: %s" % where, "partition %s, GCD %d: %d IPUs" % (partition, gcd, ipus)]
    except core.StatusError as error:
        partition_fault = Fault(_clause(error), _PARTITION)
    try:
        return ["POD: controller %s" % core.controller(), partition_fault]
    except core.StatusError as error:
        return [Fault(_clause(error), _POD)]


def _clause(error) -> str:
    """What an error of the extension says, as one clause."""
    return error.args[1].splitlines()[0].rstrip(". ")


def _ipu_model():
    names = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")
    return [name for name in names if os.environ.get(name, "0") not in ("", "0")]


def checks():
    """Runs the checks, one after the other; gives what each found, a text or a Fault."""
    for check in (_interpreter, _torch, _library_path, _extension):
        yield check()
    for found in _pod():
        yield found


def main(arguments=None) -> int:
    """Prints the checks. Returns the exit code.

    Args:
        arguments: of the command line, without the program's name.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if arguments:
        message = "poptorch.doctor: error: unknown argument '%s'. Try '--help'." % arguments[0]
        print(message, file=sys.stderr)
        return 2
    well = True
    for found in checks():
        if isinstance(found, Fault):
            print("error: %s (%s)" % found)
            well = False
        else:
            print("ok %s" % found)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
