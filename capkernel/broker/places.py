"""Where a cell's path leads, and what the policy says about that place.

Rule 1: a place is judged by three things, each of which can only make it stricter: the canonical path of what was
opened, the path as the cell wrote it, and the identity of the opened object.
Rule 2: nobody reads or writes but through the descriptors of a judged Place.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from capkernel.broker.confine import Escape, canonical_path, lexical, open_beneath
from capkernel.broker.failures import revoked
from capkernel.broker.identity import ClassifiedIndex
from capkernel.policy.defaults import TEMPORARY_PREFIX
from capkernel.policy.excluded import Exclusions
from capkernel.policy.paths import PathRules, below

_ATTEMPTS = 20  # to find a file that is replaced meanwhile
_MAX_LINKS = 40  # on one path, as in the operating system


class FileScope:
    """One granted root: a place descriptor that ends with its scope. `argument` is the cell's word for it.

    prefix: the path from the root the cell asked for to this one ("." but for a subtree), which a plan speaks of.
    writable: False for a view that only looks and reads.
    """

    def __init__(self, fd: int, argument: str, prefix: str = ".", *, writable: bool = True) -> None:
        self._fd: int | None = fd
        self._lock = threading.Lock()
        self.argument = argument
        self.prefix = prefix
        self.writable = writable
        self.minted: dict[str, str] = {}  # path → handle, so that asking again is not another grant
        self.open_files = 0

    @contextmanager
    def borrow(self) -> Iterator[int]:
        """A descriptor of the root for one effect. A copy, so that the end of the scope cannot swap it for another."""
        with self._lock:
            if self._fd is None:
                raise revoked()
            fd = os.dup(self._fd)
        try:
            yield fd
        finally:
            os.close(fd)

    def require(self) -> None:
        """Raise CapabilityRevoked when the scope has ended. Asked once more right before something is changed."""
        with self._lock:
            if self._fd is None:
                raise revoked()

    def end(self) -> None:
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None


@dataclass(frozen=True)
class FileHandle:
    """What a FileEntry handle designates: a path (checked, relative) in a scope."""

    scope: FileScope
    path: str

    @property
    def planned(self) -> str:
        """The path below the root that the cell asked for."""
        if self.scope.prefix == ".":
            return self.path
        return self.scope.prefix if self.path == "." else f"{self.scope.prefix}/{self.path}"


class Place(NamedTuple):
    """fd, status: of what is there, or None. base: descriptor of the deepest directory that exists on the way.

    canonical: absolute path, of what is there or would be. rest: the parts below `base`; one for something that is
    there, none for the root itself. excluded, protected: why, or None.
    """

    fd: int | None
    status: os.stat_result | None
    base: int
    canonical: str
    rest: tuple[str, ...]
    shown: str
    excluded: str | None
    classified: bool
    protected: str | None
    unseen: bool = False  # a classified name that nobody looked for, so nothing here tells whether it is there


class Listed(NamedTuple):
    """Of the entries of one directory: names that no cell is told of, and names that are classified."""

    left_out: set[str]
    classified: set[str]


class _Moved(FileNotFoundError):
    """What was opened is not what has the name now."""


class Places:
    """Finds and judges places."""

    def __init__(
        self, rules: PathRules, exclusions: Exclusions, index: ClassifiedIndex, *, hide_names: bool = False
    ) -> None:
        self._rules = rules
        self._exclusions = exclusions
        self._index = index
        self.hide_names = hide_names
        self._sound_tops: set[str] = set()

    def begin_cell(self) -> None:
        """A new cell starts: what is above the roots is looked at once per cell."""
        self._sound_tops = set()

    @contextmanager
    def at(self, root: int, path: str, *, to_change: bool = True) -> Iterator[Place]:
        """The place at `path` (checked) below `root`. Raises Escape when it is not below, or OSError.

        to_change: False when only what is there is looked at or read; then `base` and `rest` mean nothing.
        """
        flat = lexical(path)
        if flat is None:
            raise Escape(errno.EXDEV, "the path leaves its root")
        top = canonical_path(root)
        held: list[int] = []
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    fd, status, base, canonical, rest = self._find(root, top, path, held, to_change)
                    break
                except _Moved:
                    # Our own classified write may just have taken its place. The cell must not see that: it would tell
                    # when, and whether, the value became known.
                    if attempt == _ATTEMPTS - 1:
                        raise
            if below(canonical, top) is None:
                raise Escape(errno.EXDEV, "the path leaves its root")
            above = self._above(root, top)
            yield self._judge(fd, status, base, canonical, rest, _join(top, flat), top, above)
        finally:
            for number in held:
                os.close(number)

    def unseen(self, root: int, path: str, *, follow: bool = True) -> Place | None:
        """With hidden names: the place of a path that meets a classified name on its way, links followed by hand (the
        last one unless `follow` is False). Nothing behind that name is looked at, so the answer depends on plain names
        and on the policy alone. None for every other path, and without hidden names."""
        if not self.hide_names:
            return None
        top = canonical_path(root)
        if not self.meets_classified(top, path, follow=follow):
            return None
        asked = _join(top, lexical(path) or "")
        shown = self._rules.relative_to_root(asked)
        return Place(None, None, -1, asked, (), shown, None, True, self._rules.protected_by(asked), unseen=True)

    def meets_classified(self, start: str, path: str, *, follow: bool = True) -> bool:
        """Whether the way from the directory `start` along `path` leads over a classified name within the roots."""
        waiting = path.split("/")[::-1]
        current, links = start, 0
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                current = os.path.dirname(current)
                continue
            parent, current = current, _join(current, part)
            if self._rules.in_roots(current) and self._rules.is_classified(current):
                return True
            if not waiting and not follow:
                return False
            try:
                target = os.readlink(current)
            except OSError:
                continue  # no link, or nothing there: the rest of the path decides
            links += 1
            if links > _MAX_LINKS:
                return False  # a loop; the open will say so
            current = "/" if target.startswith("/") else parent
            waiting += target.split("/")[::-1]
        return False

    def _find(
        self, root: int, top: str, path: str, held: list[int], to_change: bool
    ) -> tuple[int | None, os.stat_result | None, int, str, tuple[str, ...]]:
        fd = _open_place(root, path, held)
        if fd is None:
            base, canonical, rest = self._missing(root, path, held)
            return None, None, base, canonical, rest
        status = os.fstat(fd)
        try:
            canonical = canonical_path(fd)
        except FileNotFoundError:
            raise _Moved(errno.ENOENT, os.strerror(errno.ENOENT)) from None
        if not to_change:
            return fd, status, -1, canonical, ()
        base, rest = self._parent(root, top, canonical, status, held)
        return fd, status, base, canonical, rest

    def judge_directory(self, fd: int) -> tuple[str, str | None]:
        """Canonical path of an opened directory, and why it is excluded from every grant, or None."""
        status = os.fstat(fd)
        path = canonical_path(fd)
        return path, self._exclusions.find(path, (status.st_dev, status.st_ino))

    @contextmanager
    def named(self, root: int, path: str) -> Iterator[Place]:
        """The entry of this name itself: of a link the link. For taking it away. `rest` is the name in `base`."""
        flat = lexical(path)
        if flat is None:
            raise Escape(errno.EXDEV, "the path leaves its root")
        top = canonical_path(root)
        parent, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        held: list[int] = []
        try:
            base = open_beneath(root, parent or ".", os.O_PATH | os.O_DIRECTORY)
            held.append(base)
            folder = canonical_path(base)
            if below(folder, top) is None:
                raise Escape(errno.EXDEV, "the path leaves its root")
            # One name in an opened directory, and no link followed: this cannot lead elsewhere.
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=base)
            held.append(fd)
            above = self._above(root, top)
            yield self._judge(fd, os.fstat(fd), base, _join(folder, name), (name,), _join(top, flat), top, above)
        finally:
            for number in held:
                os.close(number)

    def listed(self, directory: str, fd: int, entries: Sequence[os.DirEntry[str]]) -> Listed:
        """What a listing says of the entries of an opened directory that is neither excluded nor classified itself.

        Left out are excluded ones, names that are not UTF-8, temporary files (one that appears would tell when the
        value of a classified write became known), and classified ones where names are hidden.
        """
        left_out = self._exclusions.among(directory, fd, entries)
        names = [entry.name for entry in entries]
        classified = self._classified_among(directory, names)
        if classified:
            left_out.update(name for name in classified if name.startswith(TEMPORARY_PREFIX))
        if not is_text("\0".join(names)):
            left_out.update(name for name in names if not is_text(name))
        if self.hide_names:
            left_out |= classified
        return Listed(left_out, classified)

    def doubtful(self, directory: str, names: Sequence[str]) -> set[str]:
        """Those names in a plain directory that are not certainly plain."""
        return self._classified_among(directory, names) | self._exclusions.named_among(directory, names)

    def is_plain_file(self, status: os.stat_result, device: int) -> bool:
        """Whether an object under a plain name of a plain directory is certainly a plain regular file. One with several
        names, or from another device than its directory, needs the longer look of `at`."""
        return (
            stat.S_ISREG(status.st_mode)
            and status.st_dev == device
            and self._index.is_alone(status)
            and not self._exclusions.is_place(status)
        )

    def _classified_among(self, directory: str, names: Sequence[str]) -> set[str]:
        classified = self._rules.classified_among(directory, names)
        targets = self._index.targets()
        if targets:
            prefix = directory.rstrip("/") + "/"
            classified.update(name for name in names if prefix + name in targets)
        return classified

    def _judge(
        self,
        fd: int | None,
        status: os.stat_result | None,
        base: int,
        canonical: str,
        rest: tuple[str, ...],
        asked: str,
        top: str,
        above: str | None,
    ) -> Place:
        excluded = above or self._exclusions.find_below(canonical, top, status)
        if excluded is None and status is not None:
            excluded = self._exclusions.find_linked(status)
        classified = (
            self._rules.is_classified(canonical)
            or (asked != canonical and self._rules.is_classified(asked))
            or self._index.is_classified(canonical, status)
            or (status is None and self._index.is_classified(canonical, os.fstat(base)))
        )
        protected = self._rules.protected_by(canonical)
        if protected is None and asked != canonical:
            protected = self._rules.protected_by(asked)
        if protected is None and self._exclusions.imported_from(canonical):
            protected = "a file that Python imports"
        shown = self._rules.relative_to_root(canonical)
        return Place(fd, status, base, canonical, rest, shown, excluded, classified, protected)

    def _above(self, root: int, top: str) -> str | None:
        """Why the root itself, opened, is excluded by what it is or what it lies in."""
        if top in self._sound_tops:
            return None
        _path, why = self.judge_directory(root)
        if why is None:
            self._sound_tops.add(top)
        return why

    def _parent(
        self, root: int, top: str, canonical: str, status: os.stat_result, held: list[int]
    ) -> tuple[int, tuple[str, ...]]:
        inside = below(canonical, top)
        if inside is None:
            raise Escape(errno.EXDEV, "the path leaves its root")
        if inside == "":
            return root, ()
        parent, _, name = inside.rpartition("/")
        base = open_beneath(root, parent or ".", os.O_PATH | os.O_DIRECTORY)
        held.append(base)
        try:
            named = os.stat(name, dir_fd=base, follow_symlinks=False)
        except FileNotFoundError:
            raise _Moved(errno.ENOENT, os.strerror(errno.ENOENT)) from None
        if (named.st_dev, named.st_ino) != (status.st_dev, status.st_ino):
            raise _Moved(errno.ENOENT, os.strerror(errno.ENOENT))
        return base, (name,)

    def _missing(self, root: int, path: str, held: list[int]) -> tuple[int, str, tuple[str, ...]]:
        parts = path.split("/")
        for cut in range(len(parts) - 1, -1, -1):
            rest = tuple(parts[cut:])
            if ".." in rest:
                # Below something that does not exist: where it leads cannot be known.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            base = _open_place(root, "/".join(parts[:cut]) or ".", held)
            if base is None:
                continue
            if not stat.S_ISDIR(os.fstat(base).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            return base, _join(canonical_path(base), "/".join(rest)), rest
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _open_place(root: int, path: str, held: list[int]) -> int | None:
    try:
        fd = open_beneath(root, path, os.O_PATH)
    except FileNotFoundError:
        return None
    held.append(fd)
    return fd


def is_text(name: str) -> bool:
    """Whether a cell can be told the name: it is UTF-8."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _join(directory: str, path: str) -> str:
    return directory if path in ("", ".") else directory.rstrip("/") + "/" + path
