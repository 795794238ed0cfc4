#!/usr/bin/python3
"""Whether a PyTorch program's memory is flat over calls, compilations and attachments.

    poptorch_memory.py [--calls 10000] [--compilations 100] [--attachments 50]

Needs the package poptorch on PYTHONPATH; runs on the active partition, or with POPTORCH_IPU_MODEL=1 in
this process. Each phase begins with a tenth of its rounds, which fill caches; then memory is read, the
rounds follow, and it is read again. Ends with 1 if a phase grew by more than the allowed MiB.
"""
import argparse
import gc
import sys

import poptorch
import torch
from torch import nn

ALLOWED_MIB = 8


def resident_mib():
    """Memory of this process that is in RAM and its own, in MiB."""
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["RssAnon"].split()[0]) / 1024


class Model(nn.Module):
    """A small network with a buffer that training writes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, labels):
        y = self.layers(x)
        return y, self.loss(y, labels)


def executor_of(model):
    options = poptorch.Options().showCompilationProgressBar(False)
    return poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))


def measure(name, rounds, step):
    """Whether the memory of the process stays as it is over rounds of a step."""
    for _ in range(max(rounds // 10, 5)):
        step()
    before = resident_mib()
    for _ in range(rounds):
        step()
    after = resident_mib()
    print(f"{rounds} {name}: {before:.1f} MiB before, {after:.1f} MiB after", flush=True)
    return after - before <= ALLOWED_MIB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, rounds in (("calls", 10000), ("compilations", 100), ("attachments", 50)):
        parser.add_argument(f"--{name}", type=int, default=rounds)
    rounds = parser.parse_args()
    batch = torch.randn(16, 32), torch.randint(0, 10, (16,))
    executor = executor_of(Model())

    def compile_and_destroy():
        another = executor_of(Model())
        another(*batch)
        another.destroy()

    def detach_and_attach():
        executor.detachFromDevice()
        executor.attachToDevice()
        executor(*batch)

    flat = measure("training calls", rounds.calls, lambda: executor(*batch))
    flat &= measure("detachments and attachments", rounds.attachments, detach_and_attach)
    executor.destroy()
    flat &= measure("compilations", rounds.compilations, compile_and_destroy)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
