"""What the kernel knows of where classified values came from: from the posts alone, so the same for a value, for poison
and for one that is never computed.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_DROPPED: Final = 5_000
_NONE: Final[frozenset[str]] = frozenset()


class Lineage:
    """Origins, and whether the text of the one origin was left whole, by handle.

    A handle is accepted once in the life of a session, so its number is never forgotten; the rest is, of all but the
    newest MAX_DROPPED values that no cell can reach any more.
    """

    def __init__(self) -> None:
        self._origins: dict[str, frozenset[str]] = {}
        self._format_kept: set[str] = set()
        self._dropped: deque[str] = deque()
        self._forgotten: set[bytes] = set()

    def __contains__(self, handle: str) -> bool:
        return handle in self._origins or handle.encode() in self._forgotten

    def begin(self, handle: str, origin: str, *, text: bool) -> None:
        """A value that comes from outside. `text`: it is a str."""
        self._origins[handle] = frozenset((origin,)) if origin else frozenset()
        if text:
            self._format_kept.add(handle)

    def derive(self, new: str, parents: tuple[str, ...], *, keeps_format: bool = False) -> None:
        """A value made from others. `keeps_format`: the step leaves a text whole (`wire.vault.keeps_format`)."""
        sets = {self._origins.get(parent, _NONE) for parent in parents}
        self._origins[new] = sets.pop() if len(sets) == 1 else _NONE.union(*sets)
        if keeps_format and len(parents) == 1 and parents[0] in self._format_kept:
            self._format_kept.add(new)

    def drop(self, handle: str) -> None:
        """No cell can reach this value any more. Once for each."""
        self._dropped.append(handle)
        while len(self._dropped) > MAX_DROPPED:
            oldest = self._dropped.popleft()
            self._origins.pop(oldest, None)
            self._format_kept.discard(oldest)
            self._forgotten.add(oldest.encode())

    def origins(self, handle: str) -> frozenset[str] | None:
        return self._origins.get(handle)

    def format_kept(self, handle: str) -> bool:
        return handle in self._format_kept
