"""Wrong options, loaders and levels of the log: each is refused with PopTorch's class and text."""

import unittest

import torch

import poptorch
from mistakes import Mistakes, Net, infer, quiet

mistake = Mistakes()


# --- Options.


_NO_INTEGER = "Unexpected type .* for option %s. Expected <class 'int'>"


@mistake(ValueError, "deviceIterations is .*, must be at least 1", 0, -1)
@mistake(AssertionError, _NO_INTEGER % "device_iterations", 1.5, "2")
def device_iterations(value):
    quiet().deviceIterations(value)


@mistake(ValueError, "replicationFactor is .*, must be at least 1", 0, -4)
@mistake(AssertionError, _NO_INTEGER % "replication_factor", "2", None)
def replication_factor(value):
    quiet().replicationFactor(value)


@mistake(ValueError, "gradientAccumulation is .*, must be at least 1", 0, -1)
@mistake(AssertionError, _NO_INTEGER % "gradient_accumulation", 2.0)
def gradient_accumulation(value):
    quiet().Training.gradientAccumulation(value)


@mistake(AssertionError, r"output_mode is .*, must be a poptorch\.OutputMode", "all", 3, None)
def output_mode(value):
    quiet().outputMode(value)


@mistake(AssertionError, "EveryN anchor must have output_return_period set to valid positive")
def every_n_without_period():
    quiet().outputMode(poptorch.OutputMode.EveryN)


@mistake(ValueError, "input_group_size must be a factor of replication_factor")
def group_size_no_factor():
    quiet().replicationFactor(4).inputReplicaGrouping(3, poptorch.CommGroupType.Consecutive)


@mistake(ValueError, "input_group_size cannot be larger than replication_factor")
def group_size_too_large():
    quiet().replicationFactor(2).inputReplicaGrouping(4, poptorch.CommGroupType.Consecutive)


@mistake(ValueError, "input_group_type cannot be All")
def group_type_all():
    quiet().replicationFactor(2).inputReplicaGrouping(2, poptorch.CommGroupType.All)


@mistake(
    AssertionError,
    'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5}',
    {"IPU0": 1.5},
    {"IPU0": -0.1},
    {"zero": 0.5},
    {0: 0.5},
    0.5,
)
def memory_proportion(value):
    quiet().setAvailableMemoryProportion(value)


@mistake(AssertionError, "numIOTiles must be an even number between 32 and 192", 31, 33, 194, -2)
def io_tiles(value):
    quiet().TensorLocations.numIOTiles(value)


@mistake(ValueError, "setPartialsType should be either torch.float or", torch.int32, "half")
def partials_type(value):
    quiet().Precision.setPartialsType(value)


@mistake(AssertionError, "random_seed is .*, must be an integer", "7", 1.5)
@mistake(ValueError, r"random_seed is .*, must be between -\d+ and \d+", 2**64, -(2**63) - 1)
def random_seed(value):
    quiet().randomSeed(value)


@mistake(ValueError, "ipu_id is -1, must be at least 0", -1)
@mistake(AssertionError, "ipu_id is '3', must be an integer", "3")
def ipu_id(value):
    quiet().useIpuId(value)


@mistake(AssertionError, "connection_type is .*, must be a ConnectionType", 1, "Always", None)
def connection_type(value):
    quiet().connectionType(value)


@mistake(AssertionError, "strategy is .*, must be an execution strategy", "pipelined", 1)
def strategy(value):
    quiet().setExecutionStrategy(value)


@mistake(ValueError, "process_id is .*, must be between 0 and 1", (-1, 2), (2, 2))
@mistake(AssertionError, _NO_INTEGER % "distributed_process_id", ("a", 2))
def process_id(value):
    quiet().Distributed.configureProcessId(*value)


@mistake(poptorch.Error, "Unknown integer option noSuchKey")
def popart_key():
    options = quiet()
    options._Popart.set("noSuchKey", 1)
    infer(None, options)


@mistake(AttributeError, "Can't modify frozen Options")
def frozen_options():
    options = quiet()
    poptorch.inferenceModel(Net(), options)
    options.deviceIterations(2)


@mistake(AttributeError, "Can't modify frozen Options")
def frozen_group():
    options = quiet()
    poptorch.DataLoader(options, [1, 2, 3])
    options.Training.gradientAccumulation(2)


@mistake(AttributeError, "Invalid attribute noSuchOption", "noSuchOption")
def unknown_option(name):
    getattr(quiet(), name)


@mistake(ValueError, "'noSuch' in the options is not a setter of", '{"noSuch": 1}')
@mistake(ValueError, "The options are not a JSON object of setters and their arguments", "{", "[1]")
def options_in_json(text):
    quiet().from_json(text)


@mistake(poptorch.ConfigFileError, "Cannot read the options' file /no/such/file")
def options_file():
    quiet().loadFromFile("/no/such/file")


# --- Data.


@mistake(TypeError, "must be a poptorch.Options", None, 3)
def loader_without_options(value):
    poptorch.DataLoader(value, [1])


@mistake(
    poptorch.Error,
    "`batch_sampler` option is mutually exclusive with batch_size, shuffle",
)
def batch_sampler_and_size():
    poptorch.DataLoader(quiet(), [1, 2], batch_size=2, batch_sampler=[[0], [1]])


@mistake(AssertionError, "batch_size=None not allowed with DataLoaderMode.AsyncRebatched")
def rebatched_without_size():
    poptorch.DataLoader(
        quiet(), [1, 2], batch_size=None, mode=poptorch.DataLoaderMode.AsyncRebatched
    )


@mistake(ValueError, "batch_size is .*, must be at least 1", 0, -3)
def batch_size(value):
    poptorch.DataLoader(quiet(), [1, 2], batch_size=value)


@mistake(TypeError, "mode is .*, must be a poptorch.DataLoaderMode", "async", 1, None)
def loader_mode(value):
    poptorch.DataLoader(quiet(), [1, 2], mode=value)


# --- Functions.


@mistake(ValueError, "Invalid log level integer", 9)
@mistake(ValueError, "Unknown log level: .* Valid values are DEBUG, ERR, INFO, OFF", "LOUD", "")
def log_level(value):
    poptorch.setLogLevel(value)


class MistakesTest(unittest.TestCase):
    def test_each_is_refused(self):
        self.assertGreaterEqual(len(mistake), 55)
        mistake.check(self)


if __name__ == "__main__":
    unittest.main()
