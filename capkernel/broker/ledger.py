"""Where each classified value of a session came from, for the person's viewer: names, places and code, never values.

Rule 1: it is written from the posts alone, so nothing in it depends on a value or on how far the vault has got.
Rule 2: bounded: the newest MAX_ENTRIES are kept, texts are cut.
Rule 3: it never raises for what a worker sent. A post is written down before it is judged: the person finds what was
refused as well.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from capkernel.wire.plan import CodeKey, MaskSite, Plan, PureFunction
from capkernel.wire.values import BadValue, handles, type_name
from capkernel.wire.vault import FunctionBundle
from capkernel.wire.view import UsedFunction

MAX_ENTRIES: Final = 5_000
MAX_TEXT: Final = 400
MAX_PARENTS: Final = 50
MAX_SOURCE: Final = 4_000  # characters of all functions of one entry
MAX_FUNCTIONS: Final = 20

How = Literal["read", "secret", "classify", "map", "flat_map", "zip"]
_METHODS: Final[dict[str, tuple[str, ...]]] = {
    "read": ("read_classified", "read_classified_bytes"),
    "classify": ("classify",),
    "map": ("map",),
    "flat_map": ("flat_map",),
    "zip": ("zip",),
}
_IN_ORDER: Final = ("read", "classify", "zip")


@dataclass(frozen=True)
class Origin:
    """What is known of one handle.

    type: the static type, "" when it cannot be told. origin: "file:.env", "secret:NAME", or "cell:3" for `classify`.
    label: the cell's claim. code: the checked source of the function, or the name of a library function, cut. name:
    what the cell's text assigns it to, as far as that can be told without running it. functions: what made it.
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
    name: str = ""
    functions: tuple[UsedFunction, ...] = ()

    def holds(self, words: list[str], origins: tuple[str, ...]) -> bool:
        """Whether each of the words, in lower case, stands somewhere in what is known."""
        texts = (self.name, self.type, self.how, f"cell {self.cell}", self.handle, self.label, self.code, *origins)
        sources = (text for function in self.functions for text in (function.name, function.source))
        whole = "\n".join((*texts, *sources)).lower()
        return all(word in whole for word in words)


