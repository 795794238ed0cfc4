"""The basics: trains a classifier on an IPU, saves its weights, and uses them for inference."""

import argparse
import os
import tempfile

import torch
from torch import nn

import images
import poptorch


class Classifier(nn.Module):
    """A small network, which computes its own loss when it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 3, padding=1)
        self.hidden = nn.Linear(8 * 14 * 14, 32)
        self.classes = nn.Linear(32, images.CLASSES)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels=None):
        x = torch.max_pool2d(torch.relu(self.convolution(x)), 2)
        logits = self.classes(torch.relu(self.hidden(x.flatten(1))))
        return logits if labels is None else (logits, self.loss(logits, labels))


def options_of(iterations: int) -> poptorch.Options:
    """Options of a model whose calls take several batches and return the results of all."""
    options = poptorch.Options().deviceIterations(iterations).randomSeed(1)
    options.outputMode(poptorch.OutputMode.All)
    return options.showCompilationProgressBar(False)


def train(model: nn.Module, data, epochs: int) -> None:
    """Trains the model; its weights are on the host afterwards."""
    options = options_of(iterations=8)
    loader = poptorch.DataLoader(options, data, batch_size=16, shuffle=True, drop_last=True)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    for epoch in range(epochs):
        losses = [training(batch, labels)[1] for batch, labels in loader]
        print(f"epoch {epoch}: loss {torch.cat(losses).mean():.3f}")
    training.detachFromDevice()  # reads the weights; other models may have the IPU now
    training.destroy()


def accuracy(model: nn.Module, data) -> float:
    """The share of the images that the model knows, in per cent."""
    options = options_of(iterations=4)
    loader = poptorch.DataLoader(options, data, batch_size=16)
    inference = poptorch.inferenceModel(model.eval(), options)
    right = sum((inference(batch).argmax(1) == labels).sum() for batch, labels in loader)
    inference.destroy()
    return 100.0 * float(right) / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3, help="default: 3")
    parser.add_argument(
        "--fashion-mnist", action="store_true", help="instead of images that are made up"
    )
    arguments = parser.parse_args()
    if arguments.fashion_mnist:
        data, test = images.fashion_mnist("train", 8192), images.fashion_mnist("t10k", 1024)
    else:
        data, test = images.made_up(1024), images.made_up(256, seed=1)
    torch.manual_seed(1)
    model = Classifier()
    train(model, data, arguments.epochs)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "weights.pt")
        torch.save(model.state_dict(), path)
        other = Classifier()
        other.load_state_dict(torch.load(path))
    print(f"test accuracy: {accuracy(other, test):.1f} %")


if __name__ == "__main__":
    main()
