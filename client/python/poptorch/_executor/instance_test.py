"""The warning of a process that has the variables of poprun and never calls popdist.init()."""

import logging
import os
import sys
import types
import unittest
from unittest import mock

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from poptorch._executor import instance  # pylint: disable=wrong-import-position

# One instance with one replica, which an IPU Model runs.
_JOB = {
    "POPDIST_NUM_TOTAL_REPLICAS": "1",
    "POPDIST_NUM_LOCAL_REPLICAS": "1",
    "POPDIST_REPLICA_INDEX_OFFSET": "0",
}
_OTHERS = {name: value for name, value in os.environ.items() if not name.startswith("POPDIST_")}


def _run() -> None:
    """Runs a model."""
    options = poptorch.Options().showCompilationProgressBar(False)
    model = poptorch.inferenceModel(nn.Linear(2, 2), options)
    model(torch.ones(1, 2))
    model.destroy()


class InstanceTest(unittest.TestCase):
    def warnings(self, function, environment, *modules) -> list:
        """The warnings of a function in a process that has not warned yet."""
        with (
            mock.patch.object(instance, "_has_warned", False),
            mock.patch.dict(os.environ, {**_OTHERS, **environment}, clear=True),
            mock.patch.dict(sys.modules, {module.__name__: module for module in modules}),
            self.assertLogs("poptorch::python", "WARNING") as logged,
        ):
            function()
            logging.getLogger("poptorch::python").warning("end")
        return [record.getMessage() for record in logged.records[:-1]]

    def popdist(self, **functions) -> types.ModuleType:
        """A package that a program has imported."""
        module = types.ModuleType("popdist")
        vars(module).update(functions)
        return module

    def test_models_warn_once(self):
        def run_two():
            _run()
            _run()

        (warning,) = self.warnings(run_two, _JOB)
        self.assertRegex(
            warning,
            r"an instance of a job of poprun \(POPDIST_NUM_LOCAL_REPLICAS,"
            r" POPDIST_NUM_TOTAL_REPLICAS, POPDIST_REPLICA_INDEX_OFFSET\), but popdist\.init\(\)"
            " was never called: .* or unset the variables",
        )
        self.assertEqual(self.warnings(run_two, {}), [])

    def test_each_variable_counts(self):
        for name in ("POPDIST_NODE_DEVICE_ID", "POPDIST_EXECUTABLE_CACHE_PATH"):
            (warning,) = self.warnings(instance.warn_of_job, {name: "0"})
            self.assertIn(f"({name})", warning)
        self.assertEqual(self.warnings(instance.warn_of_job, {"IPUOF_LOG_LEVEL": "WARN"}), [])

    def test_a_program_that_has_called_init_is_not_warned(self):
        initialised = self.popdist(isBackendInitialized=lambda: True)
        self.assertEqual(self.warnings(instance.warn_of_job, _JOB, initialised), [])
        for imported in (self.popdist(), self.popdist(isBackendInitialized=lambda: False)):
            self.assertEqual(len(self.warnings(instance.warn_of_job, _JOB, imported)), 1)


if __name__ == "__main__":
    unittest.main()
