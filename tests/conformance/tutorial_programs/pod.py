"""The POD that programs run on: the one in use, or one that is brought up for them."""

import contextlib
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from typing import Dict, Optional

IPUS = 16
_HAS_IPUS = "import poptorch, sys; sys.exit(not poptorch.ipuHardwareIsAvailable(int(sys.argv[1])))"


def _run(environment: Dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    result = subprocess.run(words, env=environment, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(
            f"'{' '.join(words)}' failed: {(result.stderr or result.stdout).strip()}"
        )
    return result


class Pod:
    """A POD in use. With no active partition that has enough IPUs, it is a POD of its own."""

    def __init__(self) -> None:
        """Attributes: environment: the variables that a program needs to find it."""
        self.environment = dict(os.environ)
        for name in ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"):
            self.environment.pop(name, None)
        self._folder: Optional[tempfile.TemporaryDirectory] = None
        self.is_own = not self._has_ipus()
        if self.is_own:
            self._bring_up()
        elif "VPOD_HOME" not in self.environment:
            # Programs have another home directory, in which the POD is not.
            with contextlib.suppress(RuntimeError):
                self._take_variables()

    def _has_ipus(self) -> bool:
        words = [sys.executable, "-c", _HAS_IPUS, str(IPUS)]
        return subprocess.run(words, env=self.environment, check=False).returncode == 0

    def _bring_up(self) -> None:
        for name in list(self.environment):
            if name.startswith(("IPUOF_", "VIPU_", "VPOD_")):
                del self.environment[name]
        self._folder = tempfile.TemporaryDirectory(prefix="vpod-tutorials-")
        self.environment["VPOD_HOME"] = str(pathlib.Path(self._folder.name, "pod"))
        try:
            _run(self.environment, "vpod", "up", "--pod", str(IPUS))
            self._take_variables()
            size = ("--size", str(IPUS), "--reconfigurable")
            _run(self.environment, "vipu-admin", "create", "partition", "tutorials", *size)
            if not self._has_ipus():
                raise RuntimeError("the POD was brought up, and PopTorch does not find its IPUs")
        except BaseException:
            self.close()
            raise

    def _take_variables(self) -> None:
        """Takes the variables by which programs find the POD."""
        for line in _run(self.environment, "vpod", "env").stdout.splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            self.environment[name] = "".join(shlex.split(value))

    def close(self) -> None:
        """Ends a POD that was brought up here."""
        if self._folder is None:
            return
        subprocess.run(["vpod", "down"], env=self.environment, capture_output=True, check=False)
        self._folder.cleanup()
        self._folder = None
