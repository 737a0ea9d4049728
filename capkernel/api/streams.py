"""What `FileEntry.open` gives: ordinary text and binary files whose bytes come from, and go to, the broker.

Reading is a view of one file that the broker holds open; it can seek, as zip archives, images and tables need it.
Writing is kept here and handed over whole when the block ends well, so a file is replaced or added to at once or not at
all.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

Fetch = Callable[[int], bytes]


class Fetched(io.RawIOBase):
    """Bytes that are asked for piece by piece.

    first: the file's first piece. size: its bytes when it was opened, which is where its end is for `seek`. fetch: the
    piece that starts at an offset, empty at the end; None when the first piece is all.
    """

    def __init__(self, first: bytes, size: int, fetch: Fetch | None) -> None:
        self._piece = memoryview(first)
        self._start = 0  # of the piece
        self._place = 0
        self._size = size
        self._fetch = fetch

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}.get(whence)
        if base is None:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if base + offset < 0:
            raise ValueError(f"negative seek value {base + offset}")
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any, /) -> int:
        if not self._start <= self._place < self._start + len(self._piece):
            if self._fetch is None:
                return 0
            self._start, self._piece = self._place, memoryview(self._fetch(self._place))
        target = memoryview(buffer).cast("B")
        found = self._piece[self._place - self._start :][: len(target)]
        target[: len(found)] = found
        self._place += len(found)
        return len(found)
