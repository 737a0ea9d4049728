"""Completion and help: first by static type from the checker, then what the idle worker adds (columns, keys, texts).

Rule 1: no code of the person's runs for either. The checker knows types; the worker reads (`worker.looking`).
Rule 2: what a cell could not say is not offered: magics that are refused, dunder attributes, files of the worker.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from typing import Any

from capkernel.checker.looking.cursor import Target, Text, target_at, text_at
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
_ALSO_MAGIC = ("time", "timeit", "matplotlib", "config")
_TYPES = "_jupyter_types_experimental"
_MOST_TEXT = 64 * 1024  # characters of a text that is looked at, as in the checker
_LONG_TEXT = 8192  # characters that take too long for the event loop
_CONFIG = re.compile(r"[ \t]*%config ")
_BACKEND = re.compile(r"[ \t]*%matplotlib +(\w*)\Z")
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
        if len(code) > _MOST_TEXT:
            return _reply({}, cursor, cursor)
        checker = self._supervisor.idle_checker
        question = CompleteByType(next(self._questions), code, cursor, self._names())
        text, target = _place(code, cursor) if len(code) < _LONG_TEXT else await asyncio.to_thread(_place, code, cursor)
        wanted = Complete(next(self._numbers), code, cursor, () if text is None else text.names)
        static, dynamic = await asyncio.gather(
            _nothing() if checker is None or text is not None else checker.look(question),
            self._worker(wanted) if idle else _nothing(),
        )
        if text is not None:
            return in_text(text, code, cursor, dynamic)
        if _CONFIG.match(_line(code, cursor)):
            static = None
        return merged(code, cursor, target, static if isinstance(static, Completed) else None, dynamic)

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


def _place(code: str, cursor: int) -> tuple[Text | None, Target | None]:
    return text_at(code, cursor), target_at(code, cursor)


def merged(
    code: str, cursor: int, target: Target | None, static: Completed | None, dynamic: dict[str, Any] | None
) -> dict[str, Any]:
    """Both answers as one: keys, then the static one, then the rest; every match replaces the same characters.

    Of bare names the checker knows all: of the worker's only keys, magics and `name=` are taken then. Behind
    `%config` stands what IPython has to configure."""
    found: dict[str, tuple[str, str]] = {}
    start = end = cursor
    theirs, their_start, their_end = _texts(dynamic, code)
    keys = _keys(dynamic)
    backend = _BACKEND.match(_line(code, cursor))
    if backend is not None:
        word = backend[1]
        return _reply({"inline": ("", "")} if "inline".startswith(word) else {}, cursor - len(word), cursor)
    bare = not _CONFIG.match(_line(code, cursor)) and target is not None and not target.owner and target.module is None
    theirs = [text for text in theirs if not text.startswith("%") or _is_magic(code, cursor, target)]
    if bare and static is None:
        theirs = [text for text in theirs if text not in _refused()]
    elif bare:
        theirs = [text for text in theirs if text in keys or text.endswith("=") or text.startswith("%")]
    if static is not None and static.matches:
        start, end = static.start, static.end
        theirs = _moved(theirs, their_start, their_end, start, end, code)
        found = {text: ("", "") for text in theirs if text in keys or (bare and text.endswith("="))}
        found |= {match.text: (match.kind, match.signature) for match in static.matches}
    elif theirs:
        start, end = their_start, their_end
    for text in theirs:
        if text in keys or _may_be_said(text):
            found.setdefault(text, ("", ""))
    return _reply(found, start, end)


def in_text(text: Text, code: str, cursor: int, dynamic: dict[str, Any] | None) -> dict[str, Any]:
    """In a text nothing but keys and columns is offered: those of what it is looked up in, or given to."""
    theirs, start, end = _texts(dynamic, code)
    keys = _keys(dynamic)
    found = {one: ("", "") for one in theirs if one in keys}
    if not found:
        start, end = cursor - len(text.word), cursor
        offered = dynamic.get("keys") if dynamic is not None else None
        for key in (offered if isinstance(offered, list) else [])[:_MOST_MATCHES]:
            if isinstance(key, str) and key.startswith(text.word) and _stands_in_text(key):
                found[key] = ("", "")
    return _reply(found, start, end)


def _reply(found: dict[str, tuple[str, str]], start: int, end: int) -> dict[str, Any]:
    matches = list(found)[:_MOST_MATCHES]
    types = [
        {"start": start, "end": end, "text": text, "type": found[text][0], "signature": found[text][1]}
        for text in matches
    ]
    return {
        "status": "ok", "matches": matches, "cursor_start": start, "cursor_end": end,
        "metadata": {_TYPES: types} if any(kind for kind, _ in found.values()) else {},
    }  # fmt: skip


def _line(code: str, cursor: int) -> str:
    """The line of the cursor, before it."""
    return code[code.rfind("\n", 0, cursor) + 1 : cursor]


def _is_magic(code: str, cursor: int, target: Target | None) -> bool:
    """Whether a magic can stand here: behind its `%`."""
    return code[: cursor if target is None else target.begin].endswith("%")


def _refused() -> frozenset[str]:
    table = subset()
    return table.code | table.namespaces | table.interactive | table.files


def _stands_in_text(key: str) -> bool:
    """Whether it is the same between quotes."""
    return len(key) <= _LONGEST_MATCH and key.isprintable() and not set(key) & set("'\"\\{}")


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
    return _of_kind(metadata, "path")


def _keys(found: dict[str, Any] | None) -> set[str]:
    """Those that IPython found as keys or columns."""
    return _of_kind(found.get("metadata"), "dict key") if found is not None else set()


def _of_kind(metadata: Any, kind: str) -> set[str]:
    kinds = metadata.get(_TYPES) if isinstance(metadata, dict) else None
    return {
        entry["text"]
        for entry in (kinds if isinstance(kinds, list) else ())
        if isinstance(entry, dict) and entry.get("type") == kind and isinstance(entry.get("text"), str)
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
    return name == text or name in subset().magics or name in _ALSO_MAGIC


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
