"""Stays in one phase of a model's life until it is interrupted.

    phases.py {capture,compile,load,run,data,wait}

"reached" says that the phase has begun. After Control-C it says "interrupted" and what is wrong
with the caller's module, if anything is, and ends with 0.
"""

import sys
import time

import torch
from torch import nn

import poptorch


class Model(nn.Module):
    """Layers, as many as the phase needs; each call of forward says where it is."""

    def __init__(self, phase: str, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(layers)))
        self.register_buffer("count", torch.zeros(1))
        self.phase = phase

    def forward(self, x):
        y = torch.tanh(self.layers(x)) + self.count
        if self.phase == "capture":
            print("reached", flush=True)
            time.sleep(600)
        if self.phase == "compile":
            print("reached", flush=True)
        return poptorch.identity_loss(y, reduction="mean")


class Rows(torch.utils.data.Dataset):
    """Rows, of which the later ones never come."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index):
        if index > 4:
            time.sleep(600)
        return torch.ones(32)


def options(phase: str) -> poptorch.Options:
    """Options of a phase."""
    result = poptorch.Options().showCompilationProgressBar(False)
    if phase == "run":
        result.deviceIterations(200000)
    return result


def stay(phase: str, executor) -> None:
    """Goes to the phase and stays there."""
    if phase == "data":
        loader = poptorch.DataLoader(
            executor.options,
            Rows(),
            batch_size=4,
            num_workers=1,
            mode=poptorch.DataLoaderMode.Async,
        )
        for number, batch in enumerate(loader):
            executor(batch)
            if number == 0:
                print("reached", flush=True)
        return
    batch = torch.ones(200000 if phase == "run" else 4, 32)
    if phase in ("load", "run", "wait"):
        executor._compile(executor._parser.bind((batch,), {}))
        print("reached", flush=True)
    while True:
        executor(batch)
        if phase == "load":
            executor.detachFromDevice()


def fault_of(model, kind, before) -> str:
    """What the module has that it had not before, or nothing."""
    if type(model) is not kind:
        return f"the class is {type(model).__name__}"
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if type(tensor) is not before[name]:
            return f"{name} is a {type(tensor).__name__}"
        if tensor.device.type != "cpu" or not torch.isfinite(tensor).all():
            return f"{name} has no values"
    return ""


def main() -> int:
    """Runs until it is interrupted."""
    phase = sys.argv[1]
    model = Model(phase, 400 if phase == "compile" else 4)
    kinds = {n: type(t) for n, t in [*model.named_parameters(), *model.named_buffers()]}
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    executor = poptorch.trainingModel(model, options(phase), optimizer)
    try:
        stay(phase, executor)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    executor.destroy()
    fault = fault_of(model, Model, kinds)
    print(fault or "restored", flush=True)
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
