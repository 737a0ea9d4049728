"""What a program writes to its terminal, for tests."""

from __future__ import annotations

import os
import select
import time


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
