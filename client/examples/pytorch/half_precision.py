"""Half precision: the same network in float32, in float16, and in float16 with master weights.

Weights and activations of float16 take half of the memory. Gradients may be too small for float16,
so the loss is scaled; with float32 weights and float16 activations no update is lost.
"""

import argparse

import torch

import images
import poptorch
from residual import ResNet


class CastInside(torch.nn.Module):
    """A network of float32 weights, whose convolutions compute in float16."""

    def __init__(self, network: ResNet) -> None:
        super().__init__()
        self.network = network
        for module in network.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.forward = self._in_half(module)

    @staticmethod
    def _in_half(module: torch.nn.Conv2d):
        def forward(x):
            weight = module.weight.half()
            return torch.conv2d(x.half(), weight, None, module.stride, module.padding).float()

        return forward

    def forward(self, x, labels):
        return self.network(x, labels)


def train(name: str, model: torch.nn.Module, data, loss_scaling: float) -> None:
    """Trains the model and prints the losses."""
    options = poptorch.Options().deviceIterations(4).showCompilationProgressBar(False)
    options.outputMode(poptorch.OutputMode.All)
    options.Precision.setPartialsType(torch.float)  # products are summed in float32
    loader = poptorch.DataLoader(options, data, batch_size=8)
    optimizer = poptorch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, loss_scaling=loss_scaling
    )
    training = poptorch.trainingModel(model, options, optimizer)
    losses = [training(batch, labels).mean() for batch, labels in loader]
    training.destroy()
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    shown = ", ".join(f"{loss:.3f}" for loss in losses)
    print(f"{name}: {size} bytes of weights, losses {shown}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=3, help="default: 3")
    arguments = parser.parse_args()
    data = images.made_up(32 * arguments.calls, channels=3, size=32)
    pixels, labels = data.tensors

    torch.manual_seed(1)
    train("float32", ResNet(), data, 1.0)
    torch.manual_seed(1)
    half = torch.utils.data.TensorDataset(pixels.half(), labels)
    train("float16", ResNet().half(), half, 128.0)
    torch.manual_seed(1)
    train("float16, weights of float32", CastInside(ResNet()), data, 128.0)


if __name__ == "__main__":
    main()
