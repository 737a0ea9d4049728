"""What the session knows about its names: functions and classes with their source, imports, all else as data.

Names are looked up late, as Python does: a function of an earlier cell means by a name what the session means now.
"""

from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.nodes import ClassDef, Decorator, FuncDef, MypyFile, SymbolNode, TypeInfo
from mypy.typeops import make_simplified_union
from mypy.types import CallableType, Instance, Overloaded, TupleType, Type, get_proper_type

from capkernel.checker.captures.scopes import Binding, FunctionNode, Scope, Scopes, scopes_of
from capkernel.checker.tables import ambient
from capkernel.checker.typed_cell import Resolved, TypedCell
from capkernel.wire.syntax import children, walk

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SHARED = (ast.operator, ast.cmpop, ast.unaryop, ast.boolop)  # one object stands in many places


@dataclass(eq=False)
class Function:
    """A function whose source the session holds."""

    node: FunctionNode
    context: Context
    name: str
    self_name: str = ""  # first parameter of a method
    class_name: str = ""

    @property
    def scope(self) -> Scope:
        return self.context.scopes.of[self.node]


@dataclass(eq=False)
class Class:
    """A class whose source the session holds."""

    node: ast.ClassDef
    context: Context
    info: TypeInfo | None

    def methods(self) -> list[Function]:
        found = []
        for statement in self.node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = statement.args.posonlyargs + statement.args.args
                first = arguments[0].arg if arguments else ""
                found.append(Function(statement, self.context, statement.name, first, self.node.name))
        return found


@dataclass(frozen=True)
class Change:
    """An attribute of a class that was bound after the class was defined."""

    attribute: str
    cell: int
    line: int


@dataclass(frozen=True)
class Imported:
    """A module, or a name out of one."""

    path: str


@dataclass(frozen=True)
class Data:
    """Any other value."""

    type: Type | None


Known = Function | Class | Imported | Data


@dataclass(frozen=True)
class Made:
    """`p = partial(f, 2)`: the expression that a name was bound to, and the cell it stands in."""

    value: ast.expr
    context: Context


@dataclass(frozen=True)
class Entry:
    """What a session name is. `certain` is False when the cell may have bound it in more than one way."""

    known: Known
    cell: int
    line: int
    certain: bool = True
    mentions: frozenset[str] = frozenset()  # names in the value that was bound: it may hold what they are
    others: tuple[Known, ...] = ()  # what it may be as well, after a cell that came half-way
    made: Made | None = None  # data that is a function: the expression it is the value of

    @property
    def known_ways(self) -> tuple[Known, ...]:
        """Everything that is known of what it may be."""
        return (self.known, *self.others)


