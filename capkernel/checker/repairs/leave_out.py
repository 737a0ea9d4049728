"""When nothing can take the place of what was refused: the cell without it."""

from __future__ import annotations

import ast

from capkernel.checker.repairs.source import Repairs, Source, safe, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

_REMOVABLE = (
    ast.Expr,
    ast.Import,
    ast.ImportFrom,
    ast.Delete,
    ast.Global,
    ast.Assign,
    ast.AnnAssign,
    ast.FunctionDef,
    ast.ClassDef,
)


def repairs(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Without the statement that stands for the refused thing alone: nothing else is lost."""
    node = source.at(diagnostic.span)
    statement = None if node is None else source.statement(node)
    if isinstance(statement, _REMOVABLE):
        yield from unsafe("leave it out: nothing of it can be done in a cell", source.remove(statement))
    if isinstance(node, ast.stmt) and node is not statement:
        yield from unsafe("leave it out: nothing of it can be done in a cell", source.remove(node))


def unreachable(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Without the code that never runs."""
    node = source.at(diagnostic.span)
    statement = None if node is None else source.statement(node)
    current: ast.stmt | None = statement
    while current is not None:
        body = source.body_of(current)
        parent = source.parents.get(current)
        if isinstance(parent, ast.If) and body is parent.body and not parent.orelse:
            yield from safe("delete what never runs", source.remove(parent))
        if isinstance(parent, ast.If) and body is parent.orelse and source.is_alone(parent):
            span, first = source.whole_lines(parent), source.first_line(body[0])
            kept = source.text_of(span)[: first - span.line]
            while kept and not kept[-1].strip().startswith("else"):
                kept.pop()
            yield from safe("delete what never runs", _lines(source, parent, kept[:-1]))
        yield from safe("delete what never runs", source.remove(current))
        following = body[body.index(current) :] if current in body else []
        if len(following) > 1 and all(source.is_alone(one) for one in following):
            yield from safe("delete what never runs", *(source.remove(one) for one in following))
        nxt = source.parents.get(current)
        current = None if nxt is None else source.statement(nxt)
        if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            decorators = [source.segment(one) for one in current.decorator_list]
            if any("no_type_check" in text for text in decorators) and source.is_alone(current):
                for one in current.decorator_list:
                    line = one.lineno
                    yield from safe("let it be checked", Edit(Span(line, 0, line + 1, 0), ""))
            return


def _lines(source: Source, statement: ast.stmt, lines: list[str]) -> Edit:
    return Edit(source.whole_lines(statement), "\n".join(lines))