class Ledger:
    """The origins of a session's classified values, oldest first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Origin] = OrderedDict()
        self._made: Counter[tuple[int, str]] = Counter()  # (cell, how) → posts so far
        self.made = 0

    def add(self, entry: Origin) -> None:
        self.made += 1
        self._entries[entry.handle] = entry
        while len(self._entries) > MAX_ENTRIES:
            self._entries.popitem(last=False)

    def read(self, handle: str, cell: int, origin: str, *, text: bool, plan: Plan | None = None) -> None:
        name = self._name(cell, "read", plan)
        self.add(Origin(handle, cell, "read", "str" if text else "bytes", origin[:MAX_TEXT], name=name))

    def secret(self, handle: str, cell: int, origin: str, label: str) -> None:
        """One that the person or the policy gave."""
        self.add(Origin(handle, cell, "secret", "str", origin, label[:MAX_TEXT]))

    # `static`: a type that the checker gave to a value of the cell, "" when it is not known which one is this. `plan`:
    # of the cell, for the name.

    def classified(
        self, handle: str, cell: int, label: str, blob: bytes, static: str = "", plan: Plan | None = None
    ) -> None:
        """The blob is plain data of the cell, so its type is no secret."""
        kind = static[:MAX_TEXT] or _type_of(blob)
        name = self._name(cell, "classify", plan)
        self.add(Origin(handle, cell, "classify", kind, f"cell:{cell}", label[:MAX_TEXT], name=name))

    def zipped(self, handle: str, cell: int, left: str, right: str, static: str = "", plan: Plan | None = None) -> None:
        types = [self._entries[name].type if name in self._entries else "" for name in (left, right)]
        kind = f"tuple[{types[0]}, {types[1]}]" if all(types) else ""
        kind = kind if len(kind) <= MAX_TEXT else ""  # pairs of pairs double it every time
        kind = static[:MAX_TEXT] or kind
        self.add(Origin(handle, cell, "zip", kind, parents=(left, right), name=self._name(cell, "zip", plan)))

    def mapped(
        self, handle: str, cell: int, plan: Plan, bundle: FunctionBundle, source: str, captured: bytes,
        static: str = "", *, flat: bool,
    ) -> None:  # fmt: skip
        how: How = "flat_map" if flat else "map"
        functions = _functions_of(bundle)
        around = _site_around(plan.masks, bundle.entry, cell)
        self.add(
            Origin(
                handle,
                cell,
                how,
                (around.type if around is not None else static or _only_type(plan.masks))[:MAX_TEXT],
                code=(functions[0].source or functions[0].name)[:MAX_TEXT] if functions else "",
                code_cell=functions[0].cell if functions else None,
                parents=(source, *_handles(captured))[:MAX_PARENTS],
                name=around.name[:MAX_TEXT] if around is not None else self._name(cell, how, plan),
                functions=functions,
            )
        )

    def get(self, handle: str) -> Origin | None:
        return self._entries.get(handle)

    def newest(self, count: int) -> list[Origin]:
        """At most `count`, the newest first."""
        found: list[Origin] = []
        for entry in self.newest_first():
            if len(found) >= count:
                break
            found.append(entry)
        return found

    def newest_first(self) -> Iterator[Origin]:
        return iter(reversed(self._entries.values()))

    def ancestors(self, handle: str, most: int) -> list[Origin]:
        """The entry and all it was made from that is still known, the nearest first, each once."""
        found: dict[str, Origin] = {}
        level = [handle]
        while level and len(found) < most:
            following: list[str] = []
            for name in level:
                entry = self._entries.get(name)
                if entry is not None and name not in found and len(found) < most:
                    found[name] = entry
                    following += entry.parents
            level = following
        return list(found.values())

    def children(self, handle: str, most: int) -> list[Origin]:
        """What was made from it directly, the newest first."""
        found: list[Origin] = []
        for entry in self.newest_first():
            if handle in entry.parents and len(found) < most:
                found.append(entry)
        return found

    def __len__(self) -> int:
        return len(self._entries)

    def _name(self, cell: int, how: How, plan: Plan | None) -> str:
        """Calls of a kind are taken to come in the order of the text; one that stands alone is all of them. Of calls of
        `map` with functions from elsewhere the order is not known."""
        number = self._made[cell, how]
        self._made = Counter({key: count for key, count in self._made.items() if key[0] == cell})
        self._made[cell, how] = number + 1
        sites = [site for site in (plan.masks if plan is not None else ()) if site.method in _METHODS[how]]
        sites.sort(key=lambda site: (site.span.line, site.span.column, site.span.end_line, site.span.end_column))
        if len(sites) == 1:
            return sites[0].name[:MAX_TEXT]
        return sites[number].name[:MAX_TEXT] if number < len(sites) and how in _IN_ORDER else ""


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


def _functions_of(bundle: FunctionBundle) -> tuple[UsedFunction, ...]:
    """The one that is applied, then the others."""
    if bundle.entry is None:
        return (UsedFunction(bundle.table[:MAX_TEXT], None, ""),) if bundle.table else ()
    found: list[UsedFunction] = []
    room = MAX_SOURCE

    def rank(function: PureFunction) -> bool:
        return function.key != bundle.entry

    for function in sorted(bundle.functions, key=rank)[:MAX_FUNCTIONS]:
        source = function.source if len(function.source) <= room else function.source[:room] + "\n…"
        room = max(0, room - len(function.source))
        found.append(UsedFunction(function.name[:MAX_TEXT], function.key.cell, source))
    return tuple(found)


def _site_around(masks: tuple[MaskSite, ...], entry: CodeKey | None, cell: int) -> MaskSite | None:
    """The `map` that a function of this cell stands in."""
    if entry is None or entry.cell != cell:
        return None
    start, end = entry.span[:2], entry.span[2:]
    around = [
        site
        for site in masks
        if (site.span.line, site.span.column) <= start and end <= (site.span.end_line, site.span.end_column)
    ]
    # The innermost; of equal starts (a chain of maps) the shortest, which is the one that ends with it.
    return max(
        around,
        key=lambda site: (site.span.line, site.span.column, -site.span.end_line, -site.span.end_column),
        default=None,
    )


def _only_type(masks: tuple[MaskSite, ...]) -> str:
    """The static type of the cell's only type of map."""
    types = {site.type for site in masks}
    return types.pop() if len(types) == 1 else ""
