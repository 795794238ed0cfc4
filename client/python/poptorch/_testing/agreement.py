"""Trains a small network and prints a digest of its losses and weights, for comparing placements.

    agreement.py {single,sharded,pipelined} [REPLICAS]

REPLICAS are those of this process; it is one of several under poprun, which all together train
with 16 replicas and take their rows of the same batches. A line is the digest of the weights,
then that of the losses of this process.
"""

import hashlib
import sys

import torch
from torch import nn

import poptorch

_REPLICAS, _ACCUMULATION, _ROWS, _CALLS = 16, 4, 2, 3


class Network(nn.Module):
    """Two parts, on one IPU or on two."""

    def __init__(self, ipus: int) -> None:
        super().__init__()
        self.last = ipus - 1
        self.conv, self.norm = nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6)
        self.fc1, self.fc2 = nn.Linear(6 * 36, 24), nn.Linear(24, 10)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, images, labels):
        with poptorch.Block("features", ipu_id=0):
            x = torch.relu(self.norm(self.conv(images))).flatten(1)
        with poptorch.Block("classes", ipu_id=self.last):
            return self.loss(self.fc2(torch.relu(self.fc1(x))), labels)


def digest(tensors) -> str:
    """A digest of the bytes of tensors."""
    result = hashlib.sha256()
    for tensor in tensors:
        result.update(tensor.detach().contiguous().numpy().tobytes())
    return result.hexdigest()[:16]


def options(placement: str, replicas: int) -> poptorch.Options:
    """Options for a placement."""
    result = poptorch.Options().showCompilationProgressBar(False).replicationFactor(replicas)
    result.Training.gradientAccumulation(_ACCUMULATION)
    result.outputMode(poptorch.OutputMode.All).randomSeed(7)
    if placement == "sharded":
        result.setExecutionStrategy(poptorch.ShardedExecution())
    elif placement == "pipelined":
        result.setExecutionStrategy(poptorch.PipelinedExecution())
    return result


def main() -> None:
    """Prints the digests."""
    placement, replicas = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.manual_seed(5)
    model = Network(1 if placement == "single" else 2)
    chosen = options(placement, replicas)
    first = chosen.Distributed.processId * replicas
    total = _REPLICAS if replicas * chosen.Distributed.numProcesses == _REPLICAS else replicas
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    training = poptorch.trainingModel(model, chosen, optimizer)
    losses = []
    for _ in range(_CALLS):
        images = torch.randn(_ACCUMULATION, total, _ROWS, 1, 8, 8)
        labels = torch.randint(0, 10, (_ACCUMULATION, total, _ROWS))
        rows = [each[:, first : first + replicas].flatten(0, 2) for each in (images, labels)]
        losses.append(training(*rows))
    weights = digest(model.state_dict().values())
    training.destroy()
    print(f"weights {weights} losses {digest(losses)}", flush=True)


if __name__ == "__main__":
    main()
