"""Small classifiers of Fashion-MNIST, for training through poptorch and in plain PyTorch alike.

None has dropout: a device draws other random numbers than PyTorch.
"""

import dataclasses
from typing import Callable

import torch
from torch import nn
from torch.nn import functional

from networks import Encoder, Mnist, ResidualBlock

CLASSES = 10
_ROWS = _COLUMNS = 28  # pixels of an image


class SmallResNet(nn.Module):
    """Three residual blocks with batch norm; the first convolution and two blocks have strides."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, 2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks, channels = [], width
        for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
            blocks.append(ResidualBlock(channels, [(outputs, 3, stride), (outputs, 3, 1)]))
            channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x)))
        return self.fc(self.blocks(x).mean((2, 3)))


class RowsEncoder(nn.Module):
    """A transformer encoder whose tokens are the rows of an image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Linear(_COLUMNS, width)
        self.position = nn.Parameter(0.02 * torch.randn(_ROWS, width))
        self.encoder = Encoder(width)

    def forward(self, x):
        return self.encoder(self.embedding(x.squeeze(1)) + self.position)


class WithLoss(nn.Module):
    """A classifier and its loss."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier, self.loss = classifier, nn.CrossEntropyLoss()

    def forward(self, images, labels):
        return self.loss(self.classifier(images), labels)


@dataclasses.dataclass(frozen=True)
class Network:
    """A classifier and how it is trained.

    Attributes:
        make: a new one, with weights drawn from PyTorch's generator.
        learning_rate: of SGD with momentum 0.9, before it falls.
        warm_up: what the learning rate of the first call is multiplied with. Behind batch norm and
            ReLUs, roundings soon grow: at a rate of 0.05, losses of a small ResNet in PyTorch's own
            float32 were off those in float64 by a hundredth within 25 steps.
        images: that are trained with in an epoch. The roundings make two trainings of the small
            ResNet different ones, whose accuracies come close only with all images.
    """

    make: Callable[[], nn.Module]
    learning_rate: float
    warm_up: float = 1.0
    images: int = 20000


NETWORKS = {
    "mnist": Network(Mnist, 0.02),
    "resnet": Network(SmallResNet, 0.02, warm_up=0.05, images=60000),
    "encoder": Network(RowsEncoder, 0.05),
}
