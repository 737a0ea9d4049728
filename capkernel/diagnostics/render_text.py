"""Diagnostics as text: in full for a person, in one line for a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capkernel.diagnostics.codes import CODES
from capkernel.diagnostics.model import Diagnostic, Note, Span
from capkernel.diagnostics.source_lines import source_lines

MOST_SHOWN = 10
LONGEST_LINE = 160  # of source, in an excerpt
FIX_LABELS = {"safe": "fix, safe to apply", "unsafe": "fix, changes the meaning", "display": "fix"}


def render_concise(diagnostic: Diagnostic) -> str:
    """`cell[4]:2:22: error[impure-map]: ...`, columns 1-based."""
    at = f"cell[{diagnostic.cell}]:{diagnostic.span.line}:{diagnostic.span.column + 1}"
    return f"{at}: {diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"


def render_text(diagnostics: Sequence[Diagnostic], sources: Mapping[int, str]) -> str:
    """All of `diagnostics` with the source lines they point at. `sources` maps cell numbers to checked texts."""
    shown = [_render(diagnostic, sources) for diagnostic in diagnostics[:MOST_SHOWN]]
    rest = len(diagnostics) - MOST_SHOWN
    if rest > 0:
        shown.append(f"... and {rest} more")
    return "\n\n".join(shown)


def _render(diagnostic: Diagnostic, sources: Mapping[int, str]) -> str:
    lines = [f"{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"]
    lines += excerpt(diagnostic.cell, diagnostic.span, diagnostic.label, sources, "^")
    for captured in diagnostic.captured:
        lines.append(f"   = captures: `{captured.name}: {captured.type}` from {captured.origin}")
    for note in diagnostic.notes:
        lines += _render_note(note, sources)
    known = CODES.get(diagnostic.code)
    why = diagnostic.why or (known.why if known else "")
    if why:
        lines.append(f"   = why: {why}")
    if diagnostic.help:
        lines.append(f"   = help: {diagnostic.help}")
    if diagnostic.fix is not None:
        lines.append(f"   = {FIX_LABELS[diagnostic.fix.applicability]}: {diagnostic.fix.text}")
        lines += [f"       {line}" for line in diagnostic.fix.code.splitlines()]
    return "\n".join(lines)


def _render_note(note: Note, sources: Mapping[int, str]) -> list[str]:
    if note.span is None:
        return [f"   = note: {note.text}"]
    return [f"note: {note.text}", *excerpt(note.cell, note.span, "", sources, "-")]


def excerpt(cell: int, span: Span, label: str, sources: Mapping[int, str], mark: str) -> list[str]:
    """Where `span` is, and its line of source with the span underlined by `mark`s."""
    where = f"  --> cell[{cell}]:{span.line}:{span.column + 1}"
    lines = source_lines(sources.get(cell, ""))
    if not 1 <= span.line <= len(lines):
        return [where]
    # Tabs would move the underline; a column is one character here.
    text = lines[span.line - 1].replace("\t", " ")
    end = span.end_column if span.end_line == span.line else len(text)
    width = max(1, min(end, len(text)) - span.column)
    number = str(span.line)
    gutter = " " * len(number)
    column = span.column
    if len(text) > LONGEST_LINE:
        text, column = _window(text, column)
        width = min(width, len(text) - column)
    underline = f"{' ' * column}{mark * width} {label}".rstrip()
    return [where, f" {gutter} |", f" {number} | {text}", f" {gutter} | {underline}"]


def _window(text: str, column: int) -> tuple[str, int]:
    """The part of a long line around `column`, and where the column is in it."""
    start = max(0, min(column - LONGEST_LINE // 3, len(text) - LONGEST_LINE))
    end = start + LONGEST_LINE
    before, after = "… " if start else "", " …" if end < len(text) else ""
    return f"{before}{text[start:end]}{after}", column - start + len(before)
