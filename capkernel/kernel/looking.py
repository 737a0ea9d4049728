"""Completion and help: first by static type from the checker, then what the idle worker adds (columns, keys, texts).

Rule 1: no code of the person's runs for either. The checker knows types; the worker reads (`worker.looking`).
Rule 2: what a cell could not say is not offered: magics that are refused, dunder attributes, files of the worker.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from capkernel.checker.protocol import Complete as CompleteByType
from capkernel.checker.protocol import Completed, Describe, Described
from capkernel.checker.tables import subset
from capkernel.kernel.firewall import clean_bundle, stream
from capkernel.kernel.supervisor import Supervisor
from capkernel.wire.local_names import BEFORE_NAME, LocalNames
from capkernel.wire.worker import Complete, Inspect

_ASIDE_SECONDS = 5.0
_MOST_MATCHES = 5000
_LONGEST_MATCH = 1000
_TIMED = ("time", "timeit")
_TYPES = "_jupyter_types_experimental"
_LABELS = {"classified": "classified: the value is in the vault and is not shown; `map` computes with it"}


class Looking:
    """Answers for one session. `names`: what the text means by names of local modules. `numbers`: of requests to the
    worker."""

    def __init__(self, supervisor: Supervisor, names: Callable[[], LocalNames], numbers: itertools.count[int]) -> None:
        self._supervisor = supervisor
        self._names = names
        self._numbers = numbers
        self._questions = itertools.count(1)

    async def complete(self, code: str, cursor: int, *, idle: bool) -> dict[str, Any]:
        """The content of a complete_reply. `idle`: no cell runs, so the worker may be asked, too."""
        checker = self._supervisor.idle_checker
        question = CompleteByType(next(self._questions), code, cursor, self._names())
        static, dynamic = await asyncio.gather(
            _nothing() if checker is None else checker.look(question),
            self._worker(Complete(next(self._numbers), code, cursor)) if idle else _nothing(),
        )
        return merged(code, cursor, static if isinstance(static, Completed) else None, dynamic)

    async def inspect(self, code: str, cursor: int, detail: int, *, idle: bool) -> dict[str, Any]:
        """The content of an inspect_reply."""
        checker = self._supervisor.idle_checker
        static = None
        if checker is not None:
            static = await checker.look(Describe(next(self._questions), code, cursor, self._names()))
        described = static if isinstance(static, Described) and static.name else None
        # Of a library's definition only the text is wanted, the rest is known better here; its source, when asked for.
        about = described.fullname if described is not None and not detail else ""
        found = await self._worker(Inspect(next(self._numbers), code, cursor, detail, about)) if idle else None
        text = _clean(found.get("data")) if found is not None and found.get("found") is True else ""
        page = help_page(described, text, whole=not about)
        data = {"text/plain": page} if page else {}
        return {"status": "ok", "found": bool(page), "data": data, "metadata": {}}

    async def _worker(self, message: Complete | Inspect) -> dict[str, Any] | None:
        """Ask the worker; None when it is not there, or does not answer in time."""
        worker = self._supervisor.idle_worker
        if worker is None:
            return None
        future = worker.request(message)
        done, _ = await asyncio.wait({future}, timeout=_ASIDE_SECONDS)
        if not done or future.exception() is not None:
            return None
        return future.result().content


async def _nothing() -> None:
    return None


def merged(code: str, cursor: int, static: Completed | None, dynamic: dict[str, Any] | None) -> dict[str, Any]:
    """Both answers as one, the static one first; every match replaces the same characters."""
    found: dict[str, tuple[str, str]] = {}
    start = end = cursor
    theirs, their_start, their_end = _texts(dynamic, code)
    if static is not None and static.matches:
        start, end = static.start, static.end
        found = {match.text: (match.kind, match.signature) for match in static.matches}
        theirs = _moved(theirs, their_start, their_end, start, end, code)
    elif theirs:
        start, end = their_start, their_end
    for text in theirs:
        if _may_be_said(text):
            found.setdefault(text, ("", ""))
    matches = list(found)[:_MOST_MATCHES]
    types = [
        {"start": start, "end": end, "text": text, "type": found[text][0], "signature": found[text][1]}
        for text in matches
    ]
    return {
        "status": "ok", "matches": matches, "cursor_start": start, "cursor_end": end,
        "metadata": {_TYPES: types} if any(kind for kind, _ in found.values()) else {},
    }  # fmt: skip


def _texts(found: dict[str, Any] | None, code: str) -> tuple[list[str], int, int]:
    """The worker's completions, as far as they are texts and places of this code."""
    if found is None:
        return [], 0, 0
    matches, start, end = found.get("matches"), found.get("cursor_start"), found.get("cursor_end")
    if not isinstance(matches, list) or type(start) is not int or type(end) is not int:
        return [], 0, 0
    if not 0 <= start <= end <= len(code):
        return [], 0, 0
    paths = _paths(found.get("metadata"))
    return [
        stream("stdout", match[:_LONGEST_MATCH]).content["text"]
        for match in matches[:_MOST_MATCHES]
        if isinstance(match, str) and match not in paths
    ], start, end  # fmt: skip


def _paths(metadata: Any) -> set[str]:
    """Those that are files: the worker's own, which are nobody's."""
    kinds = metadata.get(_TYPES) if isinstance(metadata, dict) else None
    return {
        entry["text"]
        for entry in (kinds if isinstance(kinds, list) else ())
        if isinstance(entry, dict) and entry.get("type") == "path" and isinstance(entry.get("text"), str)
    }


def _moved(texts: list[str], start: int, end: int, to_start: int, to_end: int, code: str) -> list[str]:
    """Replacements of `start:end` as replacements of `to_start:to_end`; what cannot be said so is left out."""
    if end != to_end or start > to_start:
        return []
    before = code[start:to_start]
    return [text[len(before) :] for text in texts if text.startswith(before) and len(text) > len(before)]


def _may_be_said(text: str) -> bool:
    if BEFORE_NAME in text or "__" in text[:2] or ".__" in text:
        return False
    name = text.lstrip("%")
    return name == text or name in subset().magics or name in _TIMED


def help_page(described: Described | None, text: str, *, whole: bool) -> str:
    """What there is to say: the static part, then the worker's text, which is a page of its own (`whole`) or a
    docstring."""
    if described is None:
        return text if whole else ""
    head = []
    if not (whole and text):
        head += [f"Signature: {line}" for line in described.signatures]
        if described.static_type and not described.signatures:
            head.append(f"Type: {described.static_type}")
    if described.standing:
        head.append(f"Capability: {described.standing}")
    if described.label in _LABELS:
        head.append(f"Label: {_LABELS[described.label]}")
    said = text or described.documentation
    if said:
        head.append(said if whole and text else f"Docstring: {said}" if "\n" not in said else f"Docstring:\n{said}")
    return _clean({"text/plain": "\n".join(head)})


def _clean(data: Any) -> str:
    text = clean_bundle(data)["text/plain"]
    return text if isinstance(text, str) else ""
