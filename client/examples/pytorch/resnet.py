"""A residual network over two IPUs, in two replicas: four IPUs train it together."""

import argparse

import torch

import images
import poptorch
from residual import ResNet

_MICRO_BATCH = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=2, help="default: 2")
    parser.add_argument("--calls", type=int, default=3, help="default: 3")
    arguments = parser.parse_args()

    torch.manual_seed(1)
    model = ResNet()
    # What is called before is on IPU 0.
    model.group2 = poptorch.BeginBlock(model.group2, ipu_id=1)

    options = poptorch.Options().replicationFactor(arguments.replicas).deviceIterations(2)
    options.Training.gradientAccumulation(4)
    options.outputMode(poptorch.OutputMode.All)
    # Each replica has the running statistics of its own images; those of the first are read.
    options.broadcastBuffers(False)
    options.showCompilationProgressBar(False)
    # A call takes a micro-batch for each iteration, accumulation step and replica.
    batch = _MICRO_BATCH * 2 * 4 * arguments.replicas
    loader = poptorch.DataLoader(
        options, images.made_up(batch * arguments.calls, channels=3, size=32), _MICRO_BATCH
    )
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    for call, (pixels, labels) in enumerate(loader):
        loss = training(pixels, labels).mean()
        print(f"call {call}: {len(labels)} images, loss {loss:.3f}")
    training.destroy()
    print(f"running mean of the entry: {model.entry[1].running_mean.abs().mean():.4f}")


if __name__ == "__main__":
    main()
