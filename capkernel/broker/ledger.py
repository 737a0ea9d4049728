"""Where each classified value of a session came from, for the person's viewer: names, places and code, never values.

Rule 1: it is written from the posts alone, so nothing in it depends on a value or on how far the vault has got.
Rule 2: bounded: the newest MAX_ENTRIES are kept, texts are cut.
Rule 3: it never raises for what a worker sent. A post is written down before it is judged: the person finds what was
refused as well.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Literal

from capkernel.wire.plan import CodeKey, MaskSite, Plan
from capkernel.wire.values import BadValue, handles, type_name
from capkernel.wire.vault import FunctionBundle

MAX_ENTRIES: Final = 5_000
MAX_TEXT: Final = 400
MAX_PARENTS: Final = 50

How = Literal["read", "secret", "classify", "map", "flat_map", "zip"]


@dataclass(frozen=True)
class Origin:
    """What is known of one handle.

    type: the static type, "" when it cannot be told. origin: "file:.env", "secret:NAME", or "cell:3" for `classify`.
    label: the cell's claim. code: the checked source of the function, or the name of a library function.
    """

    handle: str
    cell: int
    how: How
    type: str = ""
    origin: str = ""
    label: str = ""
    code: str = ""
    code_cell: int | None = None
    parents: tuple[str, ...] = ()


class Ledger:
    """The origins of a session's classified values, oldest first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Origin] = OrderedDict()

    def add(self, entry: Origin) -> None:
        self._entries[entry.handle] = entry
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def read(self, handle: str, cell: int, origin: str, *, text: bool) -> None:
        self.add(Origin(handle, cell, "read", "str" if text else "bytes", origin[:MAX_TEXT]))

    def secret(self, handle: str, cell: int, origin: str, label: str) -> None:
        """One that the person or the policy gave."""
        self.add(Origin(handle, cell, "secret", "str", origin, label[:MAX_TEXT]))

    # `static`: a type that the checker gave to a value of the cell, "" when it is not known which one is this.

    def classified(self, handle: str, cell: int, label: str, blob: bytes, static: str = "") -> None:
        """The blob is plain data of the cell, so its type is no secret."""
        kind = static[:MAX_TEXT] or _type_of(blob)
        self.add(Origin(handle, cell, "classify", kind, f"cell:{cell}", label[:MAX_TEXT]))

    def zipped(self, handle: str, cell: int, left: str, right: str, static: str = "") -> None:
        types = [self._entries[name].type if name in self._entries else "" for name in (left, right)]
        kind = f"tuple[{types[0]}, {types[1]}]" if all(types) else ""
        kind = kind if len(kind) <= MAX_TEXT else ""  # pairs of pairs double it every time
        kind = static[:MAX_TEXT] or kind
        self.add(Origin(handle, cell, "zip", kind, parents=(left, right)))

    def mapped(
        self, handle: str, cell: int, plan: Plan, bundle: FunctionBundle, source: str, captured: bytes,
        static: str = "", *, flat: bool,
    ) -> None:  # fmt: skip
        code, where = _code_of(bundle)
        self.add(
            Origin(
                handle,
                cell,
                "flat_map" if flat else "map",
                _type_of_call(plan.masks, bundle.entry, cell, static)[:MAX_TEXT],
                code=code[:MAX_TEXT],
                code_cell=where,
                parents=(source, *_handles(captured))[:MAX_PARENTS],
            )
        )

    def get(self, handle: str) -> Origin | None:
        return self._entries.get(handle)

    def newest(self, count: int) -> list[Origin]:
        """At most `count`, the newest first."""
        found: list[Origin] = []
        for entry in reversed(self._entries.values()):
            if len(found) >= count:
                break
            found.append(entry)
        return found

    def __len__(self) -> int:
        return len(self._entries)


def _type_of(blob: bytes) -> str:
    try:
        return type_name(blob)
    except BadValue:
        return ""


def _handles(captured: bytes) -> tuple[str, ...]:
    try:
        return handles(captured)
    except BadValue:
        return ()


def _code_of(bundle: FunctionBundle) -> tuple[str, int | None]:
    for function in bundle.functions:
        if function.key == bundle.entry:
            return function.source, function.key.cell
    return bundle.table, None


def _type_of_call(masks: tuple[MaskSite, ...], entry: CodeKey | None, cell: int, static: str) -> str:
    """The static type of the `map` that a function of this cell stands in; else `static`; else of the cell's only type
    of map."""
    if entry is not None and entry.cell == cell:
        start, end = entry.span[:2], entry.span[2:]
        around = [
            site
            for site in masks
            if (site.span.line, site.span.column) <= start and end <= (site.span.end_line, site.span.end_column)
        ]
        if around:
            # The innermost; of equal starts (a chain of maps) the shortest, which is the one that ends with it.
            return max(around, key=lambda site: (site.span.line, site.span.column, -site.span.end_line,
                                                 -site.span.end_column)).type  # fmt: skip
    return static or _only_type(masks)


def _only_type(masks: tuple[MaskSite, ...]) -> str:
    types = {site.type for site in masks}
    return types.pop() if len(types) == 1 else ""
