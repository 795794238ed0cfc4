"""The programs, in rows by the folder that they are in."""

from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from .criteria import Criterion, between, both, ends, prints

TUTORIALS = "examples/tutorials/tutorials/pytorch"
MNIST = "examples/tutorials/simple_applications/pytorch/mnist"
MEMORY = "examples/tutorials/tech_notes_code/available_memory"
GUIDE = "poptorch/docs/user_guide"
EXAMPLES = "poptorch/examples"

_VISION = ("torchvision", "tqdm")
_NOTEBOOK = ("nbconvert", "ipykernel")


class Program(NamedTuple):
    """A program and how it is run.

    Attributes:
        row: its number.
        path: of the file, below the folder with the repositories.
        criterion: what it must have printed.
        seconds: it is ended after them.
        arguments: of the command line.
        packages: Python modules beside torch and numpy.
        fashion: the criterion when Fashion-MNIST lies in MNIST's place, which is harder to learn;
            None if it is the same.
        images: how many of each file of the data set there are; all if it is None.
        batches: loaders end after so many; None if they do not.
        reads_mnist: whether it reads MNIST or Fashion-MNIST.
        weights: networks of torchvision whose weights are in the cache.
        files: (file beside the program, where the program looks for it).
    """

    row: int
    path: str
    criterion: Criterion
    seconds: int
    arguments: Tuple[str, ...] = ()
    packages: Tuple[str, ...] = ()
    fashion: Optional[Criterion] = None
    images: Optional[int] = None
    batches: Optional[int] = None
    reads_mnist: bool = False
    weights: Tuple[str, ...] = ()
    files: Tuple[Tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The file and its arguments."""
        return " ".join([self.path.rsplit("/", 1)[1], *self.arguments])

    @property
    def changes(self) -> str:
        """What is less than the program asks for, in words."""
        words = []
        if self.images is not None:
            words.append(f"the first {self.images} images of each file")
        if self.batches is not None:
            words.append(f"the first {self.batches} batches")
        return ", ".join(words)


def _mnist(fashion: Tuple[float, float], digits: Tuple[float, float]) -> dict:
    """The ranges of the accuracy for Fashion-MNIST and, from the programs' tests, for MNIST.

    Eager PyTorch reaches 78 % of Fashion-MNIST after one epoch of the simple program, whose losses
    are those of two softmaxes, and 85 % after two epochs of the pipelined one.
    """
    name = "Accuracy on test set:"
    ranges = {"criterion": between(name, *digits), "fashion": between(name, *fashion)}
    return {**ranges, "reads_mnist": True}


_SIMPLE = _mnist((75, 99.9), (89, 99.9))
_PIPELINE = _mnist((80, 99.9), (97.5, 99.9))
_HALF = ("--execution-half",)


def chosen(rows: Iterable[str]) -> List[Tuple[str, Program]]:
    """Programs with their labels: the row, a dot, and the number in the row.

    Args:
        rows: numbers of rows and labels; all programs if there are none.

    Raises:
        ValueError: names a row that is not there.
    """
    rows = list(rows)
    counts: Dict[int, int] = {}
    found = []
    for program in programs():
        counts[program.row] = counts.get(program.row, 0) + 1
        found.append((f"{program.row}.{counts[program.row]}", program))
    known = {label for label, _ in found} | {str(row) for row in counts}
    for row in rows:
        if row not in known:
            raise ValueError(f"there is no row '{row}', there are {', '.join(map(str, counts))}")
    return [each for each in found if not rows or {each[0], str(each[1].row)} & set(rows)]


def programs() -> List[Program]:
    """All programs, by row."""
    return [
        Program(1, f"{MNIST}/mnist_poptorch.py", **_SIMPLE, seconds=7200, packages=_VISION),
        Program(
            1,
            f"{MNIST}/mnist_poptorch_code_only.py",
            **_SIMPLE,
            seconds=1800,
            arguments=("--epochs", "1"),
            packages=_VISION,
        ),
        Program(
            1,
            f"{MNIST}/mnist_poptorch.ipynb",
            **_SIMPLE,
            seconds=7200,
            packages=(*_VISION, *_NOTEBOOK),
        ),
        Program(
            2,
            f"{TUTORIALS}/basics/walkthrough.py",
            both(between("Eval accuracy:", 89, 100), prints("IPU predicted class: Trouser")),
            seconds=7200,
            packages=(*_VISION, "matplotlib", "sklearn"),
            reads_mnist=True,
        ),
        *_loading(),
        *_pipelining(),
        *_mixed_precision(),
        Program(
            8,
            f"{TUTORIALS}/observing_tensors/anchor_tensor_example.py",
            prints("Saved histogram"),
            seconds=1800,
            packages=(*_VISION, "matplotlib"),
            reads_mnist=True,
        ),
        Program(
            12,
            f"{MEMORY}/pytorch_demo.py",
            prints("mean_throughput:"),
            seconds=3600,
            packages=_VISION,
            batches=5,
            weights=("resnext50_32x4d",),
        ),
        Program(14, f"{EXAMPLES}/simple_adder.py", prints("Success"), seconds=300),
        Program(14, f"{EXAMPLES}/lstm.py", prints("tensor("), seconds=300),
        Program(
            15,
            f"{EXAMPLES}/mnist.py",
            prints("Training accuracy:", "Validation: of "),
            seconds=3600,
            packages=("torchvision",),
            reads_mnist=True,
        ),
        *_user_guide(),
    ]


def _loading() -> List[Program]:
    path = f"{TUTORIALS}/efficient_data_loading"
    script = f"{path}/tuto_data_loading.py"
    throughput = prints("IPU throughput")
    return [
        *(
            Program(3, script, throughput, seconds=3600, arguments=arguments)
            for arguments in ((), ("--synthetic-data",), ("--replicas", "2"))
        ),
        Program(4, f"{path}/walkthrough.ipynb", throughput, seconds=7200, packages=_NOTEBOOK),
    ]


def _pipelining() -> List[Program]:
    path = f"{TUTORIALS}/pipelining"
    script = f"{path}/mnist_pipeline.py"
    choices = ((), ("--strategy", "sharded"), ("--offload-optimiser",), ("--profile",))
    return [
        *(
            Program(5, script, **_PIPELINE, seconds=3600, arguments=arguments, packages=_VISION)
            for arguments in choices
        ),
        Program(
            6,
            f"{path}/walkthrough.ipynb",
            **_PIPELINE,
            seconds=3600,
            packages=(*_VISION, *_NOTEBOOK),
        ),
    ]


def _mixed_precision() -> List[Program]:
    choices = (
        _HALF,
        (*_HALF, "--optimizer-half"),
        (*_HALF, "--stochastic-rounding"),
        (*_HALF, "--partials-half"),
    )
    return [
        Program(
            7,
            f"{TUTORIALS}/mixed_precision/walkthrough.py",
            prints("Eval accuracy on IPU"),
            seconds=3600,
            arguments=arguments,
            packages=_VISION,
            images=600,
            reads_mnist=True,
        )
        for arguments in choices
    ]


def _user_guide() -> List[Program]:
    choices = (
        ("--strategy", "plain"),
        ("--strategy", "pipelined"),
        ("--strategy", "phased"),
        ("--offload-opt", "true"),
    )
    mnist = [
        Program(
            16,
            f"{GUIDE}/mnist.py",
            prints("Accuracy on test set:"),
            seconds=3600,
            arguments=arguments,
            packages=_VISION,
            reads_mnist=True,
        )
        for arguments in choices
    ]
    return [
        *mnist,
        Program(17, f"{GUIDE}/trainingModel.py", ends, seconds=600),
        Program(17, f"{GUIDE}/poptorch_training_simple.py", ends, seconds=600),
        Program(17, f"{GUIDE}/buffers.py", prints("tensor([2.])"), seconds=300),
        Program(17, f"{GUIDE}/debugging.py", ends, seconds=300),
        Program(
            17,
            f"{GUIDE}/inferenceModel.py",
            prints("torch.return_types.topk"),
            seconds=1200,
            packages=("torchvision",),
            weights=("mobilenet_v2",),
        ),
        Program(
            17,
            f"{GUIDE}/api.py",
            prints("Bias after training:"),
            seconds=600,
            files=(("poptorch.conf", "tmp/poptorch.conf"),),
        ),
    ]
