"""Trains like PyTorch: the losses of some steps against PyTorch in float64.

The distance from float64 may be three times as large as the largest that PyTorch's own float32 has had up to that
step, and 1e-6 more; in float16 it may be 2 %. PyTorch has several orders in which it adds, by layout and library, and
their distances differ by more than that from one processor to the next: the largest of them counts. The same holds for
the gradients of the first step, which is what momentum has after it. In networks with ReLUs an input near to 0 takes, on
some processor or other, the other side of the kink, which no distance of PyTorch's bounds: there the gradient of a
variable may be off by a hundredth of its norm. Takes the path of the program `train`.
"""

import subprocess
import sys
import tempfile

import numpy
import torch

from layerwise import Lamb
from networks import NETWORKS

STEPS = 10
SMOOTH = ("encoder", "efficientnet", "vit", "lstm", "gru", "bert_tiny", "bert_tiny_masked", "gpt2")
# With most seeds some ReLU has an input so near to 0 that float32, ours or PyTorch's, takes the other side of the kink
# than float64: the losses part there. With these seeds none does in the first steps.
CASES = [
    ("mnist", {"--learning-rate": 0.05, "--momentum": 0.9}),
    ("mnist", {"--learning-rate": 0.02, "--momentum": 0.9, "--weight-decay": 0.01, "--seed": 5}),
    ("mnist", {"--optimizer": "adamw", "--learning-rate": 0.001, "--weight-decay": 0.01}),
    ("mnist", {"--half": None, "--loss-scale": 1024, "--learning-rate": 0.05, "--momentum": 0.9}),
    ("encoder", {"--learning-rate": 0.05, "--momentum": 0.9}),
    ("encoder", {"--optimizer": "adamw", "--learning-rate": 0.001, "--weight-decay": 0.01}),
    ("encoder", {"--half": None, "--loss-scale": 1024, "--learning-rate": 0.02, "--momentum": 0.9}),
    ("encoder", {"--optimizer": "lamb", "--learning-rate": 0.005, "--weight-decay": 0.01}),
    ("mobilenet", {"--learning-rate": 0.001, "--momentum": 0.9, "--batch": 8, "--seed": 12}),
    ("mobilenet", {"--optimizer": "lamb", "--learning-rate": 0.001, "--batch": 8, "--seed": 3}),
    ("efficientnet", {"--learning-rate": 0.0001, "--momentum": 0.9, "--batch": 8}),
    ("efficientnet", {"--optimizer": "adamw", "--learning-rate": 0.0001, "--batch": 8}),
    ("vgg", {"--learning-rate": 0.01, "--momentum": 0.9, "--batch": 8}),
    ("vit", {"--learning-rate": 0.01, "--momentum": 0.9, "--batch": 8}),
    ("lstm", {"--learning-rate": 0.1, "--momentum": 0.9, "--batch": 8}),
    ("lstm", {"--optimizer": "lamb", "--learning-rate": 0.005, "--batch": 8}),
    ("gru", {"--learning-rate": 0.1, "--momentum": 0.9, "--batch": 8}),
    ("gru", {"--optimizer": "adamw", "--learning-rate": 0.001, "--batch": 8}),
    ("bert_tiny", {"--learning-rate": 0.01, "--momentum": 0.9, "--batch": 8}),
    ("bert_tiny_masked", {"--learning-rate": 0.01, "--momentum": 0.9, "--batch": 8}),
    ("gpt2", {"--learning-rate": 0.01, "--momentum": 0.9, "--batch": 8}),
    ("resnet18", {"--learning-rate": 0.001, "--momentum": 0.9, "--batch": 8, "--seed": 4}),
    ("resnet18", {"--half": None, "--loss-scale": 1024, "--learning-rate": 0.001, "--batch": 8, "--seed": 2}),
]


def train_ours(program, model, options, directory):
    words = [program, "--model", model, "--directory", directory, "--steps", str(STEPS)]
    for name, value in options.items():
        words += [name] if value is None else [name, str(value)]
    subprocess.run(words, check=True)
    return numpy.load(f"{directory}/losses.npz")["losses"].astype(numpy.float64)


def has_gradients(options):
    """Whether momentum is the gradient after the first step."""
    return not {"--optimizer", "--weight-decay", "--half"} & options.keys()


