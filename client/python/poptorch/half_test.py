"""Models with float16 and float32 operands in one product: they compute in float32."""

import copy
import os
import unittest

import torch
from torch import nn

os.environ.setdefault("POPTORCH_IPU_MODEL", "1")

import poptorch  # pylint: disable=wrong-import-position

_TOLERANCES = {"rtol": 2e-3, "atol": 1e-3}  # of weights that are rounded to float16


class Network(nn.Module):
    """Products of each kind, a norm and a loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.transposed = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.fc = nn.Linear(2 * 64, 6)
        self.head = nn.Parameter(torch.randn(6, 5))

    def forward(self, images, labels):
        x = self.transposed(torch.relu(self.norm(self.conv(images))))
        x = self.fc(x.flatten(1)) @ self.head
        return x, nn.functional.cross_entropy(x, labels)


class MixedOperandsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        self.images, self.labels = torch.randn(4, 1, 6, 6), torch.tensor([0, 4, 2, 1])
        self.assertIs(self.labels.dtype, torch.int64)

    def train(self, model, images, tolerances):
        """Compares a step with eager PyTorch in float32."""
        reference = copy.deepcopy(model).float()
        optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
        result, loss = reference(images.float(), self.labels)
        loss.backward()
        optimizer.step()
        options = poptorch.Options().showCompilationProgressBar(False)
        types = {name: tensor.dtype for name, tensor in model.named_parameters()}
        before = copy.deepcopy(model.state_dict())
        training = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), 0.1))
        ours = training(images, self.labels)
        self.assertEqual([each.dtype for each in ours], [torch.float32] * 2)
        for each, expected in zip(ours, (result, loss)):
            torch.testing.assert_close(each, expected.detach(), **tolerances)
        for name, parameter in model.named_parameters():
            expected = dict(reference.named_parameters())[name].detach()
            self.assertIs(parameter.dtype, types[name])
            if name != "conv.bias":  # which the norm takes away again
                self.assertFalse(torch.equal(parameter.detach(), before[name]), name)
            torch.testing.assert_close(
                parameter.detach().float(), expected, msg=name, **_TOLERANCES
            )
        training.destroy()

    def test_float32_inputs_of_a_half_model(self):
        self.train(Network().half(), self.images, {"rtol": 1e-4, "atol": 1e-5})

    def test_half_inputs_of_a_float32_model(self):
        self.train(Network(), self.images.half(), {"rtol": 1e-4, "atol": 1e-5})

    def test_recurrent_layers_and_attention(self):
        options = poptorch.Options().showCompilationProgressBar(False)
        x = torch.randn(3, 2, 8)
        for layer in (nn.GRU(8, 8), nn.LSTM(8, 8), nn.Bilinear(8, 8, 8)):
            layer = layer.half()
            arguments = (x, x) if isinstance(layer, nn.Bilinear) else (x,)
            first = lambda result: result[0] if isinstance(result, tuple) else result
            expected = first(copy.deepcopy(layer).float()(*arguments)).detach()
            result = first(poptorch.inferenceModel(layer, options)(*arguments))
            torch.testing.assert_close(result.float(), expected, rtol=1e-2, atol=1e-2)

    def test_other_mixtures_are_refused_by_their_types(self):
        options = poptorch.Options().showCompilationProgressBar(False)
        with self.assertRaisesRegex(RuntimeError, "dtype"):
            poptorch.inferenceModel(nn.Linear(6, 3), options)(torch.ones(2, 6, dtype=torch.int32))


if __name__ == "__main__":
    unittest.main()
