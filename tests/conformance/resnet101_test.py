"""What the command resnet101 finds in messages and profiles, and what it counts as a failure."""

import contextlib
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from unittest import mock

_COMMAND = pathlib.Path(__file__).parent / "resnet101"


def _load():
    """The command as a module."""
    sys.dont_write_bytecode = True
    loader = SourceFileLoader("resnet101", str(_COMMAND))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("resnet101", loader))
    sys.modules["resnet101"] = module
    loader.exec_module(module)
    return module


resnet101 = _load()

_MESSAGE = (
    "Out of memory: Cannot fit all variable data onto one or more tiles. On IPU 1, 1472 of 1472"
    " tiles need more than their 638976 bytes, by up to 51632 bytes. Fullest tiles: 1271 (690608),"
    " 0 (690584). Tile 1271 is fullest at convolution 'layer4.0.conv2' of program 'training'; its"
    " largest variables are 'network.layer4.2.conv2.weight' (6704 bytes), 'labels' (4 bytes). To"
    ' try: more recomputation (_Popart.set("autoRecomputation", 1)): fits, float16'
    " (model.half()): not tried, weights off the chip (TensorLocations.setWeightLocation): not"
    " alone, accumulators off the chip (TensorLocations.setAccumulatorLocation): fits."
)
# popvision in its smallest form: prints a profile's summary.
_POPVISION = """#!/bin/sh
cat "$3/summary.json"
"""
_SUMMARY = """{"view": "summary", "blocks": [
 {"title": "Host streams of a replica in a run", "rows": [
  {"Stream": "input0", "IPU": 0, "Direction": "to device", "Bytes": 4718592},
  {"Stream": "input1", "IPU": 1, "Direction": "to device", "Bytes": 768},
  {"Stream": "output0", "IPU": 0, "Direction": "from device", "Bytes": 4}]},
 {"title": "Weights of a replica, which runs leave on the IPUs",
  "facts": {"Cycles from the host": 10, "Cycles to the host": 20}},
 {"title": "Runs", "rows": [{"Run": 0, "Cycles": 500}, {"Run": 1, "Cycles": 400}]}]}"""


class AdviceTest(unittest.TestCase):
    def test_all_parts_are_found(self):
        advice = resnet101.Advice.of(_MESSAGE)
        self.assertEqual(
            advice.tiles, "On IPU 1, 1472 of 1472 tiles need more than their 638976 bytes"
        )
        self.assertEqual(advice.tensors, ["network.layer4.2.conv2.weight"])
        self.assertEqual(
            advice.fitting,
            [
                'more recomputation (_Popart.set("autoRecomputation", 1))',
                "accumulators off the chip (TensorLocations.setAccumulatorLocation)",
            ],
        )

    def test_a_message_without_advice_has_none(self):
        advice = resnet101.Advice.of("Out of memory: no IPU is free.")
        self.assertEqual((advice.tiles, advice.tensors, advice.fitting), ("", [], []))


class ReportTest(unittest.TestCase):
    def test_figures_are_those_of_the_summary(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder) / "popvision"
            tool.write_text(_POPVISION)
            tool.chmod(0o755)
            (pathlib.Path(folder) / "summary.json").write_text(_SUMMARY)
            path = folder + os.pathsep + os.environ["PATH"]
            with mock.patch.dict(os.environ, PATH=path):
                report = resnet101.Report(folder)
        self.assertEqual(report.image_bytes(), 4718592)
        self.assertEqual(report.cycles(), 530)
        self.assertTrue(report.has_run())


class ChecksTest(unittest.TestCase):
    def test_a_tenth_is_allowed_and_no_more(self):
        checks, out = resnet101.Checks(), io.StringIO()
        with contextlib.redirect_stdout(out):
            checks.near("cycles", 1000, 1100, 0.1)
            checks.near("cycles", 1000, 900, 0.1)
            checks.near("cycles", 1000, 1101, 0.1)
            checks.near("MiB", 4.5, 4.6, 0)
        self.assertEqual((checks.passed, checks.failed), (2, 2))
        self.assertIn("  FAILED cycles: asked 1,000, got 1,101, +10.1 %", out.getvalue())


class UsageTest(unittest.TestCase):
    def _fails(self, *arguments, path=""):
        run = subprocess.run(
            [sys.executable, str(_COMMAND), *arguments],
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(run.returncode, 2, run.stderr)
        return run.stderr

    def test_steps_are_named(self):
        self.assertIn("unknown step 'first'; use out-of-memory, half", self._fails("first"))

    def test_tools_are_asked_for(self):
        self.assertIn("the tools are not on PATH; source deploy/enable.sh", self._fails())


if __name__ == "__main__":
    unittest.main()
