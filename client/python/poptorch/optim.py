"""Optimisers that run on the IPU.

They are torch's, with arguments of their own for what only the device has. torch.optim.SGD, Adam,
AdamW and RMSprop can be used as well. No step runs in Python: a model reads the attributes when it
is compiled, and again at `poptorch_model.setOptimizer(optimizer)`.

Formulas, with the gradient g of all micro-batches and replicas, already without loss scale:
    SGD            u = g + weight_decay·w; v = momentum·v + (1 − dampening)·u; w −= lr·v
    Adam           u = g + weight_decay·w; w −= lr · m̂ / (√v̂ + eps)
    AdamW, LAMB    u = g; x = m̂ / (√v̂ + eps) + weight_decay·w; w −= lr·x
    LAMB           lr is multiplied by min(‖w‖, max_weight_norm) / ‖x‖
    RMSprop        s = alpha·s + (1 − alpha)·u²; w −= lr · u / (√s + eps)
Source: popart/optimizer.hpp, sgd.hpp, adam.hpp and adaptive.hpp of PopART 3.2.
"""

import math
from typing import Iterable, Optional, Tuple

import torch

from . import _errors
from ._logging import logger
from ._optimizers.base import Optimizer, VariableAttributes

__all__ = ["Adam", "AdamW", "LAMB", "Optimizer", "RMSprop", "SGD", "VariableAttributes"]

_DEFAULT = object()  # Stands for an argument that was not given, where None has a meaning.


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent, as torch.optim.SGD. The first step is dampened, too.

    By default each parameter has an accumulator of gradients and a velocity. With
    `use_combined_accum` it has one tensor for both, which takes less memory; changes of attributes
    then reach the velocity one update later.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float,
        momentum: Optional[float] = None,
        dampening: Optional[float] = None,
        weight_decay: Optional[float] = None,
        nesterov: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        velocity_scaling: Optional[float] = None,
        use_combined_accum: Optional[bool] = None,
        accum_type: Optional[torch.dtype] = None,
        velocity_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ) -> None:
        """
        Args:
            params: parameters, or dictionaries of groups.
            lr, momentum, dampening, weight_decay, nesterov, maximize: as of torch.optim.SGD.
            foreach, differentiable: have no effect.
            loss_scaling: what the loss is multiplied by, and gradients are divided by. Default: 1.
            velocity_scaling: the same for velocities of `use_combined_accum` only.
            use_combined_accum: one tensor for accumulator and velocity. Default: False.
            accum_type: the type of accumulators, torch.float32 (default) or torch.float16.
            velocity_accum_type: the type of velocities.
            max_grad_norm: the largest norm of all gradients together; they are scaled down to it.
        """
        arguments = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        own = {"loss_scaling": loss_scaling, "velocity_scaling": velocity_scaling}
        self._construct(torch.optim.SGD, params, arguments, own)
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self.use_combined_accum = bool(use_combined_accum)
        if self.use_combined_accum:
            self._set_velocity_scaling(1.0 if velocity_scaling is None else velocity_scaling)
        elif velocity_scaling is not None:
            logger.warning(_errors.VELOCITY_SCALING_IGNORED)
        self._set_types(accum_type=accum_type, velocity_accum_type=velocity_accum_type)
        self._set_max_grad_norm(max_grad_norm)

    def _set_velocity_scaling(self, value: float) -> None:
        self.defaults["velocity_scaling"] = value
        for group in self.param_groups:
            group.setdefault("velocity_scaling", value)


class _AdaptiveOptimizer(Optimizer):
    """What Adam, AdamW, RMSprop and LAMB have in common."""

    def _set_adaptive(
        self,
        loss_scaling: Optional[float],
        accum_type: Optional[torch.dtype],
        first_order_momentum_accum_type: Optional[torch.dtype],
        second_order_momentum_accum_type: Optional[torch.dtype],
    ) -> None:
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
        self._set_types(
            accum_type=accum_type,
            first_order_momentum_accum_type=first_order_momentum_accum_type,
            second_order_momentum_accum_type=second_order_momentum_accum_type,
        )


class Adam(_AdaptiveOptimizer, torch.optim.Adam):
    """Adam, as torch.optim.Adam. Weight decay is added to the gradient."""

    def __init__(
        self,
        params: Iterable,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        foreach: Optional[bool] = None,
        maximize: Optional[bool] = None,
        capturable: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        fused: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ) -> None:
        """
        Args:
            params: parameters, or dictionaries of groups.
            lr, betas, eps, weight_decay, maximize: as of torch.optim.Adam.
            amsgrad: must be False when a model is compiled.
            foreach, capturable, differentiable, fused: have no effect.
            loss_scaling: what the loss is multiplied by, and gradients are divided by. Default: 1.
            accum_type: the type of accumulators, torch.float32 (default) or torch.float16.
            first_order_momentum_accum_type: the type of the means.
            second_order_momentum_accum_type: the type of the means of squares.
            max_grad_norm: the largest norm of all gradients together; they are scaled down to it.
        """
        arguments = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "foreach": foreach,
            "maximize": maximize,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
        }
        self._construct(torch.optim.Adam, params, arguments, {"loss_scaling": loss_scaling})
        self._set_adaptive(
            loss_scaling,
            accum_type,
            first_order_momentum_accum_type,
            second_order_momentum_accum_type,
        )
        self._set_max_grad_norm(max_grad_norm)


