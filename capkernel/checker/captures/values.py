"""What the flow analysis knows of a value: a set of tokens, and a heap that says what the objects it made hold.

An abstract value is a frozen set of tokens:
- `Cap`: it may be or reach the capability of a block that is open; `Dead`: of a block that has ended;
- `Site`: it may be the object made at one place of the text; what that object holds is in the heap;
- `OUTER`: it may be an object that was there before, of which nothing is known;
- `Closure`: it may be this function, which holds what its free names hold;
- `UNTRUSTED`: it got its static type through `Any`, so the type says nothing about it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mypy.nodes import TypeInfo

from capkernel.checker.captures.known import Function
from capkernel.checker.captures.scopes import Scope


@dataclass(frozen=True)
class Cap:
    """The capability that one `with` item grants. Its identity is its place."""

    cell: int
    line: int
    column: int
    name: str
    type: str
    granted_by: str
    _hash: int = field(init=False, repr=False, compare=False)  # asked for in every step; computed once

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.cell, self.line, self.column)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def origin(self) -> str:
        return f"cell {self.cell}, line {self.line}: with {self.granted_by}(...)"


@dataclass(frozen=True)
class Dead:
    cap: Cap


@dataclass(frozen=True)
class Site:
    """An object made by `node` while the blocks `within` were open."""

    node: ast.AST
    within: frozenset[Cap]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.node, self.within)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Mark:
    name: str


@dataclass(eq=False)
class Frame:
    """The variables of one scope while it runs; the session's own when `scope` is a module."""

    scope: Scope | None
    parent: Frame | None
    names: dict[str, Value] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    opened: list[Cap] = field(default_factory=list)
    returned: Value = frozenset()
    yielded: Value = frozenset()
    running: int = 0

    def for_scope(self, scope: Scope) -> Frame | None:
        frame: Frame | None = self
        while frame is not None and frame.scope is not scope:
            frame = frame.parent
        return frame


@dataclass(frozen=True)
class Closure:
    function: Function
    frame: Frame
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.function.node, self.frame)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        # The same definition in the same frame is the same function, whoever looked it up.
        return isinstance(other, Closure) and self.function.node is other.function.node and self.frame is other.frame


Token = Cap | Dead | Site | Mark | Closure
Value = frozenset[Token]

NOTHING: Value = frozenset()
OUTER = Mark("outer")
UNTRUSTED = Mark("untrusted")
UNKNOWN: Value = frozenset((OUTER,))


_LISTS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)


