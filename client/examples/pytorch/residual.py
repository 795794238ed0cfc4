"""Residual networks for 32 × 32 images, as in the paper of He et al., section 4.2.

https://arxiv.org/abs/1512.03385
"""

from torch import nn

import images


class Residual(nn.Module):
    """Two convolutions, around which the input is added."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut = nn.Sequential()
        if stride > 1 or before != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Three groups of residual blocks, of which each halves the image and doubles the channels."""

    def __init__(self, blocks: int = 1, width: int = 16) -> None:
        """
        Args:
            blocks: of each group; the network has 6·blocks + 2 layers with weights.
            width: channels of the first group.
        """
        super().__init__()
        self.entry = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.group1 = self._group(blocks, width, width, 1)
        self.group2 = self._group(blocks, width, 2 * width, 2)
        self.group3 = self._group(blocks, 2 * width, 4 * width, 2)
        self.classes = nn.Linear(4 * width, images.CLASSES)
        self.loss = nn.CrossEntropyLoss()

    @staticmethod
    def _group(blocks: int, before: int, channels: int, stride: int) -> nn.Sequential:
        first = Residual(before, channels, stride)
        return nn.Sequential(first, *(Residual(channels, channels, 1) for _ in range(blocks - 1)))

    def forward(self, x, labels):
        x = self.group3(self.group2(self.group1(self.entry(x))))
        logits = self.classes(x.mean((2, 3)))
        return self.loss(logits.float(), labels)
