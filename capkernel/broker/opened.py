"""A file that a cell holds open for reading.

Rule 1: it was judged when it was opened, and every piece comes from that descriptor; the path is not looked at again.
Rule 2: it ends with its scope, also in the middle of a read.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from capkernel.broker.failures import revoked
from capkernel.broker.places import FileScope

MAX_OPEN: Final = 64
"""Files that one scope holds open at once."""
PIECE: Final = 4 * 1024 * 1024
"""Bytes of one answer."""


class OpenFile:
    """Owns `fd`, a regular file open for reading. `path`: the cell's word for it."""

    def __init__(self, fd: int, scope: FileScope, path: str) -> None:
        self._fd: int | None = fd
        self._lock = threading.Lock()
        self.scope = scope
        self.path = path

    def piece(self) -> bytes:
        """The next bytes, none at the end."""
        self.scope.require()
        with self._lock:
            if self._fd is None:
                raise revoked("this open file")
            return os.read(self._fd, PIECE)

    def end(self) -> None:
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
