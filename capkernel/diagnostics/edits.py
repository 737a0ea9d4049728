"""Edits of a cell: applying them, and carrying them from the text that was checked to the text the client has.

Rule 1: lines are 1-based, columns are 0-based and count characters; line ends are `\n`.
Rule 2: an edit whose place is not the same text for the client is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from capkernel.diagnostics.model import Diagnostic, Edit, Fix, Span
from capkernel.diagnostics.source_lines import source_lines


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """`text` after `edits`. Insertions at one place come in the order given. Raises ValueError when two overlap."""
    starts = _line_starts(text)
    placed = sorted(
        ((_offset(starts, edit.span.line, edit.span.column), _offset(starts, edit.span.end_line, edit.span.end_column),
          order, edit.text) for order, edit in enumerate(edits))
    )  # fmt: skip
    out: list[str] = []
    at = 0
    for start, end, _order, new in placed:
        if start < at or end < start:
            raise ValueError("two edits overlap")
        out += [text[at:start], new]
        at = end
    return "".join([*out, text[at:]])


def overlap(one: Iterable[Edit], other: Iterable[Edit]) -> bool:
    """Whether the two cannot be applied together. Insertions at one place can."""
    return any(_meet(a.span, b.span) for a in one for b in other)


def _meet(a: Span, b: Span) -> bool:
    first, second = ((s.line, s.column, s.end_line, s.end_column) for s in (a, b))
    if first[:2] == first[2:] or second[:2] == second[2:]:  # an insertion: not inside of the other
        inner, outer = (first, second) if first[:2] == first[2:] else (second, first)
        return outer[:2] < inner[:2] < outer[2:]
    return first[:2] < second[2:] and second[:2] < first[2:]


def for_client(diagnostics: Sequence[Diagnostic], raw: str, checked: str) -> tuple[Diagnostic, ...]:
    """`diagnostics` of `checked`, with only the edits that mean the same in `raw`, what the client sent.

    IPython's transformer rewrites lines with magics; an edit of a whole such line is one of the client's line, and any
    other edit there is left out.
    """
    if raw == checked or raw + "\n" == checked:
        return tuple(diagnostics)
    ours, theirs = source_lines(checked), source_lines(raw)
    return tuple(_for_client(one, ours, theirs) for one in diagnostics)


def _for_client(diagnostic: Diagnostic, ours: list[str], theirs: list[str]) -> Diagnostic:
    fix = diagnostic.fix
    if fix is None or not fix.edits:
        return diagnostic
    edits: list[Edit] = []
    for edit in fix.edits:
        moved = _moved(edit.span, ours, theirs) if len(ours) == len(theirs) else None
        if moved is None:
            return msgspec.structs.replace(diagnostic, fix=Fix(fix.text, "display", code=fix.code))
        edits.append(Edit(moved, edit.text))
    return msgspec.structs.replace(diagnostic, fix=msgspec.structs.replace(fix, edits=tuple(edits)))


def _moved(span: Span, ours: list[str], theirs: list[str]) -> Span | None:
    end_column = span.end_column
    for number in range(span.line, span.end_line + 1):
        mine = ours[number - 1] if number <= len(ours) else ""
        yours = theirs[number - 1] if number <= len(theirs) else ""
        if mine == yours or (number == span.end_line and span.end_column == 0):
            continue
        if (number == span.line and span.column > 0) or (number == span.end_line and end_column != len(mine)):
            return None
        if number == span.end_line:
            end_column = len(yours)
    return Span(span.line, span.column, span.end_line, end_column)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for index, character in enumerate(text):
        if character == "\n":
            starts.append(index + 1)
    return [*starts, len(text)]


def _offset(starts: list[int], line: int, column: int) -> int:
    if line < 1:
        raise ValueError("no such line")
    if line >= len(starts):
        return starts[-1]
    return min(starts[line - 1] + column, starts[-1])