@dataclass(eq=False)
class Context:
    """One cell, with its scopes and the order in which its top level binds names."""

    cell: TypedCell
    scopes: Scopes
    top: dict[str, list[tuple[int, bool, Binding]]]  # name → (index of the top-level statement, unconditional, binding)
    statement: dict[ast.AST, int]  # top-level statement → its index
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    _entries: dict[tuple[ast.AST, str, bool], Entry] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.cell.number

    def resolve(self, node: ast.expr) -> Resolved | None:
        return self.cell.resolve(node)

    def type_of(self, node: ast.expr) -> Type | None:
        resolved = self.cell.resolve(node)
        return None if resolved is None else resolved.type

    def index_of(self, node: ast.AST) -> int:
        """The index of the top-level statement that `node` stands in."""
        current: ast.AST | None = node
        while current is not None:
            index = self.statement.get(current)
            if index is not None:
                return index
            current = self.parents.get(current)
        return len(self.statement)

    def is_deferred(self, node: ast.AST) -> bool:
        """Whether `node` stands in a function body, so that it runs at some later time."""
        current = self.parents.get(node)
        while current is not None:
            if isinstance(current, FUNCTIONS):
                return True
            current = self.parents.get(current)
        return False

    def entry(self, binding: Binding, certain: bool) -> Entry:
        key = (binding.node, binding.name, certain)
        known = self._entries.get(key)
        if known is None:
            known = self._entries[key] = self._made(binding, certain)
        return known

    def _made(self, binding: Binding, certain: bool) -> Entry:
        line = getattr(binding.node, "lineno", 1)
        mentions: frozenset[str] = frozenset()
        if binding.value is not None and not isinstance(binding.value, ast.Lambda):
            mentions = names_in(binding.value)
        elif binding.value is None and isinstance(binding.node, (ast.Name, ast.ExceptHandler, ast.pattern)):
            # One of several targets, of a loop, of a block: it may be made of anything that stands in the statement.
            mentions = names_in(self._statement_of(binding.node))
        known = self.known(binding)
        made = None
        if binding.value is not None and isinstance(known, Data) and _holds_functions(known.type, binding.value):
            made = Made(binding.value, self)
        return Entry(known, self.number, line, certain, mentions, made=made)

    def _statement_of(self, node: ast.AST) -> ast.AST:
        current: ast.AST = node
        while not isinstance(current, ast.stmt) and current in self.parents:
            current = self.parents[current]
        return current

    def known(self, binding: Binding) -> Known:
        """What one binding makes of its name."""
        node = binding.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return Function(node, self, node.name)
        if isinstance(node, ast.ClassDef):
            return Class(node, self, self.class_info(node))
        if binding.path:
            return Imported(binding.path)
        if isinstance(binding.value, ast.Lambda):
            return Function(binding.value, self, "<lambda>")
        value = binding.value
        typ = self.type_of(value) if value is not None else None
        if isinstance(node, ast.expr):
            declared = self.type_of(node)
            typ = declared if declared is not None else typ
        return Data(typ)

    def class_info(self, node: ast.ClassDef) -> TypeInfo | None:
        made = self.cell.symbol_of(node)
        return made.info if isinstance(made, ClassDef) else None


_CALLED = ("functools.partial", "operator.itemgetter", "operator.attrgetter", "operator.methodcaller")


def _holds_functions(typ: Type | None, value: ast.expr) -> bool:
    """Whether a value is a function, or is written as a table of them; only of these the text is kept."""
    proper = None if typ is None else get_proper_type(typ)
    if isinstance(proper, (CallableType, Overloaded)):
        return True
    if isinstance(proper, Instance) and proper.type.fullname in _CALLED:
        return True
    if not isinstance(proper, (Instance, TupleType)) or not isinstance(value, (ast.Dict, ast.List, ast.Tuple)):
        return False
    items = proper.items if isinstance(proper, TupleType) else proper.args
    return any(isinstance(get_proper_type(item), (CallableType, Overloaded)) for item in items)


def names_in(node: ast.AST) -> frozenset[str]:
    return frozenset(inner.id for inner in walk(node) if isinstance(inner, ast.Name))


def context_of(cell: TypedCell) -> Context:
    scopes = scopes_of(cell.module)
    statement: dict[ast.AST, int] = {node: index for index, node in enumerate(cell.module.body)}
    parents: dict[ast.AST, ast.AST] = {}
    todo: list[ast.AST] = [cell.module]
    while todo:
        node = todo.pop()
        for child in children(node):
            if not isinstance(child, _SHARED):
                parents[child] = node
                todo.append(child)
    context = Context(cell, scopes, {}, statement, parents)
    for name, bindings in scopes.module.bindings.items():
        placed = [_placed(context, binding) for binding in bindings if binding.how != "del"]
        context.top[name] = sorted(placed, key=_statement_index)
    return context


def _placed(context: Context, binding: Binding) -> tuple[int, bool, Binding]:
    node = binding.node
    parent = context.parents.get(node)
    while parent is not None and isinstance(
        parent, (ast.expr, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.With, ast.AsyncWith, ast.withitem)
    ):
        parent = context.parents.get(parent)
    # What a with block binds is bound whenever the block ran; only branches and loops make a binding uncertain.
    unconditional = (isinstance(parent, ast.Module) and binding.how != "global") or isinstance(node, ast.Module)
    return context.index_of(node), unconditional, binding


