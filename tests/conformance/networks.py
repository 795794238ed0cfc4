"""The networks of client/models in PyTorch, with the same parameter names."""

import math
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional

from sequence_networks import BertForClassification, BertForMaskedLanguage, Gpt2, RecurrentClassifier


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


class ResidualBlock(nn.Module):
    """The convolutions (outputs, kernel, stride), each with a batch norm, beside a shortcut."""

    def __init__(self, channels, convolutions):
        super().__init__()
        self.depth = len(convolutions)
        inputs, total_stride = channels, 1
        for i, (outputs, kernel, stride) in enumerate(convolutions, 1):
            setattr(self, f"conv{i}", nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(outputs))
            inputs, total_stride = outputs, total_stride * stride
        self.downsample = None
        if total_stride != 1 or channels != inputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, inputs, 1, total_stride, bias=False), nn.BatchNorm2d(inputs)
            )

    def forward(self, x):
        y = x
        for i in range(1, self.depth + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.depth:
                y = functional.relu(y)
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """With `small_images` the first convolution is of 3 x 3 and no pooling follows it."""

    def __init__(self, blocks, bottleneck=False, small_images=False, classes=10):
        super().__init__()
        self.small_images = small_images
        stem = (3, 1, 1) if small_images else (7, 2, 3)
        self.conv1 = nn.Conv2d(3, 64, *stem, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for layer, count in enumerate(blocks):
            planes, modules = 64 << layer, []
            for block in range(count):
                stride = 2 if layer > 0 and block == 0 else 1
                if bottleneck:
                    convolutions = [(planes, 1, 1), (planes, 3, stride), (4 * planes, 1, 1)]
                else:
                    convolutions = [(planes, 3, stride), (planes, 3, 1)]
                modules.append(ResidualBlock(channels, convolutions))
                channels = convolutions[-1][0]
            setattr(self, f"layer{layer + 1}", nn.Sequential(*modules))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        if not self.small_images:
            x = functional.max_pool2d(x, 3, 2, 1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


def convolve_and_normalize(channels, outputs, kernel, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs), nn.ReLU6()
    )


class InvertedResidual(nn.Module):
    def __init__(self, channels, expansion, outputs, stride):
        super().__init__()
        width = channels * expansion
        layers = [convolve_and_normalize(channels, width, 1)] if expansion != 1 else []
        layers += [convolve_and_normalize(width, width, 3, stride, width)]
        layers += [nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*layers)
        self.shortcut = stride == 1 and channels == outputs

    def forward(self, x):
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """Without dropout. With `small_images` two strides of 2 are 1."""

    def __init__(self, small_images=False, classes=10):
        super().__init__()
        layers, channels = [convolve_and_normalize(3, 32, 3, 1 if small_images else 2)], 32
        for expansion, outputs, blocks, stride in [
            (1, 16, 1, 1), (6, 24, 2, 1 if small_images else 2), (6, 32, 3, 2), (6, 64, 4, 2),
            (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
        ]:
            for block in range(blocks):
                layers.append(InvertedResidual(channels, expansion, outputs, stride if block == 0 else 1))
                channels = outputs
        self.features = nn.Sequential(*layers, convolve_and_normalize(channels, 1280, 1))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def scaled_channels(channels, factor):
    multiple = max(8, int(channels * factor + 4) // 8 * 8)
    return multiple + 8 if multiple < 0.9 * channels * factor else multiple


def convolve_normalize_silu(channels, outputs, kernel, stride=1, groups=1):
    layers = convolve_and_normalize(channels, outputs, kernel, stride, groups)
    return nn.Sequential(layers[0], layers[1], nn.SiLU())


class SqueezeExcitation(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        return x * self.fc2(functional.silu(self.fc1(x.mean((2, 3), keepdim=True)))).sigmoid()


class MBConv(nn.Module):
    def __init__(self, channels, expansion, kernel, stride, outputs):
        super().__init__()
        width = scaled_channels(channels, expansion)
        layers = [convolve_normalize_silu(channels, width, 1)] if expansion != 1 else []
        layers += [
            convolve_normalize_silu(width, width, kernel, stride, width),
            SqueezeExcitation(width, max(1, channels // 4)),
            nn.Sequential(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        ]
        self.block = nn.Sequential(*layers)
        self.shortcut = stride == 1 and channels == outputs

    def forward(self, x):
        return self.block(x) + x if self.shortcut else self.block(x)


class EfficientNet(nn.Module):
    """B0 without dropout and stochastic depth. With `small_images` two strides of 2 are 1."""

    def __init__(self, width=1, depth=1, small_images=False, classes=10):
        super().__init__()
        channels = scaled_channels(32, width)
        layers = [convolve_normalize_silu(3, channels, 3, 1 if small_images else 2)]
        for expansion, kernel, stride, outputs, blocks in [
            (1, 3, 1, 16, 1), (6, 3, 1 if small_images else 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3),
            (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)
        ]:
            stage, outputs = [], scaled_channels(outputs, width)
            for block in range(math.ceil(blocks * depth)):
                stage.append(MBConv(channels, expansion, kernel, stride if block == 0 else 1, outputs))
                channels = outputs
            layers.append(nn.Sequential(*stage))
        self.features = nn.Sequential(*layers, convolve_normalize_silu(channels, 4 * channels, 1))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(4 * channels, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class Vgg(nn.Module):
    """VGG-16 without dropout."""

    def __init__(self, width=8, pooled=2, hidden=64, classes=10):
        super().__init__()
        layers, channels = [], 3
        for stage, count in enumerate([2, 2, 3, 3, 3]):
            outputs = width << min(stage, 3)
            for _ in range(count):
                layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU()]
                channels = outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(pooled)
        self.classifier = nn.Sequential(
            nn.Linear(channels * pooled * pooled, hidden), nn.ReLU(), nn.Identity(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Identity(), nn.Linear(hidden, classes)
        )

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


class VisionLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Identity(), nn.Linear(inner, width)
        )

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class VisionEncoder(nn.Module):
    def __init__(self, tokens, width, heads, inner, layers):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, width))
        self.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{i}", VisionLayer(width, heads, inner)) for i in range(layers))
        )
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x):
        return self.ln(self.layers(x + self.pos_embedding))


class VisionTransformer(nn.Module):
    def __init__(self, image=32, patch=8, width=64, heads=4, inner=128, layers=2, classes=10):
        super().__init__()
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.encoder = VisionEncoder((image // patch) ** 2 + 1, width, heads, inner, layers)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(width, classes)))

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = self.encoder(torch.cat([self.class_token.expand(len(x), -1, -1), x], 1))
        return self.heads(x[:, 0])


class Encoder(nn.Module):
    """Logits from the mean of the tokens."""

    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.fc = nn.Linear(width, 10)

    def forward(self, x):
        return self.fc(self.encoder(x).mean(1))


NETWORKS = {
    "bert_tiny": BertForClassification,
    "bert_tiny_masked": BertForMaskedLanguage,
    "efficientnet-b0": lambda: EfficientNet(classes=1000),
    "efficientnet": lambda: EfficientNet(0.5, 0.5, small_images=True),
    "encoder": Encoder,
    "encoder512": lambda: Encoder(512, 8),
    "gpt2": Gpt2,
    "gru": lambda: RecurrentClassifier("gru", vocabulary=100, num_layers=2, bidirectional=True),
    "lstm": lambda: RecurrentClassifier("lstm", num_layers=2),
    "lstm256": lambda: RecurrentClassifier("lstm", features=256, hidden=256),
    "mnist": Mnist,
    "mobilenet": lambda: MobileNetV2(small_images=True),
    "mobilenet224": lambda: MobileNetV2(classes=1000),
    "resnet18": lambda: ResNet([2, 2, 2, 2], small_images=True),
    "resnet18-stem7": lambda: ResNet([2, 2, 2, 2]),
    "resnet50": lambda: ResNet([3, 4, 6, 3], bottleneck=True, classes=1000),
    "vgg": Vgg,
    "vit": VisionTransformer,
}
