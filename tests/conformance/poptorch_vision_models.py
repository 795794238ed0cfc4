"""Classifiers of torchvision, from each of its families, that a test runs with small images."""

import dataclasses
from typing import Any, Dict

import torch
import torchvision
from torch import nn
from torchvision.models import regnet, resnet

CLASSES = 10
# Weights of the last batch norms of residual branches. With 1, gradients of ResNet-50 in PyTorch's
# own float32 are off those in float64 by a hundredth, because roundings grow from block to block.
_BRANCH_WEIGHT = 0.1


@dataclasses.dataclass(frozen=True)
class Case:
    """How a classifier is made and which images it gets.

    Attributes:
        side: of the images, in pixels.
        settings: arguments of torchvision's constructor.
    """

    side: int = 64
    settings: Dict[str, Any] = dataclasses.field(default_factory=dict)


# The auxiliary classifiers of two of them need large images.
CASES = {
    "alexnet": Case(96),
    "convnext_tiny": Case(settings={"layer_scale": 0.1}),
    "densenet121": Case(),
    "efficientnet_b0": Case(),
    "efficientnet_v2_s": Case(),
    "googlenet": Case(settings={"aux_logits": False, "init_weights": True}),
    "inception_v3": Case(128, {"aux_logits": False, "init_weights": True}),
    "maxvit_t": Case(224, {"input_size": (224, 224)}),
    "mnasnet0_5": Case(),
    "mobilenet_v2": Case(),
    "mobilenet_v3_large": Case(),
    "mobilenet_v3_small": Case(),
    "regnet_x_400mf": Case(),
    "regnet_y_400mf": Case(),
    "resnet18": Case(),
    "resnet50": Case(),
    "resnext50_32x4d": Case(),
    "shufflenet_v2_x0_5": Case(),
    "squeezenet1_1": Case(),
    "swin_t": Case(),
    "swin_v2_t": Case(),
    "vgg11": Case(),
    "vgg11_bn": Case(),
    "vit_b_32": Case(settings={"image_size": 64}),
    "wide_resnet50_2": Case(),
}


def build(name: str) -> nn.Module:
    """A new classifier of CLASSES classes, which draws no random numbers in forward."""
    model = torchvision.models.get_model(name, num_classes=CLASSES, **CASES[name].settings)
    for module in model.modules():
        if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
        elif isinstance(module, resnet.Bottleneck):
            nn.init.constant_(module.bn3.weight, _BRANCH_WEIGHT)
        elif isinstance(module, regnet.ResBottleneckBlock):
            nn.init.constant_(module.f.c[1].weight, _BRANCH_WEIGHT)
        elif isinstance(module, nn.Linear) and not module.weight.any():
            # Behind such a last layer, that of a ViT, there would be no gradient.
            nn.init.normal_(module.weight, std=0.02)
    return model


def set_statistics(model: nn.Module, images: torch.Tensor) -> None:
    """Gives the batch norms the statistics of images; with those of a new one, signals vanish."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(images)
    for norm, momentum in zip(norms, momenta):
        norm.momentum = momentum


class WithLoss(nn.Module):
    """A classifier and its loss."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier, self.loss = classifier, nn.CrossEntropyLoss()

    def forward(self, images: torch.Tensor, labels: torch.Tensor):
        return self.loss(self.classifier(images), labels)
