#!/usr/bin/python3
"""Whether a PyTorch program, and the POD that runs it, hold the same over calls, compilations and attachments.

    poptorch_memory.py [--calls 10000] [--compilations 100] [--attachments 50]

Needs the package poptorch on PYTHONPATH; runs on the active partition, or with POPTORCH_IPU_MODEL=1 in
this process. The daemons of the POD in VPOD_HOME are looked at, too. Each phase begins with a tenth of its
rounds, and at least 50, which fill caches and arenas of malloc; then we look, the rounds follow, and we look
again. Ends with 1 if anything grew by more than is allowed.
"""
import argparse
import gc
import os
import pathlib
import sys

import poptorch
import torch
from torch import nn

from processes import holdings

MIB = 1 << 20
# As in flatness.py; a program has a larger heap than a daemon, and PyTorch threads of its own.
ALLOWED = {"private": 3 * MIB, "shared": 0, "files": 4, "threads": 4}
ALLOWED_OF_PROGRAM = ALLOWED | {"private": 8 * MIB}


def watched():
    """Processes by name: this one, and the daemons of the POD."""
    processes = {"program": os.getpid()}
    home = os.environ.get("VPOD_HOME")
    if home and os.environ.get("POPTORCH_IPU_MODEL", "0") == "0":
        for file in sorted(pathlib.Path(home).glob("*.pid")):
            processes[file.stem] = int(file.read_text(encoding="ascii"))
    return processes


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


def look(processes):
    gc.collect()
    return {name: holdings(pid) for name, pid in processes.items()}


def measure(name, rounds, step):
    """Whether what the processes hold stays as it is over rounds of a step."""
    processes = watched()
    for _ in range(max(rounds // 10, 50)):
        step()
    before = look(processes)
    for _ in range(rounds):
        step()
    after = look(processes)
    print(f"{rounds} {name}")
    flat = True
    for process in processes:
        allowed = ALLOWED_OF_PROGRAM if process == "program" else ALLOWED
        cells = []
        for what, most in allowed.items():
            first, last = getattr(before[process], what), getattr(after[process], what)
            cells.append(f"{first / MIB:.1f} to {last / MIB:.1f} MiB {what}" if what in ("private", "shared")
                         else f"{first} to {last} {what}")
            flat &= last - first <= most
        print(f"  {process:12} {', '.join(cells)}", flush=True)
    return flat


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
    print("flat" if flat else "NOT FLAT")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
