"""Takes PyTorch's weights into a session and back: PyTorch → .pt → .npz → Session::Load → logits, and Session::Save →
.npz → .pt → PyTorch. Takes the paths of the program `infer` and of state_dict_npz.py.
"""

import os
import subprocess
import sys
import tempfile

import numpy
import torch

from networks import NETWORKS

IMAGES = {"mnist": (4, 1, 28, 28), "resnet18": (4, 3, 32, 32)}


def convert(script, *words):
    return subprocess.run([sys.executable, script, *words], capture_output=True, text=True)


def trained(model):
    """A network whose running moments are not those of the start."""
    torch.manual_seed(3)
    network = NETWORKS[model]().train()
    with torch.no_grad():
        for _ in range(3):
            network(torch.randn(IMAGES[model]) + 0.5)
    return network.eval()


def check(model, infer, script, directory):
    network = trained(model)
    images = torch.randn(IMAGES[model])
    torch.save(network.state_dict(), f"{directory}/weights.pt")
    numpy.savez(f"{directory}/images.npz", images=images.numpy())
    done = convert(script, f"{directory}/weights.pt", f"{directory}/weights.npz")
    assert done.returncode == 0, done.stderr
    counters = [name for name in network.state_dict() if name.endswith("num_batches_tracked")]
    assert done.stdout.splitlines()[:-1] == [f"left out: {name}" for name in counters], done.stdout

    subprocess.run([infer, model, directory], check=True)
    with torch.no_grad():
        exact = network.double()(images.double()).numpy()
        single = network.float()(images).numpy()
    ours = numpy.load(f"{directory}/logits.npz")["logits"]
    allowed = 3 * abs(single - exact).max() + 1e-5 * abs(exact).max()
    distance = abs(ours - exact).max()
    assert distance <= allowed, f"{model}: logits {distance:.2e} away, {allowed:.2e} allowed"

    done = convert(script, f"{directory}/saved.npz", f"{directory}/saved.pt")
    assert done.returncode == 0, done.stderr
    back = NETWORKS[model]().eval()
    # Nothing is missing: PyTorch begins the counters itself, as there is no version beside the state dict.
    back.load_state_dict(torch.load(f"{directory}/saved.pt", weights_only=True))
    for name, tensor in network.state_dict().items():
        assert name in counters or torch.equal(back.state_dict()[name], tensor), name
    print(f"{model}: logits {distance:.2e} away, {allowed:.2e} allowed; {len(back.state_dict())} tensors back")


def check_errors(script, directory):
    torch.save({"weight": torch.ones(2), "count": torch.ones(2, dtype=torch.int64)}, f"{directory}/bad.pt")
    cases = [
        (("a.pt", "b.pt"), 2, "must end in .npz"),
        (("none.pt", "b.npz"), 1, "none.pt"),
        (("bad.pt", "b.npz"), 1, "'count' is torch.int64, must be a tensor of a floating-point type"),
    ]
    for (source, target), code, message in cases:
        done = convert(script, f"{directory}/{source}", f"{directory}/{target}")
        assert done.returncode == code and message in done.stderr, (source, done)
    # A checkpoint with the state dict inside, of float16.
    torch.save({"epoch": 3, "state_dict": {"file": torch.ones(2, dtype=torch.float16)}}, f"{directory}/whole.pt")
    done = convert(script, f"{directory}/whole.pt", f"{directory}/whole.npz")
    assert done.returncode == 0, done.stderr
    array = numpy.load(f"{directory}/whole.npz")["file"]
    assert array.dtype == numpy.float32 and array.tolist() == [1, 1]
    # A link keeps leading to the file, and the file keeps its mode.
    os.chmod(f"{directory}/whole.npz", 0o640)
    os.symlink("whole.npz", f"{directory}/link.npz")
    done = convert(script, f"{directory}/whole.pt", f"{directory}/link.npz")
    assert done.returncode == 0 and os.path.islink(f"{directory}/link.npz"), done
    assert os.stat(f"{directory}/whole.npz").st_mode & 0o777 == 0o640
    # The optimiser's variables stay behind.
    own = {"Accl___w": array, "random/counter": numpy.array([3], numpy.uint32)}
    model = {"w": array.astype(numpy.float16), "count": numpy.array([1 << 31], numpy.uint32), "mask": array == 0}
    numpy.savez(f"{directory}/trained.npz", **own, **model)
    done = convert(script, f"{directory}/trained.npz", f"{directory}/trained.pt")
    assert "left out: Accl___w" in done.stdout, done
    assert "left out: random/counter" in done.stdout, done
    state = torch.load(f"{directory}/trained.pt", weights_only=True)
    assert {name: (tensor.dtype, tensor.tolist()) for name, tensor in state.items()} == {
        "w": (torch.float32, [1, 1]),
        "count": (torch.int64, [1 << 31]),
        "mask": (torch.bool, [False, False]),
    }


def main():
    infer, script = sys.argv[1:]
    for model in IMAGES:
        with tempfile.TemporaryDirectory() as directory:
            check(model, infer, script, directory)
    with tempfile.TemporaryDirectory() as directory:
        check_errors(script, directory)


if __name__ == "__main__":
    main()
