"""Applies the repairs that refusals offer, as a program would that knows nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capkernel.diagnostics import Diagnostic, Edit
from capkernel.diagnostics.edits import apply_edits, overlap


def apply_offered(text: str, diagnostics: Sequence[Diagnostic]) -> str:
    """`text` with every offered edit that does not overlap an earlier one; an edit offered twice is applied once."""
    edits: list[Edit] = []
    for diagnostic in diagnostics:
        if diagnostic.fix is None or all(edit in edits for edit in diagnostic.fix.edits):
            continue
        new = [edit for edit in diagnostic.fix.edits if edit not in edits]
        if not overlap(new, edits):
            edits += new
    return apply_edits(text, edits)


def repair(text: str, check: Callable[[str], Sequence[Diagnostic]], rounds: int = 12) -> tuple[str, bool, int]:
    """The text after up to `rounds` rounds of applying what is offered, whether it is accepted, and the rounds."""
    for turn in range(rounds):
        errors = [one for one in check(text) if one.severity == "error"]
        if not errors:
            return text, True, turn
        new = apply_offered(text, errors)
        if new == text:
            return text, False, turn
        text = new
    return text, not [one for one in check(text) if one.severity == "error"], rounds
