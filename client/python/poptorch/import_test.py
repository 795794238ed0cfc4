"""What `import poptorch` and `python3 -m poptorch.doctor` say where the package cannot run."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import unittest
import venv

_PACKAGE = pathlib.Path(__file__).absolute().parent
_POD_THAT_IS_AWAY = {"IPUOF_VIPU_API_HOST": "localhost", "IPUOF_VIPU_API_PORT": "1"}
_NEW_MODULES = """
    import sys
    import torch
    before = set(sys.modules)
    import poptorch
    print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
    print("poptorch.poptorch_core" in sys.modules)
"""


def _run(*arguments, python=sys.executable, paths=(), **variables):
    """Runs Python with the package and other paths before it; gives (exit code, output, errors)."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("IPUOF_", "POPTORCH_", "LD_", "PYTHONPATH"))
    }
    # The parent of the package, even where the package is a link.
    parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment["PYTHONPATH"] = ":".join([*map(str, paths), parent])
    environment.update(variables)
    run = subprocess.run(
        [str(python), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    return run.returncode, run.stdout, run.stderr


class ImportTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def assert_refused(self, sentence: str, *arguments, **how):
        """Checks that the import fails with a sentence, and with no words beside it."""
        code, out, errors = _run(*(arguments or ("-c", "import poptorch")), **how)
        self.assertEqual((code, out), (1, ""), errors)
        last = errors.rstrip("\n").split("\n")[-1]
        self.assertRegex(last, f"^ImportError: {sentence}$")
        for word in ("During handling", "cannot open", "too short", "undefined", "ELF"):
            self.assertNotIn(word, errors)

    def file(self, name: str, text: str = "") -> pathlib.Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def library(self, module: str, prefix: str) -> str:
        """The name of a library that a module of the extension's kind needs."""
        linked = subprocess.run(["ldd", module], capture_output=True, text=True, check=True)
        found = re.search(rf"^\s*({prefix}\S*\.so[.\d]*) => ", linked.stdout, re.MULTILINE)
        self.assertIsNotNone(found, linked.stdout)
        return found.group(1)

    def test_other_interpreters(self):
        program = "import sys; sys.version_info = (3, 9, 2, 'final', 0); import poptorch"
        executable = re.escape(sys.executable)
        self.assert_refused(
            rf"poptorch needs CPython 3\.11, and this is CPython 3\.9\.2 \({executable}\):"
            r" use /usr/bin/python3 of Debian 12",
            "-c",
            program,
        )

    def test_other_versions_of_pytorch(self):
        for line in ("__version__ = '2.1.0+cpu'", "__version__: str = '2.1.0+cpu'"):
            self.file("torch/__init__.py", "raise SystemExit('PyTorch was imported')")
            self.file("torch/version.py", line)
            self.assert_refused(
                r"poptorch needs PyTorch 1\.13, and PyTorch 2\.1\.0\+cpu is installed in"
                rf" {self.directory}/torch: remove it there, and install Debian's package"
                r" python3-torch",
                paths=[self.directory],
            )

    def test_other_modules_of_this_name(self):
        path = self.file("torch.py", "value = 1")
        self.assert_refused(
            rf"poptorch needs PyTorch 1\.13, and {path}, which is found in its place, is not:"
            r" rename this file",
            paths=[self.directory],
        )

    def test_no_pytorch(self):
        # Without `site`, the interpreter does not find the distribution's modules.
        self.assert_refused(
            rf"poptorch needs PyTorch 1\.13, and none is installed for {re.escape(sys.executable)}:"
            r" install Debian's package python3-torch",
            "-S",
            "-c",
            "import poptorch",
        )

    def test_closed_virtual_environments(self):
        venv.create(self.directory / "closed", symlinks=True)
        self.assert_refused(
            rf"poptorch needs PyTorch 1\.13, and the virtual environment {self.directory}/closed"
            r" does not see the distribution's: make it with"
            r" 'python3 -m venv --system-site-packages'",
            python=self.directory / "closed/bin/python3",
        )

    def test_open_virtual_environments_load_little(self):
        venv.create(self.directory / "open", symlinks=True, system_site_packages=True)
        python = self.directory / "open/bin/python3"
        code, out, errors = _run("-c", textwrap.dedent(_NEW_MODULES), python=python)
        self.assertEqual((code, errors), (0, ""))
        modules, has_extension = out.splitlines()
        self.assertLessEqual(set(modules.split()), {"faulthandler", "poptorch", "torch"})
        self.assertEqual(has_extension, "False")

    def test_foreign_libraries_of_pytorch(self):
        torch = sysconfig.get_path("platlib", "deb_system") + "/torch"
        module = next(pathlib.Path(torch).glob("_C.*.so"))
        name = self.library(str(module), "libprotobuf")
        path = self.file(name)
        self.assert_refused(
            rf"PyTorch needs Debian 12's {name}, and LD_LIBRARY_PATH gives it {path}: take"
            rf" {self.directory} out of LD_LIBRARY_PATH",
            LD_LIBRARY_PATH=str(self.directory),
        )

    def test_foreign_libraries_of_the_extension(self):
        name = self.library(str(_PACKAGE / "poptorch_core.so"), "libabsl")
        path = self.file(name)
        self.assert_refused(
            rf"poptorch needs Debian 12's {name}, and LD_LIBRARY_PATH gives it {path}: take"
            rf" {self.directory} out of LD_LIBRARY_PATH",
            LD_LIBRARY_PATH=str(self.directory),
        )

    def test_the_doctor_says_why_the_package_cannot_be_imported(self):
        self.file("libpopart.so")
        code, out, errors = _run(
            "-S", "-m", "poptorch.doctor", LD_LIBRARY_PATH=str(self.directory), **_POD_THAT_IS_AWAY
        )
        self.assertEqual((code, errors), (1, ""))
        expected = [
            rf"ok CPython 3\.11\.\d+ \({re.escape(sys.executable)}\)",
            r"error: poptorch needs PyTorch 1\.13, and none is installed for .*"
            r" \(install Debian's package python3-torch\)",
            rf"error: LD_LIBRARY_PATH has {self.directory}, which holds libpopart\.so of another"
            rf" SDK \(take {self.directory} out of LD_LIBRARY_PATH\)",
            r"ok extension /.*/poptorch_core.*\.so: \d\d\d+ operators",
            r"error: Cannot connect to the V-IPU server at localhost:1\b.* \(start one with"
            r" 'vpod up', or name its controller with IPUOF_VIPU_API_HOST\)",
        ]
        self.assertRegex(out, "^" + "\n".join(expected) + "\n$")

    def test_the_doctor_is_content(self):
        code, out, errors = _run("-m", "poptorch.doctor", POPTORCH_IPU_MODEL="1")
        self.assertEqual((code, errors), (0, ""), out)
        lines = out.splitlines()
        self.assertTrue(all(line.startswith("ok ") for line in lines), out)
        self.assertRegex(lines[1], r"^ok PyTorch 1\.13\.\S* \(/.*/torch\)$")
        self.assertEqual(lines[-1], "ok POD: none is needed, because POPTORCH_IPU_MODEL is set")

    def test_the_doctor_refuses_arguments(self):
        code, out, errors = _run("-m", "poptorch.doctor", "--all")
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(
            errors, "poptorch.doctor: error: unknown argument '--all'. Try '--help'.\n"
        )


if __name__ == "__main__":
    unittest.main()
