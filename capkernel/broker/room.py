"""How much a root in memory may hold: a cell must not fill the machine's memory with files.

Rule 1: what is charged is never less than what is there. A secret is charged at its bound, whatever it is: otherwise
the room that is left would tell how long it is.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from typing import Final

from capkernel.policy.paths import PathRules

ENTRY_BYTES: Final = 4096
"""What a name costs, beside the content: the operating system's own record of it."""
SECRET_BYTES: Final = 8 * 1024 * 1024
"""Most that one classified write puts into a file in memory."""
MAX_BYTES: Final = 512 * 1024 * 1024


class Room:
    """The room of one root. Thread-safe. root: its path. limit: bytes."""

    def __init__(self, root: str, limit: int) -> None:
        self.root = root
        self._limit = limit
        self._charged = 0
        self._lock = threading.Lock()

    def take(self, rules: PathRules, size: int, entries: int) -> None:
        """Charge content of `size` bytes and new names. Raises OSError (ENOSPC) when there is no room for them."""
        cost = size + entries * ENTRY_BYTES
        with self._lock:
            if self._charged + cost > self._limit:
                self._charged = self._measured(rules)  # what was replaced or deleted meanwhile is free again
            if self._charged + cost > self._limit:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._charged += cost

    def _measured(self, rules: PathRules) -> int:
        total = 0
        waiting = [self.root]
        while waiting:
            with os.scandir(waiting.pop()) as listing:
                for entry in listing:
                    found = entry.stat(follow_symlinks=False)
                    total += ENTRY_BYTES
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
                    else:
                        total += SECRET_BYTES if rules.is_classified(entry.path) else found.st_size
        return total
