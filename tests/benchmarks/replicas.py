"""A training step of 16 replicas in one process, against DistributedDataParallel with as many processes.

Takes the path of the program `models`. Ours, on two compute threads, and the processes, which have a thread each and
reduce their gradients by Gloo, take turns for five rounds; medians are compared.
"""

import os
import statistics
import subprocess
import sys
import tempfile

import torch

from models import TITLES, Ours, Peer, describe_blas

REPLICAS = 16
ROUNDS = 5
# Network, batch of a replica, steps of a round.
CASES = [("resnet18", 4, 1), ("encoder512", 2, 2)]


def serve(rank, store, name, batch):
    """A process of the peer: a line of the standard input asks for so many steps."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=REPLICAS)
    peer = Peer(name, True, torch.contiguous_format, batch)
    peer.network = torch.nn.parallel.DistributedDataParallel(peer.network)
    for line in sys.stdin:
        torch.distributed.barrier()
        taken = peer.milliseconds(int(line))
        torch.distributed.barrier()
        if rank == 0:
            print(taken, flush=True)


class Processes:
    def __init__(self, name, batch):
        self.directory = tempfile.TemporaryDirectory()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(rank), f"{self.directory.name}/store", name, str(batch)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            for rank in range(REPLICAS)
        ]

    def milliseconds(self, steps):
        for process in self.processes:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        answer = self.processes[0].stdout.readline()
        if not answer:
            sys.exit("replicas.py: error: a process of PyTorch ended")
        return float(answer)

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait()
        self.directory.cleanup()


def compare(ours, name, batch, steps):
    peers = Processes(name, batch)
    measures = [lambda: ours.milliseconds(name, batch, "train", "float32", steps, REPLICAS), lambda: peers.milliseconds(steps)]
    for measure in measures:
        measure()  # compilation, first touches
    rounds = [[measure() for measure in measures] for _ in range(ROUNDS)]
    peers.close()
    single, peer = (statistics.median(column) for column in zip(*rounds))
    title = TITLES[name].rsplit(", batch", 1)[0]
    print(f"{title}, {REPLICAS} replicas of batch {batch}, training: ours {single:.1f} ms DDP {peer:.1f} ms ratio {peer / single:.2f}",
          flush=True)


def main():
    if sys.argv[1] == "--rank":
        rank, store, name, batch = sys.argv[2:]
        serve(int(rank), store, name, int(batch))
        return
    describe_blas()
    for name, batch, steps in CASES:
        ours = Ours(sys.argv[1])
        compare(ours, name, batch, steps)
        ours.close()


if __name__ == "__main__":
    main()
