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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from capkernel.broker.confine import Escape, canonical_path, lexical, open_beneath
from capkernel.broker.failures import revoked
from capkernel.broker.identity import ClassifiedIndex
from capkernel.policy.defaults import TEMPORARY_PREFIX
from capkernel.policy.excluded import Exclusions
from capkernel.policy.paths import PathRules, below

_ATTEMPTS = 20  # to find a file that is replaced meanwhile


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


@dataclass(frozen=True)
class Place:
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


@dataclass(frozen=True)
class ListedEntry:
    """What a listing makes of an entry. left_out: excluded, or a temporary file."""

    left_out: bool
    classified: bool


class _Moved(FileNotFoundError):
    """What was opened is not what has the name now."""


class Places:
    """Finds and judges places."""

    def __init__(self, rules: PathRules, exclusions: Exclusions, index: ClassifiedIndex) -> None:
        self._rules = rules
        self._exclusions = exclusions
        self._index = index

    @contextmanager
    def at(self, root: int, path: str) -> Iterator[Place]:
        """The place at `path` (checked) below `root`. Raises Escape when it is not below, or OSError."""
        flat = lexical(path)
        if flat is None:
            raise Escape(errno.EXDEV, "the path leaves its root")
        top = canonical_path(root)
        held: list[int] = []
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    fd, status, base, canonical, rest = self._find(root, top, path, held)
                    break
                except _Moved:
                    # Our own classified write may just have taken its place. The cell must not see that: it would tell
                    # when, and whether, the value became known.
                    if attempt == _ATTEMPTS - 1:
                        raise
            if below(canonical, top) is None:
                raise Escape(errno.EXDEV, "the path leaves its root")
            yield self._judge(fd, status, base, canonical, rest, _join(top, flat))
        finally:
            for number in held:
                os.close(number)

    def _find(
        self, root: int, top: str, path: str, held: list[int]
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
            yield self._judge(fd, os.fstat(fd), base, _join(folder, name), (name,), _join(top, flat))
        finally:
            for number in held:
                os.close(number)

    def judge_entry(self, canonical: str, name: str) -> ListedEntry:
        """What a listing says of an entry of a directory that is neither excluded nor classified itself."""
        if name.startswith(TEMPORARY_PREFIX) or self._exclusions.find_entry(canonical) is not None:
            return ListedEntry(True, False)
        return ListedEntry(False, self._rules.is_classified(canonical) or self._index.is_target(canonical))

    def hides(self, directory: str, name: str) -> bool:
        """Whether a listing of `directory`, not excluded itself, leaves this entry out: excluded, or a temporary file.

        A temporary file that appears would tell when the value of a classified write became known.
        """
        return name.startswith(TEMPORARY_PREFIX) or self._exclusions.find_entry(_join(directory, name)) is not None

    def _judge(
        self,
        fd: int | None,
        status: os.stat_result | None,
        base: int,
        canonical: str,
        rest: tuple[str, ...],
        asked: str,
    ) -> Place:
        identity = None if status is None else (status.st_dev, status.st_ino)
        excluded = self._exclusions.find(canonical, identity)
        if excluded is None and status is not None:
            excluded = self._exclusions.find_linked(status)
        classified = (
            self._rules.is_classified(canonical)
            or self._rules.is_classified(asked)
            or self._index.is_classified(canonical, status)
        )
        protected = self._rules.protected_by(canonical) or self._rules.protected_by(asked)
        if protected is None and self._exclusions.imported_from(canonical):
            protected = "a file that Python imports"
        shown = self._rules.relative_to_root(canonical)
        return Place(fd, status, base, canonical, rest, shown, excluded, classified, protected)

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


def _join(directory: str, path: str) -> str:
    return directory if path in ("", ".") else directory.rstrip("/") + "/" + path
