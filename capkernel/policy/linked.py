"""Files of excluded directories that have a second name elsewhere: hard links.

A path says nothing about them, and the directory's own identity neither. This index walks the directories when a file
with several names is opened, and remembers the (device, inode) of every such file in them.

Rule 1: it can only add. A file with several names counts as excluded when the walk could not see everything.
Rule 2: making a hard link changes the file's ctime, so a file that changed after the walk began is looked for again.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Sequence
from typing import Final

MAX_ENTRIES: Final = 200_000
MAX_AGE: Final = 10.0
_CLOCK_GRAIN_NS: Final = 20_000_000  # file times are taken from a coarser clock than ours


class LinkedFiles:
    """Thread-safe. directories: canonical paths. but: one in them that is not excluded."""

    def __init__(self, directories: Sequence[str], *, max_entries: int = MAX_ENTRIES, but: str = "") -> None:
        self._directories = tuple(directories)
        self._but = but
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._inodes: set[tuple[int, int]] = set()
        self._complete = True
        self._began_ns = 0
        self._walked_at: float | None = None

    def has(self, status: os.stat_result) -> bool:
        """Whether the opened object is a file of one of the directories. status: of the object itself."""
        if stat.S_ISDIR(status.st_mode) or status.st_nlink < 2 or not self._directories:
            return False
        identity = (status.st_dev, status.st_ino)
        with self._lock:
            old = self._walked_at is None or time.monotonic() - self._walked_at > MAX_AGE
            if old or (identity not in self._inodes and status.st_ctime_ns >= self._began_ns - _CLOCK_GRAIN_NS):
                self._walk()
            return identity in self._inodes or not self._complete

    def _walk(self) -> None:
        self._began_ns, self._inodes, self._complete = time.time_ns(), set(), True
        seen = 0
        waiting = list(self._directories)
        while waiting:
            try:
                with os.scandir(waiting.pop()) as listing:
                    for entry in listing:
                        seen += 1
                        if entry.is_dir(follow_symlinks=False):
                            if entry.path != self._but:
                                waiting.append(entry.path)
                        else:
                            found = entry.stat(follow_symlinks=False)
                            if found.st_nlink > 1:
                                self._inodes.add((found.st_dev, found.st_ino))
            except OSError:
                continue  # gone meanwhile, or not readable for us: then nobody reads it through us
            if seen > self._max_entries:
                self._complete = False
                break
        self._walked_at = time.monotonic()