class Heap:
    """What the objects made so far may hold. Only ever grows, but for the death of capabilities."""

    def __init__(
        self, contents: dict[Site, Value] | None = None, fields: dict[Site, dict[str, Value]] | None = None
    ) -> None:
        self.contents: dict[Site, Value] = dict(contents or {})
        # Of objects whose every store named an attribute.
        self.fields: dict[Site, dict[str, Value]] = {site: dict(held) for site, held in (fields or {}).items()}
        self.instances: dict[ast.AST, TypeInfo] = {}  # calls that make a value of a session class
        self.partials: dict[ast.AST, list[tuple[ast.expr, Value]]] = {}  # what calls of `functools.partial` bind
        self.patched: dict[str, Value] = {}  # what was stored under the name of a method, in whatever object
        self._blurred: set[Site] = set()
        self.produced: dict[Site, Value] = {}  # what iterating a lazy object gives; what it holds is in `contents`
        self.changes = 0
        self.visits = 0  # tokens looked at, a measure of the work done
        self._settled: set[Value] = set()  # values that no end of a block changes any more

    def items(self, value: Value) -> Value:
        """What iterating gives: of a generator what it yields, of anything else whatever is inside of it."""
        lazy = {token for token in value if isinstance(token, Site) and token in self.produced}
        if not lazy:
            return self.within(value)
        given = self.within(value - lazy)
        for token in lazy:
            given |= self.within(self.produced[token])
        return given

    def elements(self, value: Value) -> Value:
        """What iterating gives: one step down in a list that the cell wrote, of anything else what `items` gives."""
        lists = {token for token in value if isinstance(token, Site) and isinstance(token.node, _LISTS)}
        found = self.items(value - lists)
        for token in lists:
            found |= self.contents.get(token, NOTHING)
        return found

    def made(self, site: Site) -> None:
        """A new object of which nothing is known but what will be stored under a name."""
        if site not in self._blurred and (site in self.fields or site not in self.contents):
            self.fields.setdefault(site, {})

    def add(self, site: Site, value: Value, field: str = "") -> None:
        """`site` may hold `value` as well, under the name of an attribute or anywhere."""
        fields = self.fields.get(site)
        if fields is not None and value:
            if field:
                known = fields.get(field, NOTHING)
                self.changes += not value - {UNTRUSTED} <= known
                fields[field] = known | (value - {UNTRUSTED})
            else:
                del self.fields[site]
                self._blurred.add(site)
                self.changes += 1
        before = self.contents.get(site, NOTHING)
        after = before | (value - {site, UNTRUSTED})
        if after != before:
            self.contents[site] = after
            self.changes += 1

    def within(self, value: Value) -> Value:
        """`value` and everything that is inside of it."""
        value -= {UNTRUSTED}
        if not any(isinstance(token, Site) for token in value):
            return value
        found: set[Token] = set()
        todo: list[Token] = list(value)
        while todo:
            token = todo.pop()
            if token not in found:
                found.add(token)
                if isinstance(token, Site):
                    todo.extend(self.contents.get(token, NOTHING))
        self.visits += len(found)
        return frozenset(found)

    def unsettled(self, names: dict[str, Value]) -> list[str]:
        """Those of `names` whose value the end of a block may change."""
        return [name for name, value in names.items() if value and value not in self._settled]

    def after(self, value: Value, cap: Cap) -> Value:
        """`value` after the block of `cap` has ended."""
        if not value or value in self._settled:
            return value
        value = killed(value, cap)
        if not any(isinstance(token, Cap) or (isinstance(token, Site) and token.within) for token in value):
            self._settled.add(value)
        return value

    def kill(self, cap: Cap) -> None:
        """The block of `cap` has ended. Of all that is there, only what was made or changed in it is looked into."""
        made = [site for site in self.contents if site.within and cap in site.within]
        for site in [site for site, value in self.contents.items() if value and value not in self._settled]:
            self.contents[site] = self.after(self.contents[site], cap)
        for site in made:
            kept = older(site, cap)
            self.contents[kept] = self.contents.get(kept, NOTHING) | self.contents.pop(site)
        for fields in self.fields.values():
            for name in self.unsettled(fields):
                fields[name] = self.after(fields[name], cap)
        for site in [site for site in self.fields if site.within and cap in site.within]:
            same = self.fields.setdefault(older(site, cap), {})
            for name, value in self.fields.pop(site).items():
                same[name] = same.get(name, NOTHING) | value
        for node, bound in self.partials.items():
            self.partials[node] = [(expression, self.after(value, cap)) for expression, value in bound]
        self.patched = {name: self.after(value, cap) for name, value in self.patched.items()}
        if any(site.within for site in self._blurred):
            self._blurred = {older(site, cap) for site in self._blurred}
        for site in self._blurred & self.fields.keys():
            del self.fields[site]
        self.produced = {older(site, cap): self.after(value, cap) for site, value in self.produced.items()}
        self.changes += 1


def reaches_dead(value: Value, heap: Heap, read_by: Callable[[Function], Iterable[Value]]) -> bool:
    """Whether a value leads to a dead capability, also through what the functions in it captured.

    `read_by` gives the values of the session's names that a function reads.
    """
    seen: set[Token | Frame] = set()
    todo: list[Token] = list(value)
    while todo:
        token = todo.pop()
        if isinstance(token, Dead):
            return True
        if token in seen:
            continue
        seen.add(token)
        if isinstance(token, Site):
            todo.extend(heap.contents.get(token, NOTHING))
        elif isinstance(token, Closure):
            for held in read_by(token.function):
                todo.extend(held)
            frame: Frame | None = token.frame
            while frame is not None and frame.scope is not None and frame not in seen:
                seen.add(frame)
                for held in frame.names.values():
                    todo.extend(held)
                frame = frame.parent
    return False


def older(site: Site, cap: Cap) -> Site:
    """The object after the block: when the block is opened again, it is one that was there before."""
    return Site(site.node, site.within - {cap}) if cap in site.within else site


def killed(value: Value, cap: Cap) -> Value:
    """`value` after the block of `cap` has ended."""
    if not any(token == cap or (isinstance(token, Site) and cap in token.within) for token in value):
        return value
    return frozenset(
        Dead(cap) if token == cap else older(token, cap) if isinstance(token, Site) else token for token in value
    )


def join(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    joined = dict(one)
    for name, value in other.items():
        known = joined.get(name)
        joined[name] = value if known is None else known | value
    return joined
