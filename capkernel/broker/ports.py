"""What the broker needs of the vault. Structural: `vault.client` fulfils it, and so does a recorder in a test."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, Literal, Protocol

from capkernel.wire.vault import FunctionBundle


class Outcome(Protocol):
    """What became of a write: `kind` is "written", or why not. For the broker and the person, never for the worker."""

    @property
    def kind(self) -> str: ...


class MirrorPort(Protocol):
    """What the secure output needs of the vault."""

    def origins(self, handle: str) -> frozenset[str] | None:
        """Where everything the value was made from came from, from the posts alone."""

    def mirror(self, handle: str, header: str) -> Coroutine[Any, Any, int | None]:
        """Append the value to the secure output below the header: 0, an errno, or None when nobody can tell."""


class VaultPort(Protocol):
    """The keeper, from the kernel's side. Called on the event loop's thread only.

    Descriptors stay the caller's. Handles are 32 hexadecimal digits. Posts may raise when the session has made too many
    or `captured` is no encoded value; that never depends on what a value is or how far the vault has got.
    """

    def put(self, handle: str, blob: bytes, origin: str, label: str) -> None:
        """Hold an encoded plain value (`wire.values`)."""

    @property
    def life(self) -> int:
        """Counts the vaults of the session: another number, and every value of before is gone."""

    def fill(self, handle: str, fd: int, kind: Literal["str", "bytes"], origin: str, label: str = "") -> None:
        """Hold the content of a regular file, open for reading."""

    def map(self, new: str, source: str, bundle: FunctionBundle, captured: bytes, flat: bool) -> None:
        """`new` = function(`source`)."""

    def spoil(self, new: str, reason: str, origin: str = "", *, text: bool = False) -> None:
        """`new` is poison; the reason is for the person, of types and names. origin, text: what a value read from there
        would have been: then it has the lineage of one that was."""

    def drop(self, handles: tuple[str, ...], shown: tuple[bool, ...]) -> None:
        """No cell can reach these values any more; whether the person was shown each one's mask."""

    def origins(self, handle: str) -> frozenset[str] | None:
        """Where everything the value was made from came from, from the posts alone."""

    async def expect(self, handle: str, origin: str, label: str = "") -> bytes:
        """A new handle whose value the person will type: the key to seal it to. Raises RuntimeError."""

    async def receive(self, handle: str, sealed: bytes) -> bool:
        """Hold what the person typed; False when it cannot be opened. Raises RuntimeError."""

    async def show_release(self, handle: str, key: bytes) -> bytes:
        """The `wire.shown.Release` of a value, sealed to the person's key. Raises RuntimeError, ValueError."""

    async def release(self, handle: str, seen: str) -> bytes | None:
        """The encoded value, for a person who has seen it; None when `seen` is not of it. Raises RuntimeError."""

    def zip(self, new: str, left: str, right: str) -> None:
        """`new` = (`left`, `right`)."""

    def write(self, handle: str, fd: int, limit_bytes: int) -> Awaitable[Outcome]:
        """Write a value into a regular file, open for writing. Done when it is there, or known to be poison."""
