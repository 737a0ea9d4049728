"""A refused cell as its repairs see it: its text, its tree, and edits that keep the rest of the text as it is.

Rule 1: positions of edits are those of `Span`: characters, not bytes.
Rule 2: what cannot be edited without looking into a string over several lines, or into a line that another statement
shares, is not edited: the builders answer None.
"""

from __future__ import annotations

import ast
import builtins
import copy
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from capkernel.diagnostics.edits import apply_edits
from capkernel.diagnostics.model import Diagnostic, Edit, Fix, Span

Edits = tuple[Edit, ...]
INDENT = "    "
_SINGLE_QUOTED = re.compile(r"""([A-Za-z]*)'([^'"\\\n]*)'""")


class Source:
    """One text and its tree (None when it is not Python)."""

    def __init__(
        self, text: str, module: ast.Module | None, names: frozenset[str], earlier: Callable[[int], str]
    ) -> None:
        self.text = text
        self.module = module
        self.names = names  # of the session
        self.earlier = earlier  # the text of an accepted cell, "" when it is not known
        self.ask: Callable[[str], Sequence[Diagnostic]] = lambda _text: ()  # what would be said of another text
        self.lines = text.split("\n")
        self.parents: dict[ast.AST, ast.AST] = {}
        self._by_start: dict[tuple[int, int], list[ast.AST]] = {}
        if module is not None:
            for node in ast.walk(module):
                for child in ast.iter_child_nodes(node):
                    self.parents[child] = node
                if hasattr(node, "lineno"):
                    span = self.span(node)
                    self._by_start.setdefault((span.line, span.column), []).append(node)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def span(self, node: ast.AST) -> Span:
        place: Any = node
        line, end_line = place.lineno, place.end_lineno or place.lineno
        return Span(
            line,
            self._column(line, place.col_offset),
            end_line,
            self._column(end_line, place.end_col_offset or place.col_offset + 1),
        )

    def _column(self, line: int, offset: int) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return offset if text.isascii() else len(text.encode()[:offset].decode("utf-8", "ignore"))

    def at(self, span: Span, *kinds: type[ast.AST]) -> ast.AST | None:
        """The outermost node of one of `kinds` at exactly `span`; any node that begins there when none ends there."""
        found = [
            node for node in self._by_start.get((span.line, span.column), ()) if isinstance(node, kinds or ast.AST)
        ]
        exact = [node for node in found if self.span(node) == span]
        return exact[0] if exact else found[0] if found else None

    def segment(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or unparsed(node)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self.parents.get(current)
        return current

    def body_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that `statement` stands in."""
        parent = self.parents.get(statement)
        if parent is None:
            return [] if self.module is None else self.module.body
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and statement in value:
                return value
        return [statement]

    def enclosing(self, node: ast.AST, *kinds: type[ast.AST]) -> ast.AST | None:
        current = self.parents.get(node)
        while current is not None and not isinstance(current, kinds):
            current = self.parents.get(current)
        return current

    def used_names(self) -> set[str]:
        found = set(self.names) | set(dir(builtins))
        found |= set(re.findall(r"[^\W\d]\w*", self.text))
        return found

    def fresh(self, *wanted: str) -> str:
        used = set(re.findall(r"[^\W\d]\w*", self.text))
        for name in wanted:
            if name not in used:
                return name
        return next(f"{wanted[0]}_{n}" for n in range(2, 100) if f"{wanted[0]}_{n}" not in used)

    # ── editing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def replace(self, node: ast.AST, text: str) -> Edit:
        return Edit(self.span(node), text)

    def is_alone(self, statement: ast.stmt) -> bool:
        """Whether its lines are its own, and none of them is inside a string that goes over lines."""
        first, last = self.first_line(statement), statement.end_lineno or statement.lineno
        if self.lines[first - 1][: self._column(first, statement.col_offset)].strip():
            return False
        end = self._column(last, statement.end_col_offset or 0)
        rest = self.lines[last - 1][end:].strip()
        if rest and not rest.startswith("#"):
            return False
        return not any(
            isinstance(node, (ast.Constant, ast.JoinedStr)) and (node.end_lineno or node.lineno) > node.lineno
            for node in ast.walk(statement)
        )

    @staticmethod
    def first_line(statement: ast.stmt) -> int:
        decorators = getattr(statement, "decorator_list", [])
        return min([statement.lineno, *(int(one.lineno) for one in decorators)])

    def margin(self, statement: ast.stmt) -> str:
        line = self.lines[self.first_line(statement) - 1]
        return line[: len(line) - len(line.lstrip())]

    def whole_lines(self, statement: ast.stmt) -> Span:
        """From the first character of its first line to the end of its last line, without the line end."""
        last = statement.end_lineno or statement.lineno
        return Span(self.first_line(statement), 0, last, len(self.lines[last - 1]))

    def text_of(self, span: Span) -> list[str]:
        return self.lines[span.line - 1 : span.end_line]

    def insert_before(self, statement: ast.stmt, *lines: str) -> Edit:
        line, margin = self.first_line(statement), self.margin(statement)
        return Edit(Span(line, 0, line, 0), "".join(f"{margin}{text}\n" for text in lines))

    def import_edit(self, line: str) -> Edit | None:
        """`line` at the top, below a docstring and `__future__`; None when the cell has it already."""
        if self.module is None or any(line == one.strip() for one in self.lines):
            return None
        at = 1
        for statement in self.module.body:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not is_text and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
                break
            at = (statement.end_lineno or statement.lineno) + 1
        return Edit(Span(at, 0, at, 0), f"{line}\n")

    def with_imports(self, edits: Edits, *lines: str) -> Edits:
        added = [edit for edit in map(self.import_edit, lines) if edit is not None]
        return (*added, *edits)

    def remove(self, statement: ast.stmt) -> Edit | None:
        """Without the statement; `pass` in its place when a block would be empty."""
        if not self.is_alone(statement):
            return self._remove_from_line(statement)
        span = self.whole_lines(statement)
        if len(self.body_of(statement)) == 1 and self.parents.get(statement) is not self.module:
            return Edit(span, f"{self.margin(statement)}pass")
        if span.end_line < len(self.lines):
            return Edit(Span(span.line, 0, span.end_line + 1, 0), "")
        return Edit(span, "")

    def _remove_from_line(self, statement: ast.stmt) -> Edit | None:
        if isinstance(statement, (ast.Expr, ast.Assign, ast.Import, ast.ImportFrom, ast.Delete)):
            return Edit(self.span(statement), "pass")
        return None

    def wrap(
        self,
        statement: ast.stmt,
        header: str,
        inner: Edits = (),
        before: tuple[str, ...] = (),
        after: tuple[str, ...] = (),
    ) -> Edits | None:
        """The statement inside a block; `inner` are edits of it, `before` and `after` more statements of the block."""
        if not self.is_alone(statement):
            return None
        span, margin = self.whole_lines(statement), self.margin(statement)
        lines = self.text_of(span)
        moved = [
            Edit(
                Span(e.span.line - span.line + 1, e.span.column, e.span.end_line - span.line + 1, e.span.end_column),
                e.text,
            )
            for e in inner
        ]
        body = apply_edits("\n".join(lines), moved).split("\n")
        new = [f"{margin}{header}"]
        new += [f"{margin}{INDENT}{line}" for line in before]
        new += [f"{INDENT}{line}" if line.strip() else line for line in body]
        new += [f"{margin}{INDENT}{line}" for line in after]
        return (Edit(span, "\n".join(new)),)


def substituted(expression: ast.expr, old: ast.AST | str, new: str) -> str:
    """The text of `expression` with every expression equal to `old` as `new`."""
    wanted = old if isinstance(old, str) else ast.dump(old)

    class Put(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                same = unparsed(node) == wanted if isinstance(old, str) else ast.dump(node) == wanted
                if same:
                    return ast.Name(new, ast.Load())
            return self.generic_visit(node)

    return unparsed(ast.fix_missing_locations(Put().visit(copy.deepcopy(expression))))


def unparsed(node: ast.AST) -> str:
    """`ast.unparse` with double quotes, where a text has none itself: repairs look alike whatever they are made of."""
    text = ast.unparse(node)
    if "'" not in text:
        return text
    lines = text.split("\n")
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        quoted = _SINGLE_QUOTED.fullmatch(token.string)
        if token.type == tokenize.STRING and quoted is not None:
            row, begin, end = token.start[0] - 1, token.start[1], token.end[1]
            lines[row] = f'{lines[row][:begin]}{quoted[1]}"{quoted[2]}"{lines[row][end:]}'
    return "\n".join(lines)


def names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def literal(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def calls(module: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            yield node


def dotted(node: ast.AST) -> str:
    """`a.b.c` of names and attributes, "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


Repairs = Iterator[Fix]
Repairer = Callable[[Source, Diagnostic], Repairs]


def safe(text: str, *edits: Edit | None) -> Repairs:
    yield from _fix(text, "safe", edits)


def unsafe(text: str, *edits: Edit | None) -> Repairs:
    yield from _fix(text, "unsafe", edits)


def _fix(text: str, kind: str, edits: tuple[Edit | None, ...]) -> Repairs:
    kept = tuple(edit for edit in edits if edit is not None)
    if kept:
        yield Fix(text, "safe" if kind == "safe" else "unsafe", kept)
