"""Repairs: for a refusal, an edit of the cell that makes it one that may run, checked before it is offered.

Rule 1: an edit is offered only when the cell, after it, is accepted or refused for strictly less. The check is the
same as the cell's own, and leaves nothing behind.
Rule 2: `safe` is what means the same, or what could only have been meant; whatever else changes the meaning is
`unsafe`.
Rule 3: offering is bounded: a number of checks, a time, a size of the cell. Without an offer the refusal stands alone.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import time
from collections.abc import Callable, Sequence

import msgspec

from capkernel.checker.repairs import (
    ambient,
    classified,
    features,
    file_scope,
    imports,
    leave_out,
    names,
    pure,
    scopes,
    signatures,
    syntax,
    typed,
)
from capkernel.checker.repairs.causes import with_suggestions
from capkernel.checker.repairs.source import Repairer, Source
from capkernel.diagnostics.edits import apply_edits, overlap
from capkernel.diagnostics.model import Diagnostic, Edit, Fix

MOST_CHECKS = 20
MOST_SECONDS = 1.0  # of this thread
MOST_CHARACTERS = 20_000
_CANDIDATES = 5  # of one refusal
_REPAIRED = 10  # refusals of one cell
_SHOWN_LINES = 16
_NEVER = frozenset(("too-much-work", "checker-unavailable", "unstable-text"))

_REPAIRERS: dict[str, tuple[Repairer, ...]] = {
    "syntax": (syntax.repairs,),
    "unbound-name": (names.unbound,),
    "name-defined": (names.unbound,),
    "attr-defined": (names.attribute, typed.member),
    "call-arg": (names.call_argument,),
    "assignment": (names.annotation,),
    "union-attr": (typed.not_none, typed.narrowed),
    "arg-type": (typed.not_none, typed.converted),
    "operator": (typed.not_none, typed.narrowed, typed.operands),
    "index": (typed.not_none, typed.converted),
    "return-value": (typed.converted, signatures.returned, typed.not_none),
    "return": (signatures.falls_through,),
    "no-untyped-def": (names.returns_none, signatures.annotated),
    "no-untyped-call": (signatures.annotated,),
    "no-any-return": (typed.any_returned,),
    "list-item": (typed.containers,),
    "dict-item": (typed.containers,),
    "var-annotated": (typed.empty,),
    "type-arg": (typed.arguments,),
    "possibly-undefined": (typed.maybe_unbound,),
    "comparison-overlap": (typed.compared,),
    "call-overload": (typed.overloads,),
    "exhaustive-match": (typed.other_cases,),
    "misc": (typed.unpacked,),
    "no-redef": (typed.bound_again,),
    "truthy-function": (typed.called,),
    "func-returns-value": (typed.for_its_effect,),
    "redefined-api": (names.redefined,),
    "not-understood": (names.mangled,),
    "ambient-authority": (file_scope.repairs, ambient.repairs, imports.repairs),
    "unsafe-import": (file_scope.repairs, imports.repairs),
    "unsafe-feature": (features.repairs, ambient.repairs, imports.repairs),
    "unsafe-magic": (features.magics,),
    "untyped-code": (leave_out.unreachable,),
    "capability-forge": (scopes.forged,),
    "scope-outside-with": (scopes.outside_with,),
    "capability-escape": (scopes.escaped,),
    "classified-observed": (classified.observed,),
    "classified-format": (classified.formatted,),
    "impure-map": (pure.repairs,),
}
_LEFT_OUT = frozenset(
    ("ambient-authority", "unsafe-import", "unsafe-feature", "unsafe-magic", "capability-escape", "redefined-api")
)

Judge = Callable[[str], tuple[Sequence[Diagnostic], int]]
"""What stands against a text: the refusals, and of an accepted one, how many warnings."""


def offer(
    refused: Sequence[Diagnostic],
    text: str,
    module: ast.Module | None,
    judge: Judge,
    session_names: frozenset[str],
    earlier: Callable[[int], str],
    members: Callable[[str], frozenset[str]],
) -> tuple[Diagnostic, ...]:
    """`refused` with the repairs that were found and checked."""
    # Edits count lines by "\n" alone, Python counts by "\r" as well.
    if len(text) > MOST_CHARACTERS or "\r" in text or any(diagnostic.code in _NEVER for diagnostic in refused):
        return tuple(refused)
    source = Source(text, module, session_names, earlier)
    finder = _Finder(source, with_suggestions(refused, source, members), judge)
    return tuple(finder.found())


class _Finder:
    """One refusal of a cell. Candidates are tried together first: that is one check for the usual cell."""

    def __init__(self, source: Source, refused: Sequence[Diagnostic], judge: Judge) -> None:
        self._source = source
        self._refused = refused
        self._judge = judge
        self._checks = 0
        self._until = time.thread_time() + MOST_SECONDS
        self._answers: dict[str, tuple[int, int]] = {}
        source.ask = self._ask

    def found(self) -> list[Diagnostic]:
        candidates = [_candidates(self._source, one) for one in self._refused[:_REPAIRED]]
        chosen: dict[int, Fix] = {}
        together: list[Edit] = []
        first: dict[int, Fix] = {}
        for index, fixes in enumerate(candidates):
            # A repair that ends other refusals too stands for all of them.
            for fix in fixes[:1]:
                if all(edit in together for edit in fix.edits):
                    first[index] = fix
                elif not overlap(fix.edits, together):
                    together += [edit for edit in fix.edits if edit not in together]
                    first[index] = fix
        if len(first) > 1 and self._left(together) == (0, 0):
            chosen |= first
        for index, fixes in enumerate(candidates):
            if index not in chosen:
                best = self._best(fixes)
                if best is not None:
                    chosen[index] = best
        return [
            diagnostic if index not in chosen else self._with(diagnostic, chosen[index])
            for index, diagnostic in enumerate(self._refused)
        ]

    def _best(self, fixes: Sequence[Fix]) -> Fix | None:
        """The first that leaves nothing to say, else the first of those that leave the least; nothing is left out of
        the cell where something can take its place."""
        best: tuple[tuple[int, bool, int], Fix] | None = None
        for fix in fixes:
            left = self._left(fix.edits)
            if left is None or left[0] >= len(self._refused):
                continue
            rank = (left[0], fix.text.startswith("leave"), left[1])
            if best is None or rank < best[0]:
                # What is accepted with a warning is not what could only have been meant.
                best = rank, fix if left[1] == 0 else msgspec.structs.replace(fix, applicability="unsafe")
            if rank == (0, False, 0):
                break
        return None if best is None else best[1]

    def _left(self, edits: Sequence[Edit]) -> tuple[int, int] | None:
        """How many refusals and warnings are left after `edits`; None when it is not known."""
        try:
            text = apply_edits(self._source.text, edits)
        except ValueError:
            return None
        if text in self._answers:
            return self._answers[text]
        if not self._may_check():
            return None
        refused, warned = self._judge(text)
        self._answers[text] = len(refused), warned
        return self._answers[text]

    def _ask(self, text: str) -> Sequence[Diagnostic]:
        """What is said of a text that no repair makes, for what can be learned of it."""
        return self._judge(text)[0] if self._may_check() else ()

    def _may_check(self) -> bool:
        self._checks += 1
        return self._checks <= MOST_CHECKS and time.thread_time() <= self._until

    def _with(self, diagnostic: Diagnostic, fix: Fix) -> Diagnostic:
        return msgspec.structs.replace(diagnostic, fix=msgspec.structs.replace(fix, code=self._shown(fix.edits)))

    def _shown(self, edits: Sequence[Edit]) -> str:
        """The lines that the edits make."""
        old = self._source.text.splitlines()
        new = apply_edits(self._source.text, edits).splitlines()
        changes = difflib.SequenceMatcher(None, old, new).get_opcodes()
        lines = [line for kind, _, _, i, j in changes if kind != "equal" for line in new[i:j] if line.strip()]
        return "\n".join(lines[:_SHOWN_LINES] + (["..."] if len(lines) > _SHOWN_LINES else []))


def _candidates(source: Source, diagnostic: Diagnostic) -> list[Fix]:
    found: list[Fix] = []
    repairers = list(_REPAIRERS.get(diagnostic.code, ()))
    if diagnostic.code in _LEFT_OUT:
        repairers.append(leave_out.repairs)
    for repairer in repairers:
        if source.module is None and repairer is not syntax.repairs:
            continue
        found += itertools.islice(repairer(source, diagnostic), _CANDIDATES)
    return found[: _CANDIDATES + 1]


__all__ = ["offer"]
