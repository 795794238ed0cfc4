"""Parameters and buffers that are on the host and on devices, and which of them is newer.

A model that is wrapped for training keeps its tensors, but changes their classes: each use of a
parameter or buffer on the host then brings the weights from the device first, if these are newer.
Functions that only ask for a shape or type do not.
"""

import weakref
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

import torch
from torch import nn

from .. import _errors
from .._logging import logger
from .replica_groups import replica_grouping

_LINK = "_poptorch_weights"  # attribute of a wrapped tensor
_CLASSES = (nn.Parameter, torch.Tensor)  # of tensors that can be wrapped

# What reads no element, or writes none.
_METADATA = frozenset(
    getattr(torch.Tensor, name).__get__
    for name in (
        "shape dtype device layout requires_grad is_leaf grad grad_fn is_meta ndim names is_sparse"
        " is_quantized _version is_cuda is_mkldnn is_complex output_nr"
    ).split()
    if hasattr(getattr(torch.Tensor, name, None), "__get__")
) | frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "size dim numel nelement stride is_contiguous is_floating_point is_complex element_size"
        " storage_offset __hash__ __len__ data_ptr register_hook retain_grad requires_grad_"
        " get_device ndimension is_signed is_shared"
    ).split()
)
# `.data` gives a tensor that shares the elements. PyTorch does not count writes through it.
_UNCOUNTED = frozenset((torch.Tensor.data.__get__, torch.Tensor.data.__set__))


class Weights:
    """The state of one wrapped model.

    Attributes:
        version: rises whenever a device trains, or the host may have changed values in a way that
            `Mark.edits` does not count.
    """

    def __init__(self) -> None:
        self.version = 0
        self._owner: Optional[weakref.ref] = None  # of the newest values, unless the host has them

    def device_is_newer(self, owner) -> None:
        """A device has trained.

        Args:
            owner: its `read_weights(state=self)` brings the values to the host, when they are
                wanted; its `lose_device()` gives the device up, if that fails.
        """
        self._owner = weakref.ref(owner)
        self.version += 1

    def newest_on(self) -> Optional[object]:
        """The owner of values that are newer than the host's."""
        return None if self._owner is None else self._owner()

    def to_host(self, implicit: bool = True) -> None:
        """Brings the values to the host if a device has newer ones.

        Args:
            implicit: whether the program has not asked for it, so that the log says so.
        """
        owner = self.newest_on()
        if owner is not None:
            if implicit:
                logger.debug("Implicit copyWeightsToHost()")
            # What reads the weights writes into these tensors, too.
            before, self._owner = self._owner, None
            try:
                owner.read_weights(state=self)
            except _errors.RecoverableError:
                self._owner = before
                owner.lose_device()
                raise
            except BaseException:
                self._owner = before
                raise
        self._owner = None

    def host_is_newer(self) -> None:
        """The host's values were changed, and any newer ones of a device are not wanted."""
        self._owner = None
        self.version += 1

    def device_is_lost(self, owner) -> bool:
        """A device has lost its values. Returns whether they were the newest ones.

        Args:
            owner: as of `device_is_newer`.
        """
        had_newest = self.newest_on() is owner
        if had_newest:
            self.host_is_newer()
        return had_newest


class _Wrapped:
    """What a wrapped parameter or buffer does beside being one."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():
            if func in _METADATA:
                return func(*args, **kwargs)
            states = {}
            for each in _tensors(args, kwargs):
                state = each.__dict__.get(_LINK)
                if state is not None:
                    states[id(state)] = state
                    state.to_host()
            result = func(*args, **kwargs)
        if func in _UNCOUNTED:
            for state in states.values():
                state.host_is_newer()
        return result

    def __repr__(self):
        return repr(_plain(self))

    def __deepcopy__(self, memo):
        plain = _plain(self)
        copy = plain.__deepcopy__(memo)
        memo[id(self)] = copy
        # The memo has the identity of `plain` as well, which no other object may get meanwhile.
        memo.setdefault(id(memo), []).append(plain)
        return copy

    def __reduce_ex__(self, protocol):
        return _plain(self).__reduce_ex__(protocol)


class PoptorchParameter(_Wrapped, nn.Parameter):
    """A parameter of a wrapped model."""

    replicaGrouping = replica_grouping


class PoptorchBuffer(_Wrapped, torch.Tensor):
    """A buffer of a wrapped model."""


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of PyTorch's own class with the current values of a wrapped one."""
    state = tensor.__dict__.get(_LINK)
    if state is not None:
        state.to_host()
    with torch._C.DisableTorchFunction():
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)
        return tensor.detach()


def _tensors(args, kwargs) -> Iterable[torch.Tensor]:
    pending = list(args) + list(kwargs.values())
    while pending:
        each = pending.pop()
        if isinstance(each, _Wrapped):
            yield each
        elif isinstance(each, (list, tuple)):
            pending.extend(each)


