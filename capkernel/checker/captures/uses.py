"""What a cell can do with each block it can open: which verbs, on which paths.

Rule 1: what is not understood widens. A use of a capability whose block is not certain counts for every block in which
it may run; a call that may use a capability in a way that nobody can read counts as every verb.
Rule 2: a use is left out for one reason only: it cannot run while the block is open, or its object cannot be a
capability.

A capability is dead after its block, so what can be done with it stands in the body of the block or in a function that
runs meanwhile: one that the body calls by name, or one that may run at any time (its name is handed around, it is a
method, a lambda, a generator, a coroutine).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from mypy.nodes import MypyFile
from mypy.types import Type

from capkernel.checker.captures.known import Class, Context, Data, Entry, Function, Imported
from capkernel.checker.captures.roots import Roots, joined, literal
from capkernel.checker.captures.scope_sites import (
    SCOPE_KINDS,
    SiteKey,
    entered_in,
    granting_call,
    key_of,
    literal_argument,
)
from capkernel.checker.captures.types import API, Types, only_classified
from capkernel.checker.captures.verbs import ANY, VERBS_OF, verbs_of
from capkernel.checker.typed_cell import classes_of
from capkernel.wire.plan import VERBS, ScopeSite, Use

_SHORT: Final = frozenset(("read_classified", "write_classified", "grep", "grep_recursive", "find"))
"""Members of a `FileSystem` whose first argument is the path."""
_VIEWS: Final = frozenset(("subtree", "read_only"))

_MOST_PATHS: Final = 32
# Functions that get at a member by its name.
_BY_NAME: Final = frozenset(("operator.attrgetter", "operator.methodcaller", "builtins.getattr", "builtins.hasattr"))
# Classes above a capability: a value of such a static type may be one.
_ABOVE: Final = frozenset(("builtins.object", "capkernel.api.files.Capability"))

_Uses = dict[str, set[str | None]]  # verb → the paths it is done with; None among them: any path


@dataclass(frozen=True)
class _Found:
    """One place that may use a capability. `sites`: the blocks it can only be of. `name`: the session's name whose
    value it is, when that decides whether it is a capability at all."""

    verb: str
    path: str | None
    sites: frozenset[SiteKey] | None
    name: str = ""


@dataclass
class _Unit:
    """A function, or the body of a block. `loose`: it may run at any time."""

    name: str
    loose: bool
    found: list[_Found]
    calls: frozenset[str]


@dataclass
class _Block:
    site: ScopeSite
    key: SiteKey
    body: _Unit


@dataclass
class Piece:
    """A cell or a definition of an earlier cell, read once."""

    blocks: list[_Block] = field(default_factory=list)
    units: list[_Unit] = field(default_factory=list)
    found: list[_Found] = field(default_factory=list)
    handed: set[str] = field(default_factory=set)  # names that stand elsewhere than where they are called
    sinks: set[str] = field(default_factory=set)
    has_subtree: bool = False  # then a path that a helper names may be in a narrower view


def read_cell(context: Context, types: Types, rebound: frozenset[str]) -> Piece:
    """The piece that a whole cell is. `rebound`: names that functions of earlier cells bind through `global`."""
    module = context.cell.module
    return _Reader(context, types, Roots(context, rebound | globals_of(module))).read(module)


def read_definition(definition: Function | Class, types: Types) -> Piece:
    """The piece of a definition of an earlier cell. What it means by names of the session is not settled yet."""
    reader = _Reader(definition.context, types, Roots(definition.context, None), of_session=True)
    return reader.read(definition.node)


def globals_of(node: ast.AST) -> frozenset[str]:
    return frozenset(name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names)


def scopes_with_uses(
    cell: Piece,
    earlier: Iterable[Piece],
    handed: Iterable[str],
    entries: Mapping[str, Entry],
    types: Types,
    followed: Iterable[tuple[SiteKey, str]],
) -> tuple[ScopeSite, ...]:
    """Every block of the pieces, with what can be done in it.

    handed: names that stand in values of the session that the cell reads. followed: what the flow analysis saw done
    with a capability; it sees more than the text where types lie.
    """
    pieces = [cell, *earlier]
    blocks = [block for piece in pieces for block in piece.blocks]
    if not blocks:
        return ()
    loose_names = set(handed).union(*(piece.handed for piece in pieces))
    by_name: dict[str, list[_Unit]] = {}
    anytime: list[_Unit] = []
    for piece in pieces:
        for unit in piece.units:
            if unit.loose or unit.name in loose_names:
                anytime.append(unit)
            by_name.setdefault(unit.name, []).append(unit)
    views = any(piece.has_subtree for piece in pieces)

    def note(uses: _Uses, found: Iterable[_Found]) -> None:
        for one in found:
            for verb in VERBS if one.verb == ANY else (one.verb,):
                uses.setdefault(verb, set()).add(None if views and one.sites is None else one.path)

    def uncertain(units: Iterable[_Unit]) -> Iterator[_Found]:
        for unit in units:
            yield from (found for found in unit.found if found.sites is None and _may_be(found, entries, types))

    certain: dict[SiteKey, list[_Found]] = {}
    for piece in pieces:
        for found in piece.found:
            for key in found.sites or ():
                certain.setdefault(key, []).append(found)
    seen: dict[SiteKey, set[str]] = {}
    for key, verb in followed:
        seen.setdefault(key, set()).add(verb)
    everywhere: _Uses = {}
    note(everywhere, uncertain(_closure(anytime, by_name)))
    made = []
    for block in blocks:
        if block.site.kind != "file_system":
            made.append(block.site)
            continue
        uses = {verb: set(paths) for verb, paths in everywhere.items()}
        note(uses, certain.get(block.key, ()))
        note(uses, uncertain(_closure([block.body], by_name)))
        # What the text said is more exact, but it may not have said it.
        for verb in seen.get(block.key, set()) - uses.keys() - {ANY}:
            uses[verb] = {None}
        if ANY in seen.get(block.key, ()):
            for verb in VERBS:
                uses.setdefault(verb, set()).add(None)
        made.append(_with_uses(block.site, uses))
    return tuple(sorted(made, key=lambda site: (site.cell, site.span.line, site.span.column)))


def _with_uses(site: ScopeSite, uses: _Uses) -> ScopeSite:
    listed = tuple(Use(verb, _paths(uses[verb])) for verb in VERBS if verb in uses)
    return ScopeSite(site.kind, site.argument, site.cell, site.span, listed)


def _paths(paths: set[str | None]) -> tuple[str, ...] | None:
    literal = sorted(path for path in paths if path is not None)
    return None if len(literal) != len(paths) or len(literal) > _MOST_PATHS else tuple(literal)


def _closure(start: Iterable[_Unit], by_name: Mapping[str, list[_Unit]]) -> list[_Unit]:
    """The units and all that they call by name."""
    found: list[_Unit] = []
    seen: set[int] = set()
    todo = list(start)
    while todo:
        unit = todo.pop()
        if id(unit) in seen:
            continue
        seen.add(id(unit))
        found.append(unit)
        for name in unit.calls:
            todo.extend(by_name.get(name, ()))
    return found


def _may_be(found: _Found, entries: Mapping[str, Entry], types: Types) -> bool:
    """Whether what a function reads from a name of the session may be a capability, as the name is now."""
    if not found.name:
        return True
    entry = entries.get(found.name)
    if entry is None:
        return True
    if entry.others or isinstance(entry.known, (Imported, Function, Class)):
        return not entry.certain
    return not _surely_other(entry.known.type, types)


def holds_no_code(entry: Entry, types: Types) -> bool:
    """Whether the value of a name is plain data, or a handle of some, so that what it was made with is not in it."""
    if not isinstance(entry.known, Data) or not entry.certain:
        return False
    return only_classified(entry.known.type) is not None or types.is_plain(entry.known.type)


def _surely_other(typ: Type | None, types: Types) -> bool:
    """Whether no value of this type is a capability."""
    if typ is None:
        return False
    if types.is_plain(typ):
        return True
    known = list(classes_of(typ))
    return bool(known) and all(
        info is not None and not info.is_protocol and info.fullname not in _ABOVE and not info.fullname.startswith(API)
        for info in known
    )


class _Reader:
    """Reads one piece of source."""

    def __init__(self, context: Context, types: Types, roots: Roots, *, of_session: bool = False) -> None:
        """of_session: it is a definition of an earlier cell."""
        self._context = context
        self._types = types
        self._roots = roots
        self._of_session = of_session
        self._of_attributes: dict[ast.Attribute, list[_Found]] = {}  # asked for by every unit around

    def read(self, top: ast.AST) -> Piece:
        piece = Piece()
        for node in ast.walk(top):
            if isinstance(node, (ast.With, ast.AsyncWith)):
                for item in node.items:
                    self._block(item, node, piece)
                for call in entered_in(node, self._context):
                    self._add_block(call, granting_call(call, self._context) or "", node, piece)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                loose = (
                    isinstance(node, ast.AsyncFunctionDef)
                    or bool(node.decorator_list)
                    or isinstance(self._context.parents.get(node), ast.ClassDef)
                    or _is_generator(node)
                )
                piece.units.append(self._unit(node.name, [node], loose))
            elif isinstance(node, (ast.Lambda, ast.GeneratorExp, ast.ClassDef)):
                piece.units.append(self._unit("", [node], True))
            elif isinstance(node, ast.Attribute):
                if node.attr == "write_classified":
                    piece.sinks.add(node.attr)
                piece.has_subtree |= node.attr == "subtree"
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not self._is_called(node):
                piece.handed.add(node.id)
        piece.found = list(self._found(top))
        return piece

    def _is_called(self, node: ast.Name) -> bool:
        parent = self._context.parents.get(node)
        return isinstance(parent, ast.Call) and parent.func is node

    def _block(self, item: ast.withitem, node: ast.With | ast.AsyncWith, piece: Piece) -> None:
        call = item.context_expr
        kind = granting_call(call, self._context)
        if kind is None or not isinstance(call, ast.Call):
            return
        self._add_block(call, kind, node, piece)

    def _add_block(self, call: ast.Call, kind: str, node: ast.With | ast.AsyncWith, piece: Piece) -> None:
        span = self._context.cell.span(call)
        site = ScopeSite(SCOPE_KINDS[kind], literal_argument(call, kind), self._context.number, span)
        # Later items of the same `with` are evaluated while this block is open, and so is their target.
        parts: list[ast.AST] = [*node.items, *node.body]
        piece.blocks.append(_Block(site, key_of(call, self._context), self._unit("", parts, False)))

    def _unit(self, name: str, nodes: list[ast.AST], loose: bool) -> _Unit:
        calls = {
            inner.func.id
            for node in nodes
            for inner in ast.walk(node)
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
        }
        return _Unit(name, loose, [found for node in nodes for found in self._found(node)], frozenset(calls))

    # ── uses ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _found(self, top: ast.AST) -> Iterator[_Found]:
        for node in ast.walk(top):
            if isinstance(node, ast.Attribute):
                yield from self._attribute(node)
            elif isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load) and self._fullname(node) in _BY_NAME:
                    yield _Found(ANY, None, None)
            elif isinstance(node, ast.MatchClass):
                for name in node.kwd_attrs:
                    for verb in VERBS_OF.get(name, ()):
                        yield _Found(verb, None, None)

    def _attribute(self, node: ast.Attribute) -> list[_Found]:
        known = self._of_attributes.get(node)
        if known is None:
            known = self._of_attributes[node] = self._of_attribute(node)
        return known

    def _of_attribute(self, node: ast.Attribute) -> list[_Found]:
        if self._fullname(node) in _BY_NAME:
            return [_Found(ANY, None, None)]
        verbs = self._verbs(node)
        if not verbs or not isinstance(node.ctx, ast.Load):
            return []
        sites, path = self._roots.of(node.value)
        if node.attr in _SHORT:
            path = self._short_form(node, "." if sites is None and not isinstance(node.value, ast.Call) else path)
        if sites is not None:
            return [_Found(verb, path, sites) for verb in verbs]
        name = self._session_name(node.value)
        if not name:
            resolved = self._context.resolve(node.value)
            if resolved is not None and isinstance(resolved.symbol, MypyFile):
                return []
            if _surely_other(None if resolved is None else resolved.type, self._types):
                return []
        return [_Found(verb, path, None, name) for verb in verbs]

    def _verbs(self, node: ast.Attribute) -> tuple[str, ...]:
        call = self._context.parents.get(node)
        return verbs_of(node, call if isinstance(call, ast.Call) and call.func is node else None)

    def _fullname(self, node: ast.Name | ast.Attribute) -> str:
        resolved = self._context.resolve(node)
        return "" if resolved is None else resolved.fullname

    def _short_form(self, node: ast.Attribute, path: str | None) -> str | None:
        """`fs.read_classified(path)` and `fs.access(path).read_classified()` are the same; of others, any path."""
        call = self._context.parents.get(node)
        if isinstance(node.value, ast.Call):
            maker = node.value.func
            if not isinstance(maker, ast.Attribute) or maker.attr not in _VIEWS:
                return path if node.attr.endswith("_classified") else None
        if not isinstance(call, ast.Call) or call.func is not node:
            return None
        named: list[ast.expr] = [keyword.value for keyword in call.keywords if keyword.arg in ("path", "dir")]
        if len(named) + len(call.args[:1]) != 1:
            return None
        typ = self._context.type_of(node.value)
        owners = [] if typ is None else list(classes_of(typ))
        if [None if owner is None else owner.name for owner in owners] != ["FileSystem"]:
            return None
        return joined(path, literal([*call.args, *named][0]))

    def _session_name(self, node: ast.expr) -> str:
        """The name of the session that a function of an earlier cell reads here; its type is not the one of then."""
        if not self._of_session or not isinstance(node, ast.Name):
            return ""
        owner = self._context.scopes.owner(node)
        return node.id if owner is None or owner.kind == "module" else ""


def _is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in ast.walk(node))
