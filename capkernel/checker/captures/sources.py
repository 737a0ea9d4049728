"""The text of a function as it is shipped to the vault: exactly what was checked, at the left margin.

Where names of local modules stand in it, the tree that was checked says more than the text; then it is written anew.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from capkernel.checker.captures.codekeys import Definition
from capkernel.diagnostics.source_lines import lines_of
from capkernel.wire.local_names import BEFORE_NAME


def shipped_source(node: Definition, text: str) -> str | None:
    """The source segment of `node`, dedented; None when it would not read back as the very same tree."""
    lines = lines_of(text)
    if isinstance(node, ast.Lambda):
        source = _segment(lines, node)
        read: ast.AST | None = _parsed_expression(source)
    else:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        segment = lines[first - 1 : node.end_lineno]
        margin = node.col_offset
        frozen = _inside_text(node)
        cut = [
            line if first + number in frozen else _without_margin(line, margin) for number, line in enumerate(segment)
        ]
        if not cut:
            return None
        last = cut[-1].encode("utf-8")
        shift = 0 if (node.end_lineno or 0) in frozen else margin
        cut[-1] = last[: (node.end_col_offset or 0) - shift].decode("utf-8", "replace")
        source = "\n".join(cut)
        read = _parsed_statement(source)
    if read is not None and ast.dump(read) == ast.dump(node):
        return source
    return _written_anew(node) if BEFORE_NAME in ast.dump(node) else None


def _segment(lines: Sequence[str], node: ast.Lambda) -> str:
    """The text of an expression; places are in lines and UTF-8 bytes."""
    last = node.end_lineno or node.lineno
    segment = [line.encode("utf-8") for line in lines[node.lineno - 1 : last]]
    segment[-1] = segment[-1][: node.end_col_offset]
    segment[0] = segment[0][node.col_offset :]
    return b"\n".join(segment).decode("utf-8")


def _written_anew(node: Definition) -> str | None:
    source = ast.unparse(node)
    read = _parsed_expression(source) if isinstance(node, ast.Lambda) else _parsed_statement(source)
    return source if read is not None and ast.dump(read) == ast.dump(node) else None


def _inside_text(node: ast.AST) -> set[int]:
    """Lines that begin inside a string, where leading blanks are part of the value."""
    frozen: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Constant, ast.JoinedStr)):
            frozen.update(range(inner.lineno + 1, (inner.end_lineno or inner.lineno) + 1))
    return frozen


def _without_margin(line: str, margin: int) -> str:
    return line[margin:] if not line[:margin].strip() else line


def _parsed_expression(source: str) -> ast.expr | None:
    try:
        return ast.parse(f"({source}\n)", mode="eval").body
    except SyntaxError:
        return None


def _parsed_statement(source: str) -> ast.stmt | None:
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return None
    return body[0] if len(body) == 1 else None
