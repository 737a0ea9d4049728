"""`capkernel view --tty`: list, choose, reveal, in the terminal's alternate screen, which has no scroll-back.

Rule 1: input and output are a terminal: a value never goes into a pipe, a log or a file from here.
Rule 2: a value is taken off the screen after a key, after HIDE_SECONDS, and whatever ends the program.
Rule 3: everything that is written went through `plain.visible`, but for this module's own escape sequences.
"""

from __future__ import annotations

import contextlib
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
from capkernel.wire.shown_text import lines, visible, what
from capkernel.wire.view import ValueLine

HIDE_SECONDS = 30.0
_ENTER, _LEAVE = "\x1b[?1049h", "\x1b[?1049l"
CLEAR = "\x1b[2J\x1b[3J\x1b[H"
_FRAME_LINES = 4


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

    def serve(self) -> None:
        while True:
            with self._open() as link:  # a link for each question: the person may take their time between two
                values = link.values().values
            self._list(values)
            said = self._source.readline()
            word = said.strip().lower()
            if not said or word == "q":
                return
            if word == "a":
                with self._open() as link:
                    entries = link.audit()
                self._page(["audit, newest last", *map(visible, entries)])
            elif word.isdigit() and 1 <= int(word) <= len(values):
                self._reveal(values[int(word) - 1])

    def _open(self) -> Link:
        return Link.open(self._session.runtime, "terminal")

    def _list(self, values: tuple[ValueLine, ...]) -> None:
        size = shutil.get_terminal_size()
        room = max(1, size.lines - 6)
        self._out.write(
            CLEAR + visible(f"capkernel · {self._session.directory} · session {self._session.name[:8]}") + "\n\n"
        )
        for number, value in enumerate(values[:room], 1):
            self._out.write(f"{number:4d}  {title(value)[: size.columns - 7]}\n")
        if not values:
            self._out.write("      no classified values yet\n")
        elif len(values) > room:
            self._out.write(f"      … {len(values) - room} older ones (by number)\n")
        self._out.write("\nnumber: reveal · Enter: refresh · a: audit · q: leave > ")
        self._out.flush()

    def _reveal(self, value: ValueLine) -> None:
        try:
            with self._open() as link:
                shown = opened(link, value.handle)
        except (LinkRefused, ValueError) as problem:
            self._page([visible(str(problem))])
            return
        self._page([title(value), what(shown), "", *lines(shown)])

    def _page(self, text: list[str]) -> None:
        """A screenful at a time; gone after Enter or the time."""
        size = shutil.get_terminal_size()
        height = max(1, size.lines - _FRAME_LINES)
        parts = [part for line in text for part in wrapped(line, max(20, size.columns - 1))]
        for start in range(0, len(parts), height):
            more = "Enter: next page" if start + height < len(parts) else "Enter: hide"
            self._out.write(
                CLEAR + "\n".join(parts[start : start + height]) + f"\n\n[{more} · hides in {HIDE_SECONDS:g} s] "
            )
            self._out.flush()
            if not self._waited(HIDE_SECONDS):
                break
        self._out.write(CLEAR)
        self._out.flush()

    def _waited(self, seconds: float) -> bool:
        """Whether a key came in time."""
        end = time.monotonic() + seconds
        ready, _, _ = select.select([self._source], [], [], max(0.0, end - time.monotonic()))
        return bool(ready and self._source.readline())


def opened(link: Link, handle: str) -> Shown:
    """Reveal to a key made for this one time. Raises LinkRefused, ValueError."""
    key = X25519PrivateKey.generate()
    sealed = link.reveal(handle, key.public_key().public_bytes_raw())
    return from_json(unseal(sealed, key, handle))


def title(value: ValueLine) -> str:
    """One line about a value: mask, where from, the cell's claim in quotes."""
    label = f' · the cell calls it "{visible(value.label)}"' if value.label else ""
    code = f" · {visible(' '.join(value.code.split()))}" if value.code else ""
    origins = ", ".join(map(visible, value.origins)) or "no origin"
    kind = f"[{visible(value.type)}]" if value.type else ""
    return f"Classified{kind}(***) · cell {value.cell} · {value.how} · {origins}{label}{code}"


def wrapped(line: str, width: int) -> list[str]:
    """The line in parts of at most this width."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]
