"""Which session names a cell reads and binds, and when: the names of one run of the cell's top level.

A top-level name has three possible states while a cell runs: as the session left it (OLD), bound by this cell (NEW),
deleted by this cell (GONE). Branches and loops join states, so a state here is the set of what is possible. A read in a
function body happens at some later time and only says that the name is used.

Every statement is looked at once; what a loop body may bind is joined in before the body is entered. A function with a
`del` of its own is looked at in the same way, for what it reads after that.
"""

# ruff: noqa: N802  (`visit_Name` is how visitors spell it)

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from capkernel.wire.scope_bindings import ScopeBindings, arguments_of
from capkernel.wire.syntax import Visitor

OLD, NEW, GONE = 1, 2, 4

Called = Callable[[ast.Call, bool, Mapping[str, int]], None]
"""Told of a call by name that is certain to happen: the call, whether its value is awaited, the states just then."""

# What may stop a NameError from reaching the person.
_CATCHES_NAME_ERROR = frozenset(("NameError", "Exception", "BaseException"))


@dataclass(frozen=True)
class Read:
    """A name read while the top level runs. `certain`: nothing in the cell can keep this read from happening."""

    name: str
    node: ast.AST
    states: int
    certain: bool
    shielded: bool = False  # a handler around would catch the NameError


@dataclass
class Names:
    """What the scan found."""

    bound: dict[str, ast.AST] = field(default_factory=dict)  # first binding of each top-level name, in order
    kinds: dict[str, set[str]] = field(default_factory=dict)  # "value", "def", "class", "import"
    used: set[str] = field(default_factory=set)  # read anywhere, also in function bodies
    deferred: set[str] = field(default_factory=set)  # read in function bodies: at some later time
    reads: list[Read] = field(default_factory=list)  # at the top level, in order
    end: dict[str, int] = field(default_factory=dict)  # state of each touched name when the cell ends
    stars: list[ast.ImportFrom] = field(default_factory=list)
    set_in_functions: set[str] = field(default_factory=set)  # through `global`
    functions: dict[str, set[str]] = field(default_factory=dict)  # top-level def or class: names its bodies read
    bound_in_comprehensions: set[str] = field(default_factory=set)  # by `:=`; mypy does not see that it changes a type
    carried: set[str] = field(default_factory=set)  # old and new value can meet: the cell starts from the old one
    gone: list[Read] = field(default_factory=list)  # names of functions, read where the function has deleted them


def scan(module: ast.Module, *, lazy_annotations: bool = False, called: Called | None = None) -> Names:
    """The names of `module`. Raises RecursionError for a tree too deep to walk.

    `lazy_annotations`: an earlier cell had `from __future__ import annotations`, which IPython keeps on.
    """
    scanner = _Scanner(lazy_annotations or has_lazy_annotations(module), called)
    scanner.block(module.body)
    names = scanner.names
    names.end = scanner.state
    for name, states in names.end.items():
        if states & OLD and states & NEW:
            names.carried.add(name)
    return names


def has_lazy_annotations(module: ast.Module) -> bool:
    """Whether no annotation is evaluated: from Python 3.14 on, and after `from __future__ import annotations`."""
    return sys.version_info >= (3, 14) or any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in module.body
    )