def first_gradients(directory):
    first = numpy.load(f"{directory}/first.npz")
    prefix = "Accl___"
    return {name.removeprefix(prefix): first[name].astype(numpy.float64) for name in first.files if name.startswith(prefix)}


def train_torch(model, options, directory, dtype, layout=torch.contiguous_format):
    """The losses, and the gradients of the first step by name."""
    network = NETWORKS[model]().to(dtype).train()
    initial = numpy.load(f"{directory}/initial.npz")
    state = {name: torch.tensor(initial[name]).to(dtype) for name in network.state_dict() if name in initial}
    missing, unexpected = network.load_state_dict(state, strict=False)
    assert not unexpected and all(name.endswith("num_batches_tracked") for name in missing), missing
    network = network.to(memory_format=layout)
    common = {"lr": options["--learning-rate"], "weight_decay": options.get("--weight-decay", 0)}
    optimizers = {"adamw": torch.optim.AdamW, "lamb": Lamb}
    if "--optimizer" in options:
        optimizer = optimizers[options["--optimizer"]](network.parameters(), **common)
    else:
        optimizer = torch.optim.SGD(network.parameters(), momentum=options.get("--momentum", 0.9), **common)
    data = numpy.load(f"{directory}/inputs.npz")
    inputs = [torch.tensor(data[name]) for name in sorted(data.files) if name.startswith("input")]
    inputs = [array.to(dtype) if array.is_floating_point() else array.long() for array in inputs]
    losses, gradients = [], {}
    for labels, *batch in zip(torch.tensor(data["labels"]).long(), *inputs):
        optimizer.zero_grad()
        logits = network(*(x.contiguous(memory_format=layout) if x.ndim == 4 else x for x in batch))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
        if not losses:
            gradients = {name: p.grad.double().numpy().copy() for name, p in network.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return numpy.array(losses), gradients


def train_float32(model, options, directory):
    """By each of PyTorch's orders of sums."""
    runs = [train_torch(model, options, directory, torch.float32, layout)
            for layout in (torch.contiguous_format, torch.channels_last)]
    with torch.backends.mkldnn.flags(enabled=False):
        runs.append(train_torch(model, options, directory, torch.float32))
    return runs


def wrong_gradients(ours, exact, singles, smooth):
    """What to say of each gradient whose distance, the largest of its elements or the norm of them, is not allowed."""
    if ours.keys() != exact.keys():
        return [f"gradients of {sorted(ours.keys() ^ exact.keys())} on one side only"]
    wrong = []
    for name, gradient in ours.items():
        measure = (lambda x: abs(x).max()) if smooth else numpy.linalg.norm
        off = measure(gradient - exact[name])
        allowed = 3 * max(measure(single[name] - exact[name]) for single in singles) + 1e-6
        if not smooth:
            allowed += 0.01 * measure(exact[name])
        if not off <= allowed:
            wrong.append(f"gradient of {name}: {off:.2e} away, {allowed:.2e} allowed")
    return wrong


def main():
    torch.set_num_threads(2)
    failed = 0
    for model, options in CASES:
        with tempfile.TemporaryDirectory() as directory:
            ours = train_ours(sys.argv[1], model, options, directory)
            exact, exact_gradients = train_torch(model, options, directory, torch.float64)
            wrong = []
            if "--half" in options:
                allowed = 0.02 * exact
            else:
                singles = train_float32(model, options, directory)
                single = numpy.max([abs(losses - exact) for losses, _ in singles], axis=0)
                allowed = 3 * numpy.maximum.accumulate(single) + 1e-6
                if has_gradients(options):
                    wrong = wrong_gradients(
                        first_gradients(directory), exact_gradients, [gradients for _, gradients in singles],
                        model in SMOOTH
                    )
        distance = abs(ours - exact)
        good = bool((distance <= allowed).all()) and not wrong
        failed += not good
        print(f"{model} {options}: {'passed' if good else 'FAILED'}")
        for line in wrong:
            print(f"  {line}")
        for step in range(STEPS):
            print(f"  step {step}: float64 {exact[step]:.7f}, ours {distance[step]:.2e} away, {allowed[step]:.2e} allowed")
    print(f"{len(CASES) - failed} passed, {failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
