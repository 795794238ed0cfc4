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

    def test_tensors_in_the_place_of_others_keep_their_values(self):
        model, training = self.training()
        training(self.x)
        model.fc.weight = nn.Parameter(torch.full((2, 2), 0.5))
        trained = model.fc.bias.detach().clone()  # brings the weights, which the new one is none of
        self.assertFalse(torch.equal(trained, torch.zeros(2)))
        torch.testing.assert_close(model.fc.weight.detach(), torch.full((2, 2), 0.5))
        training(self.x)
        training.copyWeightsToHost()
        wanted = torch.tensor([[0.4, 0.3], [0.4, 0.3]])
        torch.testing.assert_close(model.fc.weight.detach(), wanted)
        training.destroy()

    def test_other_parameters_than_at_compilation_are_refused(self):
        for change, text in (
            (lambda fc: fc.half(), "'fc.weight' was torch.float32 .2, 2. .* is torch.float16"),
            (lambda fc: setattr(fc, "weight", nn.Parameter(torch.ones(3, 2))), "is .*32 .3, 2. n"),
            (lambda fc: setattr(fc, "bias", None), "'fc.bias' was .* gone now: call destroy"),
            (
                lambda fc: setattr(fc, "scale", nn.Parameter(torch.ones(1))),
                "compiled without the parameter or buffer 'fc.scale'",
            ),
        ):
            with self.subTest(text):
                model, training = self.training()
                training(self.x)
                change(model.fc)
                with self.assertRaisesRegex(poptorch.Error, text):
                    training(self.x)
                training.destroy()


    def test_tensors_in_the_place_of_others_are_read_by_themselves(self):
        model, training = self.training()
        training(self.x)
        model.fc.weight = nn.Parameter(torch.full((2, 2), 0.5))
        training(self.x)
        wanted = torch.tensor([[0.4, 0.3], [0.4, 0.3]])
        torch.testing.assert_close(model.fc.weight.detach().clone(), wanted)
        training.destroy()
        self.assertIs(type(model.fc.weight), nn.Parameter)


class Head(nn.Module):
    """A layer and a loss on top of layers that other heads have, too."""

    def __init__(self, body):
        super().__init__()
        self.body, self.fc = body, nn.Linear(3, 2)

    def forward(self, x):
        return poptorch.identity_loss((self.fc(self.body(x)) ** 2).mean(), "mean")


class SharedWeightsTest(unittest.TestCase):
    """Two models that train the same layers by turns, as PyTorch does."""

    def setUp(self):
        torch.manual_seed(4)
        self.body = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        self.heads = [Head(self.body), Head(self.body)]
        self.eager = copy.deepcopy(self.heads)
        self.x = torch.randn(6, 2)
        options = poptorch.Options().showCompilationProgressBar(False)
        self.trainings = [
            poptorch.trainingModel(head, options, torch.optim.SGD(head.parameters(), lr=0.1))
            for head in self.heads
        ]

    def train(self, number):
        head = self.eager[number]
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss = head(self.x)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(self.trainings[number](self.x), loss.detach())

    def check(self, number):
        for name, value in self.eager[number].state_dict().items():
            torch.testing.assert_close(self.heads[number].state_dict()[name], value)

    def test_by_turns(self):
        for number in (0, 0, 1, 0, 1, 1):
            self.train(number)
        with torch.no_grad():
            self.body[0].weight[0] = self.eager[0].body[0].weight[0] = 0.2
        for number in (1, 0, 1):
            self.train(number)
        self.check(0)
        self.check(1)

    def test_one_is_destroyed(self):
        self.train(1)
        self.train(0)
        self.trainings[0].destroy()
        self.train(1)
        torch.testing.assert_close(
            self.body[0].weight.detach().clone(), self.eager[0].body[0].weight.detach()
        )
        self.train(1)
        self.check(1)
        self.trainings[1].destroy()
        self.assertIs(type(self.body[0].weight), nn.Parameter)


class InferenceWritesTest(unittest.TestCase):
    """The same for a model that nobody trains."""

    WRITES = (*WritesTest.WRITES[1:5], *WritesTest.WRITES[6:])

    def setUp(self):
        class Model(nn.Module):
            """A layer, and a buffer that counts the calls."""

            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(2, 2)
                self.register_buffer("calls", torch.tensor(0))

            def forward(self, x):
                self.calls += 1
                return self.fc(x), self.calls

        self.x = torch.tensor([[1.0, 2.0]])
        self.model = Model()
        options = poptorch.Options().showCompilationProgressBar(False)
        self.inference = poptorch.inferenceModel(self.model, options)
        self.addCleanup(self.inference.destroy)

    def check(self, calls):
        """A call computes with the host's weights, and the device has counted the calls."""
        result, count = self.inference(self.x)
        torch.testing.assert_close(result, self.model.fc(self.x).detach())
        self.assertEqual(int(count), calls)

    def test_each_reaches_the_device(self):
        for number, write in enumerate(self.WRITES):
            with self.subTest(f"{number} {write.__name__}"):
                nn.init.normal_(self.model.fc.weight)
                self.check(2 * number + 1)
                with torch.no_grad():
                    write(self.model.fc.weight)
                self.check(2 * number + 2)

    def test_other_tensors_reach_the_device(self):
        self.check(1)
        self.model.fc.weight = nn.Parameter(torch.ones(2, 2))
        self.check(2)
        self.model.fc = nn.Linear(2, 2)
        self.check(3)
        self.model.calls = torch.tensor(7)
        self.check(8)

    def test_what_forward_has_written_is_kept_without_ipus(self):
        self.check(1)
        self.inference.detachFromDevice()
        self.assertEqual(int(self.model.calls), 0)
        nn.init.normal_(self.model.fc.weight)
        self.check(2)
        self.inference.detachFromDevice()
        self.inference.attachToDevice()
        self.check(3)
        self.inference.detachFromDevice()
        self.model.calls.fill_(7)
        self.check(8)


if __name__ == "__main__":
    unittest.main()
