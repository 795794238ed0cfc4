"""Functions of forward that run on the host."""

from typing import Any, Callable

from .. import _errors
from .._capture import recorder as _recorder
from .._capture.host import call_on_host


class CPU:
    """Calls a function on the host, in the middle of forward.

    >>> self.lookup = poptorch.CPU(self.find_on_host, "lookup")   # in __init__
    >>> x = self.lookup(x)                                        # in forward

    Outside of models it is the function. A model on IPUs becomes several programs, one for each
    part of forward between two such calls, each on IPUs of its own. What one hands on to the next
    goes through the host, where the function is called for each micro-batch. When the model is
    compiled, the function is called once with zeros. Only inference models have such calls.
    """

    def __init__(self, layer_to_call: Callable, ID: str) -> None:
        """
        Args:
            layer_to_call: a function, or a torch.nn.Module, whose parameters then require no
                gradient.
            ID: the name of the call, for messages.

        Raises:
            poptorch.Error: the first argument cannot be called.
        """
        if not callable(layer_to_call):
            raise _errors.py_error(_errors.CPU_CALLABLE % type(layer_to_call))
        if hasattr(layer_to_call, "requires_grad_"):
            layer_to_call.requires_grad_(False)
        self._layer_to_call = layer_to_call
        self._id = ID

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Calls the function.

        Raises:
            poptorch.Error: a model that trains is being compiled.
        """
        recorder = _recorder.active()
        if recorder is None:
            return self._layer_to_call(*inputs, **kwargs)
        return call_on_host(recorder, self._id, self._layer_to_call, inputs, kwargs)
