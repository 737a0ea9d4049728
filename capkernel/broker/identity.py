"""Other names of classified files: the targets of classified links, and hard links.

A file is classified by its name (`policy.paths`). The same content can have a second, innocent name: `.env` is a link
to `config/prod`, or `backup` is a hard link to `.env`. This index walks the policy's roots and remembers

- the real path of what every classified link points to: that path, and what is below it, is classified;
- the (device, inode) of every classified file with more than one name,
- and of everything classified in a directory that takes names for one another (case, composition, short names of old
  systems): `policy.patterns.fold` knows the common ways, the identity of what was opened knows the rest.

Rule 1: it can only add. Nothing is ever less classified because of it.
Rule 2: a file with several names counts as classified when the walk could not see everything (MAX_ENTRIES).
Rule 3: making a hard link changes the file's ctime, so a file that changed after the walk began is looked for again.

It is built when it is first needed, once per cell at most, and kept for MAX_AGE seconds: a new *symbolic* link to a
file, made outside of the session, is noticed that much later. A cell itself cannot make links.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from capkernel.policy.paths import PathRules

MAX_ENTRIES: Final = 300_000
MAX_AGE: Final = 10.0
_CLOCK_GRAIN_NS: Final = 20_000_000  # file times are taken from a coarser clock than ours, up to 10 ms behind


class ClassifiedIndex:
    """Thread-safe. `roots`: the canonical policy roots as they are now."""

    def __init__(self, rules: PathRules, roots: Callable[[], Sequence[str]], *, max_entries: int = MAX_ENTRIES) -> None:
        self._rules = rules
        self._roots = roots
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._targets: set[str] = set()
        self._inodes: set[tuple[int, int]] = set()
        self._aliased: set[tuple[int, int]] = set()
        self._complete = True
        self._began_ns = 0
        self._walked_at: float | None = None
        self._seen = 0

    def begin_cell(self) -> None:
        """A new cell starts: forget what is older than MAX_AGE."""
        with self._lock:
            if self._walked_at is not None and time.monotonic() - self._walked_at > MAX_AGE:
                self._walked_at = None

    def is_classified(self, path: str, status: os.stat_result | None) -> bool:
        """Whether the object at this canonical path is classified under another name. status: of the opened object."""
        with self._lock:
            if self._walked_at is None:
                self._walk()
            current = path if self._targets else ""
            while current not in ("/", ""):
                if current in self._targets:
                    return True
                current = os.path.dirname(current)
            if self._aliased and status is not None and self._is_alias(status):
                return True
            if status is None or not stat.S_ISREG(status.st_mode) or status.st_nlink < 2:
                return False
            identity = (status.st_dev, status.st_ino)
            if identity in self._inodes:
                return True
            if status.st_ctime_ns >= self._began_ns - _CLOCK_GRAIN_NS:
                self._walk()
            return identity in self._inodes or not self._complete

    def targets(self) -> frozenset[str]:
        """The canonical paths that classified links lead to. For listings of what was judged itself."""
        with self._lock:
            if self._walked_at is None:
                self._walk()
            return frozenset(self._targets)

    def is_alone(self, status: os.stat_result) -> bool:
        """Whether an opened file of this status, with a plain path, can have no other name that is classified."""
        return status.st_nlink == 1 and not self._aliased

    def _is_alias(self, status: os.stat_result) -> bool:
        identity = (status.st_dev, status.st_ino)
        if identity not in self._aliased and status.st_ctime_ns >= self._began_ns - _CLOCK_GRAIN_NS:
            self._walk()
        return identity in self._aliased

    def _walk(self) -> None:
        self._began_ns = time.time_ns()
        self._targets, self._inodes, self._aliased, self._complete, self._seen = set(), set(), set(), True, 0
        for root in self._roots():
            self._walk_root(root)
        self._walked_at = time.monotonic()

    def _walk_root(self, root: str) -> None:
        waiting = [(root, self._rules.is_classified(root))]
        while waiting:
            directory, inherited = waiting.pop()
            try:
                with os.scandir(directory) as listing:
                    entries = list(listing)
            except OSError:
                continue  # not readable for us: no grant can read it either
            if any(entry.name == "pyvenv.cfg" for entry in entries):
                continue  # excluded from every grant
            self._seen += len(entries)
            if self._seen > self._max_entries:
                self._complete = False
                return
            secret = {entry.name for entry in entries}
            if not inherited:
                secret = self._rules.classified_among(directory, [entry.name for entry in entries])
            folds = bool(secret) and folds_names(directory, [entry.name for entry in entries])
            for entry in entries:
                if entry.is_symlink():
                    if entry.name in secret:
                        self._add_target(entry.path)
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, entry.name in secret))
                if entry.name in secret:
                    self._add_file(entry, folds)

    def _add_target(self, link: str) -> None:
        target = os.path.realpath(link)
        if target == "/":
            return  # a link to everything says nothing about any one file
        self._targets.add(target)
        try:
            found = os.stat(target)
        except OSError:
            return
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            self._inodes.add((found.st_dev, found.st_ino))

    def _add_file(self, entry: os.DirEntry[str], folds: bool) -> None:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if folds:
            self._aliased.add((found.st_dev, found.st_ino))
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            self._inodes.add((found.st_dev, found.st_ino))


def folds_names(directory: str, names: Sequence[str]) -> bool:
    """Whether this directory takes another spelling for the name of one of its entries, as far as they can show it."""
    known = set(names)
    for name in names:
        other = name.swapcase()
        if other in known or other == name:
            continue
        try:
            meant, there = os.lstat(os.path.join(directory, other)), os.lstat(os.path.join(directory, name))
        except OSError:
            return False
        return (meant.st_dev, meant.st_ino) == (there.st_dev, there.st_ino)
    return False
