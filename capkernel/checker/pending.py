"""Functions that name something no cell has bound yet: kept, and refused where they are called too early.

A function body runs later, so a name in it may still come. When a cell certainly calls the function before that, the
call certainly ends in a NameError, and is refused with the place that reads the name. The same holds for what the
function itself certainly calls.

Rule 1: only what is certain refuses: a read that every run of the body reaches, in a function that nothing replaced. A
branch, a loop body, a `try` that would catch it, a decorator other than a cache: then the call is left to Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from capkernel.checker.scan import NEW, OLD
from capkernel.wire.scope_bindings import ScopeBindings, arguments_of
from capkernel.wire.syntax import children

Body = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_TRANSPARENT = frozenset(("cache", "lru_cache"))
_DEEPEST = 200  # calls from one function to the next


@dataclass(frozen=True)
class Definition:
    """A function of some cell. `text` is the cell's."""

    name: str
    cell: int
    text: str
    node: Body


@dataclass
class Certain:
    """What every run of a body does: the names outside it that it reads, and those of them that it calls."""

    reads: dict[str, ast.Name] = field(default_factory=dict)
    calls: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class TooEarly:
    """`call` needs `missing`, which is not bound then. `way`: the functions in between; the last one reads it."""

    call: ast.Call
    missing: str
    way: tuple[Definition, ...]
    read: ast.Name


class Pending:
    """The functions of a session by name, as far as a call of that name runs their body."""

    def __init__(self) -> None:
        self._session: dict[str, Definition] = {}
        self._certain: dict[ast.AST, Certain] = {}

    def early_calls(self, cell: int, text: str, module: ast.Module, is_known: Callable[[str], bool]) -> EarlyCalls:
        """To be told the calls of one cell while it is scanned."""
        return EarlyCalls(self, definitions_of(cell, text, module), is_known)

    def commit(self, cell: int, text: str, module: ast.Module, bound: Iterable[str], deleted: Iterable[str]) -> None:
        """The cell ran."""
        here = definitions_of(cell, text, module)
        for name in (*bound, *deleted):
            old = self._session.pop(name, None)
            if old is not None:
                self._certain.pop(old.node, None)
        for name in bound:
            made = here.get(name)
            if made is not None:
                self._session[name] = made

    def clear(self) -> None:
        self._session.clear()
        self._certain.clear()

    def of_session(self, name: str) -> Definition | None:
        return self._session.get(name)

    def certain(self, definition: Definition) -> Certain:
        known = self._certain.get(definition.node)
        if known is None:
            known = self._certain[definition.node] = certain_of(definition.node)
        return known


class EarlyCalls:
    """Collects the calls of one cell that come too early."""

    def __init__(
        self, pending: Pending, here: Mapping[str, Definition | None], is_known: Callable[[str], bool]
    ) -> None:
        self._pending = pending
        self._here = here
        self._is_known = is_known
        self.found: list[TooEarly] = []

    def __call__(self, call: ast.Call, awaited: bool, states: Mapping[str, int]) -> None:
        assert isinstance(call.func, ast.Name)
        definition = self._definition(call.func.id, states)
        if definition is None or isinstance(definition.node, ast.AsyncFunctionDef) != awaited:
            return
        missing = self._missing(definition, states)
        if missing is not None:
            self.found.append(TooEarly(call, *missing))

    def _definition(self, name: str, states: Mapping[str, int]) -> Definition | None:
        state = states.get(name, OLD)
        if state == NEW:
            return self._here.get(name)
        return self._pending.of_session(name) if state == OLD else None

    def _missing(
        self, start: Definition, states: Mapping[str, int]
    ) -> tuple[str, tuple[Definition, ...], ast.Name] | None:
        seen: set[ast.AST] = set()
        todo: list[tuple[Definition, ...]] = [(start,)]
        while todo:
            way = todo.pop()
            last = way[-1]
            if last.node in seen or len(way) > _DEEPEST:
                continue
            seen.add(last.node)
            certain = self._pending.certain(last)
            for name, read in certain.reads.items():
                state = states.get(name, OLD)
                if not state & NEW and not (state & OLD and self._is_known(name)):
                    return name, way, read
                if name in certain.calls:
                    following = self._definition(name, states)
                    if following is not None and not isinstance(following.node, ast.AsyncFunctionDef):
                        todo.append((*way, following))
        return None


