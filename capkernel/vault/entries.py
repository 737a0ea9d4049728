"""What the keeper knows of a handle: its state, its encoded value, and its lineage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from capkernel.wire.values import type_name
from capkernel.wire.vault import Described


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
        return type_name(self.blob) if self.state == "value" else ""

    def described(self, ticket: int) -> Described:
        return Described(
            ticket, self.state, self.type, len(self.blob), tuple(sorted(self.origins)), tuple(sorted(self.labels)),
            self.parents, self.reason, self.place, self.format_kept,
        )  # fmt: skip
