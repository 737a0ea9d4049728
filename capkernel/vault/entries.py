"""What the keeper knows of handles: their state, their encoded values, and their lineage.

Rule 1: a handle is taken once. What settles it is a value that stands alone, or poison; either stays.
Rule 2: everything made from poison, or from what is not there, is poison, for the reason of the first such input.
Rule 3: all the values together are bounded, and so are those that are kept for the person alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from capkernel.vault.retained import Retained
from capkernel.wire import values
from capkernel.wire.vault import Described, Limits


@dataclass(slots=True)
class Entry:
    """`origins`, `labels`: the union over all the value was made from. `reason`, `place`: for the person only."""

    origins: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    parents: tuple[str, ...] = ()
    format_kept: bool = False  # from the posts alone, like the two above
    state: Literal["pending", "value", "poison"] = "pending"
    blob: bytes = field(default=b"", repr=False)  # never in a traceback or a log
    reason: str = ""
    place: str = ""

    @property
    def type(self) -> str:
        return values.type_name(self.blob) if self.state == "value" else ""

    def inherit(self, parents: Sequence[Entry | None]) -> None:
        """Origins and labels of what it is made from."""
        for parent in parents:
            if parent is not None:
                self.origins |= parent.origins
                self.labels |= parent.labels

    def described(self, ticket: int) -> Described:
        return Described(
            ticket, self.state, self.type, len(self.blob), tuple(sorted(self.origins)), tuple(sorted(self.labels)),
            self.parents, self.reason, self.place, self.format_kept,
        )  # fmt: skip


class Entries:
    """The entries of a session by handle. `settled` is told of each handle that is no longer pending."""

    def __init__(self, settled: Callable[[str], None]) -> None:
        self._settled = settled
        self._known: dict[str, Entry] = {}
        self._total = 0
        self._retained = Retained(0, 0)
        self.held_bytes = 0

    def begin(self, limits: Limits) -> None:
        self._total = limits.total_bytes
        self._retained = Retained(limits.kept_values, limits.kept_bytes)

    def get(self, handle: str) -> Entry | None:
        return self._known.get(handle)

    def __getitem__(self, handle: str) -> Entry:
        return self._known[handle]

    def new(self, handle: str, *, parents: tuple[str, ...] = (), origin: str = "", label: str = "") -> Entry | None:
        """A pending entry; None when the handle is taken."""
        if handle in self._known:
            return None
        entry = Entry(
            origins=frozenset((origin,)) if origin else frozenset(),
            labels=frozenset((label,)) if label else frozenset(),
            parents=parents,
        )
        self._known[handle] = entry
        return entry

    def hold(self, handle: str, blob: bytes) -> None:
        """Settle an entry with a value, once the bytes are those of a value that stands alone; else with poison."""
        try:
            values.type_name(blob)
            alone = not values.handles(blob)
        except values.BadValue:
            alone = False
        if not alone:
            self.poison(handle, "not an encoded value")
        elif self.held_bytes + len(blob) > self._total:
            self.poison(handle, "the vault is full")
        else:
            entry = self._known[handle]
            entry.state, entry.blob = "value", blob
            self.held_bytes += len(blob)
            self._settled(handle)

    def poison(self, handle: str, reason: str, place: str = "") -> None:
        entry = self._known[handle]
        entry.state, entry.reason, entry.place = "poison", reason, place
        self._settled(handle)

    def spoiled(self, new: str, parents: Sequence[Entry | None]) -> bool:
        """Poison the new entry when an input is unknown or poison; the reason is the input's."""
        for parent in parents:
            if parent is None:
                self.poison(new, "an unknown handle")
                return True
            if parent.state != "value":  # pending is impossible here (`vault.keeper`, Rule 5)
                self.poison(new, parent.reason or "an input that is not known", parent.place)
                return True
        return False

    def release(self, handles: tuple[str, ...], shown: tuple[bool, ...]) -> None:
        """No cell can reach these any more; some are kept for the person."""
        for handle, seen in zip(handles, shown, strict=True):
            entry = self._known.get(handle)
            if entry is None or entry.state == "pending":  # of what was posted before, only what a person still types
                continue
            for gone in self._retained.add(handle, len(entry.blob), shown=seen):
                self.held_bytes -= len(self._known.pop(gone).blob)

    def states(self) -> Counter[str]:
        return Counter(entry.state for entry in self._known.values())

    def types(self) -> Counter[str]:
        """Of the values."""
        return Counter(entry.type for entry in self._known.values() if entry.state == "value")
