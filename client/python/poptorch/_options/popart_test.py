"""The check of options before a model is compiled, and the lines that it logs."""

import unittest

import torch

import poptorch
from poptorch._options import popart as _popart_options


class ValidateTest(unittest.TestCase):
    def setUp(self):
        self.options = poptorch.Options().outputMode(poptorch.OutputMode.All)

    def lines(self):
        poptorch.setLogLevel("DEBUG")
        self.addCleanup(poptorch.setLogLevel, "WARN")
        with self.assertLogs("poptorch:cpp", "DEBUG") as logs:
            _popart_options.validate(self.options.toDict())
        return [record.getMessage() for record in logs.records]

    def test_all_setters_of_options_pass(self):
        options = self.options.deviceIterations(4).replicationFactor(2).inputReplicaGrouping(2)
        options.maxRepeatLogs(None).logDir("there").useIpuId(1).useIpuModel(False).randomSeed(3)
        options.useOfflineIpuTarget().modelName("net").enableExecutableCaching("cache")
        options.enableSyntheticData(True).enableStableNorm(True).logCycleCount(True)
        options.setAvailableMemoryProportion({"IPU0": 0.5}).enableProfiling()
        options.anchorTensor("a", "b")
        options.setExecutionStrategy(poptorch.SerialPhasedExecution("A"))
        options.Training.gradientAccumulation(2).setAutomaticLossScaling(True)
        options.Training.setConvolutionDithering(True)
        options.Precision.enableStochasticRounding(True).setPartialsType(torch.half)
        options.Precision.enableFloatingPointExceptions(True)
        location = poptorch.TensorLocationSettings().useOnChipStorage(False)
        options.TensorLocations.setWeightLocation(location).numIOTiles(32)
        options.Distributed.configureProcessId(1, 2)
        lines = self.lines()
        for line in (
            "poptorch.Options set replication_factor to value 2",
            "poptorch.Options set device_iterations to value 4",
            "poptorch.Options set execution_mode to value 2",
            "poptorch.Options set serial_phases_execution to value true",
            "poptorch.Options set output_mode to value 2",
            "poptorch.Options set syntheticDataMode to value 2",
            "poptorch.Options set partialsTypeMatMuls to value half",
            "poptorch.Options set convolutionOptions[partialsType] to half",
        ):
            self.assertIn(line, lines)

    def test_lists_and_maps(self):
        popart = self.options._Popart
        popart.set("hardwareInstrumentations", {0, 1}).set("dotChecks", ["FINAL", "ALL"])
        popart.setEngineOptions({"debug.allowOutOfMemory": "true"}).set("customCodelets", [])
        popart.set("outlineThreshold", 10).set("timeLimitScheduler", 0.5)
        popart.setPatterns({"PadSum": True}, 0)
        lines = self.lines()
        for line in (
            "poptorch.Options added 0 to hardwareInstrumentations",
            "poptorch.Options added 1 to hardwareInstrumentations",
            "poptorch.Options added FINAL to dotChecks",
            "poptorch.Options set engineOptions[debug.allowOutOfMemory] to true",
            "poptorch.Options set patterns[PadSum] to true",
            "poptorch.Options set timeLimitScheduler to value 0.5",
        ):
            self.assertIn(line, lines)

    def test_wrong_options(self):
        for name, value, message in (
            ("unknown", True, "Unknown bool option unknown"),
            ("unknown", {}, "Unknown map option unknown"),
            ("enableOutlining", 1, "Unknown integer option enableOutlining"),
            ("defaultBufferingDepth", 1.5, "Unknown float option defaultBufferingDepth"),
            ("dotChecks", torch.empty(1), "Unknown value type Tensor for option dotChecks"),
            ("dotChecks", None, "Unknown value type NoneType for option dotChecks"),
        ):
            options = self.options.clone()
            options._Popart.set(name, value)
            with self.assertRaisesRegex(poptorch.Error, message):
                _popart_options.validate(options.toDict())

    def test_log_dir_is_ignored(self):
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            self.options._Popart.set("logDir", "there")
        self.assertIn("logDir", logs.output[0])
        self.assertNotIn("logDir", self.options.toDict())


if __name__ == "__main__":
    unittest.main()
