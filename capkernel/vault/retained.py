"""Values that no cell can reach any more, kept a while for the person, who may still look at an old output.

Rule 1: bounded in number and in bytes. What was never shown goes before what was, the older before the newer.
"""

from __future__ import annotations

from collections import OrderedDict


class Retained:
    """Handles and sizes; the values are the keeper's."""

    def __init__(self, values: int, size: int) -> None:
        """At most so many values, of so many bytes together."""
        self._values = values
        self._size = size
        self._unseen: OrderedDict[str, int] = OrderedDict()  # handle → bytes, the oldest first
        self._shown: OrderedDict[str, int] = OrderedDict()
        self._held = 0

    def add(self, handle: str, size: int, *, shown: bool) -> list[str]:
        """Take one in. Returns those that must go for it, itself perhaps; nothing for one that is known."""
        if handle in self._unseen or handle in self._shown:
            return []
        (self._shown if shown else self._unseen)[handle] = size
        self._held += size
        gone: list[str] = []
        while len(self._unseen) + len(self._shown) > self._values or self._held > self._size:
            name, freed = (self._unseen or self._shown).popitem(last=False)
            self._held -= freed
            gone.append(name)
        return gone
