"""How long a cell has waited for the person: that time is not the cell's.

What it waits for (an `input()`, a decision) has a name each; the clock stands still while there is at least one.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Waits:
    """Of one cell. On the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds."""
        self._clock = clock
        self._open: set[str] = set()
        self._since = 0.0
        self._before = 0.0

    def begin(self, what: str) -> None:
        if not self._open:
            self._since = self._clock()
        self._open.add(what)

    def end(self, what: str) -> None:
        """Twice is fine, and so is one that did not begin."""
        if what in self._open:
            self._open.discard(what)
            if not self._open:
                self._before += self._clock() - self._since

    def seconds(self) -> float:
        """So far."""
        return self._before + (self._clock() - self._since if self._open else 0.0)
