"""Diagnostics as HTML for the notebook page: what is wrong in bold, the place, what was captured, and what to do.

Rule 1: everything that comes from a cell is escaped, and none of it can be typeset as a formula.
Rule 2: the structure says it all. The only styles are a coloured edge in JupyterLab's own variables, lines of code that
do not wrap and cells that begin at the left; GitHub takes them away, and nothing is lost.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence

from capkernel.diagnostics.codes import CODES
from capkernel.diagnostics.model import Captured, Diagnostic, Fix, Note
from capkernel.diagnostics.render_text import FIX_LABELS, MOST_SHOWN, excerpt

_CODE = re.compile(r"`([^`\n]+)`")
_TEX = re.compile(r"[$\\]")  # what a formula begins with; alone in an element it begins none
_BLANK, _KEPT_BLANK = "\n\n", "\n&#10;"
_HIDDEN = re.compile("[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")  # reorder the text around them, or are unseen


def render_html(diagnostics: Sequence[Diagnostic], sources: Mapping[int, str], more: int = 0) -> str:
    """One block for the whole refusal, or for the warnings of a cell that was accepted.

    `more` were found than are listed.
    """
    errors = sum(diagnostic.severity == "error" for diagnostic in diagnostics)
    title = "Refused: nothing ran, nothing changed" if errors else "Accepted with warnings"
    colour = "--jp-error-color1, #c33" if errors else "--jp-warn-color1, #c80"
    parts = [f"<p>{title}</p>"]
    for diagnostic in diagnostics[:MOST_SHOWN]:
        parts += _finding(diagnostic, sources)
    rest = max(len(diagnostics) - MOST_SHOWN, 0) + more
    if rest > 0:
        parts.append(f"<p>... and {rest} more</p>")
    inside = "\n".join(parts)
    return f'<div style="border-left: 4px solid var({colour}); padding-left: 12px">\n{inside}\n</div>'


def _finding(diagnostic: Diagnostic, sources: Mapping[int, str]) -> Iterator[str]:
    yield f"<p><strong>{_prose(diagnostic.message)}</strong> <code>{_verbatim(diagnostic.code)}</code></p>"
    yield _lines(excerpt(diagnostic.cell, diagnostic.span, diagnostic.label, sources, "^"))
    if diagnostic.captured:
        yield _table(diagnostic.captured)
    for note in diagnostic.notes:
        yield from _note(note, sources)
    known = CODES.get(diagnostic.code)
    why = diagnostic.why or (known.why if known else "")
    if why:
        yield f"<p><strong>Why:</strong> {_prose(why)}</p>"
    advice = [*_help(diagnostic.help), *_fix(diagnostic.fix)]
    if advice:
        yield "\n".join(["<blockquote>", *advice, "</blockquote>"])


def _table(captured: Sequence[Captured]) -> str:
    rows = [
        (f"<code>{_verbatim(one.name)}</code>", f"<code>{_verbatim(one.type)}</code>", _prose(one.origin))
        for one in captured
    ]
    head, body = _row("th", ("captures", "type", "from")), "".join(_row("td", row) for row in rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f'<{tag} style="text-align: left">{cell}</{tag}>' for cell in cells) + "</tr>"


def _note(note: Note, sources: Mapping[int, str]) -> Iterator[str]:
    yield f"<p><strong>Note:</strong> {_prose(note.text)}</p>"
    if note.span is not None:
        yield _lines(excerpt(note.cell, note.span, "", sources, "-"))


def _help(text: str) -> Iterator[str]:
    if text:
        yield f"<p><strong>Help:</strong> {_prose(text)}</p>"


def _fix(fix: Fix | None) -> Iterator[str]:
    if fix is not None:
        yield f"<p><strong>{FIX_LABELS[fix.applicability].capitalize()}:</strong> {_prose(fix.text)}</p>"
        if fix.code:
            yield _lines(fix.code.splitlines())


def _lines(lines: Sequence[str]) -> str:
    # An empty line would end the block where the page is Markdown.
    text = "\n".join(line.rstrip() for line in lines)
    return f'<pre style="white-space: pre; overflow-x: auto">{_verbatim(text).replace(_BLANK, _KEPT_BLANK)}</pre>'


def _prose(text: str) -> str:
    """`text` escaped, with what stands in backticks as code."""
    pieces = _CODE.split(text)
    for at, piece in enumerate(pieces):
        safe = _verbatim(piece)
        pieces[at] = f"<code>{safe}</code>" if at % 2 else _TEX.sub(r"<span>\g<0></span>", safe)
    return "".join(pieces)


def _verbatim(text: str) -> str:
    """`text` escaped; what would reorder it or hide in it, by its number. For elements that are not typeset."""
    return html.escape(_HIDDEN.sub(lambda found: _number(ord(found[0])), text))


def _number(point: int) -> str:
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
