"""What the log says of a compilation at level INFO: phases with seconds, and the cache."""

import os
import re
import tempfile
import unittest

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from poptorch._executor.progress import (  # pylint: disable=wrong-import-position
    CompilerProgress,
)


def _phases(lines):
    """The names of the phases in lines of the log, each of which has its seconds."""
    found = [re.fullmatch(r"INFO:poptorch:cpp:(.+): \d+\.\d{3} s", line) for line in lines]
    return [each[1] for each in found if each]


class StepsTest(unittest.TestCase):
    def run_steps(self, *steps):
        """The lines of a compilation that reports these steps: (name, done)."""
        progress = CompilerProgress(with_bar=False)
        with self.assertLogs("poptorch:cpp", "INFO") as logged:
            for step, done in steps:
                progress(step, done, 2)
            progress.close()
        self.assertTrue(progress.has_steps)
        return _phases(logged.output)

    def test_each_step_has_a_line(self):
        phases = self.run_steps(("Lowering", 0), ("Packing", 1), ("Packing", 1), ("Done", 2))
        self.assertEqual(phases, ["Compilation, Lowering", "Compilation, Packing"])

    def test_a_step_that_fails_has_one(self):
        phases = self.run_steps(("Lowering", 0), ("Packing", 1))
        self.assertEqual(phases, ["Compilation, Lowering", "Compilation, Packing"])


class LogTest(unittest.TestCase):
    def lines(self, directory: str, iterations: int = 1):
        """The lines of a first call of a model, with a cache there."""
        options = poptorch.Options().showCompilationProgressBar(False)
        options.enableExecutableCaching(directory).deviceIterations(iterations)
        torch.manual_seed(1)
        model = poptorch.inferenceModel(nn.Linear(2, 2), options)
        with self.assertLogs("poptorch:cpp", "INFO") as logged:
            model(torch.ones(iterations, 2))
        model.destroy()
        return logged.output

    def test_phases_and_cache(self):
        with tempfile.TemporaryDirectory() as directory:
            first, second = self.lines(directory), self.lines(directory)
            self.assertIn(f"INFO:poptorch:cpp:Executable cache {directory}: miss", first)
            self.assertIn(f"INFO:poptorch:cpp:Executable cache {directory}: hit", second)
        self.assertEqual(_phases(first)[:2], ["Capture", "Graph"])
        self.assertGreater(len(_phases(first)), 4)
        self.assertEqual(_phases(second), ["Capture", "Graph"])

    def test_a_miss_names_what_differs(self):
        with tempfile.TemporaryDirectory() as directory:
            self.lines(directory)
            (file,) = os.listdir(directory)
            self.assertIn(
                f"INFO:poptorch:cpp:Executable cache {directory}: miss; the program (optimizer,"
                " accumulation, iterations, outputs) differs from that of"
                f" {file}, the nearest file",
                self.lines(directory, iterations=2),
            )


if __name__ == "__main__":
    unittest.main()
