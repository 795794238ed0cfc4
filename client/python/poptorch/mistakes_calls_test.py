"""Wrong calls, blocks and orders of calls: each is refused with PopTorch's class and text."""

import os
import unittest

import torch
from torch import nn
from torch.utils.data import TensorDataset

import poptorch
from mistakes import Mistakes, Net, X, Y, infer, quiet, train

mistake = Mistakes()


# --- Arguments and batches.


@mistake(
    AssertionError,
    r"(?s)Invalid batch dimension: In the input x, the batch dimension \(\d\) must be a multiple of"
    r" .* = 6\n.*product d × R × a      6\n  rows of x              \d = 6 × \d \+ \d",
    3,
    5,
    8,
)
def batch_dimension(rows):
    options = quiet().deviceIterations(2)
    options.Training.gradientAccumulation(3)
    train(options=options, batch=(torch.ones(rows, 6), torch.zeros(rows, dtype=torch.long)))


@mistake(AssertionError, r"Invalid batch dimension: .* batch dimension \(1\) must be a multiple")
def batch_without_dimensions():
    poptorch.inferenceModel(lambda x: x * 2, quiet().deviceIterations(2))(torch.tensor(1.0))


@mistake(AssertionError, r"Too many arguments provided: expected \['x', 'labels'\]", (X, Y, X))
def too_many_arguments(batch):
    train(batch=batch)


@mistake(poptorch.Error, "Mandatory parameter x missing")
def missing_argument():
    poptorch.inferenceModel(Net(), quiet())(labels=Y)


@mistake(AssertionError, "z is not a valid parameter.Allowed values are")
def unknown_argument():
    poptorch.inferenceModel(Net(), quiet())(X, z=Y)


@mistake(
    poptorch.Error,
    "for x: expected .* The inputs don't match those the model was compiled with",
    (X[:2],),
    (X.half(),),
    (X.double(),),
    ([X],),
)
@mistake(
    poptorch.Error,
    "for labels: expected .* The inputs don't match those the model was compiled with",
    (X, Y),
)
def other_arguments(batch):
    executor = poptorch.inferenceModel(Net().eval(), quiet())
    executor(X)
    executor(*batch)


@mistake(poptorch.Error, "is outside -2147483648 to 2147483647", 2**31, -(2**31) - 1)
def integer_outside(value):
    poptorch.inferenceModel(lambda x: x + 1, quiet())(torch.tensor([1, value]))


@mistake(
    poptorch.Error,
    r"Unsupported tensor type torch\.\w+ of the input x: the IPU has no such type",
    torch.complex64,
    torch.bfloat16,
)
def input_type(dtype):
    poptorch.inferenceModel(lambda x: x + 1, quiet())(torch.ones(2, dtype=dtype))


@mistake(poptorch.Error, r"backward\(\) cannot be called explicitly on outputs of a PopTorch model")
def backward_of_a_result():
    train()[1].backward()


# --- Loaders.


def _short_loader(options, rows):
    """A loader of batches of 2 rows that delivers what is left at the end of the rows."""
    dataset = TensorDataset(torch.arange(rows * 6.0).reshape(rows, 6))
    return poptorch.DataLoader(options, dataset, batch_size=2, drop_last=False)


@mistake(
    AssertionError,
    r"In the input x, the batch dimension \(4\) must be a multiple of"
    r" Options.deviceIterations\(3\)",
)
def loader_one_batch_too_few():
    options = quiet().deviceIterations(3)
    executor = poptorch.inferenceModel(Net().eval(), options)
    for (rows,) in _short_loader(options, 4):
        executor(rows)


@mistake(
    poptorch.Error,
    r"Shape mismatch for x: expected .*\[6, 6\]\) but got .*\[4, 6\]\).* don't match those",
)
def loader_one_batch_too_few_at_the_end():
    options = quiet().deviceIterations(3)
    executor = poptorch.inferenceModel(Net().eval(), options)
    for (rows,) in _short_loader(options, 10):
        executor(rows)


# --- Blocks.


