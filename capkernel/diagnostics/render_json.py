"""Diagnostics as data, for programs and for models that repair a cell: `application/vnd.capkernel.diagnostics+json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from capkernel.diagnostics.codes import CODES
from capkernel.diagnostics.model import Diagnostic
from capkernel.diagnostics.render_text import render_concise

MIME_TYPE = "application/vnd.capkernel.diagnostics+json"


def to_json(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """`{"version": 1, "diagnostics": [...]}`; every entry has code, message, span, captured, why, help, fix, text."""
    return {"version": 1, "diagnostics": [_entry(diagnostic) for diagnostic in diagnostics]}


def _entry(diagnostic: Diagnostic) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(diagnostic))
    known = CODES.get(diagnostic.code)
    entry["span"] = _span(entry["span"])
    for note in entry["notes"]:
        note["span"] = _span(note["span"])
    if entry["fix"] is not None:
        for edit in entry["fix"]["edits"]:
            edit["span"] = _span(edit["span"])
    entry["why"] = diagnostic.why or (known.why if known else "")
    entry["text"] = render_concise(diagnostic)
    return entry


def _span(values: list[int] | None) -> dict[str, int] | None:
    if values is None:
        return None
    return dict(zip(("line", "column", "end_line", "end_column"), values, strict=True))