def definitions_of(cell: int, text: str, module: ast.Module) -> dict[str, Definition | None]:
    """The functions that the top of a cell defines; None for a name that it binds more than once."""
    found: dict[str, Definition | None] = {}
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            body = _body_of(node)
            found[node.name] = None if node.name in found or body is None else Definition(node.name, cell, text, body)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                known = target.id in found
                found[target.id] = None if known else Definition(target.id, cell, text, node.value)
    if found:
        others = ScopeBindings([node for node in module.body if not _is_definition(node)])
        for name in (others.bound | others.deleted) & found.keys():
            found[name] = None
    return found


def _is_definition(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Lambda) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _body_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Body | None:
    """What a call of the name runs: the function, or what makes an instance; None when that cannot be told."""
    if isinstance(node, ast.ClassDef):
        if node.decorator_list or node.keywords:
            return None
        makers = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        return makers[0] if len(makers) == 1 and not makers[0].decorator_list else None
    if not all(_last_name(decorator) in _TRANSPARENT for decorator in node.decorator_list):
        return None
    return None if _yields(node.body) else node


def _last_name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr
    return decorator.id if isinstance(decorator, ast.Name) else ""


def _yields(body: Iterable[ast.AST]) -> bool:
    """A generator's body does not run when it is called."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _of_one_scope(body))


def _of_one_scope(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    todo = list(body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo.extend(children(node))


def certain_of(node: Body) -> Certain:
    """What every run of the body does."""
    body: Sequence[ast.AST] = [ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body
    found = ScopeBindings(body)
    own = (found.bound | {argument.arg for argument in arguments_of(node.args)}) - found.globals
    # What the function binds itself by `global` may be bound by the time it is read.
    walk = _Walk(own | found.globals)
    walk.block(body)
    return walk.certain


class _Ends(Exception):
    """What follows may not be reached."""


class _Walk:
    def __init__(self, own: set[str]) -> None:
        self._own = own
        self.certain = Certain()

    def block(self, body: Iterable[ast.AST]) -> None:
        try:
            for node in body:
                self._statement(node)
        except _Ends:
            pass

    def _statement(self, node: ast.AST) -> None:
        match node:
            case ast.If(test=first) | ast.While(test=first) | ast.Match(subject=first):
                self._expression(first)
                self._past(node)
            case ast.For(iter=first) | ast.AsyncFor(iter=first):
                self._expression(first)
                self._past(node)
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for item in items:
                    self._expression(item.context_expr)
                self._past(node)  # `suppress` and its like may leave the body early
            case ast.Return(value=value) | ast.Raise(exc=value):
                if value is not None:
                    self._expression(value)
                raise _Ends
            case ast.Break() | ast.Continue():
                raise _Ends
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for decorator in node.decorator_list:
                    self._expression(decorator)
            case ast.Expr(value=value):
                self._expression(value)
            case ast.Assign(value=value, targets=targets):
                self._expression(value)
                for target in targets:
                    self._expression(target)
            case ast.AugAssign(value=value):
                self._expression(value)
            case ast.AnnAssign(value=value) if value is not None:
                self._expression(value)
            case ast.Assert(test=test):
                self._expression(test)
            case ast.Try() | ast.TryStar():
                self._past(node)

    def _past(self, node: ast.AST) -> None:
        if any(isinstance(inner, (ast.Return, ast.Raise, ast.Break, ast.Continue)) for inner in _of_one_scope([node])):
            raise _Ends

    def _expression(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                if name not in self._own:
                    self.certain.reads.setdefault(name, node)
            case ast.BoolOp(values=values):
                self._expression(values[0])
            case ast.IfExp(test=test):
                self._expression(test)
            case ast.Compare(left=left, comparators=comparators):
                self._expression(left)
                self._expression(comparators[0])
            case ast.Lambda():
                pass
            case ast.ListComp(generators=generators) | ast.SetComp(generators=generators):
                self._expression(generators[0].iter)
            case ast.DictComp(generators=generators) | ast.GeneratorExp(generators=generators):
                self._expression(generators[0].iter)
            case _:
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in self._own:
                    self.certain.calls.add(node.func.id)
                for child in children(node):
                    if isinstance(child, ast.expr):
                        self._expression(child)
                    elif isinstance(child, ast.keyword):
                        self._expression(child.value)
