"""The one way from a cell's objects to the kernel. The worker installs it; nothing else in `api` knows of sockets.

A cell cannot use it to gain anything: what crosses is a handle number that the broker looks up and a method name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from capkernel.wire.worker import (
    Classify,
    Effect,
    FunctionRef,
    MapClassified,
    MaskShown,
    ZipClassified,
)


class Membrane(Protocol):
    def call(self, effect: Effect, blob: bytes = b"") -> tuple[Any, bytes]:
        """Ask the broker and wait. Raises the exception of `api.errors` that the answer names."""

    def post(self, operation: Classify | MapClassified | ZipClassified | MaskShown, blob: bytes = b"") -> None:
        """Tell the vault; there is no answer, so nothing about the secret can be seen in one."""

    def describe(self, function: Callable[..., Any]) -> tuple[FunctionRef, bytes]:
        """Which checked function this is, and the plain data it captures, by value as it is now (`wire.values`).

        Raises TypeError, naming what it captures, when it is no function of a cell or captures what cannot be sent.
        """

    def mask_type(self) -> str:
        """The static type of the Classified value that the innermost running line of a cell makes."""


_installed: list[Membrane] = []


def install(membrane: Membrane) -> None:
    """Called once by the worker, before any cell."""
    _installed[:] = [membrane]


def current() -> Membrane:
    if not _installed:
        raise RuntimeError("capkernel.api works only inside a capkernel session: start one with `capkernel lab`")
    return _installed[0]
