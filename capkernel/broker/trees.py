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
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
MAX_BATCH: Final = 16 * 1024 * 1024
"""Bytes of the files in one answer."""


class Entry(NamedTuple):
    """path: relative to the root. is_file: a regular file, or a link to one, that is not classified."""

    path: str
    is_file: bool


class _Found(NamedTuple):
    name: str
    kind: int
    is_link: bool
    classified: bool


@dataclass
class _Directory:
    fd: int
    canonical: str
    prefix: str
    entries: Iterator[_Found]


def children(places: Places, root: int, place: Place, path: str) -> list[str]:
    """The paths of the entries of the directory `place` (judged), which the cell calls `path`, sorted."""
    assert place.fd is not None
    fd = reopen(place.fd, os.O_RDONLY | os.O_DIRECTORY)
    try:
        prefix = "" if path == "." else path + "/"
        found = [prefix + entry.name for entry in _entries(places, root, fd, place.canonical, prefix)]
    finally:
        os.close(fd)
    if sum(map(len, found)) > MAX_CHARACTERS:
        raise _too_many(path)
    return found


def walk(places: Places, scope: FileScope, root: int, place: Place, path: str) -> list[Entry]:
    """Everything below the directory `place` (judged), which the cell calls `path`: sorted, a directory before what is
    in it."""
    found: list[Entry] = []
    characters = 0
    assert place.fd is not None
    top = reopen(place.fd, os.O_RDONLY | os.O_DIRECTORY)
    waiting: list[_Directory] = [_Directory(top, place.canonical, "" if path == "." else path + "/", iter(()))]
    try:
        waiting[0].entries = iter(_entries(places, root, top, place.canonical, waiting[0].prefix))
        while waiting:
            current = waiting[-1]
            prefix = current.prefix
            for name, kind, is_link, classified in current.entries:
                characters += len(prefix) + len(name)
                found.append(Entry(prefix + name, kind == stat.S_IFREG and not classified))
                if kind == stat.S_IFDIR and not is_link and not classified:
                    scope.require()
                    if len(waiting) >= MAX_DEPTH:
                        raise _too_many(path)
                    following = _open_directory(current.fd, name)
                    if following is not None:
                        canonical = f"{current.canonical.rstrip('/')}/{name}"
                        waiting.append(_Directory(following, canonical, f"{prefix}{name}/", iter(())))
                        entries = _entries(places, root, following, canonical, waiting[-1].prefix)
                        waiting[-1].entries = iter(entries)
                        break
            else:
                os.close(waiting.pop().fd)
            if len(found) > MAX_ENTRIES or characters > MAX_CHARACTERS:
                raise _too_many(path)
        return found
    finally:
        for held in waiting:
            os.close(held.fd)


def _entries(places: Places, root: int, fd: int, canonical: str, prefix: str) -> list[_Found]:
    """What a cell is told of the entries of an opened directory, sorted by name."""
    found: list[_Found] = []
    with os.scandir(fd) as listing:
        while batch := list(islice(listing, _AT_ONCE)):
            judged = places.listed(canonical, fd, batch)
            for entry in batch:
                name = entry.name
                if name in judged.left_out:
                    continue
                is_link = entry.is_symlink()
                kind = _of_link(places, root, prefix + name) if is_link else _kind(entry)
                if kind is not None:
                    found.append(_Found(name, kind, is_link, name in judged.classified))
            # Counted after what is left out: how many hidden names there are must not show.
            if len(found) > MAX_ENTRIES:
                raise _too_many(prefix.rstrip("/") or ".")
    found.sort()
    return found


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    return stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else stat.S_IFIFO


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
                        return _content(os.open(name, _READ | os.O_NOFOLLOW, dir_fd=base), places, device)
                except OSError:
                    return None
            return _content_of(places, root, path)

        yield given


def _nothing(_path: str) -> None:
    return None


def _content(fd: int, places: Places, device: int) -> bytes | None:
    """The content of an opened file, which is closed."""
    try:
        found = os.fstat(fd)
        # Looked at again: a file that was put under the name since is none that was judged.
        if not places.is_plain_file(found, device) or found.st_size > MAX_BATCH:
            return None
        return _whole(fd, found.st_size)
    finally:
        os.close(fd)


def _whole(fd: int, size: int) -> bytes | None:
    content = os.read(fd, size + 1)
    while len(content) != size and len(content) <= MAX_BATCH and (more := os.read(fd, _CHUNK)):
        content += more
    return content if len(content) <= MAX_BATCH else None


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
                return _whole(fd, place.status.st_size)
            finally:
                os.close(fd)
    except (OSError, Escape):
        return None
