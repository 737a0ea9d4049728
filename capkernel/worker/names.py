"""Which names a cell bound and deleted, so that the checker commits the types of exactly those.

A name counts as bound when its statement stands at the top of the cell and came to its end, or when it is stored
anywhere else in the cell (a loop, a branch, a function with `global`) and now means another object than before. A name
that a branch bound to the very object it had is not reported: its old type still fits that object.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from capkernel.wire.syntax import children, walk

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_PLAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom, *_SCOPES[:3])
_GONE = object()


class NameLog:
    """Watches one session's namespace, a cell at a time: `begin`, the cell runs, `end`."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._globals: set[str] = set()  # names that some function of the session may store by `global`
        self._statements: list[_Statement] = []
        self._before: dict[str, _Was] = {}
        self._begun = False

    def begin(self, tree: ast.Module) -> None:
        """Note what the cell can bind and what those names mean now."""
        self._begun = True
        starred = False
        for node in walk(tree):
            if isinstance(node, ast.Global):
                self._globals.update(node.names)
            elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                starred = True
        self._statements = [_Statement(node, starred=starred) for node in tree.body]
        candidates = set(self._globals)
        plain: set[str] = set()
        for statement in self._statements:
            if statement.star:
                candidates.update(self._namespace)
            candidates |= statement.maybe
            plain |= statement.surely
        self._before = {
            # Holding on to what a plain rebinding replaces would double the memory of `df = f(df)`.
            name: _Was(self._namespace[name], hold=name in candidates)
            for name in candidates | plain
            if name in self._namespace
        }

    def end(self, error: BaseException | None, filename: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names bound and the names deleted. `error` is what ended the cell, `filename` the cell's."""
        if not self._begun:
            return (), ()
        self._begun = False
        finished = self._finished(error, filename)
        star = any(statement.star for statement in self._statements)
        bound: set[str] = set()
        candidates = set(self._namespace) if star else set(self._globals)
        for index, statement in enumerate(self._statements):
            candidates |= statement.maybe | statement.surely
            if index < finished:
                bound |= statement.surely & self._namespace.keys()
        for name in candidates - bound:
            now = self._namespace.get(name, _GONE)
            was = self._before.get(name)
            if now is not _GONE and (was is None or not was.same(now)):
                bound.add(name)
        deleted = {name for name in self._before if name not in self._namespace}
        self._before = {}
        self._statements = []
        hidden = {name for name in bound if name.startswith("_") and star}
        return tuple(sorted(bound - hidden)), tuple(sorted(deleted))

    def _finished(self, error: BaseException | None, filename: str) -> int:
        """How many top-level statements came to their end for certain."""
        if error is None:
            return len(self._statements)
        line = _line_in_cell(error.__traceback__, filename)
        if line is None:
            return 0
        for index, statement in enumerate(self._statements):
            if line <= statement.last:
                return index
        return 0


class _Was:
    """What a name meant before the cell."""

    def __init__(self, value: Any, *, hold: bool) -> None:
        self._identity = id(value)
        self._weak: weakref.ref[Any] | None = None
        self._held: Any = None
        try:
            self._weak = weakref.ref(value)
        except TypeError:
            if hold:  # else another object could come to lie at the same address
                self._held = value

    def same(self, now: Any) -> bool:
        if self._weak is not None:
            return self._weak() is now
        return id(now) == self._identity


class _Statement:
    """A top-level statement: the names it surely binds when it ends, and those it may."""

    def __init__(self, node: ast.stmt, *, starred: bool) -> None:
        """starred: somewhere in the cell there is a star import."""
        self.last = node.end_lineno or node.lineno
        self.star = starred and any(
            isinstance(part, ast.ImportFrom) and part.names[0].name == "*" for part in walk(node)
        )
        stored: set[str] = set()
        _add_stored(node, stored)
        annotated_only = isinstance(node, ast.AnnAssign) and node.value is None
        plain = isinstance(node, _PLAIN) and not annotated_only
        self.surely: set[str] = set(_targets(node)) if plain else set()
        self.maybe: set[str] = set() if annotated_only else stored - self.surely


def _targets(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            for alias in node.names:
                if alias.name != "*":
                    yield alias.asname or alias.name.split(".")[0]
        case ast.Assign():
            for target in node.targets:
                yield from _names_in(target)
        case ast.AnnAssign() | ast.AugAssign():
            yield from _names_in(node.target)


def _names_in(target: ast.expr) -> Iterator[str]:
    for part in ast.walk(target):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id


def _add_stored(node: ast.AST, found: set[str]) -> None:
    """Names stored or deleted at the level of the cell by `node`, functions' and classes' own bodies left out."""
    parts: list[ast.AST]
    match node:
        case ast.Call() | ast.Attribute() | ast.Constant() | ast.BinOp() | ast.Assign() | ast.Expr():  # most of them
            parts = children(node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            found.add(node.name)
            parts = [*node.decorator_list, node.args]
        case ast.ClassDef():
            found.add(node.name)
            parts = [*node.decorator_list, *node.bases, *node.keywords]
        case ast.Lambda():
            parts = [node.args]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            # Its variables are its own; a walrus in it binds outside.
            found.update(part.target.id for part in walk(node) if isinstance(part, ast.NamedExpr))
            parts = []
        case ast.Name():
            if not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            parts = []
        case ast.Import() | ast.ImportFrom():
            found.update(_targets(node))
            parts = []
        case (
            ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name)
        ):
            found.add(name)
            parts = children(node)
        case ast.MatchMapping(rest=str() as name):
            found.add(name)
            parts = children(node)
        case _:
            parts = children(node)
    for part in parts:
        _add_stored(part, found)


def _line_in_cell(trace: TracebackType | None, filename: str) -> int | None:
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == filename and code.co_name == "<module>":
            return trace.tb_lineno
        trace = trace.tb_next
    return None
