"""Options: values, setters, errors, files and copies."""

import copy
import io
import json
import os
import re
import sys
import tempfile
import unittest
from unittest import mock

import torch

import poptorch
from poptorch import OutputMode, enums


def _environment(**variables):
    return mock.patch.dict(os.environ, variables)


class SettersTest(unittest.TestCase):
    def setUp(self):
        self.options = poptorch.Options()

    def test_setters_can_be_chained_and_values_read(self):
        opts = self.options.deviceIterations(10).replicationFactor(4).inputReplicaGrouping(2)
        self.assertIs(opts, self.options)
        self.assertIs(opts.Training.gradientAccumulation(8), opts.Training)
        self.assertEqual((opts.device_iterations, opts.replication_factor), (10, 4))
        self.assertEqual((opts.input_group_size, opts.Training.gradient_accumulation), (2, 8))
        self.assertIsNone(opts.anchorTensor("grad", "Gradient___fc.weight"))

    def test_values_can_be_assigned(self):
        self.options.replication_factor = 4
        self.options.set(device_iterations=2)
        self.assertIn("replication_factor=4", repr(self.options))
        self.assertTrue(repr(self.options).startswith("Options("))
        self.assertEqual(self.options.device_iterations, 2)

    def test_wrong_names_and_types_are_refused(self):
        with self.assertRaisesRegex(AssertionError, "Invalid option replication, valid options"):
            self.options.replication = 2
        with self.assertRaisesRegex(
            AssertionError, "Unexpected type <class 'str'> for option replication_factor. Expected"
        ):
            self.options.replicationFactor("2")
        with self.assertRaisesRegex(AssertionError, "Unexpected type <class 'bool'>"):
            self.options.deviceIterations(True)
        with self.assertRaisesRegex(AttributeError, r"Invalid attribute replication\."):
            print(self.options.replication)
        with self.assertRaisesRegex(AttributeError, "Invalid private attribute _replication"):
            self.options._replication = 2
        with self.assertRaisesRegex(ValueError, "deviceIterations is 0, must be at least 1"):
            self.options.deviceIterations(0)

    def test_output_mode(self):
        self.assertTrue(self.options.defaultOutputMode())
        message = "EveryN anchor must have output_return_period set to valid positive integer"
        for period in (None, 0, -1):
            with self.assertRaisesRegex(AssertionError, message):
                self.options.outputMode(OutputMode.EveryN, period)
        self.options.outputMode(OutputMode.EveryN, 5)
        self.assertEqual((self.options.output_mode, self.options.output_return_period), (1, 5))
        with self.assertLogs("poptorch::python", "INFO") as logs:
            self.options.outputMode(OutputMode.All, 3)
        self.assertIn("argument ignored with output_mode set to OutputMode.All", logs.output[0])
        self.assertEqual(self.options.output_return_period, 1)

    def test_input_groups(self):
        self.options.replicationFactor(4)
        for arguments, message in (
            ((2, poptorch.CommGroupType.All), "input_group_type cannot be All"),
            ((8,), "input_group_size cannot be larger than replication_factor"),
            ((3,), "input_group_size must be a factor of replication_factor"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                self.options.inputReplicaGrouping(*arguments)
        self.options.inputReplicaGrouping(4, poptorch.CommGroupType.NoGrouping)
        self.assertEqual(self.options.input_group_size, 1)

    def test_memory_proportions(self):
        self.options.setAvailableMemoryProportion({"IPU0": 0.5, "IPU12": 1})
        self.assertEqual(self.options.available_memory_proportion, {0: 0.5, 12: 1.0})
        for wrong in ({"0": 0.5}, {"IPU": 0.5}, {"IPU0": 2}, 0.5):
            with self.assertRaisesRegex(
                AssertionError,
                'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5}',
            ):
                self.options.setAvailableMemoryProportion(wrong)

    def test_io_tiles(self):
        locations = self.options.TensorLocations
        for tiles in (10, 193, 33):
            with self.assertRaisesRegex(AssertionError, "numIOTiles must be an even number"):
                locations.numIOTiles(tiles)
        self.assertIs(locations.numIOTiles(32), locations)
        self.assertEqual(self.options.TensorLocations.toDict()["numIOTiles"], 32)

    def test_locations(self):
        location = poptorch.TensorLocationSettings().useOnChipStorage(False)
        location.useReplicatedTensorSharding().minElementsForOffChip(4)
        self.options.TensorLocations.setOptimizerLocation(location)
        expected = {"onChip": 0, "useReplicatedTensorSharding": 1, "minElementsForOffChip": 4}
        self.assertEqual(self.options.TensorLocations.location_optimizer, expected)
        location.useOnChipStorage(None)
        self.assertFalse(location.exists("onChip"))
        self.assertEqual(self.options.TensorLocations.location_optimizer, expected)
        with self.assertRaisesRegex(AssertionError, "must be a poptorch.TensorLocationSettings"):
            self.options.TensorLocations.setWeightLocation(False)

    def test_training(self):
        training = self.options.Training
        with self.assertRaisesRegex(ValueError, "must be set to poptorch.ReductionType.Mean or"):
            training.accumulationAndReplicationReductionType(poptorch.ReductionType.NoReduction)
        training.setMeanAccumulationAndReplicationReductionStrategy(
            poptorch.MeanReductionStrategy.Running
        )
        self.assertEqual(
            training.meanAccumulationAndReplicationReductionStrategy,
            poptorch.MeanReductionStrategy.Running,
        )

    def test_precision(self):
        precision = self.options.Precision.setPartialsType(torch.half)
        self.options.Training.setConvolutionDithering(True)
        popart = self.options._Popart.options
        self.assertEqual(popart["partialsTypeMatMuls"], "half")
        self.assertEqual(
            popart["convolutionOptions"], {"partialsType": "half", "enableConvDithering": "true"}
        )
        for wrong in (torch.int32, "half", 16):
            with self.assertRaisesRegex(ValueError, "parameter to setPartialsType should be"):
                precision.setPartialsType(wrong)

    def test_deprecated_setters_warn(self):
        options = self.options
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            options.Jit.traceModel(False)
            options.Precision.halfFloatCasting(enums.HalfFloatCastingBehavior.Default)
            options.Precision.runningStatisticsAlwaysFloat(True)
        for line, name in zip(logs.output, ("Jit.traceModel", "Precision.half", "Precision.run")):
            self.assertIn(f"[Deprecated] Do not call options.{name}", line)
        with self.assertLogs("poptorch::python"), self.assertRaisesRegex(ValueError, "no longer"):
            options.Jit.traceModel(True)
        with self.assertRaisesRegex(ValueError, "needs to be set to a bool"):
            options.Precision.runningStatisticsAlwaysFloat(1)

    def test_random_seed_seeds_torch(self):
        self.assertFalse(self.options.exists("random_seed"))
        self.options.randomSeed(42)
        drawn = torch.rand(3)
        torch.manual_seed(42)
        self.assertTrue(torch.equal(drawn, torch.rand(3)))
        self.assertEqual(self.options.random_seed, 42)

    def test_devices(self):
        self.options.useOfflineIpuTarget().useIpuId(3).useIpuModel(False)
        self.assertEqual(self.options.connection_type, poptorch.ConnectionType.Never)
        self.assertEqual((self.options.ipu_version, self.options.ipu_id), (2, 3))
        self.assertIs(self.options.use_model, False)
        with self.assertRaisesRegex(ValueError, "Valid versions: ipu1, ipu2, ipu21"):
            self.options.useOfflineIpuTarget(3)

    def test_synthetic_data(self):
        for argument, mode in ((True, 2), (False, 0), (1, 1), (2, 2)):
            self.options.enableSyntheticData(argument)
            self.assertEqual(self.options._Popart.options["syntheticDataMode"], mode)

    def test_profiling(self):
        self.options.setExecutionStrategy(poptorch.ShardedExecution()).enableProfiling("there")
        engine = self.options._Popart.options["engineOptions"]
        self.assertEqual(engine["autoReport.directory"], "there")
        self.assertEqual(engine["autoReport.all"], "true")
        with _environment(POPLAR_ENGINE_OPTIONS='{"autoReport.directory": "here"}'):
            with self.assertLogs("poptorch::python", "WARNING") as logs:
                self.options.enableProfiling("there")
        self.assertIn("Check content of POPLAR_ENGINE_OPTIONS.", logs.output[0])
        engine = self.options._Popart.options["engineOptions"]
        self.assertEqual(engine["autoReport.directory"], "here")


class DistributedTest(unittest.TestCase):
    def test_processes_of_the_environment(self):
        with _environment(OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="3"):
            distributed = poptorch.Options().Distributed
        self.assertEqual((distributed.processId, distributed.numProcesses), (3, 4))
        self.assertEqual(distributed.disable().numProcesses, 1)
        with _environment(SIZE="2", RANK="1"):
            self.assertEqual(distributed.setEnvVarNames("SIZE", "RANK").processId, 1)

    def test_wrong_processes(self):
        distributed = poptorch.Options().Distributed
        with self.assertRaisesRegex(ValueError, "process_id is 4, must be between 0 and 3"):
            distributed.configureProcessId(4, 4)
        with _environment(OMPI_COMM_WORLD_SIZE="four"):
            with self.assertRaisesRegex(ValueError, "OMPI_COMM_WORLD_SIZE is 'four', must be an"):
                poptorch.Options()

    def test_the_group_can_be_replaced(self):
        class Fixed(poptorch.options._DistributedOptions):
            def disable(self):
                raise RuntimeError("fixed")

        options = poptorch.Options()
        options.Distributed.__class__ = Fixed
        with self.assertRaisesRegex(RuntimeError, "fixed"):
            options.Distributed.disable()


class FreezingTest(unittest.TestCase):
    def test_frozen_options_refuse_all_setters(self):
        options = poptorch.Options()
        options._freeze()
        settings = poptorch.TensorLocationSettings()
        for change in (
            lambda: options.deviceIterations(2),
            lambda: options.anchorTensor("a", "b"),
            lambda: options.setExecutionStrategy(poptorch.ShardedExecution()),
            lambda: options.useIpuModel(True),
            lambda: options.enableProfiling(),
            lambda: options.disableModuleNamescope(),
            lambda: options.Training.gradientAccumulation(2),
            lambda: options.Precision.enableStochasticRounding(True),
            lambda: options.TensorLocations.setWeightLocation(settings),
            lambda: options.Distributed.disable(),
            lambda: options._Popart.set("autoRecomputation", 3),
            lambda: setattr(options, "device_iterations", 2),
            options.checkIsFrozen,
        ):
            with self.assertRaisesRegex(AttributeError, "Can't modify frozen Options"):
                change()
        options._unfreeze()
        options.Training.gradientAccumulation(2)

    def test_copies_are_independent_and_not_frozen(self):
        options = poptorch.Options().deviceIterations(5)
        options.anchorTensor("t1", "tensor1", OutputMode.EveryN, 2)
        options._Popart.set("autoRecomputation", 3)
        options.Distributed.configureProcessId(5, 15)
        options._freeze()
        for duplicate in (copy.deepcopy(options), options.clone()):
            self.assertEqual(repr(duplicate), repr(options))
            duplicate.deviceIterations(4).anchorTensor("t2", "tensor2", OutputMode.Final)
            duplicate._Popart.set("autoRecomputation", 2)
            duplicate.Precision.setPartialsType(torch.half)
            duplicate.Distributed.configureProcessId(2, 15)
            self.assertEqual(duplicate._Popart.options["partialsTypeMatMuls"], "half")
        self.assertEqual((options.device_iterations, options.Distributed.processId), (5, 5))
        self.assertEqual(options._Popart.options["autoRecomputation"], 3)
        self.assertEqual(list(options.anchored_tensors), ["t1"])


class TextTest(unittest.TestCase):
    def test_to_dict(self):
        options = poptorch.Options()
        with self.assertRaisesRegex(AssertionError, "An output mode must be picked before"):
            options.toDict()
        options.outputMode(OutputMode.All).setExecutionStrategy(poptorch.ShardedExecution())
        values = options._Popart.setPatterns({"PadSum": True}, 0) and options.toDict()
        self.assertEqual((values["execution_mode"], values["patterns_level"]), (1, 0))
        self.assertTrue(callable(values["compilation_progress_bar_fn"]))
        options.showCompilationProgressBar(False)
        self.assertIsNone(options.toDict()["compilation_progress_bar_fn"])

    def test_default_options_of_the_environment(self):
        defaults = {
            "deviceIterations": 2,
            "Precision.enableFloatingPointExceptions": True,
            "connectionType": "ConnectionType.OnDemand",
            "outputMode": ["OutputMode.EveryN", 2],
            "_Popart.set": ["saveInitializersToFile", "my.onnx"],
        }
        expected = poptorch.Options().deviceIterations(2).outputMode(OutputMode.EveryN, 2)
        expected.connectionType(poptorch.ConnectionType.OnDemand)
        expected.Precision.enableFloatingPointExceptions(True)
        expected._Popart.set("saveInitializersToFile", "my.onnx")
        with _environment(POPTORCH_DEFAULT_OPTIONS=json.dumps(defaults)):
            self.assertEqual(f"{poptorch.Options()}", f"{expected}")
        self.assertNotEqual(f"{poptorch.Options()}", f"{expected}")

    def test_wrong_json(self):
        options = poptorch.Options()
        for text, message in (
            ("{", "not a JSON object of setters"),
            ("[1]", "not a JSON object of setters"),
            ('{"deviceIteration": 1}', "'deviceIteration' in the options is not a setter"),
            ('{"_freeze": []}', "'_freeze' in the options is not a setter"),
            ('{"device_iterations": 3}', "'device_iterations' in the options is not a setter"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                options.from_json(text)
        with _environment(POPTORCH_DEFAULT_OPTIONS="{"):
            with self.assertRaisesRegex(ValueError, "POPTORCH_DEFAULT_OPTIONS: The options are"):
                poptorch.Options()

    def test_cache_directory_of_the_environment(self):
        with _environment(POPTORCH_CACHE_DIR="/cache"):
            with self.assertLogs("poptorch::python", "INFO") as logs:
                options = poptorch.Options()
        self.assertIn("POPTORCH_CACHE_DIR is set: setting cache path to /cache", logs.output[0])
        self.assertEqual(options._Popart.options["cachePath"], "/cache")


class FileTest(unittest.TestCase):
    def load(self, text, options=None):
        options = options or poptorch.Options()
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "tmp.conf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return options.loadFromFile(path)

    def test_lines_are_setters(self):
        text = """deviceIterations(1)
        setExecutionStrategy(poptorch.ShardedExecution())
          Training.gradientAccumulation(4)   # Comments are ignored.

        # So are lines of them.
        outputMode(poptorch.OutputMode.Sum)"""
        options = self.load(text, poptorch.Options().replicationFactor(2))
        self.assertIsInstance(options._execution_strategy, poptorch.ShardedExecution)
        self.assertEqual(options.Training.gradient_accumulation, 4)
        self.assertEqual((options.replication_factor, options.output_mode), (2, OutputMode.Sum))

    def test_wrong_lines_are_named(self):
        for line, message in (
            (
                "outputMode(poptorch.OutputMode.All",
                "SyntaxError at line 2 of tmp.conf: unexpected EOF while parsing\n"
                "> options.outputMode(poptorch.OutputMode.All",
            ),
            ("deviceIterations(0)", "ValueError at line 2 of tmp.conf: deviceIterations is 0"),
            ("deviceIterations", "must be one call of a setter"),
            ("nothing()", "AttributeError at line 2 of tmp.conf: Invalid attribute nothing."),
        ):
            with self.assertRaises(poptorch.ConfigFileError) as context:
                self.load(f"# Options\n\nreplicationFactor(2)\n{line}\n")
            self.assertIn(message, str(context.exception))

    def test_missing_file(self):
        with self.assertRaisesRegex(poptorch.ConfigFileError, "nowhere.conf: No such file"):
            poptorch.Options().loadFromFile("nowhere.conf")


class ProgressTest(unittest.TestCase):
    def test_bar(self):
        bar = poptorch.Options().outputMode(OutputMode.All).toDict()["compilation_progress_bar_fn"]
        times = iter((10.0, 10.05, 19.0, 20.0, 21.0))
        file = io.StringIO()
        with mock.patch("time.monotonic", lambda: next(times)), mock.patch("sys.stderr", file):
            for progress in (0, 10, 45, 100):
                bar(progress, 100)
            bar.close()
            bar(1, 100)
            bar.close()
        self.assertEqual(
            file.getvalue().split("\r"),
            [
                "",
                "Graph compilation:   0%|          | 0/100 [00:00<?]",
                "Graph compilation:  45%|████▌     | 45/100 [00:09<00:11]",
                "Graph compilation: 100%|██████████| 100/100 [00:10<00:00]\n",
                "Graph compilation:   1%|          | 1/100 [00:00<00:00]\n",
            ],
        )

    def test_a_long_step_does_not_begin_unseen(self):
        bar = poptorch.Options().outputMode(OutputMode.All).toDict()["compilation_progress_bar_fn"]
        file = io.StringIO()
        with mock.patch("time.monotonic", lambda: 10.0), mock.patch("sys.stderr", file):
            for progress in (0, 5, 11, 22, 77):
                bar(progress, 100)
            bar.close()
        self.assertEqual(re.findall(r" (\d+)%", file.getvalue()), ["0", "11", "22", "77"])


class ErrorsAndLogsTest(unittest.TestCase):
    def test_log_levels(self):
        self.addCleanup(poptorch.setLogLevel, "WARN")
        for level in ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF", 0, 1, 2, 3, 4, 6):
            poptorch.setLogLevel(level)
        self.assertFalse(poptorch.logger.isEnabledFor(50))
        with self.assertRaisesRegex(ValueError, "Invalid log level integer"):
            poptorch.setLogLevel(5)
        with self.assertRaisesRegex(ValueError, "Unknown log level: wibble. Valid values are"):
            poptorch.setLogLevel("wibble")
        for level in (0, "FOO"):
            with self.assertRaisesRegex(ValueError, "Level must be one of DEBUG, ERR"):
                poptorch._logging.setPopartLogLevel(level)

    def test_line_format(self):
        with tempfile.TemporaryFile() as file:
            saved = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                poptorch._logging.native.warning("three %s", "words")
            finally:
                os.dup2(saved, 2)
                os.close(saved)
            file.seek(0)
            line = file.read().decode()
        self.assertRegex(
            line, r"^\[\d\d:\d\d:\d\d\.\d{3}\] \[poptorch:cpp\] \[warning\] three words\n$"
        )

    def test_python_lines_reach_the_root_logger(self):
        with self.assertLogs(level="WARNING") as logs:
            poptorch.logger.warning("seen")
        self.assertEqual(logs.records[0].name, "poptorch::python")

    def test_uncaught_exceptions_are_logged(self):
        self.assertIs(sys.excepthook, poptorch._logging._log_uncaught)
        error = ValueError("what")
        with self.assertLogs("poptorch::python", "CRITICAL") as logs:
            sys.excepthook(ValueError, error, None)
        self.assertEqual(logs.records[0].getMessage(), "ValueError: what\nValueError: what\n")
        self.addCleanup(poptorch.setLogLevel, "WARN")
        poptorch.setLogLevel("OFF")
        with mock.patch.object(sys, "__excepthook__") as hook:
            sys.excepthook(ValueError, error, None)
        hook.assert_called_once_with(ValueError, error, None)

    def test_wrong_level_of_the_environment(self):
        with _environment(POPTORCH_LOG_LEVEL="wibble"):
            with self.assertRaisesRegex(ValueError, "POPTORCH_LOG_LEVEL: Unknown log level: wib"):
                poptorch._logging._initialise()

    def test_error_classes(self):
        import pickle  # pylint: disable=import-outside-toplevel

        error = poptorch._errors.py_error("what")
        self.assertEqual((str(error), error.message), ("'poptorch_py_error': what", "what"))
        self.assertNotIsInstance(error, RuntimeError)
        reset = poptorch.RecoverableError("lost", recovery_action="IPU_RESET")
        for each in (error, reset, poptorch.UnrecoverableError("gone", location="[0] a")):
            restored = pickle.loads(pickle.dumps(each))
            self.assertIs(type(restored), type(each))
            self.assertEqual(restored.__dict__, each.__dict__)
            self.assertEqual(type(each).__module__, "poptorch.poptorch_core")


if __name__ == "__main__":
    unittest.main()
