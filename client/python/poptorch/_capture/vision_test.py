"""Captures of torchvision's classifiers, for training and inference.

Slow: the models are built with all their weights, though their values are not drawn, so that the
largest take addresses rather than memory. Skipped without the package python3-torchvision.

vision_test.py [MODEL…] takes these models only.
"""

import logging
import sys
import time
import unittest
import warnings

import capture_test
import torch
from torch import nn

try:
    import torchvision
except ImportError:
    print("SKIPPED: python3-torchvision is not installed (deploy/packages-test.txt)")
    sys.exit(0)

from poptorch._capture.capture import capture

logging.getLogger("poptorch::python").setLevel(logging.ERROR)
warnings.simplefilter("ignore")

_MODELS = torchvision.models
_SIDE = {"inception_v3": 299, "maxvit_t": 224, "alexnet": 96}
# These are compared with eager PyTorch, too, without random numbers.
_REPLAYED = frozenset(
    "efficientnet_b0 mnasnet0_5 mobilenet_v2 mobilenet_v3_small regnet_y_400mf resnet18"
    " shufflenet_v2_x0_5 squeezenet1_1".split()
)


class WithLoss(nn.Module):
    """A classifier and its loss; auxiliary outputs are left alone."""

    def __init__(self, model):
        super().__init__()
        self.model, self.loss = model, nn.CrossEntropyLoss()

    def forward(self, images, labels):
        scores = self.model(images)
        if not isinstance(scores, torch.Tensor):
            scores = scores[0]
        return scores, self.loss(scores, labels)


def _side(name):
    return 224 if name.startswith("vit") else _SIDE.get(name, 64)


def _inputs(name):
    side = _side(name)
    return torch.randn(2, 3, side, side), torch.randint(0, 1000, (2,))


class VisionTest(unittest.TestCase):
    """All classifiers can be captured, and some are compared with PyTorch."""


def _build(name, undrawn):
    settings = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    init = {key: value for key, value in vars(nn.init).items() if key.endswith("_")}
    try:
        if undrawn:
            for key in init:
                if not key.startswith("_"):
                    setattr(nn.init, key, lambda tensor, *_, **__: tensor)
        return WithLoss(getattr(_MODELS, name)(**settings))
    finally:
        for key, value in init.items():
            setattr(nn.init, key, value)


def _add_tests(name):
    def test_capture(self):
        model, inputs = _build(name, True), _inputs(name)
        for training in (True, False):
            model.train(training)
            start = time.perf_counter()
            tape = capture(model, inputs, {})[0]
            spent = time.perf_counter() - start
            print(f"{name} training={training}: {len(tape.records)} records, {spent:.2f} s")
            self.assertEqual([loss for _, loss in tape.losses], ["cross_entropy"])
            self.assertEqual(len(tape.parameters), len(list(model.parameters())))
            self.assertEqual(len(tape.results), 2)
        self.assertTrue(all(p.device.type == "cpu" for p in model.parameters()))

    setattr(VisionTest, f"test_{name}", test_capture)


def _add_replay(name):
    def test_replay(self):
        torch.manual_seed(3)
        model, inputs = _build(name, False), _inputs(name)
        for module in model.modules():
            if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)):
                module.p = 0.0
        tape = capture(model, inputs, {})[0]
        self.assertEqual(capture_test.differences(model, inputs, tape, 1e-3), [])

    setattr(VisionTest, f"test_replay_{name}", test_replay)


_NAMES = sys.argv[1:] or _MODELS.list_models(module=_MODELS)
for _name in _NAMES:
    _add_tests(_name)
    if _name in _REPLAYED:
        _add_replay(_name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
