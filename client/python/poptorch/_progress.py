"""The progress bar of compilation."""


class CompilationProgressBar:
    """Shows on standard error how much of a model has been compiled.

    It is called with the steps done and the steps in all; a bar begins with the first call and
    ends when all are done. tqdm is imported by the first call only.
    """

    _FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"

    def __init__(self) -> None:
        self._bar = None

    def __call__(self, progress: int, total: int) -> None:
        """
        Args:
            progress: the steps done so far.
            total: the steps in all.
        """
        if self._bar is None:
            from tqdm import tqdm  # pylint: disable=import-outside-toplevel

            self._bar = tqdm(total=total, desc="Graph compilation", bar_format=self._FORMAT)
        self._bar.update(progress - self._bar.n)
        if progress >= total:
            self.close()

    def close(self) -> None:
        """Ends the bar, also if compilation failed."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __deepcopy__(self, memory) -> "CompilationProgressBar":
        return type(self)()

    def __repr__(self) -> str:
        return "CompilationProgressBar()"
