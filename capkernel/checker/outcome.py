"""What a typed cell makes of its names: their types when it has run, and how far those can be believed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.errors import ErrorInfo
from mypy.nodes import Expression, MypyFile, SymbolTableNode, Var
from mypy.types import Type

from capkernel.checker.scan import Names
from capkernel.checker.symbols import Binding, anything, or_anything, type_or_none, value
from capkernel.checker.typed_cell import TypedCell
from capkernel.wire.syntax import walk

_BINDING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.With, ast.NamedExpr)


def bindings_of(
    typed: TypedCell,
    tree: MypyFile,
    names: Names,
    stars: Mapping[str, SymbolTableNode],
    probes: Mapping[str, Expression],
    errors: Iterable[ErrorInfo],
) -> dict[str, Binding]:
    """What each name the cell binds is afterwards."""
    cell = typed.number
    doubtful = _doubtful_names(typed.module, errors) | names.bound_in_comprehensions
    bindings = {
        name: Binding(symbol.node, cell, type_or_none(symbol.node))
        for name, symbol in stars.items()
        if symbol.node is not None
    }
    for name in names.bound:
        found = tree.names.get(name)
        if found is None or found.node is None:
            continue
        node = found.node
        if not isinstance(node, Var) or "value" not in names.kinds[name]:
            bindings[name] = Binding(node, cell, type_or_none(node))
            continue
        wide = anything() if name in doubtful else or_anything(node.type or anything())
        now = None if name in doubtful or name not in probes else typed.types.get(probes[name])
        bindings[name] = value(typed.module_id, name, cell, wide if now is None else now, wide)
    return bindings


def set_by_functions(tree: MypyFile, names: Names, errors: Iterable[ErrorInfo]) -> dict[str, Type]:
    """Types of the names that functions of the cell bind through `global`."""
    found: dict[str, Type] = {}
    doubtful = any(code_of(error) == "assignment" for error in errors)
    for name in names.set_in_functions:
        symbol = tree.names.get(name)
        node = None if symbol is None else symbol.node
        typ = node.type if isinstance(node, Var) and not doubtful else None
        found[name] = typ or anything()
    return found


def _doubtful_names(module: ast.Module, errors: Iterable[ErrorInfo]) -> set[str]:
    """Names given a value that their annotation does not allow: where that only warns, the type is no fact."""
    lines = {error.line for error in errors if error.severity == "error" and code_of(error) == "assignment"}
    found: set[str] = set()
    if not lines:
        return found
    for statement in walk(module):
        if isinstance(statement, _BINDING) and lines & set(
            range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        ):
            found |= {node.id for node in walk(statement) if isinstance(node, ast.Name)}
    return found


def code_of(error: ErrorInfo) -> str:
    """mypy's code of an error, "" when it has none."""
    return error.code.code if error.code is not None else ""
