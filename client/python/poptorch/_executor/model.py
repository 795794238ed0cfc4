"""trainingModel and inferenceModel."""

from typing import Callable, Optional, Union

import torch

from .. import _errors
from .._capture import recorder
from ..options import Options
from .poplar_executor import PoplarExecutor


def isRunningOnIpu() -> bool:  # pylint: disable=invalid-name
    """Whether forward is called for IPUs, and not by the program itself."""
    return recorder.active() is not None


def _checked(options: Optional[Options]) -> Options:
    if options is None:
        return Options()
    if not isinstance(options, Options):
        raise TypeError(
            f"Invalid type: 'options' is of type {type(options)}, must be poptorch.Options"
        )
    return options


def _unwrapped(model):
    return model.model if isinstance(model, PoplarExecutor) else model


def trainingModel(  # pylint: disable=invalid-name
    model: Union[torch.nn.Module, Callable],
    options: Optional[Options] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
) -> PoplarExecutor:
    """Wraps a model so that its calls train it on IPUs.

    Args:
        model: a torch.nn.Module whose forward computes the loss. Its class is changed, so that
            reading its parameters brings them from the IPUs.
        options: the options; they cannot be changed afterwards.
        optimizer: SGD with a learning rate of 0.01 by default.

    Returns:
        A callable with the arguments of the model.
    """
    model = _unwrapped(model)
    options = _checked(options)
    if optimizer is None:
        parameters = list(model.parameters()) if hasattr(model, "parameters") else []
        optimizer = torch.optim.SGD(parameters, lr=0.01) if parameters else None
    return PoplarExecutor(model, options, training=True, optimizer=optimizer)


def inferenceModel(  # pylint: disable=invalid-name
    model: Union[torch.nn.Module, Callable], options: Optional[Options] = None
) -> PoplarExecutor:
    """Wraps a model so that its calls run on IPUs without training it.

    Args:
        model: a torch.nn.Module, another callable, or a model that trainingModel has wrapped,
            whose trained weights it then uses.
        options: the options; they cannot be changed afterwards.

    Returns:
        A callable with the arguments of the model.
    """
    options = _checked(options)
    if options.Training.gradient_accumulation != 1:
        raise _errors.py_error(
            "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its"
            " default value (1) when running a poptorch.inferenceModel()."
        )
    return PoplarExecutor(_unwrapped(model), options, training=False)
