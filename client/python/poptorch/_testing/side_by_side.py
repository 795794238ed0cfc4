"""Trains until a file appears, and compares the losses of all updates with those of PyTorch.

    side_by_side.py SEED REPLICAS FILE

"training" says that the first update is made. "… updates as in PyTorch" is the last line, if they
are, and the exit code 0.
"""

import os
import sys
import time

import torch
from torch import nn

import poptorch

_LEAST, _ROWS, _RATE = 20, 16, 0.05


class Network(nn.Module):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels):
        return self.loss(self.layers(x), labels)


def batch(seed: int, number: int):
    """The rows of an update, and their classes."""
    generator = torch.Generator().manual_seed(1000 * seed + number)
    x = torch.randn(_ROWS, 8, generator=generator)
    return x, x[:, :3].argmax(1)


def trained(seed: int, replicas: int, last: str):
    """The losses of updates on IPUs, until the file is there, and the weights behind them."""
    torch.manual_seed(seed)
    model = Network()
    options = poptorch.Options().showCompilationProgressBar(False).replicationFactor(replicas)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    losses = []
    while len(losses) < _LEAST or not os.path.exists(last):
        losses.append(training(*batch(seed, len(losses))).mean().item())
        if len(losses) == 1:
            print("training", flush=True)
        time.sleep(0.01)
    training.destroy()
    return losses, model.state_dict()


def trained_in_pytorch(seed: int, updates: int):
    """The same without IPUs."""
    torch.manual_seed(seed)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=0.9)
    losses = []
    for number in range(updates):
        optimizer.zero_grad()
        loss = model(*batch(seed, number))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def main() -> None:
    """Trains and compares."""
    seed, replicas, last = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    losses, weights = trained(seed, replicas, last)
    expected, eager = trained_in_pytorch(seed, len(losses))
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    for name, values in eager.items():
        torch.testing.assert_close(weights[name], values, rtol=1e-3, atol=1e-5)
    assert sum(losses[-5:]) < sum(losses[:5]), losses
    print(f"{len(losses)} updates as in PyTorch", flush=True)


if __name__ == "__main__":
    main()
