"""Builds models for the Virtual IPU-POD, compiles and runs them; numpy arrays go in and out."""

import sys

from . import _arguments, _vpod

_arguments.explain(_vpod, _vpod.nn)
from ._vpod import *  # noqa: F401,F403
from ._vpod import Error, nn  # noqa: F401

sys.modules[__name__ + ".nn"] = nn
