"""Networks of the capture's tests: small ones of the kinds that programs train."""

import math

import torch
from torch import nn
from torch.nn import functional as F

import poptorch


class Digits(nn.Module):
    """Two convolutions and two linear layers in four blocks."""

    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 12, 5)
        self.hidden, self.out = nn.Linear(12 * 16, 32), nn.Linear(32, 10)

    def forward(self, x, labels):
        with poptorch.Block("0", ipu_id=0):
            x = F.relu(F.max_pool2d(self.low(x), 2))
        with poptorch.Block("1", ipu_id=1):
            x = F.relu(F.max_pool2d(self.high(x), 2))
        with poptorch.Block("2", ipu_id=2):
            x = F.dropout(F.relu(self.hidden(torch.flatten(x, 1))), 0.3, self.training)
        with poptorch.Block("3", ipu_id=3):
            x = self.out(x)
            return x, F.nll_loss(F.log_softmax(x, 1), labels)


class Residual(nn.Module):
    """A basic block with a shortcut."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.short(x)
        return self.relu(y)


class ResNet(nn.Module):
    """A stem, four residual blocks and a classifier, as ResNet-18 has twice."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layers = nn.Sequential(*(Residual(8 << i, 16 << i, 2) for i in range(3)))
        self.average, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(64, classes)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels):
        x = self.average(self.layers(self.pool(self.stem(x))))
        x = self.fc(x.view(x.size(0), -1))
        return x, self.loss(x, labels)


class Mobile(nn.Module):
    """Depth-wise convolutions with squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.expand, self.norm1 = nn.Conv2d(3, 12, 1, bias=False), nn.BatchNorm2d(12)
        self.depth, self.norm2 = nn.Conv2d(12, 12, 3, 2, 1, groups=12), nn.BatchNorm2d(12, 1e-3)
        self.squeeze, self.excite = nn.Conv2d(12, 4, 1), nn.Conv2d(4, 12, 1)
        self.head = nn.Linear(12, 5)

    def forward(self, x, labels):
        x = F.hardswish(self.norm1(self.expand(x)), inplace=True)
        x = F.silu(self.norm2(self.depth(x)), inplace=True)
        gate = F.adaptive_avg_pool2d(x, 1)
        x = x * F.hardsigmoid(self.excite(F.relu6(self.squeeze(gate))))
        y = self.head(x.mean([2, 3]))
        return y, F.cross_entropy(y, labels, label_smoothing=0.1)


class UNet(nn.Module):
    """An encoder and a decoder with a bridge between them."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1)
        self.norm = nn.GroupNorm(2, 8)
        self.up, self.mix = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 1)

    def forward(self, x, target):
        a = F.leaky_relu(self.down1(x), 0.1)
        b = F.elu(self.norm(self.down2(a)))
        c = self.up(b) + F.interpolate(b[:, :4], scale_factor=2)
        y = self.mix(torch.cat((a, c), 1))
        return torch.sigmoid(y), F.binary_cross_entropy_with_logits(y, target)


class Encoder(nn.Module):
    """Embeddings, PyTorch's own encoder layers, a classifier."""

    def __init__(self, words=50, width=16, layers=2):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Embedding(32, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, 0.0, "gelu", batch_first=True)
        self.encoder, self.norm = nn.TransformerEncoder(layer, layers), nn.LayerNorm(width)
        self.head = nn.Linear(width, 3)

    def forward(self, ids, mask, labels):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.places(places))
        x = self.encoder(x, src_key_padding_mask=mask == 0)
        y = self.head(x[:, 0])
        return y, F.cross_entropy(y, labels)


class Tied(nn.Module):
    """Attention by hand; the decoder shares the embedding's weight."""

    def __init__(self, words=40, width=16, heads=4):
        super().__init__()
        self.words, self.heads = nn.Embedding(words, width), heads
        self.qkv, self.back = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.decoder = nn.Linear(width, words, bias=False)
        self.decoder.weight = self.words.weight

    def forward(self, ids, mask, labels):
        x = self.words(ids)
        batch, length, width = x.shape
        cut = lambda t: t.view(batch, length, self.heads, -1).permute(0, 2, 1, 3)
        q, k, v = map(cut, self.qkv(x).chunk(3, dim=-1))
        away = (1.0 - mask[:, None, None, :]) * torch.finfo(x.dtype).min
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads) + away
        mixed = (self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(batch, length, width)
        y = self.decoder(self.norm(x + self.back(mixed)))
        return y, F.cross_entropy(y.view(-1, y.size(-1)), labels.view(-1), ignore_index=3)


class Recurrent(nn.Module):
    """A recurrent layer and a classifier of its last output."""

    def __init__(self, kind, **settings):
        super().__init__()
        self.cells = kind(5, 7, batch_first=True, **settings)
        self.head = nn.Linear(14 if settings.get("bidirectional") else 7, 4)

    def forward(self, x, labels):
        y = self.head(self.cells(x)[0][:, -1])
        return y, F.cross_entropy(y, labels)


class Cells(nn.Module):
    """Recurrence by a loop over cells, with a state that starts with zeros."""

    def __init__(self):
        super().__init__()
        self.cell, self.gate = nn.LSTMCell(4, 4), nn.GRUCell(4, 4)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], 4, device=x.device)
        seen = []
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
            seen.append(self.gate(step, h))
        y = torch.stack(seen, 1)
        return y, F.mse_loss(y, x)


class Vision(nn.Module):
    """Patches of an image, a class token and multi-head attention."""

    def __init__(self, width=12):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width))
        self.attention = nn.MultiheadAttention(width, 3, dropout=0.1, batch_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 6)

    def forward(self, x, labels):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.places
        x = x + self.attention(*[self.norm(x)] * 3, need_weights=False)[0]
        y = self.head(x[:, 0])
        return y, F.cross_entropy(y, labels)
