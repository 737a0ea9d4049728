"""Diagnostics as data, for programs and for models that repair a cell: `application/vnd.capkernel.diagnostics+json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from capkernel.diagnostics.codes import CODES
from capkernel.diagnostics.model import Diagnostic
from capkernel.diagnostics.render_text import render_concise

MIME_TYPE = "application/vnd.capkernel.diagnostics+json"
_PARTS = ("line", "column", "end_line", "end_column")  # of a span


def to_json(diagnostics: Sequence[Diagnostic], more: int = 0) -> dict[str, Any]:
    """`{"version": 1, "diagnostics": [...]}`; every entry has code, message, span, captured, why, help, fix, text.

    `more` were found than are listed: then the object says so, under this name.
    """
    found: dict[str, Any] = {"version": 1, "diagnostics": [_entry(diagnostic) for diagnostic in diagnostics]}
    return {**found, "more": more} if more else found


def from_json(bundle: dict[str, Any]) -> tuple[Diagnostic, ...]:
    """The diagnostics in what `to_json` made. Raises msgspec.ValidationError for anything else."""
    return tuple(_read(entry) for entry in msgspec.convert(bundle.get("diagnostics"), list[dict[str, Any]]))


def _read(entry: dict[str, Any]) -> Diagnostic:
    def span(values: Any) -> Any:
        return [values.get(part) for part in _PARTS] if isinstance(values, dict) else values

    notes = [{**note, "span": span(note.get("span"))} for note in entry.get("notes", ())]
    fix = entry.get("fix")
    if fix is not None:
        fix = {**fix, "edits": [{**edit, "span": span(edit.get("span"))} for edit in fix.get("edits", ())]}
    return msgspec.convert({**entry, "span": span(entry.get("span")), "notes": notes, "fix": fix}, Diagnostic)


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
    return dict(zip(_PARTS, values, strict=True))
