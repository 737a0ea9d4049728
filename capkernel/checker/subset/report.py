"""How a rule says no: a Diagnostic with the place, what is captured, and what to write instead."""

from __future__ import annotations

import ast
from functools import cache

from capkernel.checker.tables import ambient
from capkernel.checker.typed_cell import TypedCell
from capkernel.diagnostics.model import Captured, Diagnostic, Fix, Note, Severity, Span


@cache
def api_names() -> frozenset[str]:
    """The names every session starts with, as the API exports them."""
    from capkernel import api  # only its list of names is read

    return frozenset(api.__all__)


def show(code: str, text: str = "write this instead") -> Fix:
    """A repair that shows code and edits nothing."""
    return Fix(text, "display", code=code)


def advice(key: str) -> tuple[str, Fix | None]:
    """Help and fix for a refused piece of authority; no code for an API the session does not have."""
    entry = ambient().advice[key]
    if entry.needs and entry.needs not in api_names():
        return f"{entry.text}; this session has no `{entry.needs}`", None
    return entry.text, show(entry.code) if entry.code else None


# Keys of advice about what is refused for what it can do to the interpreter, not for what it reaches outside.
_REFLECTIVE = frozenset(("cast", "reflection", "code", "interpreter"))


class Report:
    """Collects the diagnostics of one cell."""

    def __init__(self, cell: TypedCell) -> None:
        self.cell = cell
        self.found: list[Diagnostic] = []
        self._said: set[tuple[str, Span]] = set()

    def add(
        self,
        code: str,
        node: ast.AST,
        message: str,
        *,
        help: str = "",  # noqa: A002  (the Diagnostic's field)
        fix: Fix | None = None,
        label: str = "",
        captured: tuple[Captured, ...] = (),
        notes: tuple[Note, ...] = (),
        why: str = "",
        severity: Severity = "error",
    ) -> None:
        span = self.cell.span(node)
        if (code, span) in self._said:
            return
        self._said.add((code, span))
        self.found.append(
            Diagnostic(code, message, self.cell.number, span, severity, label, captured, notes, why, help, fix)
        )

    def ambient(self, node: ast.AST, message: str, key: str, code: str = "") -> None:
        """A refused piece of a library. The code follows from what it gives, unless it is said."""
        help_text, fix = advice(key)
        code = code or ("unsafe-feature" if key in _REFLECTIVE else "ambient-authority")
        self.add(code, node, message, help=help_text, fix=fix)
