"""Wrong calls, blocks and orders of calls: each is refused with PopTorch's class and text."""

import unittest

import torch
from torch import nn

import poptorch
from mistakes import Mistakes, Net, X, Y, infer, quiet, train

mistake = Mistakes()


# --- Arguments and batches.


@mistake(AssertionError, "Invalid batch dimension: In the input x", 3, 5, 8)
def batch_dimension(rows):
    options = quiet().deviceIterations(2)
    options.Training.gradientAccumulation(3)
    train(options=options, batch=(torch.ones(rows, 6), torch.zeros(rows, dtype=torch.long)))


@mistake(AssertionError, "Invalid batch dimension")
def batch_without_dimensions():
    poptorch.inferenceModel(lambda x: x * 2, quiet().deviceIterations(2))(torch.tensor(1.0))


@mistake(Exception, "Too many arguments provided|takes|Number of positional", (X, Y, X))
def too_many_arguments(batch):
    train(batch=batch)


@mistake(Exception, "Mandatory parameter x missing")
def missing_argument():
    poptorch.inferenceModel(Net(), quiet())(labels=Y)


@mistake(Exception, "z is not a valid parameter")
def unknown_argument():
    poptorch.inferenceModel(Net(), quiet())(X, z=Y)


@mistake(
    Exception,
    "don't match those the model was compiled with",
    (X[:2],),
    (X.half(),),
    (X.double(),),
    (X, Y),
    ([X],),
)
def other_arguments(batch):
    executor = poptorch.inferenceModel(Net().eval(), quiet())
    executor(X)
    executor(*batch)


@mistake(Exception, "is outside -2147483648 to 2147483647", 2**31, -(2**31) - 1)
def integer_outside(value):
    poptorch.inferenceModel(lambda x: x + 1, quiet())(torch.tensor([1, value]))


@mistake(Exception, "(?i)type|complex|bfloat16", torch.complex64, torch.bfloat16)
def input_type(dtype):
    poptorch.inferenceModel(lambda x: x + 1, quiet())(torch.ones(2, dtype=dtype))


@mistake(Exception, r"backward\(\) cannot be called explicitly on outputs of a PopTorch model")
def backward_of_a_result():
    train()[1].backward()


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


@mistake(Exception, "gradientAccumulation must be greater than or equal to the number of pipeline")
def too_little_accumulation():
    train(Blocks())


@mistake(Exception, "deviceIterations must be greater than or equal to the number of pipeline")
def too_few_device_iterations():
    poptorch.inferenceModel(Blocks(), quiet())(X, Y)


@mistake(Exception, "gradientAccumulation to 1 or leave it as its default value")
def accumulation_of_inference():
    options = quiet()
    options.Training.gradientAccumulation(2)
    infer(None, options)


@mistake(Exception, "Unknown Block 'b' list of expected Blocks")
def unknown_block():
    options = quiet().setExecutionStrategy(poptorch.PipelinedExecution("a", "c"))
    options.Training.gradientAccumulation(4)
    train(Blocks(), options, (X.repeat(4, 1), Y.repeat(4)))


@mistake(Exception, "already been assigned to a block")
def block_twice():
    layer = nn.Linear(2, 2)
    poptorch.BeginBlock(layer, ipu_id=0)
    poptorch.BeginBlock(layer, ipu_id=1)


@mistake(Exception, "all the ops must belong to a Block")
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


@mistake(Exception, "Trying to run a model on an offline device|not supported for the IPU model")
def offline():
    poptorch.inferenceModel(Net(), quiet().connectionType(poptorch.ConnectionType.Never))(X)


@mistake(Exception, "(?i)power of 2")
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
        self.assertGreaterEqual(len(mistake), 30)
        mistake.check(self)


if __name__ == "__main__":
    unittest.main()
