"""The safe subset: a closed world of syntax, judged on the tree alone, before any types.

Rule 1: a node or binding form that is not listed here is refused (`not-understood`), never skipped.
Rule 2: names are judged where they resolve; a local variable that happens to be called like a builtin is harmless.
Rule 3: no rule looks into the text of a string, except a string that is used as the name of an attribute.
"""

from __future__ import annotations

import ast

from capkernel.checker.captures.scopes import scopes_of
from capkernel.checker.subset.nodes import Walker
from capkernel.checker.subset.report import Report
from capkernel.checker.typed_cell import TypedCell
from capkernel.diagnostics.model import Diagnostic

__all__ = ["check_subset"]


def check_subset(module: ast.Module, cell: int, text: str) -> list[Diagnostic]:
    """Everything in `module` that is outside the safe subset, in the order of the text."""
    report = Report(TypedCell(cell, text, module))
    scopes = scopes_of(module)
    Walker(scopes, report).walk(module)
    return sorted(report.found, key=lambda found: (found.span.line, found.span.column))
