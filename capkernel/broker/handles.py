"""The table of what is granted now.

Rule 1: a handle is 128 random bits, made here, used once and never again.
Rule 2: a grant belongs to one scope and one cell; when either ends, it is gone. There is no way to extend one.
Rule 3: `find` answers for the running cell only, so a handle kept from an earlier cell designates nothing.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from capkernel.broker.failures import denied, revoked

T = TypeVar("T")

MAX_GRANTS: Final = 200_000
"""Live grants of one cell. A bound on what a taken-over worker can make us hold."""


@dataclass(frozen=True)
class Grant(Generic[T]):
    """handle: its number. scope: the handle of the scope it came from (its own, for a scope). cell: the cell number."""

    handle: str
    scope: str
    cell: int
    target: T


class HandleTable(Generic[T]):
    """Grants by handle. Thread-safe: effects run in threads while cells end on the event loop."""

    def __init__(self, limit: int = MAX_GRANTS) -> None:
        self._grants: dict[str, Grant[T]] = {}
        self._members: dict[str, list[str]] = {}  # scope → handles minted in it, itself included
        self._lock = threading.Lock()
        self._limit = limit
        self._cell: int | None = None

    def begin(self, cell: int) -> None:
        """From now on this cell runs, and no other. What an earlier one still held is revoked."""
        with self._lock:
            self._clear()
            self._cell = cell

    def end(self) -> list[T]:
        """No cell runs any more. Returns the targets that were live."""
        with self._lock:
            self._cell = None
            return self._clear()

    def mint_scope(self, target: T) -> str:
        """A handle for a new scope of the running cell."""
        with self._lock:
            handle = self._fresh()
            self._members[handle] = [handle]
            return self._add(handle, handle, target)

    def mint(self, scope: str, target: T) -> str:
        """A handle for something within a live scope."""
        with self._lock:
            if scope not in self._members:
                raise revoked()
            handle = self._fresh()
            self._members[scope].append(handle)
            return self._add(handle, scope, target)

    def find(self, handle: str) -> Grant[T]:
        """The grant of a handle, or the same refusal for one that ended, never was, or belongs to another cell."""
        with self._lock:
            found = self._grants.get(handle)
            if found is None or found.cell != self._cell:
                raise revoked()
            return found

    def revoke_scope(self, scope: str) -> list[T]:
        """End a scope and everything minted in it. Returns the targets; nothing when it has ended already."""
        with self._lock:
            return [self._grants.pop(handle).target for handle in self._members.pop(scope, ())]

    def revoke(self, handle: str) -> list[T]:
        """End one grant, before its scope does. Nothing when it has ended already."""
        with self._lock:
            found = self._grants.pop(handle, None)
            if found is None:
                return []
            self._members[found.scope].remove(handle)
            return [found.target]

    def revoke_cell(self, cell: int) -> list[T]:
        """End everything that was granted in a cell."""
        with self._lock:
            return self._clear() if self._cell == cell else []

    def targets(self, most: int) -> list[T]:
        """Of the live grants, the oldest first."""
        with self._lock:
            return [grant.target for grant in itertools.islice(self._grants.values(), most)]

    def __len__(self) -> int:
        return len(self._grants)

    def _fresh(self) -> str:
        if self._cell is None:
            raise revoked("no cell is running, so this")
        if len(self._grants) >= self._limit:
            raise denied(f"more than {self._limit} files at once: leave the block, or take them in parts")
        handle = secrets.token_hex(16)
        assert handle not in self._grants  # 2**-128: the generator is broken
        return handle

    def _add(self, handle: str, scope: str, target: T) -> str:
        assert self._cell is not None
        self._grants[handle] = Grant(handle, scope, self._cell, target)
        return handle

    def _clear(self) -> list[T]:
        ended = [grant.target for grant in self._grants.values()]
        self._grants.clear()
        self._members.clear()
        return ended