class AdamW(_AdaptiveOptimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay, as torch.optim.AdamW."""

    def __init__(
        self,
        params: Iterable,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        capturable: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        bias_correction: Optional[bool] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ) -> None:
        """
        Args:
            params: parameters, or dictionaries of groups.
            lr, betas, eps, weight_decay, maximize: as of torch.optim.AdamW.
            amsgrad: must be False when a model is compiled.
            foreach, capturable: have no effect.
            loss_scaling: what the loss is multiplied by, and gradients are divided by. Default: 1.
            bias_correction: whether the means are corrected for their first steps. Default: True.
            accum_type: the type of accumulators, torch.float32 (default) or torch.float16.
            first_order_momentum_accum_type: the type of the means.
            second_order_momentum_accum_type: the type of the means of squares.
            max_grad_norm: the largest norm of all gradients together; they are scaled down to it.
        """
        arguments = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
        }
        self._construct(torch.optim.AdamW, params, arguments, {"loss_scaling": loss_scaling})
        self.bias_correction = True if bias_correction is None else bias_correction
        self._set_adaptive(
            loss_scaling,
            accum_type,
            first_order_momentum_accum_type,
            second_order_momentum_accum_type,
        )
        self._set_max_grad_norm(max_grad_norm)


class RMSprop(_AdaptiveOptimizer, torch.optim.RMSprop):
    """RMSprop, as torch.optim.RMSprop, or as TensorFlow's."""

    def __init__(
        self,
        params: Iterable,
        lr: Optional[float] = None,
        alpha: Optional[float] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        momentum: Optional[float] = None,
        centered: Optional[bool] = None,
        foreach: Optional[bool] = None,
        maximize: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        use_tf_variant: Optional[bool] = None,
    ) -> None:
        """
        Args:
            params: parameters, or dictionaries of groups.
            lr, alpha, eps, weight_decay, momentum: as of torch.optim.RMSprop.
            centered: as of torch.optim.RMSprop, the same for all groups.
            maximize: must be False when a model is compiled.
            foreach, differentiable: have no effect.
            loss_scaling: what the loss is multiplied by, and gradients are divided by. Default: 1.
            accum_type: the type of accumulators, torch.float32 (default) or torch.float16.
            first_order_momentum_accum_type: the type of the means.
            second_order_momentum_accum_type: the type of the means of squares.
            use_tf_variant: as TensorFlow: the means of squares begin with 1, eps is added inside
                the root, and the learning rate is inside the momentum.
        """
        arguments = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        self._construct(torch.optim.RMSprop, params, arguments, {"loss_scaling": loss_scaling})
        self.use_tf_variant = bool(use_tf_variant)
        self._set_adaptive(
            loss_scaling,
            accum_type,
            first_order_momentum_accum_type,
            second_order_momentum_accum_type,
        )


class _TorchLamb(torch.optim.Optimizer):
    """The part of LAMB that torch's optimisers bring with them."""

    _DEFAULTS = {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 1e-2,
        "max_weight_norm": 65500.0,
    }

    def __init__(self, params: Iterable, **arguments) -> None:
        super().__init__(params, {**self._DEFAULTS, **arguments})


class LAMB(_AdaptiveOptimizer, _TorchLamb):
    """Adam whose steps are in proportion to the norms of the parameters, for large batches."""

    def __init__(
        self,
        params: Iterable,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        bias_correction: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        max_weight_norm: Optional[float] = _DEFAULT,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
    ) -> None:
        """
        Args:
            params: parameters, or dictionaries of groups.
            lr: the learning rate. Default: 1e-3.
            betas: what of the means of gradients and of squares is kept. Default: (0.9, 0.999).
            eps: is added to the root. Default: 1e-8.
            weight_decay: decoupled, as of AdamW. Default: 1e-2.
            bias_correction: whether the means are corrected for their first steps. Default: True.
            loss_scaling: what the loss is multiplied by, and gradients are divided by. Default: 1.
            max_weight_norm: the largest norm of a parameter that counts. Default: 65500; None for
                no limit.
            accum_type: the type of accumulators, torch.float32 (default) or torch.float16.
            first_order_momentum_accum_type: the type of the means.
            second_order_momentum_accum_type: the type of the means of squares.
        """
        limit = math.inf if max_weight_norm is None else max_weight_norm
        arguments = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "max_weight_norm": None if max_weight_norm is _DEFAULT else limit,
        }
        self._construct(_TorchLamb, params, arguments, {"loss_scaling": loss_scaling})
        self.bias_correction = True if bias_correction is None else bias_correction
        self._set_adaptive(
            loss_scaling,
            accum_type,
            first_order_momentum_accum_type,
            second_order_momentum_accum_type,
        )
