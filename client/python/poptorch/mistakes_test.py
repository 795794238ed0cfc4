"""A hundred wrong uses: each is refused with PopTorch's class and text, and breaks nothing."""

import os
import re
import unittest

import torch
from torch import nn
from torch.nn import functional as F

# On a POD, the test's environment says 0.
os.environ.setdefault("POPTORCH_IPU_MODEL", "1")

import poptorch  # pylint: disable=wrong-import-position

HERE = re.escape(os.path.basename(__file__)) + r":\d+"
X, Y = torch.arange(24.0).reshape(4, 6) / 24, torch.tensor([0, 1, 2, 0])

# Each wrong use: what it is, the class of its error, what its text has, and a function.
MISTAKES = []


def mistake(kind, pattern, *arguments):
    """Adds a wrong use for each of the arguments, or one without any.

    Args:
        kind: the class of the exception.
        pattern: a regular expression of its text.
        arguments: each is the argument of one use.
    """

    def add(function):
        title = function.__name__.strip("_")
        if not arguments:
            MISTAKES.append((title, kind, pattern, function))
        for each in arguments:
            use = lambda each=each: function(each)
            MISTAKES.append((f"{title} {each!r}", kind, pattern, use))
        return function

    return add


def quiet():
    """Options without a progress bar."""
    return poptorch.Options().showCompilationProgressBar(False)


class Net(nn.Module):
    """A linear layer with a loss; `change` does something wrong with the features."""

    def __init__(self, change=None):
        super().__init__()
        self.fc, self.loss, self.change = nn.Linear(6, 3), nn.CrossEntropyLoss(), change
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x, labels=None):
        y = self.fc(x)
        if self.change is not None:
            y = self.change(self, y)
        return y if labels is None else (y, self.loss(y, labels))


def infer(change, options=None):
    """Runs a model that does something wrong."""
    return poptorch.inferenceModel(Net(change).eval(), options or quiet())(X)


def train(model=None, options=None, batch=(X, Y), optimizer=None):
    """Trains a model for one call."""
    executor = poptorch.trainingModel(model or Net(), options or quiet(), optimizer)
    try:
        return executor(*batch)
    finally:
        executor.destroy()


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


@mistake(AssertionError, "EveryN anchor must have output_return_period set to valid positive integer")
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


@mistake((AssertionError, ValueError), "must be", "7", 1.5)
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


# --- Models and optimizers.


@mistake(Exception, "Expected a torch.nn.Module or a callable|Invalid type", 3, "model", None)
def no_model(value):
    poptorch.inferenceModel(value, quiet())


@mistake(Exception, "Invalid type: 'options' is of type", 3, {"a": 1})
def no_options(value):
    poptorch.inferenceModel(Net(), value)


@mistake(RuntimeError, "has already been wrapped in 'poptorch.trainingModel'")
def wrapped_twice():
    model = Net()
    first = poptorch.trainingModel(model, quiet())
    try:
        poptorch.trainingModel(model, quiet())
    finally:
        first.destroy()


@mistake(Exception, "Unsupported optimizer type", torch.optim.Adagrad, torch.optim.Rprop)
def unsupported_optimizer(kind):
    model = Net()
    train(model, optimizer=kind(model.parameters()))


@mistake(Exception, "Only non-amsgrad Adam/AdamW optimizers are supported")
def amsgrad():
    model = Net()
    train(model, optimizer=torch.optim.Adam(model.parameters(), amsgrad=True))


@mistake(AssertionError, "Accumulation types must be either", torch.int32, torch.float64)
def accumulation_type(value):
    poptorch.optim.SGD(Net().parameters(), lr=0.1, use_combined_accum=False, accum_type=value)


@mistake(Exception, "constant and cannot change")
def constant_changed():
    model = Net()
    executor = poptorch.trainingModel(
        model, quiet(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.0)
    )
    try:
        executor(X, Y)
        executor.setOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    finally:
        executor.destroy()


@mistake(poptorch.Error, "An inference model has no optimizer")
def optimizer_of_inference():
    poptorch.inferenceModel(Net(), quiet()).setOptimizer(None)


# --- Losses.


@mistake(Exception, "(?i)loss")
def no_loss():
    train(Net(), batch=(X,))


@mistake(Exception, "(?i)loss")
def two_losses():
    class Two(Net):
        """Two losses, of which none depends on the other."""

        def forward(self, x, labels):
            y = self.fc(x)
            return F.cross_entropy(y, labels), F.mse_loss(y, x[:, :3])

    train(Two())


