"""The networks of client/models in PyTorch, with the same parameter names."""

from torch import nn
from torch.nn import functional


class MnistBlock(nn.Module):
    def __init__(self, channels, outputs):
        super().__init__()
        self.conv = nn.Conv2d(channels, outputs, 5)

    def forward(self, x):
        return functional.relu(functional.max_pool2d(self.conv(x), 2))


class Mnist(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = MnistBlock(1, 10)
        self.layer2 = MnistBlock(10, 20)
        self.layer3 = nn.Linear(320, 256)
        self.layer4 = nn.Linear(256, 10)

    def forward(self, x):
        x = self.layer2(self.layer1(x)).flatten(1)
        return self.layer4(functional.relu(self.layer3(x)))


class BasicBlock(nn.Module):
    def __init__(self, channels, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or channels != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """For images of 32 x 32: a first convolution of 3 x 3 and no pooling after it."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for layer in range(4):
            outputs = 64 << layer
            blocks = [BasicBlock(channels, outputs, 1 if layer == 0 else 2), BasicBlock(outputs, outputs, 1)]
            setattr(self, f"layer{layer + 1}", nn.Sequential(*blocks))
            channels = outputs
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


NETWORKS = {"mnist": Mnist, "resnet18": ResNet18}
