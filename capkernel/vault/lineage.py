"""What the kernel knows of where classified values came from: from the posts alone, so the same for a value, for poison
and for one that is never computed.
"""

from __future__ import annotations


class Lineage:
    """Origins, and whether the text of the one origin was left whole, by handle. Nothing is ever forgotten: a handle is
    accepted once in the life of a session."""

    def __init__(self) -> None:
        self._origins: dict[str, frozenset[str]] = {}
        self._format_kept: set[str] = set()

    def __contains__(self, handle: str) -> bool:
        return handle in self._origins

    def begin(self, handle: str, origin: str, *, text: bool) -> None:
        """A value that comes from outside. `text`: it is a str."""
        self._origins[handle] = frozenset((origin,)) if origin else frozenset()
        if text:
            self._format_kept.add(handle)

    def derive(self, new: str, parents: tuple[str, ...], *, keeps_format: bool = False) -> None:
        """A value made from others. `keeps_format`: the step leaves a text whole (`wire.vault.keeps_format`)."""
        self._origins[new] = frozenset().union(*(self._origins.get(parent, frozenset()) for parent in parents))
        if keeps_format and len(parents) == 1 and parents[0] in self._format_kept:
            self._format_kept.add(new)

    def origins(self, handle: str) -> frozenset[str] | None:
        return self._origins.get(handle)

    def format_kept(self, handle: str) -> bool:
        return handle in self._format_kept
