"""capkernel: a Jupyter kernel in which every cell is a proposal, and secrets can be computed with but never seen.

The names a cell sees live in `capkernel.api`; `Session` runs cells from a program; the rest is the machinery behind
them (see docs/design.md).

Rule 1: nothing is imported here, not even for types: every process imports this package, and the checker reads it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from capkernel.version import __version__ as __version__

_OF_THE_BRIDGE = frozenset(("Result", "Session", "SessionError"))


def __getattr__(name: str) -> Any:
    if name in _OF_THE_BRIDGE:
        return getattr(import_module("capkernel.bridge.session"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
