"""A file that a cell holds open for reading.

Rule 1: it was judged when it was opened, and every piece comes from that descriptor; the path is not looked at again.
Rule 2: it ends with its scope, also in the middle of a read.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from capkernel.broker.failures import EffectError, revoked
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
        self.size = os.fstat(fd).st_size

    def piece(self, offset: int = 0) -> bytes:
        """At most PIECE bytes from there on, none at the end and behind it."""
        self.scope.require()
        if not 0 <= offset < 1 << 62:
            raise EffectError("ValueError", "a place in a file is a number of bytes from its start")
        with self._lock:
            if self._fd is None:
                raise revoked("this open file")
            return os.pread(self._fd, PIECE, offset)

    def end(self) -> None:
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
