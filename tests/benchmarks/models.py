"""Steps of the models of client/models on one replica, against PyTorch eager on two threads.

Takes the path of the program `models`, and names of benchmarks or parts of them to run. Ours and PyTorch take turns
for seven rounds; medians are compared. PyTorch runs contiguous and channels_last, and the better one counts. float16 is
compared with our float32.
"""

import ctypes
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from fastest_kernels import ONEDNN, without_choice

sys.path.append(str(Path(__file__).resolve().parent.parent / "conformance"))
from networks import NETWORKS  # noqa: E402

ROUNDS = 7
# Network, image, batch, classes, steps of a round.
MODELS = {
    "mnist": ((1, 28, 28), 16, 10, 40),
    "resnet18": ((3, 32, 32), 16, 10, 2),
    "resnet18-stem7": ((3, 32, 32), 16, 10, 8),
    "resnet50": ((3, 224, 224), 4, 1000, 1),
    "mobilenet": ((3, 32, 32), 16, 10, 2),
    "mobilenet224": ((3, 224, 224), 4, 1000, 2),
    "efficientnet-b0": ((3, 224, 224), 2, 1000, 2),
    "encoder512": ((64, 512), 16, 10, 4),
    "lstm256": ((64, 256), 32, 10, 4),
}
TITLES = {
    "mnist": "MNIST network, batch 16",
    "resnet18": "ResNet-18, 32x32, batch 16, 3x3 stem",
    "resnet18-stem7": "ResNet-18, 32x32, batch 16, 7x7 stem and pool",
    "resnet50": "ResNet-50, 224x224, batch 4",
    "mobilenet": "MobileNetV2, 32x32, batch 16",
    "mobilenet224": "MobileNetV2, 224x224, batch 4",
    "efficientnet-b0": "EfficientNet-B0, 224x224, batch 2",
    "lstm256": "LSTM of 256, 64 steps, batch 32",
    "encoder512": "transformer encoder, two layers, width 512, 64 tokens, batch 16",
}


class Ours:
    def __init__(self, program):
        # What was chosen for PyTorch's libraries is not meant for ours.
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=without_choice(os.environ))

    def milliseconds(self, model, batch, mode, dtype, steps, replicas=1):
        self.process.stdin.write(f"{model} {batch} {mode} {dtype} {steps} {replicas}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("models.py: error: the program ended")
        return float(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Peer:
    """A network in one memory format."""

    def __init__(self, name, training, memory_format, batch):
        image, _, classes, _ = MODELS[name]
        torch.manual_seed(0)
        self.network = NETWORKS[name]().to(memory_format=memory_format).train(training)
        self.images = torch.randn(batch, *image).contiguous(memory_format=memory_format)
        self.labels = torch.randint(0, classes, (batch,))
        self.training = training
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=1e-4, momentum=0.9)
        self.loss = torch.nn.CrossEntropyLoss()

    def step(self):
        if not self.training:
            with torch.no_grad():
                self.network(self.images)
            return
        self.optimizer.zero_grad()
        self.loss(self.network(self.images), self.labels).backward()
        self.optimizer.step()

    def milliseconds(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        taken = time.perf_counter() - start
        # OpenMP's threads spin for a while after their work, which would slow what is timed next.
        time.sleep(0.02)
        return taken * 1e3 / steps


def describe_blas():
    packages = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version}", "libopenblas0-openmp"], capture_output=True, text=True
    )
    library = ctypes.CDLL("libopenblas.so.0")
    library.openblas_get_corename.restype = ctypes.c_char_p
    kinds = {0: "sequential", 1: "pthread", 2: "OpenMP"}
    kind = kinds[library.openblas_get_parallel()]
    print(f"PyTorch {torch.__version__}, {packages.stdout or 'another BLAS'} ({kind}), core type {library.openblas_get_corename().decode()}, "
          f"oneDNN with {os.environ.get(ONEDNN, 'all instructions')}")


def compare(ours, name, mode):
    _, batch, _, steps = MODELS[name]
    training = mode == "train"
    formats = [torch.contiguous_format] + [torch.channels_last] * (len(MODELS[name][0]) == 3)
    peers = [Peer(name, training, format, batch) for format in formats]
    times = [lambda: ours.milliseconds(name, batch, mode, "float32", steps)]
    if training:
        times.append(lambda: ours.milliseconds(name, batch, mode, "float16", steps))
    times += [lambda peer=peer: peer.milliseconds(steps) for peer in peers]
    for measure in times:
        measure()  # compilation, first touches
    rounds = [[measure() for measure in times] for _ in range(ROUNDS)]
    medians = [statistics.median(column) for column in zip(*rounds)]
    single, peer = medians[0], min(medians[-len(peers):])
    kind = "training" if training else "inference"
    print(f"{TITLES[name]}, {kind}: ours {single:.2f} ms PyTorch {peer:.2f} ms ratio {peer / single:.2f}", flush=True)
    if training:
        print(f"{TITLES[name]}, {kind} in float16: {medians[1]:.2f} ms, {medians[1] / single:.2f} times float32", flush=True)


def main():
    torch.set_num_threads(2)
    describe_blas()
    ours = Ours(sys.argv[1])
    for mode in ("train", "infer"):
        for name in MODELS:
            if not sys.argv[2:] or any(word in f"{name} {mode}" for word in sys.argv[2:]):
                compare(ours, name, mode)


if __name__ == "__main__":
    main()
