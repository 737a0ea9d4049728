"""Walks below a granted directory, and the contents of many files at once.

Rule 1: a walk goes through descriptors of directories and follows no link, so it cannot leave its root.
Rule 2: excluded entries are left out; classified directories are named and not entered; a link is listed when it leads
to something within the root.
Rule 3: bounded in entries, characters, depth and bytes, and over as soon as its scope is.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from capkernel.broker.confine import Escape, open_beneath, reopen
from capkernel.broker.failures import EffectError
from capkernel.broker.places import FileScope, Place, Places

MAX_ENTRIES: Final = 100_000
MAX_CHARACTERS: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 100
MAX_BATCH: Final = 16 * 1024 * 1024
"""Bytes of the files in one answer."""


@dataclass(frozen=True)
class Entry:
    """path: relative to the root. is_file: a regular file, or a link to one."""

    path: str
    is_file: bool


def walk(places: Places, scope: FileScope, root: int, place: Place, path: str) -> list[Entry]:
    """Everything below the directory `place` (judged), which the cell calls `path`: sorted, a directory before what is
    in it."""
    found: list[Entry] = []
    characters = 0
    assert place.fd is not None
    top = reopen(place.fd, os.O_RDONLY | os.O_DIRECTORY)
    waiting: list[_Directory] = []
    try:
        waiting.append(_Directory(top, place.canonical, "" if path == "." else path + "/", _entries(top)))
        while waiting:
            current = waiting[-1]
            entry = next(current.entries, None)
            if entry is None:
                os.close(waiting.pop().fd)
                continue
            scope.require()
            name = entry.name
            canonical = f"{current.canonical.rstrip('/')}/{name}"
            kind = _kind(entry, root, current.prefix + name)
            if kind is None or not is_text(name):
                continue
            judged = places.judge_entry(canonical, name)
            if judged.left_out:
                continue
            characters += len(current.prefix) + len(name)
            if len(found) >= MAX_ENTRIES or characters > MAX_CHARACTERS:
                raise _too_many(path)
            found.append(Entry(current.prefix + name, kind == stat.S_IFREG and not judged.classified))
            if entry.is_dir(follow_symlinks=False) and not judged.classified:
                if len(waiting) >= MAX_DEPTH:
                    raise _too_many(path)
                following = _open_directory(current.fd, name)
                if following is not None:
                    waiting.append(_Directory(following, canonical, f"{current.prefix}{name}/", iter(())))
                    waiting[-1].entries = _entries(following)
        return found
    finally:
        for held in waiting:
            os.close(held.fd)


@dataclass
class _Directory:
    fd: int
    canonical: str
    prefix: str
    entries: Iterator[os.DirEntry[str]]


def _entries(fd: int) -> Iterator[os.DirEntry[str]]:
    found = []
    with os.scandir(fd) as listing:
        for entry in listing:
            found.append(entry)
            if len(found) > MAX_ENTRIES:
                raise _too_many("")
    return iter(sorted(found, key=lambda entry: entry.name))


def _open_directory(parent: int, name: str) -> int | None:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return None  # gone, a link by now, or not readable: then nothing is in it


def _kind(entry: os.DirEntry[str], root: int, path: str) -> int | None:
    """The type of what is there, links followed within the root; None for a link that leads nowhere or out of it."""
    if not entry.is_symlink():
        if entry.is_file(follow_symlinks=False):
            return stat.S_IFREG
        return stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else stat.S_IFIFO
    try:
        fd = open_beneath(root, path, os.O_PATH)
    except (Escape, OSError):
        return None
    try:
        return stat.S_IFMT(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


def _too_many(path: str) -> EffectError:
    return EffectError("OSError", "a directory with too much in it to walk at once", errno.EFBIG, path)


def is_text(name: str) -> bool:
    """Whether a cell can be told the name: it is UTF-8."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
