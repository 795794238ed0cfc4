"""Shapes and types of operators for which PyTorch has no meta kernel, or one that fails.

A rule takes the operator's arguments in the schema's order and returns meta tensors. Operators with
results whose shape depends on elements have no rule: they are refused.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from .signature import tensors_of

_MOST_ELEMENTS = 2**20  # of the operands of an operator that runs on the host for its shapes
_RULES: Dict[str, Callable] = {}

DATA_DEPENDENT = frozenset(
    "nonzero masked_select _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive"
    " repeat_interleave.Tensor".split()
)


def rule_of(name: str) -> Optional[Callable]:
    """The rule of an operator such as "median.dim", or None."""
    return _RULES.get(name)


def of_zeros(func: Callable, args: tuple, kwargs: Dict[str, Any]):
    """Meta tensors like the results of an operator, which runs on the host with zeros for elements.

    Args:
        func: an operator that writes none of its arguments.
        args, kwargs: its arguments, with meta tensors.

    Returns:
        None if there are too many elements, or the operator takes no zeros.
    """
    operands = tensors_of(args) + tensors_of(kwargs.values())
    if sum(operand.numel() for operand in operands) > _MOST_ELEMENTS:
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            named = {name: _zeros(value) for name, value in kwargs.items()}
            result = func(*[_zeros(value) for value in args], **named)
    except (NotImplementedError, RuntimeError):
        return None
    if isinstance(result, (tuple, list)):
        return type(result)(_like(each) for each in result)
    return _like(result)


def _zeros(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return torch.zeros(argument.shape, dtype=argument.dtype, device="cpu")
    if isinstance(argument, (tuple, list)):
        return type(argument)(_zeros(each) for each in argument)
    return torch.device("cpu") if isinstance(argument, torch.device) else argument


def _like(result: Any) -> Any:
    return result.to("meta") if isinstance(result, torch.Tensor) else result


def _rule(*names: str) -> Callable:
    def add(function):
        for name in names:
            _RULES[name] = function
        return function

    return add


def _meta(dims: Sequence[int], like: torch.Tensor, dtype: Optional[torch.dtype] = None):
    return torch.empty(tuple(dims), dtype=dtype or like.dtype, device="meta")


def _reduced(dims: Sequence[int], over: Optional[Sequence[int]], keepdim: bool) -> List[int]:
    rank = len(dims)
    gone = {d % rank for d in over} if over and rank else set(range(rank))
    if keepdim:
        return [1 if i in gone else d for i, d in enumerate(dims)]
    return [d for i, d in enumerate(dims) if i not in gone]


@_rule("_cdist_forward.default")
def _cdist(x1, x2, *_):
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return _meta((*batch, x1.shape[-2], x2.shape[-2]), x1)


@_rule("count_nonzero.default")
def _count_nonzero(x, dim=None):
    return _meta(_reduced(x.shape, None if dim is None else [dim], False), x, torch.int64)


@_rule("count_nonzero.dim_IntList")
def _count_nonzero_dims(x, dims):
    return _meta(_reduced(x.shape, dims, False), x, torch.int64)


@_rule("median.default", "nanmedian.default")
def _median(x):
    return _meta((), x)


@_rule("median.dim", "nanmedian.dim", "mode.default")
def _median_dim(x, dim, keepdim):
    dims = _reduced(x.shape, [dim], keepdim)
    return _meta(dims, x), _meta(dims, x, torch.int64)


@_rule("kthvalue.default")
def _kthvalue(x, _, dim, keepdim):
    return _median_dim(x, dim, keepdim)


@_rule("cummax.default", "cummin.default")
def _cummax(x, _):
    return _meta(x.shape, x), _meta(x.shape, x, torch.int64)


@_rule("logcumsumexp.default", "renorm.default", "flip.default", "roll.default", "celu.default")
def _same(x, *_):
    return _meta(x.shape, x)


@_rule("channel_shuffle.default", "native_channel_shuffle.default")
def _channel_shuffle(x, _):
    return _meta(x.shape, x)


@_rule("bucketize.Tensor")
def _bucketize(x, _, out_int32, *__):
    return _meta(x.shape, x, torch.int32 if out_int32 else torch.int64)


@_rule("searchsorted.Tensor")
def _searchsorted(_, x, out_int32, *__):
    return _meta(x.shape, x, torch.int32 if out_int32 else torch.int64)


@_rule("_ctc_loss.default", "_ctc_loss.Tensor")
def _ctc_loss(log_probs, *_):
    # The second result is for PyTorch's own gradient, and its shape depends on elements.
    return _meta((log_probs.shape[1],), log_probs), _meta((0,), log_probs)


@_rule("_weight_norm_interface.default")
def _weight_norm(v, g, *_):
    return _meta(v.shape, v), _meta(g.shape, g, torch.float32)


@_rule("huber_loss.default")
def _huber_loss(x, target, reduction, _):
    return _meta(torch.broadcast_shapes(x.shape, target.shape) if reduction == 0 else (), x)


@_rule("nll_loss2d_forward.default")
def _nll_loss2d(x, target, _, reduction, __):
    return _meta(target.shape if reduction == 0 else (), x), _meta((), x)


@_rule("multi_margin_loss.default")
def _multi_margin_loss(x, target, _, __, ___, reduction):
    return _meta(target.shape if reduction == 0 else (), x)


@_rule("multilabel_margin_loss_forward.default")
def _multilabel_margin_loss(x, target, reduction):
    return _meta(target.shape[:-1] if reduction == 0 else (), x), _meta(target.shape, x)


@_rule("take.default")
def _take(x, index):
    return _meta(index.shape, x)


@_rule("upsample_nearest3d.vec", "_upsample_nearest_exact3d.vec")
def _upsample_nearest3d(x, size, scales):
    size = size or [int(d * scale) for d, scale in zip(x.shape[2:], scales)]
    return _meta((*x.shape[:2], *size), x)


@_rule("grid_sampler_3d.default")
def _grid_sampler_3d(x, grid, *_):
    return _meta((*x.shape[:2], *grid.shape[1:-1]), x)


@_rule("max_pool3d_with_indices.default")
def _max_pool3d(x, kernel, stride, padding, dilation, ceil_mode):
    three = lambda sizes: list(sizes) * (3 // len(sizes))
    kernel, padding, dilation = three(kernel), three(padding), three(dilation)
    stride = three(stride) if stride else kernel
    dims = list(x.shape[:-3])
    for size, k, s, p, d in zip(x.shape[-3:], kernel, stride, padding, dilation):
        room = size + 2 * p - d * (k - 1) - 1
        count = (room + s - 1 if ceil_mode else room) // s + 1
        if ceil_mode and (count - 1) * s >= size + p:  # the last window lies in the padding
            count -= 1
        dims.append(count)
    return _meta(dims, x), _meta(dims, x, torch.int64)
