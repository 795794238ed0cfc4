"""Names for parts of forward that are no modules."""

from .._capture import recorder as _recorder


class NameScope:
    """Names the operators of a part of forward, as a context.

    >>> with poptorch.NameScope("attention"):
    ...     scores = torch.bmm(queries, keys)

    Messages and profiles have the operators in "attention" of the module that is called. Outside of
    captures it does nothing.
    """

    def __init__(self, name: str) -> None:
        """
        Args:
            name: the name.

        Raises:
            AssertionError: it is no string.
        """
        assert isinstance(name, str), "Parameter to NameScope must be a string"
        self.name = name
        self._entered: list = []

    def __enter__(self) -> "NameScope":
        recorder = _recorder.active()
        scope = None
        if recorder is not None:
            outer = recorder.scopes[-1]
            scope = recorder.scope(f"{outer}.{self.name}" if outer else self.name)
            scope.__enter__()
        self._entered.append(scope)
        return self

    def __exit__(self, type, value, traceback) -> None:  # pylint: disable=redefined-builtin
        scope = self._entered.pop()
        if scope is not None:
            scope.__exit__(None, None, None)