class _Scanner(Visitor):
    def __init__(self, lazy_annotations: bool, called: Called | None = None) -> None:
        self.names = Names()
        self.lazy_annotations = lazy_annotations
        self.called = called
        self.awaited: ast.expr | None = None
        self.state: dict[str, int] = {}
        self.scopes: list[_Scope] = []  # enclosing functions, classes and comprehensions
        self.deferred = 0  # inside a function body: happens later
        self.unsure = 0  # inside a branch that may not run
        self.shielded = 0  # inside a try whose handlers would catch a NameError
        self.owner: set[str] | None = None  # names read by the top-level definition being looked at
        self.within_function = False  # looks for what one function has deleted; functions inside it have their own turn

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def is_local(self, name: str) -> bool:
        for depth, scope in enumerate(reversed(self.scopes)):
            if name in scope.globals:
                return False
            # The names of a class body are not seen from functions inside it.
            if name in scope.bound and (depth == 0 or not scope.is_class):
                return True
        return False

    def read(self, name: str, node: ast.AST) -> None:
        if self.is_local(name):
            if self.scopes[-1].is_class:
                self.names.used.add(name)  # `x = x` in a class body reads the one outside
            return
        self.names.used.add(name)
        if self.owner is not None:
            self.owner.add(name)
        if self.deferred:
            self.names.deferred.add(name)
            return
        states = self.state.get(name, OLD)
        if states & OLD and states & NEW:
            self.names.carried.add(name)
        self.names.reads.append(Read(name, node, states, not self.unsure and not self.shielded, bool(self.shielded)))

    def bind(self, name: str, node: ast.AST, kind: str = "value") -> None:
        if self.is_local(name):
            return
        if self.deferred:
            return
        self.names.bound.setdefault(name, node)
        self.names.kinds.setdefault(name, set()).add(kind)
        self.state[name] = NEW

    def delete(self, name: str, node: ast.AST) -> None:
        if self.is_local(name) or self.deferred:
            return
        self.read(name, node)
        self.state[name] = GONE

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.read(node.id, node)
        elif isinstance(node.ctx, ast.Store):
            self.bind(node.id, node)
        else:
            self.delete(node.id, node)

    # ── statements in the order they run ─────────────────────────────────────────────────────────────────────────────

    def block(self, body: Sequence[ast.AST]) -> None:
        for node in body:
            self.visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        self.block(node.targets)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not self.deferred:
            self.annotation(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)
        elif not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            name = node.target.id
            if not self.is_local(name) and not self.deferred and self.state.get(name, OLD) & OLD:
                # One node is read and bound: it cannot stand for the old and the new variable both.
                self.names.carried.add(name)
            self.read(name, node.target)
        self.visit(node.value)
        self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)
        if self.scopes and not self.is_local(node.target.id) and not self.deferred:
            self.names.bound_in_comprehensions.add(node.target.id)

    def visit_Await(self, node: ast.Await) -> None:
        self.awaited = node.value
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        awaited = self.awaited is node
        self.generic_visit(node)
        if self.called is None or not isinstance(node.func, ast.Name):
            return
        if not (self.deferred or self.unsure or self.shielded or self.is_local(node.func.id)):
            self.called(node, awaited, self.state)

    def visit_Global(self, node: ast.Global) -> None:
        self.names.used.update(node.names)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.bind(alias.asname or alias.name.partition(".")[0], node, "import")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                if not self.deferred and not self.scopes:
                    self.names.stars.append(node)
            else:
                self.bind(alias.asname or alias.name, node, "import")

    # ── branches ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def branches(self, ways: Iterable[Sequence[ast.AST]]) -> None:
        """Exactly one of `ways` runs."""
        before = self.state
        ends = []
        self.unsure += 1
        for way in ways:
            self.state = dict(before)
            self.block(way)
            ends.append(self.state)
        self.unsure -= 1
        self.state = _join(ends)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.branches((node.body, node.orelse))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self.branches(([node.body], [node.orelse]))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self.branches((node.values[1:], ()))

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        ways = [[case.pattern, *([case.guard] if case.guard else []), *case.body] for case in node.cases]
        self.branches([[], *ways])

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.pattern is not None:
            self.visit(node.pattern)
        if node.name is not None:
            self.bind(node.name, node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name is not None:
            self.bind(node.name, node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest is not None:
            self.bind(node.rest, node)

    def loop(self, body: Sequence[ast.AST], orelse: Sequence[ast.AST], *, sure: bool) -> None:
        before = dict(self.state)
        self.disturb([*body, *orelse])
        self.unsure += not sure
        self.block(body)
        self.unsure -= not sure
        self.state = _join((self.state, before))
        self.unsure += 1
        self.block(orelse)
        self.unsure -= 1
        self.state = _join((self.state, before))

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        # A loop that never turns is rare enough: a name that exists nowhere is refused in its body too.
        self.loop([node.target, *node.body], node.orelse, sure=True)

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_While(self, node: ast.While) -> None:
        before = dict(self.state)
        self.disturb([node.test, *node.body])
        self.visit(node.test)
        self.unsure += 1
        self.block([*node.body, *node.orelse])
        self.unsure -= 1
        self.state = _join((self.state, before))

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        shield = any(_catches_name_error(handler) for handler in node.handlers)
        before = dict(self.state)
        self.shielded += shield
        self.block(node.body)
        self.shielded -= shield
        after_body = self.state
        # A handler can be entered from anywhere in the body.
        entry = _join((before, after_body))
        for name in ScopeBindings(node.body).bound:
            entry[name] = entry.get(name, OLD) | before.get(name, OLD) | NEW
        ends = []
        self.unsure += 1
        for handler in node.handlers:
            self.state = dict(entry)
            self.handler(handler)
            ends.append(self.state)
        self.unsure -= 1
        self.state = after_body
        self.block(node.orelse)
        ends.append(self.state)
        self.state = _join(ends)
        if node.finalbody:
            after = self.state
            self.state = _join((after, entry))
            self.block(node.finalbody)
            # What `finally` binds or deletes holds; what it left alone is as the try left it.
            changed = ScopeBindings(node.finalbody).bound
            self.state = {**after, **{name: states for name, states in self.state.items() if name in changed}}

    visit_TryStar = visit_Try  # noqa: N815

    def handler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name is not None:
            self.bind(node.name, node)
        self.block(node.body)
        if node.name is not None and not self.is_local(node.name) and not self.deferred:
            self.state[node.name] = GONE

    def disturb(self, body: Sequence[ast.AST]) -> None:
        """Join in what `body` may have done to names in an earlier turn."""
        if self.deferred:
            return
        done = ScopeBindings(body)
        for name in done.bound:
            if not self.is_local(name):
                self.state[name] = self.state.get(name, OLD) | NEW
        for name in done.deleted:
            if not self.is_local(name):
                self.state[name] = self.state.get(name, OLD) | GONE

    # ── scopes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outermost = self.enter_definition(node.name)
        self.block(node.decorator_list)
        self.defaults(node.args)
        with self.type_parameters(node):
            for argument in arguments_of(node.args):
                self.annotation(argument.annotation)
            self.annotation(node.returns)
            self.body(node.args, node.body)
        self.leave_definition(outermost)
        self.bind(node.name, node, "def")

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.defaults(node.args)
        self.body(node.args, [node.body])

    def annotation(self, node: ast.expr | None) -> None:
        if node is not None:
            self.deferred += self.lazy_annotations
            self.visit(node)
            self.deferred -= self.lazy_annotations

    def defaults(self, arguments: ast.arguments) -> None:
        self.block(arguments.defaults)
        self.block([default for default in arguments.kw_defaults if default is not None])

    def body(self, arguments: ast.arguments, body: Sequence[ast.AST]) -> None:
        found = ScopeBindings(body)
        own = (found.bound | {argument.arg for argument in arguments_of(arguments)}) - found.globals
        self.names.set_in_functions |= found.globals & found.bound
        self.names.used |= found.globals
        if self.owner is not None:
            self.owner |= found.globals
        self.scopes.append(_Scope(own, found.globals))
        self.deferred += 1
        self.block(body)
        self.deferred -= 1
        self.scopes.pop()
        if found.deleted & own and not self.within_function:
            self.names.gone += _read_after_del(arguments, body, own)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outermost = self.enter_definition(node.name)
        self.block(node.decorator_list)
        with self.type_parameters(node):
            self.block(node.bases)
            self.block([keyword.value for keyword in node.keywords])
            found = ScopeBindings(node.body)
            self.scopes.append(_Scope(found.bound - found.globals, found.globals, is_class=True))
            self.block(node.body)  # a class body runs now
            self.scopes.pop()
        self.leave_definition(outermost)
        self.bind(node.name, node, "class")

    def visit_TypeAlias(self, node: Any) -> None:
        """`type X[T] = ...` (PEP 695): what it stands for is looked up when somebody asks."""
        with self.type_parameters(node):
            self.deferred += 1
            self.visit(node.value)
            self.deferred -= 1
        self.visit(node.name)

    @contextmanager
    def type_parameters(self, node: Any) -> Iterator[None]:
        """The scope of `[T]` (PEP 695). Bounds and defaults are looked up when somebody asks."""
        parameters = getattr(node, "type_params", ())  # Python 3.12 and newer
        if parameters:
            self.scopes.append(_Scope({parameter.name for parameter in parameters}, set()))
            self.deferred += 1
            for parameter in parameters:
                self.generic_visit(parameter)
            self.deferred -= 1
        yield
        if parameters:
            self.scopes.pop()

    def enter_definition(self, name: str) -> bool:
        if self.owner is not None or self.deferred or self.scopes:
            return False
        self.owner = self.names.functions.setdefault(name, set())
        return True

    def leave_definition(self, outermost: bool) -> None:
        if outermost:
            self.owner = None

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)
        targets = ScopeBindings(generator.target for generator in node.generators)
        lazy = isinstance(node, ast.GeneratorExp)
        self.scopes.append(_Scope(targets.bound, set()))
        self.unsure += lazy
        for index, generator in enumerate(node.generators):
            if index:
                self.visit(generator.iter)
            self.block(generator.ifs)
        if isinstance(node, ast.DictComp):
            self.visit(node.key)
            self.visit(node.value)
        else:
            self.visit(node.elt)
        self.unsure -= lazy
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension  # noqa: N815


@dataclass(frozen=True)
class _Scope:
    bound: set[str]
    globals: set[str]
    is_class: bool = False


def _read_after_del(arguments: ast.arguments, body: Sequence[ast.AST], own: set[str]) -> list[Read]:
    """Reads in a function of what it has itself deleted on every way there."""
    inside = _Scanner(lazy_annotations=True)
    inside.within_function = True
    inside.state = {argument.arg: NEW for argument in arguments_of(arguments)}
    inside.block(body)
    return [read for read in inside.names.reads if read.name in own and read.states == GONE and not read.shielded]


def _join(states: Iterable[dict[str, int]]) -> dict[str, int]:
    ways = list(states)
    names = {name for way in ways for name in way}
    joined: dict[str, int] = {}
    for name in names:
        value = 0
        for way in ways:
            value |= way.get(name, OLD)
        joined[name] = value
    return joined


def _catches_name_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(not isinstance(kind, ast.Name) or kind.id in _CATCHES_NAME_ERROR for kind in kinds)
