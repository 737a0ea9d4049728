"""`capkernel view --tty`: list, choose, reveal, in the terminal's alternate screen, which has no scroll-back.

Rule 1: input and output are a terminal: a value never goes into a pipe, a log or a file from here.
Rule 2: a value is taken off the screen after a key, after HIDE_SECONDS, and whatever ends the program.
Rule 3: everything that is written went through `shown_text.visible`, but for this module's own escape sequences.
"""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capkernel.sandbox import SandboxError, libc
from capkernel.vault.seal import unseal
from capkernel.viewer.link import Link, LinkRefused
from capkernel.viewer.sessions import Session
from capkernel.wire.shown import Shown, from_json
from capkernel.wire.shown_text import visible, ways, what
from capkernel.wire.view import Lineage, ValueLine

HIDE_SECONDS = 30.0
_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"
CLEAR = "\x1b[2J\x1b[3J\x1b[H"
_FRAME_LINES = 4
_LOG_LINES = 100
_MOST_WORDS = 200


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def run(session: Session) -> None:
    """Until the person leaves. Raises LinkRefused when the session ends."""
    protect()
    with alternate_screen(sys.stdout):
        _Terminal(session, sys.stdin, sys.stdout).serve()


def protect() -> None:
    """No core file of a process that holds a value."""
    with contextlib.suppress(SandboxError, OSError):
        libc.required_prctl("forbidding dumps", libc.PR_SET_DUMPABLE, 0)


@contextlib.contextmanager
def alternate_screen(out: TextIO) -> Iterator[None]:
    """What is written in it is taken off, whatever ends the program."""
    before = {kind: signal.signal(kind, _leave) for kind in (signal.SIGTERM, signal.SIGHUP)}
    out.write(_ENTER)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
        out.write(CLEAR + _LEAVE)
        out.flush()


def _leave(*_: object) -> None:
    raise SystemExit(1)  # so that what is on the screen is taken off


class _Terminal:
    def __init__(self, session: Session, source: TextIO, out: TextIO) -> None:
        self._session = session
        self._source = source
        self._out = out
        self._words = ""  # what the list is searched for

    def serve(self) -> None:
        while True:
            with self._open() as link:  # a link for each question: the person may take their time between two
                values = link.values(words=self._words).values
                waiting = len(link.questions().questions)
            self._list(values, waiting)
            said = self._source.readline()
            word, _, rest = said.strip().partition(" ")
            if not said or word.lower() == "q":
                return
            if word.startswith("/"):
                self._words = said.strip()[1:].strip()[:_MOST_WORDS]
            elif word.lower() in ("a", "h"):
                self._log(word.lower(), rest.strip()[:_MOST_WORDS])
            elif word.lower() == "l" and _is_number(rest, len(values)):
                self._lineage(values[int(rest) - 1])
            elif _is_number(word, len(values)):
                self._reveal(values[int(word) - 1])

    def _open(self) -> Link:
        return Link.open(self._session.runtime, "terminal")

    def _list(self, values: tuple[ValueLine, ...], waiting: int) -> None:
        size = shutil.get_terminal_size()
        room = max(1, size.lines - 8)
        self._out.write(
            CLEAR + visible(f"capkernel · {self._session.directory} · session {self._session.name[:8]}") + "\n"
        )
        if waiting:
            self._out.write(f"{waiting} waiting for your decision: capkernel approve\n")
        if self._words:
            self._out.write(visible(f"search: {self._words}") + "\n")
        self._out.write("\n")
        for number, value in enumerate(values[:room], 1):
            self._out.write(f"{number:4d}  {title(value)[: size.columns - 7]}\n")
        if not values:
            self._out.write(f"      {'none has all of these words' if self._words else 'no classified values yet'}\n")
        elif len(values) > room:
            self._out.write(f"      … {len(values) - room} older ones (by number)\n")
        self._out.write(
            "\nnumber: reveal · l number: lineage · /words: search · Enter: refresh · h: history · a words: audit · "
            "q: leave > "
        )
        self._out.flush()

    def _log(self, which: str, words: str) -> None:
        with self._open() as link:
            entries = link.audit(_LOG_LINES, who="person" if which == "h" else "", words=words)
        what = "what you did" if which == "h" else "audit"
        self._page([f"{what}, newest last", *(_entry(line) for line in entries)])

    def _lineage(self, value: ValueLine) -> None:
        try:
            with self._open() as link:
                found = link.lineage(value.handle)
        except LinkRefused as problem:
            self._page([visible(str(problem))])
            return
        self._page(list(_lineage_lines(found)))

    def _reveal(self, value: ValueLine) -> None:
        try:
            with self._open() as link:
                shown = opened(link, value.handle)
        except (LinkRefused, ValueError) as problem:
            self._page([visible(str(problem))])
            return
        choices = ways(shown)
        at = 0
        while True:
            name, body = choices[at % len(choices)]
            more = f" · v: {choices[(at + 1) % len(choices)][0]}" if len(choices) > 1 else ""
            if self._page([title(value), what(shown) + (f", as {name}" if name else ""), "", *body], more) != "v":
                return
            at += 1

    def _page(self, text: list[str], more: str = "") -> str:
        """A screenful at a time; gone after Enter or the time. What was typed last."""
        size = shutil.get_terminal_size()
        height = max(1, size.lines - _FRAME_LINES)
        parts = [part for line in text for part in wrapped(line, max(20, size.columns - 1))]
        said: str | None = ""
        for start in range(0, len(parts), height):
            keys = ("Enter: next page" if start + height < len(parts) else "Enter: hide") + more
            self._out.write(
                CLEAR + "\n".join(parts[start : start + height]) + f"\n\n[{keys} · hides in {HIDE_SECONDS:g} s] "
            )
            self._out.flush()
            said = self._typed(HIDE_SECONDS)
            if said is None or said:
                break
        self._out.write(CLEAR)
        self._out.flush()
        return said or ""

    def _typed(self, seconds: float) -> str | None:
        """The line that came in time; None when none did, or the terminal is gone."""
        ready, _, _ = select.select([self._source], [], [], seconds)
        line = self._source.readline() if ready else ""
        return line.strip().lower() if line else None


