"""The first steps of a training through poptorch against PyTorch, and what the comparison refuses.

The MNIST network of the tutorials is compared by poptorch_test.
"""

import dataclasses
import os
import pathlib
import sys
import unittest

import torch

os.environ.setdefault("POPTORCH_IPU_MODEL", "1")
_HERE = pathlib.Path(__file__).absolute().parent
sys.path += [str(_HERE), str(_HERE.parent.parent / "client/examples/pytorch")]

# pylint: disable=wrong-import-position
import images
from poptorch_networks import NETWORKS
from poptorch_training import BATCH, CALL_STEPS, LIMITS, Course, Task, compare
from poptorch_training import train_eagerly, train_on_ipu


def task(name: str) -> Task:
    """One call of the IPU with images that are made up."""
    return Task(NETWORKS[name], images.made_up(BATCH * CALL_STEPS, size=28), None, 1)


class FirstStepsTest(unittest.TestCase):
    """Losses of both types, beside those of PyTorch."""

    def check(self, name):
        eager = train_eagerly(task(name))
        self.assertLess(eager.losses[-1], eager.losses[0])
        for dtype, limits in LIMITS.items():
            ours = train_on_ipu(task(name), dtype)
            self.assertEqual(compare(ours, eager, limits).faults, (), f"{name} {dtype}")
        return eager

    def test_resnet_with_batch_norm(self):
        self.check("resnet")

    def test_transformer_encoder(self):
        eager = self.check("encoder")
        rate = 1.01 * NETWORKS["encoder"].learning_rate
        network = dataclasses.replace(NETWORKS["encoder"], learning_rate=rate)
        other = train_on_ipu(dataclasses.replace(task("encoder"), network=network), torch.float32)
        faults = compare(other, eager, LIMITS[torch.float32]).faults
        self.assertEqual(faults, ("losses may deviate by 0.0001",))


class CompareTest(unittest.TestCase):
    """What makes a comparison fail."""

    def setUp(self):
        labels = torch.arange(2 * BATCH) % 10
        self.course = Course(torch.tensor([2.0, 1.0]), labels, 90.0)
        self.limits = LIMITS[torch.float32]

    def faults(self, **changes):
        return compare(dataclasses.replace(self.course, **changes), self.course, self.limits).faults

    def test_equal_courses_pass(self):
        self.assertEqual(self.faults(), ())

    def test_loss_that_is_not_a_number_fails(self):
        self.assertEqual(len(self.faults(losses=torch.tensor([2.0, float("nan")]))), 1)

    def test_another_order_of_data_fails(self):
        self.assertEqual(
            self.faults(labels=self.course.labels.flip(0)), ("the order of the data differs",)
        )

    def test_accuracy_decides_from_its_limit_on(self):
        self.assertEqual(self.faults(accuracy=89.5), ())
        self.assertEqual(self.faults(accuracy=89.4), ("accuracies may differ by 0.5 points",))


if __name__ == "__main__":
    unittest.main()
