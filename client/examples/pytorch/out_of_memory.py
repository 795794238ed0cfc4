"""From out of memory to a configuration that fits, step by step.

Models are compiled and not run, so neither IPUs nor data are needed: an IPU of the configuration
has 1472 tiles with 624 KiB each.
"""

import argparse

import torch

import poptorch
from residual import ResNet

_STEPS = {
    "start": "one IPU, float32, {batch} images at once",
    "half": "float16 instead of float32",
    "recomputation": "activations are computed again instead of kept, too",
    "two-ipus": "two IPUs, a pipeline, which computes activations again by itself",
    "accumulation": "a quarter of the images at once, and four times for an update, too",
}


def model_of(step: str, width: int) -> torch.nn.Module:
    """The network of a step."""
    model = ResNet(blocks=3, width=width)
    if step in ("two-ipus", "accumulation"):
        model.group2 = poptorch.BeginBlock(model.group2, ipu_id=1)
    return model if step == "start" else model.half()


def options_of(step: str) -> poptorch.Options:
    """The options of a step, for a compilation without IPUs."""
    options = poptorch.Options().useIpuModel(False).showCompilationProgressBar(False)
    options.connectionType(poptorch.ConnectionType.Never)
    if step in ("two-ipus", "accumulation"):
        options.Training.gradientAccumulation(4)  # a pipeline of two stages needs 3 or more
    if step == "recomputation":
        options._Popart.set("autoRecomputation", 1)  # standard
    return options


def attempt(step: str, batch: int, width: int) -> bool:
    """Compiles the network as a step does; prints and returns whether it fits."""
    print(f"{step}: {_STEPS[step].format(batch=batch)}")
    options = options_of(step)
    micro_batch = batch // 4 if step == "accumulation" else batch
    model = model_of(step, width)
    training = poptorch.trainingModel(
        model, options, poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    )
    rows = micro_batch * options.Training.gradient_accumulation
    pixels = torch.zeros(rows, 3, 32, 32, dtype=next(model.parameters()).dtype)
    try:
        training.compile(pixels, torch.zeros(rows, dtype=torch.int64))
    except poptorch.Error as error:
        print(f"  {error}")
        return False
    finally:
        training.destroy()
    print("  It fits.")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--step", choices=_STEPS, help="default: all, one after the other")
    parser.add_argument("--batch", type=int, default=256, help="images; default: 256")
    parser.add_argument("--width", type=int, default=64, help="channels; default: 64")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    for step in [arguments.step] if arguments.step else _STEPS:
        attempt(step, arguments.batch, arguments.width)


if __name__ == "__main__":
    main()