@mistake(Exception, "Unsupported reduction type!", "average", 3)
def loss_reduction(value):
    infer(lambda model, y: poptorch.identity_loss(y, reduction=value))


@mistake(Exception, "(?i)label|class", torch.tensor([0, 1, 5, 0]), torch.tensor([-1, 0, 1, 2]))
def label_outside(labels):
    train(batch=(X, labels))


@mistake(Exception, "multi-target not supported", torch.zeros(4, 2, 2, dtype=torch.long))
def label_shape(labels):
    train(batch=(X, labels))


# --- What forward does.


@mistake(poptorch.Error, "aten::item is only supported in eager mode")
def item():
    infer(lambda model, y: y * y.sum().item())


@mistake(poptorch.Error, "only supported in eager mode")
def boolean_branch():
    infer(lambda model, y: y if y.sum() > 0 else -y)


@mistake(poptorch.Error, "only supported in eager mode|Illegal move")
def list_of_items():
    infer(lambda model, y: [each.item() for each in y[0]])


@mistake(poptorch.Error, "Illegal move to CPU|aten::item is only", "cpu", "numpy", "tolist")
def to_the_host(name):
    infer(lambda model, y: getattr(y, name)())


@mistake(poptorch.Error, "Expected an IPU tensor but got tensor", "add", "matmul")
def host_tensor(name):
    kept = torch.ones(3, 3)
    infer(lambda model, y: getattr(torch, name)(y, kept) if name == "matmul" else y + kept[0])


@mistake(poptorch.Error, r"(?s)aten::\w+.*aten::\w+.*" + HERE + ".*" + HERE)
def unsupported_operators():
    infer(lambda model, y: torch.linalg.svd(y)[1].sum() + torch.linalg.matrix_exp(y[:3, :3]).sum())


@mistake(poptorch.Error, "the output shape is determined by the tensor values", "nonzero", "unique")
def dynamic_shape(name):
    infer(lambda model, y: getattr(torch, name)(y))


@mistake(poptorch.Error, "Zero-sized tensors are unsupported")
def zero_sized():
    infer(lambda model, y: y[:0] * 2)


@mistake(poptorch.Error, "Your compiled model is empty")
def empty_model():
    poptorch.inferenceModel(lambda x: 3, quiet())(X)


def _reassign(model, y):
    model.count = model.count + 1
    return y + model.count


@mistake(poptorch.Error, "Buffer count is reassigned within the model")
def reassigned_buffer():
    infer(_reassign)


def _remove(model, y):
    del model.count
    return y


@mistake(poptorch.Error, "Buffer count is removed from the model")
def removed_buffer():
    infer(_remove)


@mistake(poptorch.Error, "(?i)complex")
def complex_numbers():
    infer(lambda model, y: torch.complex(y, y))


@mistake(poptorch.Error, "gives -?inf")
def half_overflow():
    options = quiet()
    options.Precision.enableFloatingPointExceptions(True)
    infer(lambda model, y: y.half() * 60000 * 60000, options)


@mistake(ZeroDivisionError, "in forward")
def error_of_the_program():
    def fail(model, y):
        raise ZeroDivisionError("in forward")

    infer(fail)


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
        for title, kind, pattern, use in MISTAKES:
            with self.subTest(title):
                with self.assertRaisesRegex(kind, pattern):
                    use()

    def test_there_are_a_hundred(self):
        self.assertGreaterEqual(len(MISTAKES), 100)

    def test_the_process_is_usable_afterwards(self):
        torch.manual_seed(0)
        model = Net()
        expected = F.cross_entropy(model.fc(X), Y).detach()
        executor = poptorch.trainingModel(model, quiet(), torch.optim.SGD(model.parameters(), 0.1))
        torch.testing.assert_close(executor(X, Y)[1], expected)
        executor.destroy()
        self.assertIs(type(model), Net)

    def test_names_of_modules(self):
        """Names that are no identifiers, or long, or not in ASCII, are names."""
        torch.manual_seed(0)
        for name in ("a b", "höhe", "x" * 300, "weight", "lossScale", "a/b", "0"):
            with self.subTest(name[:20]):
                model = nn.Module()
                model.add_module(name, nn.Linear(6, 3))
                model.forward = lambda x: F.mse_loss(getattr(model, name)(x), x[:, :3])
                expected = model.forward(X).detach()
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                executor = poptorch.trainingModel(model, quiet(), optimizer)
                torch.testing.assert_close(executor(X), expected)
                executor.destroy()


if __name__ == "__main__":
    unittest.main()