class View:
    """The session's names as they are at one moment of the cell that is being judged."""

    def __init__(self, session: Mapping[str, Entry], context: Context, index: int | None) -> None:
        self._session = session
        self._context = context
        self._index = index  # None: at any time after the cell's definitions
        self._found: dict[str, Entry | None] = {}
        # The library paths of expressions, asked for again and again by the rules (see `paths`).
        self.certain: dict[ast.expr, str] = {}
        self.possible: dict[ast.expr, str] = {}

    def lookup(self, name: str) -> Entry | None:
        """What the name is; None: nothing in the session, so a builtin or unbound."""
        if name not in self._found:
            self._found[name] = self._lookup(name)
        return self._found[name]

    def _lookup(self, name: str) -> Entry | None:
        placed = self._context.top.get(name)
        if not placed:
            return self._session.get(name)
        if self._index is None:
            last = placed[-1]
            certain = len(placed) == 1 and last[1]
            return self._context.entry(last[2], certain)
        # In the order of the text: what this statement binds, and what those before it did.
        start = bisect_left(placed, self._index, key=_statement_index)
        end = bisect_right(placed, self._index, key=_statement_index)
        if not start:
            here = placed[start:end]
            if here and name not in self._session:
                return self._context.entry(here[-1][2], len(here) == 1)
            old = self._session.get(name)
            if old is not None and here:
                return Entry(old.known, old.cell, old.line, False)
            return old
        last = placed[start - 1]
        here = [item for item in placed[start:end] if not (item[1] and _is_own_target(item[2]))]
        return self._context.entry(last[2], last[1] and not here)


def _statement_index(placed: tuple[int, bool, Binding]) -> int:
    return placed[0]


def _is_own_target(binding: Binding) -> bool:
    # `s = s.map(f)`: the statement binds its target after the call.
    return isinstance(binding.node, ast.Name) and binding.how == "assignment"


def final_entries(context: Context) -> dict[str, Entry]:
    """What each name that the cell's top level binds is when the cell has run to its end."""
    found = {}
    for name, placed in context.top.items():
        if placed:
            last = placed[-1]
            if not last[1]:  # it may be any of them: kept is the one that would be refused
                last = next((one for one in placed if one[2].path and ambient().reaches(one[2].path)), last)
            found[name] = context.entry(last[2], placed[-1][1])
    return found


def half_way_entries(context: Context, names: Iterable[str]) -> dict[str, Entry]:
    """What each of `names`, which a cell bound before it failed, may be: whatever the cell binds it to anywhere."""
    found = {}
    for name in names:
        placed = context.top.get(name, [])
        if len(placed) == 1:
            # It is bound, so this is how; but from a branch, a loop or a function nobody knows how often.
            found[name] = context.entry(placed[0][2], placed[0][1])
        elif placed:
            # The first one stands for all of them where only one is looked at: the one that is refused most.
            ways = [context.entry(one[2], False) for one in placed]
            mentions = frozenset[str]().union(*(way.mentions for way in ways))
            known = sorted(_joined([way.known for way in ways]), key=_how_open)
            found[name] = Entry(known[0], context.number, ways[0].line, False, mentions, tuple(known[1:]))
    return found


def _joined(ways: list[Known]) -> list[Known]:
    """The same with one value in place of all values: it has the type of any of them."""
    types = [way.type for way in ways if isinstance(way, Data)]
    others: list[Known] = [way for way in ways if not isinstance(way, Data)]
    if not types:
        return others
    sure = [typ for typ in types if typ is not None]
    return [Data(make_simplified_union(sure) if len(sure) == len(types) else None), *others]


def _how_open(known: Known) -> int:
    if isinstance(known, Imported):
        return 0 if ambient().reaches(known.path) else 3
    return 1 if isinstance(known, Data) else 2


def is_module(symbol: SymbolNode | None) -> bool:
    return isinstance(symbol, MypyFile)


def is_function(symbol: SymbolNode | None) -> bool:
    return isinstance(symbol, (FuncDef, Decorator))
