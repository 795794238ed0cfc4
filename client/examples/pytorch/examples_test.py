"""Runs the examples on the IPUModel, and checks what they print."""

import contextlib
import io
import os
import pathlib
import re
import runpy
import sys
import unittest
from unittest import mock

os.environ["POPTORCH_IPU_MODEL"] = "1"

_HERE = pathlib.Path(__file__).absolute().parent
_MAIN = "\ndef main() -> None:"


def run(script: str, *options: str):
    """The lines that an example prints, run in this process."""
    out = io.StringIO()
    arguments = [str(_HERE / script), *options]
    with contextlib.redirect_stdout(out), mock.patch.object(sys, "argv", arguments):
        runpy.run_path(arguments[0], run_name="__main__")
    return out.getvalue().splitlines()


class ExamplesTest(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(_HERE))
        self.addCleanup(sys.path.remove, str(_HERE))

    def losses(self, *words):
        """The losses that an example prints, which have to fall."""
        lines = run(*words)
        found = [float(line.rpartition("loss ")[2]) for line in lines if "loss " in line]
        self.assertGreater(len(found), 1, lines)
        self.assertLess(found[-1], found[0], lines)
        return found

    def test_the_readme_has_all_examples(self):
        readme = (_HERE / "README.md").read_text()
        programs = [path.name for path in _HERE.glob("*.py") if _MAIN in path.read_text()]
        self.assertGreater(len(programs), 4)
        for name in programs:
            self.assertIn(f"| `python3 {name}` |", readme)

    def test_saved_weights_know_the_classes(self):
        lines = run("basics.py")
        self.assertEqual(len(lines), 4, lines)
        self.assertGreater(float(lines[-1].split()[-2]), 90.0, lines)

    def test_pipelined_and_sharded_execution_train_alike(self):
        pipelined = self.losses("pipeline.py", "--calls", "2")
        sharded = self.losses("pipeline.py", "--calls", "2", "--strategy", "sharded")
        for a, b in zip(pipelined, sharded, strict=True):
            self.assertAlmostEqual(a, b, delta=0.002)

    def test_replicas_share_the_images_of_a_call(self):
        self.losses("resnet.py")
        lines = run("resnet.py", "--replicas", "1", "--calls", "1")
        self.assertIn("call 0: 32 images", lines[0])

    def test_half_precision_halves_the_weights_and_keeps_the_losses(self):
        lines = run("half_precision.py", "--calls", "2")
        sizes = [int(re.search(r"(\d+) bytes", line)[1]) for line in lines]
        self.assertEqual([sizes[0], sizes[0] // 2, sizes[0]], sizes)
        losses = [[float(x) for x in line.rpartition("losses ")[2].split(",")] for line in lines]
        for others in losses[1:]:
            for a, b in zip(losses[0], others, strict=True):
                self.assertAlmostEqual(a, b, delta=0.05)

    def test_the_first_step_is_out_of_memory_and_the_last_fits(self):
        lines = run("out_of_memory.py")
        self.assertTrue(lines[1].startswith("  Out of memory: "), lines[1])
        self.assertEqual(lines[-1], "  It fits.")

    @unittest.skipUnless(
        pathlib.Path("/usr/share/datasets/fashion-mnist").exists(),
        "dataset-fashion-mnist is not installed (deploy/packages.txt)",
    )
    def test_fashion_mnist_is_learnt(self):
        lines = run("basics.py", "--fashion-mnist", "--epochs", "1")
        self.assertGreater(float(lines[-1].split()[-2]), 70.0, lines)


if __name__ == "__main__":
    unittest.main()
