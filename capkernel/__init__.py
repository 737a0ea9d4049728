"""capkernel: a Jupyter kernel in which every cell is a proposal, and secrets can be computed with but never seen.

The names a cell sees live in `capkernel.api`; `Session` runs cells from a program; the rest is the machinery behind
them (see docs/design.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from capkernel.version import __version__ as __version__

if TYPE_CHECKING:
    from capkernel.bridge.session import Result as Result
    from capkernel.bridge.session import Session as Session
    from capkernel.bridge.session import SessionError as SessionError

_OF_THE_BRIDGE = frozenset(("Result", "Session", "SessionError"))


def __getattr__(name: str) -> Any:
    # Late: the kernel's and the worker's processes import this package too, and need nothing of a client.
    if name in _OF_THE_BRIDGE:
        return getattr(import_module("capkernel.bridge.session"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
