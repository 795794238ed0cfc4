"""Wrong options, loaders and levels of the log: each is refused with PopTorch's class and text."""

import unittest

import torch

import poptorch
from mistakes import Mistakes, Net, infer, quiet

mistake = Mistakes()


# --- Options.


_COUNT = "is .*, must be|Unexpected type"


@mistake((ValueError, AssertionError), _COUNT, 0, -1, 1.5, "2")
def device_iterations(value):
    quiet().deviceIterations(value)


@mistake((ValueError, AssertionError), _COUNT, 0, -4, "2", None)
def replication_factor(value):
    quiet().replicationFactor(value)


@mistake((ValueError, AssertionError), _COUNT, 0, -1, 2.0)
def gradient_accumulation(value):
    quiet().Training.gradientAccumulation(value)


@mistake((ValueError, AssertionError), r"is .*, must be", "all", 3, None)
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
    (ValueError, AssertionError),
    "Available memory proportions are expected|must be",
    {"IPU0": 1.5},
    {"IPU0": -0.1},
    {"zero": 0.5},
    {0: 0.5},
    0.5,
)
def memory_proportion(value):
    quiet().setAvailableMemoryProportion(value)


@mistake((AssertionError, ValueError), "numIOTiles must be an even number", 31, 33, 194, -2)
def io_tiles(value):
    quiet().TensorLocations.numIOTiles(value)


@mistake((AssertionError, ValueError), "setPartialsType should be either", torch.int32, "half")
def partials_type(value):
    quiet().Precision.setPartialsType(value)


@mistake((AssertionError, ValueError), "random_seed is .*, must be", "7", 1.5, 2**64, -(2**63) - 1)
def random_seed(value):
    quiet().randomSeed(value)


@mistake((ValueError, AssertionError), "must be", -1, "3")
def ipu_id(value):
    quiet().useIpuId(value)


@mistake((ValueError, AssertionError), "must be", 1, "Always", None)
def connection_type(value):
    quiet().connectionType(value)


@mistake(AssertionError, "must be|strategy", "pipelined", 1)
def strategy(value):
    quiet().setExecutionStrategy(value)


@mistake((ValueError, AssertionError), "must be|Unexpected type", (-1, 2), (2, 2), ("a", 2))
def process_id(value):
    quiet().Distributed.configureProcessId(*value)


@mistake(Exception, "(?i)unknown .*option noSuchKey")
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


@mistake(AttributeError, "Invalid|has no attribute", "noSuchOption")
def unknown_option(name):
    getattr(quiet(), name)


@mistake(Exception, "not a setter|Invalid|Unknown|JSON", '{"noSuch": 1}', "{", "[1]")
def options_in_json(text):
    quiet().from_json(text)


@mistake(Exception, "/no/such/file")
def options_file():
    quiet().loadFromFile("/no/such/file")


# --- Data.


@mistake(TypeError, "must be a poptorch.Options", None, 3)
def loader_without_options(value):
    poptorch.DataLoader(value, [1])


@mistake(Exception, "mutually exclusive")
def batch_sampler_and_size():
    poptorch.DataLoader(quiet(), [1, 2], batch_size=2, batch_sampler=[[0], [1]])


@mistake(Exception, "batch_size=None not allowed")
def rebatched_without_size():
    poptorch.DataLoader(
        quiet(), [1, 2], batch_size=None, mode=poptorch.DataLoaderMode.AsyncRebatched
    )


@mistake(Exception, "(?i)batch_size|must be", 0, -3)
def batch_size(value):
    poptorch.DataLoader(quiet(), [1, 2], batch_size=value)


# --- Functions.


@mistake(Exception, "Invalid log level integer|Unknown log level|Level must be", 9, "LOUD", "")
def log_level(value):
    poptorch.setLogLevel(value)


class MistakesTest(unittest.TestCase):
    def test_each_is_refused(self):
        self.assertGreaterEqual(len(mistake), 55)
        mistake.check(self)


if __name__ == "__main__":
    unittest.main()
