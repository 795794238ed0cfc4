"""Losses: the functions that mark their result as one, and `identity_loss`."""

from typing import Dict

import torch
from torch.nn import functional

from .._errors import py_error
from . import recorder as _recorder
from .tape import IDENTITY_LOSS

_REDUCTIONS = {"sum": 0, "mean": 1, "none": 2}

_NAMES = (
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy"
    " ctc_loss gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss"
    " mse_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss"
    " poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss"
    " triplet_margin_with_distance_loss"
).split()

# Functions whose result is a loss -> its name. Composite ones are known by this table alone.
LOSS_FUNCTIONS: Dict[object, str] = {getattr(functional, name): name for name in _NAMES}
for _name in _NAMES:
    for _owner in (torch, torch._C._nn):
        if hasattr(_owner, _name):
            LOSS_FUNCTIONS.setdefault(getattr(_owner, _name), _name)


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Marks a tensor as the loss that training differentiates.

    Args:
        x: the loss, of any shape.
        reduction: "sum", "mean" or "none".

    Returns:
        The reduced tensor.

    Raises:
        poptorch.Error: the reduction is none of these.
    """
    code = _REDUCTIONS.get(reduction)
    if code is None:
        raise py_error("Unsupported reduction type!")
    recorder = _recorder.active()
    if recorder is None or not recorder.knows(x):
        return _reduced(x, code)
    with recorder.recorded_as(IDENTITY_LOSS, [recorder.use(x), code]):
        loss = _reduced(x, code)
    recorder.mark_loss(loss, "identity_loss")
    return loss


def _reduced(x: torch.Tensor, code: int) -> torch.Tensor:
    return x.sum() if code == 0 else x.mean() if code == 1 else x.clone()
