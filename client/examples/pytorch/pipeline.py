"""A pipeline of four stages, each on an IPU of its own."""

import argparse

import torch
from torch import nn

import images
import poptorch


class Staged(nn.Module):
    """Two convolutions and two linear layers; each layer is a block."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 5)
        self.second = nn.Conv2d(8, 16, 5)
        self.third = nn.Linear(16 * 16, 64)
        self.fourth = nn.Linear(64, images.CLASSES)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels):
        with poptorch.Block("first", ipu_id=0):
            x = torch.relu(torch.max_pool2d(self.first(x), 2))
        with poptorch.Block("second", ipu_id=1):
            x = torch.relu(torch.max_pool2d(self.second(x), 2)).flatten(1)
        with poptorch.Block("third", ipu_id=2):
            x = torch.relu(self.third(x))
        with poptorch.Block("fourth", ipu_id=3):
            return self.loss(self.fourth(x), labels)


_STRATEGIES = {
    "pipelined": poptorch.PipelinedExecution,
    "sharded": poptorch.ShardedExecution,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", choices=_STRATEGIES, default="pipelined")
    parser.add_argument(
        "--accumulation", type=int, default=8, help="micro-batches of an update; default: 8"
    )
    parser.add_argument("--calls", type=int, default=4, help="default: 4")
    arguments = parser.parse_args()

    options = poptorch.Options().deviceIterations(4).showCompilationProgressBar(False)
    options.Training.gradientAccumulation(arguments.accumulation)
    options.outputMode(poptorch.OutputMode.Sum)
    strategy = _STRATEGIES[arguments.strategy]
    options.setExecutionStrategy(strategy("first", "second", "third", "fourth"))
    data = images.made_up(4 * arguments.accumulation * 4 * arguments.calls)
    loader = poptorch.DataLoader(options, data, batch_size=4)
    torch.manual_seed(1)
    model = Staged()
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=0.002)
    training = poptorch.trainingModel(model, options, optimizer)
    micro_batches = 4 * arguments.accumulation  # of which a call returns the sum
    for call, (batch, labels) in enumerate(loader):
        print(f"call {call}: loss {float(training(batch, labels)) / micro_batches:.3f}")
    training.destroy()


if __name__ == "__main__":
    main()
