"""A program's terminal, for tests: what it writes there, and what a person types."""

from __future__ import annotations

import io
import os
import select
import threading
import time
from collections.abc import Callable
from typing import TextIO

WAIT = 30.0  # seconds, for what has to appear


def read_until(master: int, words: str, seconds: float = 60.0) -> str:
    """Everything that came, as soon as `words` are in it."""
    seen, end = "", time.monotonic() + seconds
    while words not in seen:
        assert time.monotonic() < end, seen
        if select.select([master], [], [], 0.5)[0]:
            try:
                seen += os.read(master, 65536).decode()
            except OSError:
                return seen
    return seen


class Screen(io.StringIO):
    """What was written since it was last waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._read = 0

    def flush(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, words: str) -> str:
        with self._changed:
            assert self._changed.wait_for(lambda: words in self.getvalue()[self._read :], WAIT), self.getvalue()
            seen, self._read = self.getvalue()[self._read :], len(self.getvalue())
            return seen


class TypedTerminal:
    """A program of the viewer in a thread, with a person at its keyboard."""

    def __init__(self, program: Callable[[TextIO, Screen], Callable[[], object]]) -> None:
        """program: given what is typed and the screen, what runs until the keyboard is gone."""
        self.screen = Screen()
        read, self._write = os.pipe()
        self._source = os.fdopen(read)
        self._thread = threading.Thread(target=program(self._source, self.screen), daemon=True)
        self._thread.start()

    def type(self, line: str, until: str) -> str:
        os.write(self._write, f"{line}\n".encode())
        return self.screen.until(until)

    def close(self) -> None:
        os.close(self._write)
        self._thread.join(WAIT)
        assert not self._thread.is_alive()
        self._source.close()
