"""PyTorch models through the package poptorch, against the same steps in PyTorch eager on the same cores.

Ours and PyTorch take turns for seven rounds, in processes of their own; medians are compared. Ours run on an IPUModel, and
compile from the start, without a cache. Takes names of parts to run, all by default:
import, compile, calls, optimizer, state_dict.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 7
STARTS = 5
sys.path.append(str(Path(__file__).resolve().parent.parent / "conformance"))

# What a network takes: image, batch, classes, steps of a round.
CALLS = {
    "mnist": ((1, 28, 28), 16, 10, 40),
    "resnet18": ((3, 32, 32), 16, 10, 2),
    "encoder512": ((64, 512), 16, 10, 4),
}
TITLES = {
    "mnist": "the tutorials' network, batch 16",
    "resnet18": "ResNet-18, 32x32, batch 16",
    "encoder512": "encoder of two layers, width 512, 64 tokens, batch 16",
}


# --- What the processes do: the imports are theirs, because the import is measured as well. ---


def with_loss(network):
    import torch

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network, self.loss = network, torch.nn.CrossEntropyLoss()

        def forward(self, x, labels):
            return self.loss(self.network(x), labels)

    return WithLoss()


def model_and_batch(name):
    import torch
    from networks import NETWORKS

    torch.set_num_threads(2)
    torch.manual_seed(0)
    image, batch, classes, _ = CALLS[name]
    return with_loss(NETWORKS[name]()), (torch.randn(batch, *image), torch.randint(0, classes, (batch,)))


def sgd(model):
    import torch

    return torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)


def options():
    import poptorch

    return poptorch.Options().useIpuModel(True).showCompilationProgressBar(False)


class Timed:
    """The extension's model, whose runs are timed."""

    def __init__(self, core):
        self._core, self.seconds = core, 0.0

    def __getattr__(self, name):
        return getattr(self._core, name)

    def run(self, *memory):
        start = time.perf_counter()
        self._core.run(*memory)
        self.seconds += time.perf_counter() - start


def serve_ours(name):
    """Answers each line with the milliseconds of a call, and of the run in it."""
    import poptorch

    model, batch = model_and_batch(name)
    training = poptorch.trainingModel(model, options(), sgd(model))
    training(*batch)
    training._core = core = Timed(training._core)
    for _ in sys.stdin:
        core.seconds, steps = 0.0, CALLS[name][3]
        start = time.perf_counter()
        for _ in range(steps):
            training(*batch)
        taken = time.perf_counter() - start
        print(taken * 1e3 / steps, core.seconds * 1e3 / steps, flush=True)


def serve_eager(name):
    """Answers each line with the milliseconds of a step."""
    model, batch = model_and_batch(name)
    optimizer = sgd(model)
    for _ in sys.stdin:
        steps = CALLS[name][3]
        start = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            model(*batch).backward()
            optimizer.step()
        print((time.perf_counter() - start) * 1e3 / steps, flush=True)


