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


if __name__ == "__main__":
    unittest.main()
