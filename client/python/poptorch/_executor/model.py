"""trainingModel and inferenceModel."""

import copy
from typing import Callable, Optional, Union

import torch
from torch import nn

from .. import _errors, optim
from .._capture import recorder
from ..options import Options
from .poplar_executor import PoplarExecutor
from .saving import read_program


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


def _shallow_copy(model):
    """The model that forward is called on.

    It has the submodules, parameters and buffers of the user's model, and attributes of its own:
    `eval()` and `train()` of the user's model do not change its `training`.
    """
    return copy.copy(model) if isinstance(model, nn.Module) else model


def trainingModel(  # pylint: disable=invalid-name
    model: Union[torch.nn.Module, Callable],
    options: Optional[Options] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
) -> PoplarExecutor:
    """Wraps a model so that its calls train it on IPUs.

    Args:
        model: a torch.nn.Module whose forward computes the loss. Its class is changed, so that
            reading its parameters brings them from the IPUs. Forward is called on a shallow copy,
            so that attributes that are set later, such as `training`, have no effect.
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
    copied = _shallow_copy(model)
    return PoplarExecutor(copied, options, True, optimizer=optimizer, user_model=model)


def inferenceModel(  # pylint: disable=invalid-name
    model: Union[torch.nn.Module, Callable], options: Optional[Options] = None
) -> PoplarExecutor:
    """Wraps a model so that its calls run on IPUs without training it.

    Args:
        model: a torch.nn.Module, another callable, or a model that trainingModel has wrapped,
            whose trained weights it then uses. Forward is called on a shallow copy, as above.
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
    model = _unwrapped(model)
    return PoplarExecutor(_shallow_copy(model), options, False, user_model=model)


def load(filename: str, edit_opts_fn: Optional[Callable[[Options], None]] = None) -> PoplarExecutor:
    """Makes the executor again that `save` or `compileAndExport` has saved with its model.

    The file may run code of the classes that it names, as those of torch.load do: load only files
    that you trust.

    Args:
        filename: the file.
        edit_opts_fn: changes the options, which are its argument, before they are used. Those of a
            model that was compiled for an offline target let it attach to a device.

    Returns:
        The executor, with the weights, the optimiser and the random numbers that were saved.

    Raises:
        AssertionError: the file was saved with export_model=False, or by another version.
        poptorch.Error: it is another kind of file, or is damaged.
    """
    content = read_program(filename)
    options, optimizer = content["options"], content["optimizer"]
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    if content["training"]:
        if isinstance(optimizer, optim.Optimizer) and optimizer.has_state():
            optimizer.set_state_dict(optimizer.get_state_dict())  # for the device
        executor = trainingModel(content["model"], options, optimizer)
    else:
        executor = inferenceModel(content["model"], options)
    executor._go_on_from(filename, content)
    return executor
