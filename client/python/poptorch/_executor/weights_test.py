"""Parameters and buffers of wrapped models."""

import copy
import os
import unittest

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position


class CopiesTest(unittest.TestCase):
    def test_each_tensor_has_a_copy_of_its_own(self):
        layers = nn.Sequential(*(nn.BatchNorm1d(4) for _ in range(50)))
        layers[1].weight = layers[0].weight
        with torch.no_grad():
            for number, tensor in enumerate(layers.state_dict().values()):
                tensor.fill_(number)
        expected = {name: value.clone() for name, value in layers.state_dict().items()}
        training = poptorch.trainingModel(layers)
        copied = copy.deepcopy(layers)
        training.destroy()
        for name, value in copied.state_dict().items():
            self.assertTrue(torch.equal(value, expected[name]), name)
        self.assertIs(copied[1].weight, copied[0].weight)
        self.assertIs(type(copied), nn.Sequential)


def _with_data(weight):
    weight.data.fill_(0.5)


def _with_out(weight):
    torch.full(weight.shape, 0.5, out=weight)


def _with_index(weight):
    weight[:] = 0.5


def _with_new_data(weight):
    weight.data = torch.full(weight.shape, 0.5)


def _with_operator(weight):
    weight *= 0.0
    weight += 0.5


class WritesTest(unittest.TestCase):
    """Writes of the host between two calls, which the device has to get."""

    WRITES = (
        _with_data,
        _with_index,
        _with_new_data,
        _with_operator,
        _with_out,
        lambda weight: weight.detach().fill_(0.5),
        lambda weight: weight.view(-1).fill_(0.5),
        lambda weight: nn.init.constant_(weight, 0.5),
    )

    def setUp(self):
        torch.manual_seed(3)
        self.x = torch.tensor([[1.0, 2.0]])

    def training(self):
        class Model(nn.Module):
            """A layer whose gradient does not depend on its weight."""

            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)

            def forward(self, x):
                return poptorch.identity_loss(self.fc(x), "sum")

        model = Model()
        options = poptorch.Options().showCompilationProgressBar(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, poptorch.trainingModel(model, options, optimizer)

    def test_each_reaches_the_device(self):
        model, training = self.training()
        wanted = torch.tensor([[0.4, 0.3], [0.4, 0.3]])
        for number, write in enumerate(self.WRITES):
            with self.subTest(f"{number} {write.__name__}"):
                training(self.x)
                with torch.no_grad():
                    write(model.fc.weight)
                training(self.x)
                torch.testing.assert_close(model.fc.weight.detach().clone(), wanted)
        training.destroy()

    def test_types_of_other_tensors_get_the_newest_values(self):
        model, training = self.training()
        before = model.fc.weight.double()
        training(self.x)
        after = model.fc.weight.type_as(before)
        torch.testing.assert_close(after, before - 0.1 * self.x.double())
        training.destroy()


if __name__ == "__main__":
    unittest.main()