class Blocks(Net):
    """Two linear layers in two blocks."""

    def __init__(self, ids=("a", "b")):
        super().__init__()
        self.ids, self.last = ids, nn.Linear(3, 3)

    def forward(self, x, labels):
        with poptorch.Block(self.ids[0], ipu_id=0):
            y = self.fc(x)
        with poptorch.Block(self.ids[1], ipu_id=1):
            return self.loss(self.last(y), labels)


@mistake(
    poptorch.Error,
    "gradientAccumulation must be greater than or equal to the number of pipeline stages .3.",
)
def too_little_accumulation():
    train(Blocks())


@mistake(
    poptorch.Error,
    "deviceIterations must be greater than or equal to the number of pipeline stages .2.",
)
def too_few_device_iterations():
    poptorch.inferenceModel(Blocks(), quiet())(X, Y)


@mistake(poptorch.Error, "gradientAccumulation to 1 or leave it as its default value")
def accumulation_of_inference():
    options = quiet()
    options.Training.gradientAccumulation(2)
    infer(None, options)


@mistake(AssertionError, "Unknown Block 'b' list of expected Blocks")
def unknown_block():
    options = quiet().setExecutionStrategy(poptorch.PipelinedExecution("a", "c"))
    options.Training.gradientAccumulation(4)
    train(Blocks(), options, (X.repeat(4, 1), Y.repeat(4)))


@mistake(poptorch.Error, "module has already been assigned to a block")
def block_twice():
    layer = nn.Linear(2, 2)
    poptorch.BeginBlock(layer, ipu_id=0)
    poptorch.BeginBlock(layer, ipu_id=1)


@mistake(AssertionError, "Phase contains 4 stages but you provided 2 ipus")
def four_stages_on_two_ipus():
    poptorch.Phase(*(poptorch.Stage(block) for block in "abcd")).ipus(0, 1)


@mistake(poptorch.Error, "No active Block, all the ops must belong to a Block")
def outside_a_block():
    class Outside(Blocks):
        """An operator behind the last block."""

        def forward(self, x, labels):
            return super().forward(x, labels) * 2

    options = quiet().setExecutionStrategy(poptorch.PipelinedExecution("a", "b"))
    options.Training.gradientAccumulation(4)
    train(Outside(), options, (X.repeat(4, 1), Y.repeat(4)))


# --- Life of an executor.


@mistake(poptorch.Error, "Model has not been compiled or has been destroyed", *(
    "detachFromDevice", "attachToDevice", "copyWeightsToHost", "copyWeightsToDevice"))  # fmt: skip
def not_compiled(name):
    getattr(poptorch.inferenceModel(Net(), quiet()), name)()


@mistake(poptorch.Error, "Device is already attached")
def attached_twice():
    executor = poptorch.inferenceModel(Net(), quiet())
    executor(X)
    executor.attachToDevice()


@mistake(poptorch.Error, "Device is not attached")
def detached_twice():
    executor = poptorch.inferenceModel(Net(), quiet())
    executor(X)
    executor.detachFromDevice()
    executor.detachFromDevice()


@mistake(poptorch.Error, "Cycle count logging is disabled")
def cycles_not_counted():
    executor = poptorch.inferenceModel(Net(), quiet())
    executor(X)
    executor.cycleCount()


@mistake(
    poptorch.Error,
    "Trying to run a model on an offline device .ConnectionType.Never.: use model.compile"
    if os.environ["POPTORCH_IPU_MODEL"] == "0"
    else "ConnectionType.Never / poptorch.Options.useOfflineIpuTarget not supported for the IPU",
)
def offline():
    poptorch.inferenceModel(Net(), quiet().connectionType(poptorch.ConnectionType.Never))(X)


@mistake(
    poptorch.Error,
    "specifies the use of 3 IPUs, however PopTorch must reserve a minimum of 4 in order",
)
def three_ipus():
    class Three(Blocks):
        """A third block."""

        def forward(self, x, labels):
            y = super().forward(x, labels)
            with poptorch.Block("c", ipu_id=2):
                return poptorch.identity_loss(y * 2, reduction="none")

    train(Three(), quiet().setExecutionStrategy(poptorch.ShardedExecution()))


class MistakesTest(unittest.TestCase):
    def test_each_is_refused(self):
        self.assertGreaterEqual(len(mistake), 33)
        mistake.check(self)


if __name__ == "__main__":
    unittest.main()