def weights_of(tensors: Iterable[torch.Tensor]) -> List[Weights]:
    """The states of wrapped tensors among these, each once."""
    found: Dict[int, Weights] = {}
    for tensor in tensors:
        state = tensor.__dict__.get(_LINK)
        if state is not None:
            found[id(state)] = state
    return list(found.values())


class Mark(NamedTuple):
    """What differs once the host has written a tensor, or has another one in its place.

    Attributes:
        identity: of the tensor.
        address: of its elements, which `.data = other` changes.
        edits: how often it was written: in place, by index, through views.
    """

    identity: int
    address: int
    edits: int


class Versions(NamedTuple):
    """What differs as soon as the host or a device has written a tensor of a model.

    Attributes:
        states: of the wrapped models that have the tensors.
        marks: those of the tensors, by name.
        tensors: the tensors, so that no others get their identities.
    """

    states: Tuple[Tuple[int, int], ...]
    marks: Dict[str, Mark]
    tensors: Tuple[torch.Tensor, ...]

    def trained(self, owner) -> "Versions":
        """The versions once a device has trained the tensors.

        Args:
            owner: as of `Weights.device_is_newer`.
        """
        states = weights_of(self.tensors)
        for state in states:
            state.device_is_newer(owner)
        return self._replace(states=_numbers(states))

    def same(self, other: Optional["Versions"]) -> bool:
        """Whether nothing has been written in between."""
        return other is not None and self.states == other.states and self.marks == other.marks

    def has(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether a tensor is the one that had the name."""
        return name in self.marks and self.marks[name].identity == id(tensor)


def versions(named: List[Tuple[str, torch.Tensor]]) -> Versions:
    """The versions of tensors with their names."""
    states = weights_of(tensor for _, tensor in named)
    with torch._C.DisableTorchFunction():
        marks = {
            name: Mark(
                id(tensor), tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version
            )
            for name, tensor in named
        }
    return Versions(_numbers(states), marks, tuple(tensor for _, tensor in named))


def _numbers(states: List[Weights]) -> Tuple[Tuple[int, int], ...]:
    return tuple((id(state), state.version) for state in states)


def named_state(module: nn.Module) -> List[Tuple[str, torch.Tensor]]:
    """Parameters and buffers by name, each once, under its first name.

    As module.named_parameters() and module.named_buffers(), which take several times as long: each
    call of a model asks for them.
    """
    parameters: Dict[int, Tuple[str, torch.Tensor]] = {}
    buffers: Dict[int, Tuple[str, torch.Tensor]] = {}
    seen = set()
    pending = [("", module)]
    while pending:
        prefix, each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        for found, tensors in ((parameters, each._parameters), (buffers, each._buffers)):
            for name, tensor in tensors.items():
                if tensor is not None:
                    found.setdefault(id(tensor), (prefix + name, tensor))
        for name, child in reversed(each._modules.items()):
            if child is not None:
                pending.append((f"{prefix}{name}.", child))
    return [*parameters.values(), *buffers.values()]


def is_of(tensor: torch.Tensor, state: Weights) -> bool:
    """Whether a tensor is of a wrapped model, or of a class that is never wrapped."""
    linked = tensor.__dict__.get(_LINK)
    return linked is state or (linked is None and type(tensor) not in _CLASSES)


def wrap(module: nn.Module, state: Weights) -> None:
    """Changes the classes of a model's parameters and buffers until `unwrap`.

    A tensor that another wrapped model shares keeps the state of that model.
    """
    for _, tensor in named_state(module):
        if isinstance(tensor, _Wrapped):
            continue
        if type(tensor) not in _CLASSES:
            continue  # a class of the program's own keeps it
        is_parameter = isinstance(tensor, nn.Parameter)
        tensor.__class__ = PoptorchParameter if is_parameter else PoptorchBuffer
        tensor.__dict__[_LINK] = state


def unwrap(module: nn.Module, state: Weights) -> None:
    """Undoes `wrap`."""
    for _, tensor in named_state(module):
        if isinstance(tensor, _Wrapped) and tensor.__dict__.get(_LINK) is state:
            is_parameter = isinstance(tensor, nn.Parameter)
            del tensor.__dict__[_LINK]
            tensor.__class__ = nn.Parameter if is_parameter else torch.Tensor


class HostMemory:
    """Addresses of tensors for the extension, which reads and writes them while this lives."""

    def __init__(self, tensors: Iterable[Tuple[str, torch.Tensor]]) -> None:
        self._copies: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self._kept: List[torch.Tensor] = []
        self.entries: List[Tuple[str, int, int]] = []
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for name, tensor in tensors:
                tensor = tensor.detach()
                memory = tensor if tensor.is_contiguous() else tensor.contiguous()
                if memory is not tensor:
                    self._copies.append((tensor, memory))
                self._kept.append(memory)
                size = memory.numel() * memory.element_size()
                self.entries.append((name, memory.data_ptr(), size))

    def written(self) -> None:
        """Copies what was written to tensors whose elements do not lie in order."""
        with torch._C.DisableTorchFunction(), torch.no_grad():
            for tensor, memory in self._copies:
                tensor.copy_(memory)
