"""Softmax with cross-entropy."""

import numpy
import torch
import torch.nn.functional as functional

from .case import FLOATS
from .checks import close


class CrossEntropySize(torch.autograd.Function):
    @staticmethod
    def forward(context, logits, loss, slope):
        context.slope = slope
        return loss.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient[:, None] * context.slope, None, None


def softmax_cross_entropy(case):
    type_name = case.one_of(FLOATS)
    case.words.append(type_name)
    rows, classes = case.batch(8), case.one_of([1, 2, 3, 10, 100, 257])
    smoothing = case.one_of([0, 0, 0.1, 1.0])
    ignored = case.one_of([None, None, -100, 0])
    case.words.append(f"[{rows},{classes}] smoothing {smoothing} ignored {ignored}")
    case.special = False
    logits = case.operand(case.floats(type_name, [rows, classes], -10, 10, ties=case.chance(0.3)))
    labels = case.random.integers(0, classes, [rows]).astype(numpy.int32)
    if ignored is not None:
        labels[case.random.random([rows]) < 0.4] = ignored
    labels = case.operand(labels)
    attributes = {"label_smoothing": smoothing}
    options = {"label_smoothing": smoothing, "reduction": "none"}
    if ignored is not None:
        attributes["ignored_label"] = options["ignore_index"] = ignored

    def reference(logits, labels):
        return functional.cross_entropy(logits, labels, **options), torch.softmax(logits, 1)

    def size(exacts, sizes):
        logits, labels = exacts[0].detach(), exacts[1]
        kept = (labels != ignored if ignored is not None else torch.ones_like(labels, dtype=torch.bool))[:, None]
        probabilities = torch.softmax(logits, 1)
        target = functional.one_hot(torch.where(kept[:, 0], labels, 0 * labels), classes) * (1 - smoothing) + smoothing / classes
        loss = (target * (logits.abs() + torch.logsumexp(logits, 1, keepdim=True).abs())).sum(1)
        return CrossEntropySize.apply(sizes[0], loss, (probabilities + target) * kept), probabilities

    loss, probabilities = case.op({"softmax_cross_entropy": attributes}, [logits, labels], reference, size,
                                  types=[type_name, type_name])
    case.want(loss, close(), "loss")
    # Float16 rounds the probabilities that the gradient reads.
    case.want_gradients(loss, close(roundings=1), [logits_leaf(case)])


def logits_leaf(case):
    return next(leaf for leaf in case.leaves if leaf.is_float)


def generators():
    yield "softmax_cross_entropy", softmax_cross_entropy
