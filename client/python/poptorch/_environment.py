"""Tells whether this interpreter can run the package, before the package imports PyTorch.

The extension is built for one interpreter and for the distribution's libraries, and the capture
knows the inner parts of one version of PyTorch. Elsewhere the import would end in an error of the
dynamic linker, or a model in the midst of its capture, so it is refused with one sentence.

Other interpreters have to read this file and the doctor's: they have no syntax that is newer than
Python 3.6.
"""

import collections
import importlib.util
import os
import re
import sys

PYTHON = (3, 11)
PYTORCH = "1.13"
DOCTOR = "poptorch.doctor"

_PYTHON = "/usr/bin/python3"
_PACKAGE = "Debian's package python3-torch"
_LIBRARY = re.compile(r"lib[^/]+\.so[.\d]*$")
_VERSION = re.compile(r"^__version__\s*(?::\s*str\s*)?=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_OURS = "libvpod.so.1"  # tells our libraries from those of a foreign SDK
_FOREIGN = ("libpoplar.so", "libpopart.so", "libpoptorch.so")


class Fault(collections.namedtuple("Fault", "what remedy")):
    """What is wrong, and what to do about it."""

    def __str__(self) -> str:
        return "%s: %s" % self


# --- The interpreter.


def interpreter() -> str:
    """The interpreter's name, such as "CPython 3.11.2 (/usr/bin/python3)"."""
    names = {"cpython": "CPython", "pypy": "PyPy"}
    name = names.get(sys.implementation.name, sys.implementation.name)
    version = ".".join(str(part) for part in sys.version_info[:3])
    return "%s %s (%s)" % (name, version, sys.executable)


def interpreter_fault():
    """What is wrong with the interpreter, or None."""
    if sys.implementation.name == "cpython" and sys.version_info[:2] == PYTHON:
        return None
    what = "poptorch needs CPython %d.%d, and this is %s" % (PYTHON + (interpreter(),))
    return Fault(what, "use %s of Debian 12" % _PYTHON)


# --- PyTorch.


def torch_version():
    """The version and the file of the PyTorch that `import torch` finds, as a pair of strings.

    It is not imported. The file is "" if there is none, the version is if it is another module.
    """
    module = sys.modules.get("torch")
    if module is not None:
        return getattr(module, "__version__", ""), getattr(module, "__file__", None) or ""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin:
        return "", ""
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "version.py")) as file:
            found = _VERSION.search(file.read())
    except OSError:
        found = None
    return (found.group(1) if found else ""), spec.origin


def torch_fault():
    """What is wrong with the PyTorch that `import torch` finds, or None."""
    version, file = torch_version()
    needed = "poptorch needs PyTorch %s, and " % PYTORCH
    if not file:
        if sys.prefix != sys.base_prefix and not _sees_distribution():
            return Fault(
                needed + "the virtual environment %s does not see the distribution's" % sys.prefix,
                "make it with 'python3 -m venv --system-site-packages'",
            )
        # Another Python of the same version, such as pyenv's, has modules of its own.
        is_distributions = os.path.realpath(sys.executable) == os.path.realpath(_PYTHON)
        remedy = "install %s" if is_distributions else "use " + _PYTHON + " with %s"
        return Fault(needed + "none is installed for %s" % sys.executable, remedy % _PACKAGE)
    if not version:
        return Fault(needed + "%s, which is found in its place, is not" % file, "rename this file")
    if version != PYTORCH and not version.startswith(PYTORCH + "."):
        where = os.path.dirname(file)
        return Fault(
            needed + "PyTorch %s is installed in %s" % (version, where),
            "remove it there, and install %s" % _PACKAGE,
        )
    return None


def _sees_distribution() -> bool:
    return any(path.endswith("/dist-packages") for path in sys.path)


def torch_import_fault():
    """Imports PyTorch; what is wrong with the libraries that it loads, or None."""
    try:
        import torch  # pylint: disable=import-outside-toplevel,unused-import
    except (ImportError, OSError) as error:
        return library_fault("PyTorch", str(error))
    return None


# --- Libraries.


def _system_directories():
    multiarch = getattr(sys.implementation, "_multiarch", "")
    return ["/lib", "/usr/lib", "/lib/" + multiarch, "/usr/lib/" + multiarch]


def _foreign_directories():
    """The directories of LD_LIBRARY_PATH that are neither ours nor the system's."""
    system = [os.path.realpath(each) for each in _system_directories()]
    directories = []
    for each in re.split("[:;]", os.environ.get("LD_LIBRARY_PATH") or ""):
        is_ours = os.path.exists(os.path.join(each, _OURS))
        if each and not is_ours and os.path.realpath(each) not in system + directories:
            directories.append(each)
    return directories


def _names_in(directory):
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def shadowing_libraries():
    """Files in LD_LIBRARY_PATH that programs load instead of the distribution's libraries."""
    is_of_system = lambda name: any(
        os.path.exists(os.path.join(each, name)) for each in _system_directories()
    )
    return [
        os.path.join(directory, name)
        for directory in _foreign_directories()
        for name in _names_in(directory)
        if _LIBRARY.match(name) and is_of_system(name)
    ]


def foreign_sdk_fault():
    """Says that LD_LIBRARY_PATH has the libraries of another SDK, or None."""
    for directory in _foreign_directories():
        for name in _names_in(directory):
            if name.startswith(_FOREIGN):
                what = "LD_LIBRARY_PATH has %s, which holds %s of another SDK" % (directory, name)
                return Fault(what, "take %s out of LD_LIBRARY_PATH" % directory)
    return None


def library_fault(what: str, text: str) -> Fault:
    """Says which library cannot be loaded.

    Args:
        what: what needs it.
        text: the dynamic linker's words.
    """
    shadowing = shadowing_libraries()
    named = re.match(r"(/\S+?): ", text)
    if named and os.path.dirname(named.group(1)) in _foreign_directories():
        shadowing.insert(0, named.group(1))
    if shadowing:
        directory, name = os.path.split(shadowing[0])
        given = "%s needs Debian 12's %s, and LD_LIBRARY_PATH gives it %s"
        return Fault(
            given % (what, name, shadowing[0]), "take %s out of LD_LIBRARY_PATH" % directory
        )
    missing = re.match(r"(lib\S+): cannot open shared object file", text)
    if missing:
        return Fault(
            "%s needs %s, which is not installed" % (what, missing.group(1)),
            "run deploy/install-packages",
        )
    return Fault(
        "%s needs the libraries of Debian 12, and those of this system are others" % what,
        "run deploy/install-packages and deploy/build on this system",
    )


def extension_fault(error: ImportError) -> Fault:
    """Says why the extension cannot be loaded; `error` is the import's."""
    if isinstance(error, ModuleNotFoundError):
        directory = os.path.dirname(os.path.abspath(__file__))
        return Fault(
            "poptorch needs its extension poptorch_core, which is not in %s" % directory,
            "run deploy/build and 'source deploy/enable.sh'",
        )
    return library_fault("poptorch", str(error))


# --- All of it.


def check() -> None:
    """Checks interpreter, PyTorch and its libraries; imports PyTorch.

    Raises:
        ImportError: the package cannot be used here; one sentence says why.
    """
    fault = interpreter_fault() or torch_fault() or torch_import_fault()
    if fault:
        raise ImportError(str(fault))


def runs_doctor() -> bool:
    """Whether the package is imported because of `python3 -m poptorch.doctor`."""
    if sys.argv[:1] != ["-m"]:  # what it is while the module is looked for
        return False
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return False
    return DOCTOR in words or "-m" + DOCTOR in words