def _is_number(text: str, most: int) -> bool:
    text = text.strip()
    return text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= most


def _entry(line: str) -> str:
    """A line of the audit in words."""
    said = json.loads(line)
    at = time.strftime("%H:%M:%S", time.localtime(said["time"]))
    cell = "" if said.get("cell") is None else f"cell {said['cell']}"
    words = [at, said["who"], cell, said["what"], said["decision"], said.get("path", ""), said.get("reason", "")]
    return visible("  ".join(str(word) for word in words if word))


def _lineage_lines(found: Lineage) -> Iterator[str]:
    """What a value was made from, and what was made from it."""
    for number, step in enumerate(found.steps):
        yield ("" if number else "this: ") + title(step.value)
        for used in step.functions:
            if used.cell is None:
                yield f"    by {visible(used.name)}"
                continue
            yield f"    by {visible(used.name)} of cell {used.cell}, as it was checked"
            yield from (f"      | {visible(line)}" for line in used.source.split("\n"))
        if number + 1 < len(found.steps):
            yield "  made from" if number == 0 else "  and from"
    for child in found.children:
        yield f"  made from it: {title(child)}"
    if found.cut:
        yield "  and more"


def opened(link: Link, handle: str) -> Shown:
    """Reveal to a key made for this one time. Raises LinkRefused, ValueError."""
    key = X25519PrivateKey.generate()
    sealed = link.reveal(handle, key.public_key().public_bytes_raw())
    return from_json(unseal(sealed, key, handle))


def title(value: ValueLine) -> str:
    """One line about a value: mask, where from, the cell's claim in quotes."""
    claims = [visible(value.name), f'"{visible(value.label)}"' if value.label else ""]
    label = " · the cell calls it " + " and ".join(filter(None, claims)) if any(claims) else ""
    code = f" · {visible(' '.join(value.code.split()))}" if value.code else ""
    origins = ", ".join(map(visible, value.origins)) or "no origin"
    kind = f"[{visible(value.type)}]" if value.type else ""
    return f"Classified{kind}(***) · cell {value.cell} · {value.how} · {origins}{label}{code}"


def wrapped(line: str, width: int) -> list[str]:
    """The line in parts of at most this width."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]
