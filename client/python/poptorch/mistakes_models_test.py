"""Wrong models: each is refused with PopTorch's class and text."""

import os
import re
import unittest

import torch
from torch import nn
from torch.nn import functional as F

import poptorch
from mistakes import Mistakes, Net, X, Y, infer, quiet, train

HERE = re.escape(os.path.basename(__file__))
mistake = Mistakes()


# --- Models and optimizers.


@mistake(TypeError, "Expected a torch.nn.Module or a callable", 3, "model", None)
def no_model(value):
    poptorch.inferenceModel(value, quiet())


@mistake(TypeError, "Invalid type: 'options' is of type .*, must be poptorch.Options", 3, {"a": 1})
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


@mistake(
    AssertionError,
    "Unsupported optimizer type. Types supported SGD, Adam, AdamW, RMSprop, LAMB",
    torch.optim.Adagrad,
    torch.optim.Rprop,
)
def unsupported_optimizer(kind):
    model = Net()
    train(model, optimizer=kind(model.parameters()))


@mistake(ValueError, "Only non-amsgrad Adam/AdamW optimizers are supported")
def amsgrad():
    model = Net()
    train(model, optimizer=torch.optim.Adam(model.parameters(), amsgrad=True))


@mistake(AssertionError, "Accumulation types must be either", torch.int32, torch.float64)
def accumulation_type(value):
    poptorch.optim.SGD(Net().parameters(), lr=0.1, use_combined_accum=False, accum_type=value)


@mistake(
    poptorch.Error, "The attribute 'momentum' of .* is constant and cannot change from 0.* to 0.9"
)
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


@mistake(poptorch.Error, "Couldn't find a loss in graph!")
def no_loss():
    train(Net(), batch=(X,))


@mistake(
    poptorch.Error,
    "Multiple independent losses found in graph. Graph must have one final loss.",
)
def two_losses():
    class Two(Net):
        """Two losses, of which none depends on the other."""

        def forward(self, x, labels):
            y = self.fc(x)
            return F.cross_entropy(y, labels), F.mse_loss(y, x[:, :3])

    train(Two())


@mistake(poptorch.Error, "Unsupported reduction type!", "average", 3)
def loss_reduction(value):
    infer(lambda model, y: poptorch.identity_loss(y, reduction=value))


@mistake(poptorch.Error, "label 5 in row 2 is outside 0 to 2", torch.tensor([0, 1, 5, 0]))
@mistake(poptorch.Error, "label -1 in row 0 is outside 0 to 2", torch.tensor([-1, 0, 1, 2]))
def label_outside(labels):
    train(batch=(X, labels))


@mistake(RuntimeError, "multi-target not supported", torch.zeros(4, 2, 2, dtype=torch.long))
def label_shape(labels):
    train(batch=(X, labels))


# --- What forward does.


@mistake(poptorch.Error, "aten::item is only supported in eager mode")
def item():
    infer(lambda model, y: y * y.sum().item())


@mistake(poptorch.Error, "aten::item is only supported in eager mode")
def boolean_branch():
    infer(lambda model, y: y if y.sum() > 0 else -y)


@mistake(poptorch.Error, "aten::item is only supported in eager mode")
def list_of_items():
    infer(lambda model, y: [each.item() for each in y[0]])


@mistake(poptorch.Error, r'Illegal move to CPU \(via `\.to\("cpu"\)`\)', "cpu")
@mistake(poptorch.Error, r"Illegal move to CPU \(via `\.numpy\(\)`\)", "numpy")
@mistake(poptorch.Error, "aten::item is only supported in eager mode", "tolist")
def to_the_host(name):
    infer(lambda model, y: getattr(y, name)())


@mistake(poptorch.Error, "Expected an IPU tensor but got tensor", "add", "matmul")
def host_tensor(name):
    kept = torch.ones(3, 3)
    infer(lambda model, y: getattr(torch, name)(y, kept) if name == "matmul" else y + kept[0])


class Unsupported(nn.Module):
    """Three operators that no row of the table compiles, each in a module and a line of its own."""

    class Values(nn.Module):
        """The first."""

        def forward(self, x):
            return torch.linalg.svd(x)[1].sum()  # the first

    class Exponential(nn.Module):
        """The second, deeper in the model."""

        def forward(self, x):
            return torch.linalg.matrix_exp(x[:3, :3]).sum()  # the second

    def __init__(self):
        super().__init__()
        self.values = self.Values()
        self.inner = nn.Sequential(nn.Identity(), self.Exponential())

    def forward(self, x):
        return self.values(x) + self.inner(x) + torch.linalg.eigvalsh(x[:3, :3]).sum()  # the third


def _line(mark):
    """The line of this file that ends in a comment, as an error names it."""
    with open(__file__, encoding="utf-8") as file:
        (number,) = [n for n, line in enumerate(file, 1) if line.endswith(f"  # {mark}\n")]
    return f"{HERE}:{number}"


@mistake(
    poptorch.Error,
    r"(?s)Unsupported ops found in compiled model: "
    r"\[aten::_linalg_svd, aten::linalg_matrix_exp, aten::_linalg_eigh\]"
    rf".*\n  aten::_linalg_svd .* in module 'values' at \S*{_line('the first')}\n"
    rf"  aten::linalg_matrix_exp .* in module 'inner\.1' at \S*{_line('the second')}\n"
    rf"  aten::_linalg_eigh .* in the model at \S*{_line('the third')}$",
)
def unsupported_operators():
    poptorch.inferenceModel(Unsupported(), quiet())(X)


@mistake(poptorch.Error, "the output shape is determined by the tensor values", "nonzero", "unique")
def dynamic_shape(name):
    infer(lambda model, y: getattr(torch, name)(y))


@mistake(poptorch.Error, "Zero-sized tensors are unsupported.* in the model at .*_test.py:[0-9]+")
def zero_sized():
    infer(lambda model, y: y[:0] * 2)


@mistake(
    poptorch.Error, "type .* of the input x: the IPU has no such", torch.bfloat16, torch.complex64
)
def input_of_type(value):
    poptorch.inferenceModel(lambda x: x + 1, quiet())(torch.ones(2, dtype=value))


@mistake(poptorch.Error, "aten::item is only supported in eager mode", "{:.3f}", "{:8}")
def formatted(value):
    infer(lambda model, y: y if value.format(y.mean()) else y)


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


@mistake(poptorch.Error, "Unsupported tensor type torch.complex64: the IPU has no such type")
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


class MistakesTest(unittest.TestCase):
    def test_each_is_refused(self):
        self.assertGreaterEqual(len(mistake), 35)
        mistake.check(self)

    def test_names_of_modules(self):
        """Modules may have names with blanks, long names, and names outside ASCII."""
        torch.manual_seed(0)
        for name in ("a b", "höhe", "x" * 300, "weight", "lossScale", "a/b", "0", "optimizer/a"):
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
