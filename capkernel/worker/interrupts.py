"""When an interrupt (SIGINT) may become a KeyboardInterrupt in the worker.

Rule 1: never in the middle of a frame. A half-sent frame would end the link, and with it the session's variables.
Rule 2: never between cells. An interrupt that arrives too late is dropped, it does not hit the next cell.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from capkernel.wire.codekey import cell_of


class Interrupts:
    """The worker's only SIGINT handler. Made and installed in the main thread."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._armed = False
        self._shields = 0
        self._late = False
        self._expected = False
        self._coming: Callable[[], bool] = lambda: False

    def install(self) -> socket.socket:
        """Take over SIGINT. The socket returned becomes readable at every signal: a loop that sleeps must watch it."""
        readable, writable = socket.socketpair()
        readable.setblocking(False)
        writable.setblocking(False)
        self._writable = writable  # kept open: the interpreter writes to its descriptor
        signal.set_wakeup_fd(writable.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self.handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return readable

    def watch(self, coming: Callable[[], bool]) -> None:
        """Ask this at an interrupt between cells: whether a cell may be on its way, for which it is then meant."""
        self._coming = coming

    def expect(self) -> None:
        """A cell has arrived and will run next: an interrupt from now on is meant for it."""
        self._expected = True

    def forget(self) -> None:
        """What was on its way was no cell."""
        if not self._expected:
            self._late = False

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self._armed:
            self._late = self._expected or self._coming()
            return
        if self._shields:
            self._late = True
            return
        raise KeyboardInterrupt

    @contextmanager
    def armed(self) -> Iterator[None]:
        """While a cell runs."""
        self._armed = True
        try:
            if self._late:
                raise KeyboardInterrupt
            yield
        finally:
            self._armed = self._expected = self._late = False

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Hold interrupts back, and raise the one that came meanwhile at the end. Only matters in the main thread."""
        if threading.get_ident() != self._main:
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._late and not self._shields and self._armed:
            self._late = False
            raise KeyboardInterrupt

    @contextmanager
    def lowered(self) -> Iterator[None]:
        """Within one `shield`, for a wait that may end at any point: let interrupts in. Under two it stays shielded."""
        if threading.get_ident() != self._main or self._shields != 1:
            yield
            return
        self._shields = 0
        try:
            if self._late and self._armed:
                self._late = False
                raise KeyboardInterrupt
            yield
        finally:
            self._shields = 1

    @property
    def shielded(self) -> bool:
        return self._shields > 0


def in_cell(frame: FrameType | None) -> bool:
    """Whether a cell's code is on the stack of `frame`: then raising hits it; otherwise it is waiting in the loop."""
    while frame is not None:
        if cell_of(frame.f_code.co_filename) is not None:
            return True
        frame = frame.f_back
    return False


def block_in_this_thread() -> None:
    """Leave SIGINT to the main thread, whose waits it is to end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
