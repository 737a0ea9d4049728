"""Walks below a granted directory, and the contents of many files at once.

Rule 1: a walk goes through descriptors of directories and follows no link, so it cannot leave its root.
Rule 2: excluded entries are left out; classified directories are named and not entered; a link is listed when it leads
to something within the root.
Rule 3: bounded in entries, characters, depth and bytes, and over as soon as its scope is.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final, NamedTuple

from capkernel.broker.confine import Escape, open_beneath, reopen
from capkernel.broker.failures import EffectError
from capkernel.broker.places import FileScope, Place, Places

MAX_ENTRIES: Final = 100_000
MAX_CHARACTERS: Final = 4 * 1024 * 1024
MAX_DEPTH: Final = 100
_AT_ONCE: Final = 10_000
_CHUNK: Final = 1 << 20
TIDY: Final = re.compile(r"(?!\.\.?(?:/|\Z))[^/\0]+(?:/(?!\.\.?(?:/|\Z))[^/\0]+)*")
"""A relative path without empty parts, `.` and `..`."""
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
MAX_BATCH: Final = 16 * 1024 * 1024
"""Bytes of the files in one answer."""


class Walked(NamedTuple):
    """paths: relative to the root. others: those that are no regular file or link to one, or classified."""

    paths: list[str]
    others: set[str]


class _Other(NamedTuple):
    """An entry that is more than a plain regular file."""

    kind: int
    is_link: bool
    classified: bool


@dataclass
class _Directory:
    """names: sorted. enters: the positions of those that a walk enters, the next one last. done: names before it are
    listed. Lists of str and few objects: a walk has many entries, and the collector counts objects."""

    fd: int
    canonical: str
    prefix: str
    names: list[str]
    others: dict[str, _Other]
    enters: list[int]
    done: int = 0


def children(places: Places, root: int, place: Place, path: str) -> list[str]:
    """The paths of the entries of the directory `place` (judged), which the cell calls `path`, sorted."""
    assert place.fd is not None
    fd = reopen(place.fd, os.O_RDONLY | os.O_DIRECTORY)
    try:
        directory = _listed(places, root, fd, place.canonical, "" if path == "." else path + "/")
    finally:
        os.close(fd)
    found = [directory.prefix + name for name in directory.names]
    if sum(map(len, found)) > MAX_CHARACTERS:
        raise _too_many(path)
    return found


def walk(places: Places, scope: FileScope, root: int, place: Place, path: str) -> Walked:
    """Everything below the directory `place` (judged), which the cell calls `path`: sorted, a directory before what is
    in it."""
    found = Walked([], set())
    characters = 0
    assert place.fd is not None
    held = [reopen(place.fd, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        waiting = [_listed(places, root, held[0], place.canonical, "" if path == "." else path + "/")]
        while waiting:
            current = waiting[-1]
            prefix, start = current.prefix, current.done
            following = current.enters.pop() if current.enters else None
            current.done = len(current.names) if following is None else following + 1
            names = current.names[start : current.done]
            found.paths.extend([prefix + name for name in names])
            characters += len(prefix) * len(names) + sum(map(len, names))
            if not start:
                found.others.update(
                    prefix + name for name, other in current.others.items() if other.classified or not _is_file(other)
                )
            if len(found.paths) > MAX_ENTRIES or characters > MAX_CHARACTERS:
                raise _too_many(path)
            if following is None:
                waiting.pop()
                os.close(held.pop())
                continue
            scope.require()
            if len(waiting) >= MAX_DEPTH:
                raise _too_many(path)
            name = current.names[following]
            fd = _open_directory(current.fd, name)
            if fd is not None:
                held.append(fd)
                waiting.append(_listed(places, root, fd, f"{current.canonical.rstrip('/')}/{name}", f"{prefix}{name}/"))
        return found
    finally:
        for fd in held:
            os.close(fd)


def _is_file(other: _Other) -> bool:
    return other.kind == stat.S_IFREG


def _is_entered(other: _Other) -> bool:
    return other.kind == stat.S_IFDIR and not other.is_link and not other.classified


def _listed(places: Places, root: int, fd: int, canonical: str, prefix: str) -> _Directory:
    """What a cell is told of an opened directory."""
    names: list[str] = []
    others: dict[str, _Other] = {}
    with os.scandir(fd) as listing:
        while batch := list(islice(listing, _AT_ONCE)):
            left_out, classified = places.listed(canonical, fd, batch)
            for entry in batch:
                name = entry.name
                if (entry.is_file(follow_symlinks=False) and name not in classified) or name in left_out:
                    continue
                kind = _of_link(places, root, prefix + name) if entry.is_symlink() else _kind(entry)
                if kind is None:
                    left_out.add(name)
                else:
                    others[name] = _Other(kind, entry.is_symlink(), name in classified)
            names += [entry.name for entry in batch if entry.name not in left_out]
            # Counted after what is left out: how many hidden names there are must not show.
            if len(names) > MAX_ENTRIES:
                raise _too_many(prefix.rstrip("/") or ".")
    names.sort()
    entered = {name for name, other in others.items() if _is_entered(other)}
    enters = [at for at, name in enumerate(names) if name in entered] if entered else []
    return _Directory(fd, canonical, prefix, names, others, enters[::-1])


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else stat.S_IFIFO


def _of_link(places: Places, root: int, path: str) -> int | None:
    """The type of what a link leads to within the root; None for one that leads nowhere, out of it or, where names are
    hidden, over a classified name."""
    if places.unseen(root, path) is not None:
        return None
    try:
        fd = open_beneath(root, path, os.O_PATH)
    except (Escape, OSError):
        return None
    try:
        return stat.S_IFMT(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


def _open_directory(parent: int, name: str) -> int | None:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return None  # gone, a link by now, or not readable: then nothing is in it


def _too_many(path: str) -> EffectError:
    return EffectError("OSError", "a directory with too much in it to list at once", errno.EFBIG, path)


def read_many(
    places: Places, scope: FileScope, root: int, paths: Sequence[str], *, most: int = MAX_BATCH
) -> tuple[list[int], list[bytes]]:
    """The contents of files (`paths`: tidy, without `..`), and their sizes; -1 for one that is not given: classified,
    too large, not there, or no regular file. As many, from the first on, as go into `most` bytes."""
    sizes: list[int] = []
    parts: list[bytes] = []
    total = 0
    for folder, group in groupby(paths, lambda path: path.rpartition("/")[0]):
        scope.require()
        together = list(group)
        with _folder(places, root, folder or ".", together) as given:
            for path in together:
                content = given(path)
                if content is None:
                    sizes.append(-1)
                    continue
                if parts and total + len(content) > most:
                    return sizes, parts
                sizes.append(len(content))
                parts.append(content)
                total += len(content)
    return sizes, parts


@contextmanager
def _folder(places: Places, root: int, folder: str, paths: Sequence[str]) -> Iterator[Callable[[str], bytes | None]]:
    """Reads files of one directory, which is judged once. What is not certainly plain is judged by itself."""
    if places.unseen(root, folder) is not None:
        yield _nothing
        return
    with ExitStack() as held:
        try:
            place = held.enter_context(places.at(root, folder, to_change=False))
        except (Escape, OSError):
            yield _nothing
            return
        if place.fd is None or place.excluded is not None or place.classified:
            yield _nothing
            return
        prefix = "" if folder == "." else folder + "/"
        names = [path[len(prefix) :] for path in paths]
        doubtful = places.doubtful(place.canonical, names)
        device = os.fstat(place.fd).st_dev
        base = place.fd

        def given(path: str) -> bytes | None:
            name = path[len(prefix) :]
            if name not in doubtful:
                try:
                    seen = os.stat(name, dir_fd=base, follow_symlinks=False)
                    if places.is_plain_file(seen, device):
                        # Without following a link: still an entry of the judged directory.
                        return _content(os.open(name, _READ | os.O_NOFOLLOW, dir_fd=base), seen)
                except OSError:
                    return None
            return _content_of(places, root, path)

        yield given


def _nothing(_path: str) -> None:
    return None


def _content(fd: int, judged: os.stat_result) -> bytes | None:
    """The content of an opened file, which is closed; None when it is not the one that was judged."""
    try:
        found = os.fstat(fd)
        if (found.st_ino, found.st_dev, found.st_nlink) != (judged.st_ino, judged.st_dev, judged.st_nlink):
            return None
        return None if found.st_size > MAX_BATCH else whole(fd, found.st_size)
    finally:
        os.close(fd)


def whole(fd: int, size: int, most: int = MAX_BATCH) -> bytes | None:
    """What a regular file of about `size` bytes holds; None when that is more than `most`."""
    content = os.read(fd, size + 1)  # in one piece: no other way copies as little
    while len(content) != size and len(content) <= most and (more := os.read(fd, _CHUNK)):
        content += more
    return content if len(content) <= most else None


def _content_of(places: Places, root: int, path: str) -> bytes | None:
    if places.unseen(root, path) is not None:
        return None
    try:
        with places.at(root, path, to_change=False) as place:
            if place.fd is None or place.status is None or place.excluded is not None or place.classified:
                return None
            if not stat.S_ISREG(place.status.st_mode) or place.status.st_size > MAX_BATCH:
                return None
            fd = reopen(place.fd, os.O_RDONLY)
            try:
                return whole(fd, place.status.st_size)
            finally:
                os.close(fd)
    except (OSError, Escape):
        return None
