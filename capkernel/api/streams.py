"""What `FileEntry.open` gives: ordinary text and binary files whose bytes come from, and go to, the broker.

Reading is a stream over one file that the broker holds open. Writing is kept here and handed over whole when the block
ends well, so a file is replaced or added to at once or not at all.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

Fetch = Callable[[], bytes]


class Fetched(io.RawIOBase):
    """Bytes that are asked for piece by piece; an empty piece is the end. Cannot seek: pandas and json do not need it,
    and `BytesIO(f.read())` can."""

    def __init__(self, first: bytes, fetch: Fetch | None) -> None:
        self._piece = memoryview(first)
        self._fetch = fetch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._piece and self._fetch is not None:
            self._piece = memoryview(self._fetch())
            if not self._piece:
                self._fetch = None
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._piece))
        target[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count
