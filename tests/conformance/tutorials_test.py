"""What the runner of public programs says of programs that pass, fail, hang or are not there."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from tutorial_programs import data
from tutorial_programs.criteria import between, both, ends, prints
from tutorial_programs.runner import Runner, run_all
from tutorial_programs.table import Program, chosen

# Leaves a process behind whose id is in a file, and hangs.
HANGS = """
import pathlib, subprocess, time
child = subprocess.Popen(["sleep", "600"])
pathlib.Path("FOLDER/child").write_text(str(child.pid))
time.sleep(600)
"""


class RunnerTest(unittest.TestCase):
    """Programs of a line or two in place of the public ones."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.logs = self.folder / "logs"
        self.logs.mkdir()
        (self.folder / "examples").mkdir()
        self.runner = Runner(self.folder, self.logs, dict(os.environ))

    def run_text(self, text, criterion=ends, seconds=60, **others):
        """The result of a program with this text."""
        path = self.folder / "examples/program.py"
        path.write_text(text.replace("FOLDER", str(self.folder)))
        program = Program(1, "examples/program.py", criterion, seconds, **others)
        return self.runner.run(program, "1.1")

    def test_passes_if_it_prints_what_is_asked(self):
        result = self.run_text("print('Eval accuracy: 91.5%')", between("Eval accuracy:", 89, 100))
        self.assertEqual((result.outcome, result.why), ("passed", ""))

    def test_failure_names_the_last_line_and_the_log(self):
        result = self.run_text("print('begins')\nraise ValueError('no such stage')")
        log = self.logs / "1.1.log"
        why = f"it ended with status 1: ValueError: no such stage ({log})"
        self.assertEqual((result.outcome, result.why), ("failed", why))
        self.assertIn("begins", log.read_text())

    def test_criterion_that_is_not_met_fails(self):
        result = self.run_text("print('nothing')", prints("IPU throughput"))
        self.assertEqual(result.outcome, "failed")
        self.assertIn("it did not print 'IPU throughput'", result.why)

    def test_program_over_its_limit_is_ended_with_its_processes(self):
        written = self.folder / "child"
        for seconds in (2, 8, 32, 128):  # a busy machine starts programs slowly
            result = self.run_text(HANGS, seconds=seconds)
            if written.exists():
                break
        self.assertEqual(result.outcome, "failed")
        self.assertIn(f"it had not ended after {seconds} s", result.why)
        child = pathlib.Path(f"/proc/{written.read_text()}/status")
        state = child.read_text() if child.exists() else "State:\tZ"
        self.assertIn("State:\tZ", state)

    def test_program_that_is_not_there_is_skipped(self):
        result = self.runner.run(Program(1, "examples/missing.py", ends, 60), "1.1")
        self.assertEqual(result.outcome, "skipped")
        self.assertIn("examples/missing.py is missing", result.why)

    def test_package_that_is_not_there_is_named(self):
        result = self.run_text("", packages=("no_such_package",))
        self.assertEqual(result.outcome, "skipped")
        self.assertIn("no_such_package is not installed", result.why)

    def test_runs_in_a_copy_with_a_home_of_its_own(self):
        (self.folder / "examples/some.conf").write_text("text")
        text = (
            "import os, pathlib; pathlib.Path('written').touch()\n"
            "print(open('tmp/other.conf').read(), os.path.expanduser('~') == os.environ['HOME'])"
        )
        files = (("some.conf", "tmp/other.conf"),)
        result = self.run_text(text, prints("text True"), files=files)
        self.assertEqual((result.outcome, result.why), ("passed", ""))
        self.assertEqual(sorted(os.listdir(self.folder / "examples")), ["program.py", "some.conf"])

    @unittest.skipUnless(data.is_there(data.FASHION_MNIST), "dataset-fashion-mnist is missing")
    def test_fashion_mnist_lies_in_mnists_place_with_a_criterion_of_its_own(self):
        text = (
            "import os, pathlib\n"
            "raw = pathlib.Path(os.path.expanduser('~/.torch/datasets/MNIST/raw'))\n"
            "print((raw / 'train-images-idx3-ubyte').stat().st_size, len(os.listdir(raw)))"
        )
        expected = prints(f"{16 + 100 * 784} 4")
        others = {"fashion": expected, "reads_mnist": True, "images": 100}
        result = self.run_text(text, prints("MNIST's own"), **others)
        self.assertEqual((result.outcome, result.why), ("passed", ""))

    def test_each_outcome_is_counted_and_shown(self):
        (self.folder / "examples/good.py").write_text("")
        (self.folder / "examples/bad.py").write_text("import sys; sys.exit(3)")
        names = ("good.py", "bad.py", "missing.py")
        selection = [(f"1.{name[0]}", Program(1, f"examples/{name}", ends, 60)) for name in names]
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            counts = run_all(self.runner, selection)
        self.assertEqual(counts, {"passed": 1, "failed": 1, "skipped": 1})
        lines = shown.getvalue().splitlines()
        self.assertRegex(lines[0], r"^1\.g good\.py \(at most 60 s\): passed \(\d+ s\)$")
        self.assertRegex(lines[1], r"^1\.b bad\.py .*: failed: it ended with status 3 \(.*\.log\)$")
        self.assertRegex(lines[2], r"^1\.m missing\.py .*: skipped: .* is missing$")


class CriteriaTest(unittest.TestCase):
    """What is read in a program's output."""

    def test_last_percentage_counts(self):
        check = between("Accuracy on test set:", 89, 99.9)
        self.assertIsNone(check("Accuracy on test set: 1.0%\rAccuracy on test set: 95.25%"))
        self.assertIsNotNone(check("Accuracy on test set: 95%\nAccuracy on test set: 88.99%"))
        self.assertIn("88.99%' is not between", check("Accuracy on test set: 88.99%"))
        self.assertIn("did not print", check("Accuracy: 95%"))

    def test_first_criterion_that_is_not_met_is_named(self):
        check = both(prints("one"), prints("two"))
        self.assertIsNone(check("one two"))
        self.assertIn("'two'", check("one"))


class DataTest(unittest.TestCase):
    """The first elements of a file in MNIST's format."""

    def test_header_says_how_many_there_are(self):
        labels = (2049).to_bytes(4, "big") + (4).to_bytes(4, "big") + bytes([5, 6, 7, 8])
        expected = (2049).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes([5, 6])
        self.assertEqual(data.first_elements(labels, "labels", 2), expected)
        with self.assertRaisesRegex(ValueError, "5 labels were asked for"):
            data.first_elements(labels, "labels", 5)


class TableTest(unittest.TestCase):
    """Rows that are asked for."""

    def test_rows_and_single_programs_are_chosen(self):
        self.assertEqual([label for label, _ in chosen(["14"])], ["14.1", "14.2"])
        self.assertEqual([program.name for _, program in chosen(["14.2"])], ["lstm.py"])
        labels = [label for label, _ in chosen([])]
        self.assertEqual(len(labels), len(set(labels)))
        with self.assertRaisesRegex(ValueError, "there is no row '99', there are 1, 2, 3"):
            chosen(["99"])


if __name__ == "__main__":
    unittest.main()
