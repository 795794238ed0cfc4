"""Keeps tensors from becoming sequences, which they do once their class is given an index method.

Python fills two slots of a class that gets a `__getitem__`, the item of a mapping and that of a
sequence, and leaves the second one filled when the method is taken away again. PyTorch takes
objects of such a class for sequences: `torch.tensor([torch.tensor(1)])` asks for a length then.
"""

import ctypes
from typing import Optional

#: Methods with a slot of sequences: the number in PyType_GetSlot, and the field below.
METHODS = {"__getitem__": (44, "item"), "__setitem__": (39, "ass_item")}


class _Methods(ctypes.Structure):
    """PySequenceMethods of CPython."""

    _fields_ = [(name, ctypes.c_void_p) for name in "length concat repeat item old ass_item".split()]


class _Class(ctypes.Structure):
    """What PyTypeObject of CPython begins with."""

    _fields_ = [("before", ctypes.c_void_p * 13), ("as_sequence", ctypes.POINTER(_Methods))]


_slot = ctypes.pythonapi.PyType_GetSlot
_slot.restype = ctypes.c_void_p
_slot.argtypes = [ctypes.py_object, ctypes.c_int]


def slot(owner: type, method: str) -> Optional[int]:
    """The address of what a class does for a method as a sequence; None if it is none."""
    return _slot(owner, METHODS[method][0])


def set_slot(owner: type, method: str, address: Optional[int]) -> None:
    """Sets the address that `slot` returns for a class and those that inherit it."""
    number, field = METHODS[method]
    methods = _Class.from_address(id(owner)).as_sequence.contents
    if getattr(methods, field) == _slot(owner, number):  # Else CPython has another layout.
        setattr(methods, field, address)
    inherited = getattr(owner, method)
    for each in type.__subclasses__(owner):
        if getattr(each, method) is inherited:
            set_slot(each, method, address)
