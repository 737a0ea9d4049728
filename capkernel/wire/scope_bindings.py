"""The names one scope binds, without the scopes inside it."""

# ruff: noqa: N802  (`visit_Name` is how visitors spell it)

from __future__ import annotations

import ast
from collections.abc import Iterable

from capkernel.wire.syntax import Visitor, walk


class ScopeBindings(Visitor):
    """Names bound by assignments, definitions, imports, handlers and patterns; names deleted; names declared global."""

    def __init__(self, body: Iterable[ast.AST] = ()) -> None:
        self.bound: set[str] = set()
        self.deleted: set[str] = set()
        self.globals: set[str] = set()
        for node in body:
            self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Del):
            self.deleted.add(node.id)
        if not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.bound.add(node.name)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        pass

    def _comprehension(self, node: ast.expr) -> None:
        # Its targets are its own; what `:=` binds inside it is not.
        for inner in walk(node):
            if isinstance(inner, ast.NamedExpr):
                self.bound.add(inner.target.id)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        self.bound.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.bound.update(alias.asname or alias.name for alias in node.names if alias.name != "*")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self.bound.add(node.name)
            self.deleted.add(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name is not None:
            self.bound.add(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name is not None:
            self.bound.add(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest is not None:
            self.bound.add(node.rest)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.globals.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        # Not global, not local here: bound by a function around, which counts it.
        self.globals.difference_update(node.names)


def arguments_of(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters, in the order of the text."""
    found = [*arguments.posonlyargs, *arguments.args]
    if arguments.vararg is not None:
        found.append(arguments.vararg)
    found += arguments.kwonlyargs
    if arguments.kwarg is not None:
        found.append(arguments.kwarg)
    return found
