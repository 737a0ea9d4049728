"""Functions of earlier cells that read a name this cell gives another type: do they still fit?

Each is typed again, alone, against the session as it would be. What is wrong then and was not before is said at the
new binding. Only functions and classes that are still bound count, and only when a type really changes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.errors import ErrorInfo

from capkernel.checker.engine import CellBlocked, Checked, Engine
from capkernel.checker.messages import plain
from capkernel.checker.profiles import Profile
from capkernel.checker.typed_cell import TypedCell
from capkernel.diagnostics.model import Diagnostic, Note

MOST_CHECKED = 200  # at one or two milliseconds each


@dataclass(frozen=True)
class _Definition:
    cell: TypedCell
    node: ast.stmt
    reads: frozenset[str]
    known: frozenset[str]  # what mypy said about it already


class Dependants:
    """The definitions of a session by name."""

    def __init__(self) -> None:
        self._definitions: dict[str, _Definition] = {}

    def broken_by(self, checked: Checked, engine: Engine, profile: Profile) -> list[Diagnostic]:
        """What would no longer fit once the cell has run."""
        changed = {name for name in checked.names if engine.changes(name, checked)}
        if not changed:
            return []
        readers = [
            (name, definition)
            for name, definition in self._definitions.items()
            if name not in checked.names and definition.reads & changed
        ]
        found: list[Diagnostic] = []
        for name, definition in readers[:MOST_CHECKED]:
            for error in _new_errors(definition, checked, engine, profile):
                found.append(_diagnostic(name, definition, error, checked, changed, profile))
                break  # one line for each function is enough
        return found

    def commit(self, checked: Checked, bound: Iterable[str], deleted: Iterable[str]) -> None:
        """The cell ran."""
        here = {
            node.name: node
            for node in checked.typed.module.body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        for name in (*bound, *deleted):
            self._definitions.pop(name, None)
        for name in bound:
            reads = checked.scanned.functions.get(name)
            if reads and name in here and checked.scanned.kinds[name] <= {"def", "class"}:
                known = frozenset(error.message for error in checked.errors)
                typed = checked.typed
                bare = TypedCell(typed.number, typed.text, ast.Module([here[name]], []))  # the types are not kept
                self._definitions[name] = _Definition(bare, here[name], frozenset(reads), known)


def _new_errors(definition: _Definition, checked: Checked, engine: Engine, profile: Profile) -> list[ErrorInfo]:
    try:
        errors = engine.type_again(definition.cell.number, definition.cell.text, definition.node, checked.names)
    except CellBlocked:
        return []
    return [
        error
        for error in errors
        if error.severity == "error"
        and error.line >= 1
        and error.message not in definition.known
        and (error.code is None or error.code.code not in profile.silent | {"name-defined"})
    ]


def _diagnostic(
    name: str, definition: _Definition, error: ErrorInfo, checked: Checked, changed: set[str], profile: Profile
) -> Diagnostic:
    cell = definition.cell
    code = error.code.code if error.code is not None else "misc"
    # The new binding the definition reads: where the person can do something about it.
    cause = next(iter(sorted(definition.reads & changed)))
    node = checked.scanned.bound.get(cause)
    place = checked.typed.span(node) if node is not None else checked.typed.span_at(1, 0, 1, 1)
    there = cell.span_at(error.line, max(error.column, 0), error.end_line, max(error.end_column, error.column + 1))
    return Diagnostic(
        code,
        f"this `{cause}` would break `{name}` of cell {cell.number}: {plain(error.message)}",
        checked.typed.number,
        place,
        "error" if profile.refusing is None else "warning",
        notes=(Note(f"`{name}` reads it here", cell.number, there),),
        help=f"give the new value another name, or define `{name}` again",
    )
