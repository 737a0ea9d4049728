"""A diagnostic: what is wrong, where, what was captured and from where, why that is refused, what to write instead.

Types and names only, never values: a diagnostic is shown to the agent, stored in the notebook and sent to models.
What an edit holds is text of the cells themselves.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from capkernel.wire.plan import Span

Severity = Literal["error", "warning"]
Applicability = Literal["safe", "unsafe", "display"]

__all__ = ["Applicability", "Captured", "Diagnostic", "Edit", "Fix", "Note", "Severity", "Span"]


class Note(msgspec.Struct, frozen=True):
    """A second place that explains the first: "bound here", "the block ends here"."""

    text: str
    cell: int
    span: Span | None = None


class Captured(msgspec.Struct, frozen=True):
    """Something the refused code holds: its name, its static type, and where it came from."""

    name: str
    type: str
    origin: str  # "cell 3, line 2: with request_file_system(...)"


class Edit(msgspec.Struct, frozen=True):
    """Replace the text of `span` by `text`."""

    span: Span
    text: str


class Fix(msgspec.Struct, frozen=True):
    """A repair. `safe` ones may be applied blindly; `unsafe` change meaning; `display` shows code, edits nothing."""

    text: str
    applicability: Applicability
    edits: tuple[Edit, ...] = ()
    code: str = ""


class Diagnostic(msgspec.Struct, frozen=True):
    """One finding. `message` is one line that makes sense alone, without a final period, names in backticks."""

    code: str
    message: str
    cell: int
    span: Span
    severity: Severity = "error"
    label: str = ""  # beside the underline: "captures `stdout`"
    captured: tuple[Captured, ...] = ()
    notes: tuple[Note, ...] = ()
    why: str = ""
    help: str = ""
    fix: Fix | None = None
