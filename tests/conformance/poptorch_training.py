"""Trains a classifier through poptorch and in plain PyTorch: the same seeds and order of data.

PyTorch has no convolutions and products of float16 on a processor, so that both types of the IPU
are compared with PyTorch's float32.
"""

import dataclasses
from typing import Iterator, Optional, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import poptorch
from poptorch_networks import Network, WithLoss

BATCH = 32
CALL_STEPS = 25  # steps that a call of the IPU takes; the learning rate changes between calls
_SEED = 2026
_MOMENTUM = 0.9
_TEST_BATCH, _TEST_ITERATIONS = 100, 10  # whose product divides the number of test images


@dataclasses.dataclass(frozen=True)
class Limits:
    """How far a type may be from PyTorch.

    Attributes:
        loss: relative, of the loss of each of the first steps.
        accuracy: in points, of the share of test images that are recognised.
        loss_scaling: with which the type is trained.
    """

    loss: float
    accuracy: float
    loss_scaling: float = 1.0


LIMITS = {torch.float32: Limits(1e-4, 0.5), torch.float16: Limits(0.02, 2.0, loss_scaling=128.0)}
FIRST_STEPS = 25  # whose losses are compared one by one


@dataclasses.dataclass(frozen=True)
class Course:
    """What a training has led to.

    Attributes:
        losses: of each step.
        labels: of each step, which tell the order of the data.
        accuracy: per cent of the test images, None if there are none.
    """

    losses: torch.Tensor
    labels: torch.Tensor
    accuracy: Optional[float]


@dataclasses.dataclass(frozen=True)
class Task:
    """What is trained, and with what.

    Attributes:
        network: the classifier.
        training: images and labels to train with.
        test: those to measure the accuracy with, None to do without.
        calls: of the IPU, of CALL_STEPS steps each.
    """

    network: Network
    training: TensorDataset
    test: Optional[TensorDataset]
    calls: int

    def classifier(self) -> nn.Module:
        """A new one, the same each time."""
        torch.manual_seed(_SEED)
        return self.network.make()

    def learning_rate(self, call: int) -> float:
        """It falls to almost 0, so that accuracies do not hang on the last few batches."""
        factor = self.network.warm_up if call == 0 else 1 - call / self.calls
        return factor * self.network.learning_rate


def _batches(loader: DataLoader, count: int) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
    """The first batches of as many epochs as there have to be."""
    while True:
        for batch in loader:
            if count == 0:
                return
            count -= 1
            yield batch


def _order() -> dict:
    """Arguments of a loader: one order of the images for PyTorch and poptorch."""
    generator = torch.Generator().manual_seed(_SEED)
    return {"shuffle": True, "drop_last": True, "generator": generator}


def _percentage(hits: int, images: TensorDataset) -> float:
    return 100.0 * hits / len(images)


def train_eagerly(task: Task) -> Course:
    """Trains in plain PyTorch, in float32."""
    model = WithLoss(task.classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=_MOMENTUM)
    loader = DataLoader(task.training, BATCH, **_order())
    losses, order = [], []
    for step, (images, labels) in enumerate(_batches(loader, task.calls * CALL_STEPS)):
        optimizer.param_groups[0]["lr"] = task.learning_rate(step // CALL_STEPS)
        loss = model(images, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        order.append(labels)
    accuracy = None
    if task.test is not None:
        classifier = model.classifier.eval()
        with torch.no_grad():
            hits = sum(
                int((classifier(images).argmax(1) == labels).sum())
                for images, labels in DataLoader(task.test, _TEST_BATCH)
            )
        accuracy = _percentage(hits, task.test)
    return Course(torch.stack(losses), torch.cat(order), accuracy)


def _options(iterations: int) -> poptorch.Options:
    options = poptorch.Options().deviceIterations(iterations).randomSeed(_SEED)
    options.outputMode(poptorch.OutputMode.All)
    return options.showCompilationProgressBar(False)


def _in_type(data: TensorDataset, dtype: torch.dtype) -> TensorDataset:
    images, labels = data.tensors
    return TensorDataset(images.to(dtype), labels)


def _accuracy(classifier: nn.Module, test: TensorDataset, dtype: torch.dtype) -> float:
    options = _options(_TEST_ITERATIONS)
    loader = poptorch.DataLoader(options, _in_type(test, dtype), _TEST_BATCH)
    inference = poptorch.inferenceModel(classifier.eval(), options)
    hits = sum(int((inference(images).argmax(1) == labels).sum()) for images, labels in loader)
    inference.destroy()
    return _percentage(hits, test)


def train_on_ipu(task: Task, dtype: torch.dtype) -> Course:
    """Trains through poptorch, with weights and images of the type."""
    model = WithLoss(task.classifier().to(dtype))
    options = _options(CALL_STEPS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=_MOMENTUM)
    if dtype == torch.float16:
        # Without it, updates that are small beside their weights would be lost.
        options.Precision.enableStochasticRounding(True)
        optimizer = poptorch.optim.SGD(
            model.parameters(),
            lr=0.1,
            momentum=_MOMENTUM,
            dampening=0.0,
            loss_scaling=LIMITS[dtype].loss_scaling,
        )
    loader = poptorch.DataLoader(options, _in_type(task.training, dtype), BATCH, **_order())
    training = poptorch.trainingModel(model, options, optimizer)
    losses, order = [], []
    for call, (images, labels) in enumerate(_batches(loader, task.calls)):
        optimizer.param_groups[0]["lr"] = task.learning_rate(call)
        training.setOptimizer(optimizer)
        losses.append(training(images, labels).float())
        order.append(labels)
    training.destroy()
    accuracy = None if task.test is None else _accuracy(model.classifier, task.test, dtype)
    return Course(torch.cat(losses), torch.cat(order), accuracy)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two trainings, of which the second is PyTorch's.

    Attributes:
        deviation: the largest of the losses of the first steps, relative.
        difference: of the accuracies, in points; None without test images.
        faults: what is over its limit, in words.
    """

    deviation: float
    difference: Optional[float]
    faults: Tuple[str, ...]


def compare(ours: Course, eager: Course, limits: Limits) -> Comparison:
    """Holds the trainings against the limits."""
    faults = []
    if not torch.equal(ours.labels, eager.labels):
        faults.append("the order of the data differs")
    deviations = (ours.losses - eager.losses).abs() / eager.losses.abs()
    deviation = float(deviations[:FIRST_STEPS].max())
    if not deviation <= limits.loss:  # which NaN is not either
        faults.append(f"losses may deviate by {limits.loss:g}")
    difference = None
    if ours.accuracy is not None and eager.accuracy is not None:
        difference = abs(ours.accuracy - eager.accuracy)
        if difference > limits.accuracy:
            faults.append(f"accuracies may differ by {limits.accuracy:g} points")
    return Comparison(deviation, difference, tuple(faults))