def serve_compile(name):
    """Prints the seconds of capture and compilation of training."""
    import poptorch
    import torch
    from networks import NETWORKS

    if name == "pipeline":
        stages = torch.nn.Sequential(
            torch.nn.Sequential(torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
            torch.nn.Sequential(torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()),
            torch.nn.Sequential(torch.nn.Linear(64 * 25, 128), torch.nn.ReLU()),
            torch.nn.Linear(128, 10),
        )
        for stage in range(1, 4):
            poptorch.BeginBlock(stages[stage], f"stage {stage}", ipu_id=stage)
        network, micro_batch, chosen = stages, (torch.randn(8, 1, 28, 28), torch.randint(0, 10, (8,))), options()
        chosen.Training.gradientAccumulation(10)
        batch = tuple(each.repeat(10, *[1] * (each.dim() - 1)) for each in micro_batch)
    else:
        network, chosen = NETWORKS["resnet50"](), options()
        batch = (torch.randn(4, 3, 224, 224), torch.randint(0, 1000, (4,)))
    model = with_loss(network)
    poptorch.poptorch_core.operators()  # The extension is loaded once in a process, not for each model.
    training = poptorch.trainingModel(model, chosen, sgd(model))
    start = time.perf_counter()
    training._compile(training._parser.bind(batch, {}))
    print(time.perf_counter() - start, flush=True)


def serve_optimizer(name):
    """Prints the milliseconds of a setOptimizer between two calls."""
    import poptorch

    model, batch = model_and_batch(name)
    training = poptorch.trainingModel(model, options(), sgd(model))
    training(*batch)
    taken = []
    for step in range(100):
        optimizer = sgd(model)
        optimizer.param_groups[0]["lr"] = 1e-4 / (step + 1)
        start = time.perf_counter()
        training.setOptimizer(optimizer)
        taken.append(time.perf_counter() - start)
        training(*batch)
    print(statistics.median(taken) * 1e3, flush=True)


def serve_state_dict(_):
    """Prints the seconds of state_dict() after a step of ResNet-50."""
    import poptorch
    import torch
    from networks import NETWORKS

    model = with_loss(NETWORKS["resnet50"]())
    training = poptorch.trainingModel(model, options(), sgd(model))
    training(torch.randn(1, 3, 64, 64), torch.randint(0, 1000, (1,)))
    start = time.perf_counter()
    training.state_dict()
    print(time.perf_counter() - start, flush=True)


# --- The comparison. ---


def process(kind, name):
    environment = dict(os.environ)
    if kind != "eager":
        # Threads of PyTorch that wait must not take cores from ours.
        environment["OMP_WAIT_POLICY"] = "passive"
    return subprocess.Popen([sys.executable, __file__, "--serve", kind, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, env=environment)


def answer_of(served):
    print(file=served.stdin, flush=True)
    words = served.stdout.readline().split()
    if not words:
        sys.exit("poptorch_calls.py: error: a process ended")
    # OpenMP's threads spin for a while after their work, which would slow what is timed next.
    time.sleep(0.02)
    return [float(word) for word in words]


def once(kind, name):
    served = process(kind, name)
    output, _ = served.communicate()
    if served.returncode:
        sys.exit(f"poptorch_calls.py: error: {kind} of {name} failed")
    return float(output)


def import_times():
    def seconds(statement):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        return time.perf_counter() - start

    rounds = [(seconds("import torch"), seconds("import poptorch")) for _ in range(STARTS + 1)][1:]
    torch_alone, ours = (statistics.median(column) for column in zip(*rounds))
    print(f"import poptorch: {ours:.2f} s, import torch {torch_alone:.2f} s, ratio {ours / torch_alone:.2f}", flush=True)


def compile_times():
    for name, title in (("pipeline", "the tutorials' pipeline over 4 IPUs"), ("resnet50", "ResNet-50, 224x224, batch 4")):
        seconds = statistics.median(once("compile", name) for _ in range(3))
        print(f"compile of training with capture, {title}: {seconds:.2f} s", flush=True)


def call_times():
    for name, title in TITLES.items():
        served = [process(kind, name) for kind in ("ours", "eager")]
        for each in served:
            answer_of(each)  # first touches
        rounds = [[figure for each in served for figure in answer_of(each)] for _ in range(ROUNDS)]
        for each in served:
            each.communicate()
        ours, run, eager = (statistics.median(column) for column in zip(*rounds))
        print(f"{title}: a training call {ours:.2f} ms, PyTorch {eager:.2f} ms, ratio {eager / ours:.2f}; "
              f"{(ours / run - 1) * 100:.1f} % beyond the run", flush=True)


def main():
    if sys.argv[1:2] == ["--serve"]:
        globals()[f"serve_{sys.argv[2]}"](sys.argv[3])
        return
    parts = {
        "import": import_times,
        "compile": compile_times,
        "calls": call_times,
        "optimizer": lambda: print(f"setOptimizer: {once('optimizer', 'mnist'):.3f} ms", flush=True),
        "state_dict": lambda: print(f"state_dict() of ResNet-50: {once('state_dict', 'resnet50'):.2f} s", flush=True),
    }
    for name in sys.argv[1:] or parts:
        if name not in parts:
            sys.exit(f"poptorch_calls.py: error: unknown part '{name}'; there are {', '.join(parts)}")
        parts[name]()


if __name__ == "__main__":
    main()
