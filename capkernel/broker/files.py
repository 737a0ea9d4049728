"""The effects on files.

Rule 1: every effect is find → judge → decide → audit → act, in this order, and acts on the descriptor that was judged.
Rule 2: classified content is never read here, and never written by plain writes; existence is no secret, size is.
Rule 3: only regular files are read and written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from capkernel.broker import atomic, trees
from capkernel.broker.asking import Asking, NeedsPerson, about_file, about_folder
from capkernel.broker.audit import AuditLog
from capkernel.broker.classified_files import ClassifiedFiles, Reservation
from capkernel.broker.confine import (
    Escape,
    canonical_path,
    checked_path,
    lexical,
    reopen,
)
from capkernel.broker.failures import EffectError, denied, os_failure
from capkernel.broker.opened import OpenFile
from capkernel.broker.places import FileHandle, FileScope, Place, Places
from capkernel.broker.room import Room
from capkernel.broker.roots import Roots
from capkernel.policy.decision import ALLOWED, AskPerson, Decision, Denied
from capkernel.policy.model import Policy
from capkernel.policy.paths import PathRules, below
from capkernel.wire.frames import MAX_BLOB

MAX_READ: Final = MAX_BLOB
MAX_FILES: Final = 10_000  # of one read of many


class FileEffects:
    """What a FileSystem and its FileEntries do. Every method blocks; the broker runs them in threads.

    Methods raise EffectError, OSError (turned into the cell's words by the broker) or AuditUnavailable.
    """

    def __init__(
        self,
        policy: Policy,
        base_dir: str,
        rules: PathRules,
        places: Places,
        audit: AuditLog,
        asking: Asking,
        room: Room | None = None,
    ) -> None:
        """room: of a root in memory."""
        self._asking = asking
        self._roots = Roots(policy, base_dir, rules, places)
        self._rules = rules
        self._room = room
        self._places = places
        self._audit = audit

    # ── scopes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_scope(self, argument: str, cell: int) -> FileScope:
        """The root that `argument` names, from the notebook's directory, when it lies within the policy's roots."""
        fd, problem = self._roots.open(argument)
        try:
            shown = self._rules.relative_to_root(canonical_path(fd)) if fd is not None else argument
            decision: Decision = ALLOWED if problem is None else problem
            if problem is None:
                decision = self._asking.decide("files.open_scope", cell, about_folder(shown, cell))
            self._record("files.open_scope", decision, cell, shown)
            if fd is None:
                assert problem is not None
                raise denied(problem.reason)
            scope, fd = FileScope(fd, argument), None
            return scope
        finally:
            if fd is not None:
                os.close(fd)

    def access(self, scope: FileScope, path: str, cell: int) -> FileHandle:
        """The entry at `path`, which need not exist. Excluded places and paths that leave the root are refused."""
        if path.startswith("/") and scope.argument.startswith("/"):
            # The cell named an absolute root itself; then it may go on naming absolute paths in it.
            inside = below(path, scope.argument.rstrip("/") or "/")
            path = path if inside is None else inside
        handle = FileHandle(scope, checked_path(path))
        with self._at(handle, "files.access", cell) as place:
            self._allow(place, "files.access", cell, ALLOWED)
        return handle

    def attenuated(self, scope: FileScope, *, path: str | None, cell: int) -> FileScope:
        """A narrower view of a scope: below `path`, or for looking and reading alone when that is None."""
        if path is None:
            with scope.borrow() as root:
                self._record("files.read_only", ALLOWED, cell, scope.prefix)
                return FileScope(os.dup(root), scope.argument, scope.prefix, writable=False)
        handle = self.access(scope, path, cell)
        with self._at(handle, "files.subtree", cell) as place:
            self._allow(place, "files.subtree", cell, self._named(place))
            if place.fd is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            fd = os.open(f"/proc/self/fd/{place.fd}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            return FileScope(fd, scope.argument, lexical(handle.planned) or ".", writable=scope.writable)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def exists(self, handle: FileHandle, cell: int) -> bool:
        """Whether something is there. Allowed for classified paths: their names are no secret."""
        return self._kind(handle, "files.exists", cell) is not None

    def is_directory(self, handle: FileHandle, cell: int) -> bool:
        mode = self._kind(handle, "files.is_directory", cell)
        return mode is not None and stat.S_ISDIR(mode)

    def is_classified(self, handle: FileHandle, cell: int) -> bool:
        with self._at(handle, "files.is_classified", cell) as place:
            self._allow(place, "files.is_classified", cell, ALLOWED)
            return place.classified

    def size(self, handle: FileHandle, cell: int) -> int:
        """Bytes of a regular file."""
        with self._at(handle, "files.size", cell) as place:
            self._allow(place, "files.size", cell, self._plain(place, "its size is not told"))
            status = self._regular(place)
            return status.st_size

    def children(self, handle: FileHandle, cell: int) -> list[str]:
        """Paths of the entries of a directory, sorted; see `trees` for what is left out."""
        with handle.scope.borrow() as root, self._at(handle, "files.children", cell) as place:
            self._allow(place, "files.children", cell, self._plain(place, "its files are not listed"))
            if place.fd is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return trees.children(self._places, root, place, handle.path)

    def walk(self, handle: FileHandle, cell: int) -> trees.Walked:
        """Everything below a directory, sorted; see `trees` for what is left out."""
        with handle.scope.borrow() as root, self._at(handle, "files.walk", cell) as place:
            self._allow(place, "files.walk", cell, self._plain(place, "its files are not listed"))
            if place.fd is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return trees.walk(self._places, handle.scope, root, place, handle.path)

    def _kind(self, handle: FileHandle, what: str, cell: int) -> int | None:
        try:
            with self._at(handle, what, cell) as place:
                self._allow(place, what, cell, self._named(place))
                return None if place.status is None else place.status.st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, handle: FileHandle, cell: int) -> bytes:
        """The content of a plain regular file, at most MAX_READ bytes."""
        with self._at(handle, "files.read", cell) as place:
            self._allow(place, "files.read", cell, self._plain(place, "its content is not given"))
            size = self._regular(place).st_size
            if size > MAX_READ:
                raise self._too_large(handle)
            assert place.fd is not None
            fd = reopen(place.fd, os.O_RDONLY)
            try:
                content = trees.whole(fd, size, MAX_READ)
            finally:
                os.close(fd)
            if content is None:
                raise self._too_large(handle)
            return content

    def open_to_read(self, handle: FileHandle, cell: int) -> OpenFile:
        """A plain regular file, held open."""
        with self._at(handle, "files.open", cell) as place:
            self._allow(place, "files.open", cell, self._plain(place, "its content is not given"))
            self._regular(place)
            assert place.fd is not None
            return OpenFile(reopen(place.fd, os.O_RDONLY), handle.scope, handle.path)

    def read_many(self, handle: FileHandle, paths: tuple[str, ...], cell: int) -> tuple[list[int], bytes]:
        """The contents of files below a directory, one after the other, and their sizes; -1 for one that is not given:
        classified, too large, not there, or no regular file. As many, from the first on, as go into one answer."""
        with self._at(handle, "files.grep", cell) as top:
            self._allow(top, "files.grep", cell, self._plain(top, "its files are not searched"))
        prefix = "" if handle.path == "." else handle.path + "/"
        for path in paths[:MAX_FILES]:
            if not path.startswith(prefix) or not trees.TIDY.fullmatch(path):
                raise EffectError("ValueError", "a file to search is below the directory that is searched")
        with handle.scope.borrow() as root:
            sizes, parts = trees.read_many(self._places, handle.scope, root, paths[:MAX_FILES])
        return sizes, b"".join(parts)

    def open_for_vault(self, handle: FileHandle, cell: int) -> tuple[int | None, str]:
        """A descriptor of a regular file for the keeper to read, and the origin to write down. The caller closes it.
        None where names are hidden and there is no such file: then the value is poison, and the cell is told nothing.

        Any readable file may become a secret, classified or not. Nothing is read here.
        """
        with self._at(handle, "files.read_classified", cell) as place:
            self._allow(place, "files.read_classified", cell, ALLOWED)
            shown = place.shown
            origin = f"file:{shown}"
            if not place.unseen:
                return self._opened_for_vault(place), origin
        try:
            with self._at(handle, "files.read_classified", cell, seek=True) as place:
                return self._opened_for_vault(place), origin
        except (EffectError, OSError) as problem:
            self._record("files.read_classified", Denied(f"poison: {type(problem).__name__}"), cell, shown)
            return None, origin

    def _opened_for_vault(self, place: Place) -> int:
        self._regular(place)
        assert place.fd is not None
        return reopen(place.fd, os.O_RDONLY)

    def reserve_classified(
        self, handle: FileHandle, sink: ClassifiedFiles, sinks: tuple[str, ...], cell: int
    ) -> Reservation | None:
        """Take the name for a secret. The content follows from the vault (`classified_files`). None where names are
        hidden and this one cannot be had: nothing is written then, and the cell is told nothing."""
        what = "files.write_classified"
        with self._at(handle, what, cell, to_change=True) as place:
            decision = sink.decide(place, sinks, cell)
            replacing = isinstance(decision, AskPerson)
            if isinstance(decision, AskPerson):
                decision = self._asking.decide(decision.kind, cell, decision)
            self._allow(place, what, cell, decision, ask=not replacing)
            if not place.unseen:
                return self._reserve(handle, place, sink, cell, replacing=replacing)
            shown = place.shown
        handle.scope.require()
        try:
            with self._at(handle, what, cell, to_change=True, seek=True) as place:
                # What is there is not told, so nobody is asked about it.
                self._allow(place, what, cell, sink.decide(place, sinks, cell, may_ask=False), ask=False)
                return self._reserve(handle, place, sink, cell)
        except (EffectError, OSError) as problem:
            self._record(what, Denied(f"nothing is written: {type(problem).__name__}"), cell, shown)
            return None

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, handle: FileHandle, data: bytes, cell: int) -> None:
        """Replace the file by `data`, all at once; creates parents."""
        with self._at(handle, "files.write", cell, to_change=True) as place:
            self._allow(place, "files.write", cell, self._writable(place), size=len(data))
            with self._directory_of(handle, place, len(data)) as directory:
                atomic.replace(directory, place.rest[-1], data, handle.scope.require)

    def may_write(self, handle: FileHandle, cell: int, *, new: bool) -> None:
        """Refuse now what `write`, or `create` when `new`, would refuse later."""
        with self._at(handle, "files.open_to_write", cell, to_change=True) as place:
            self._allow(place, "files.open_to_write", cell, self._writable(place))
            if place.status is not None:
                if new:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                self._regular(place)

    def create(self, handle: FileHandle, data: bytes, cell: int) -> None:
        """A new file with `data`; FileExistsError when the name is taken. Creates parents."""
        with self._at(handle, "files.create", cell, to_change=True) as place:
            self._allow(place, "files.create", cell, self._writable(place), size=len(data))
            if place.status is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            with self._directory_of(handle, place, len(data)) as directory:
                atomic.create(directory, place.rest[-1], data, handle.scope.require)

    def delete(self, handle: FileHandle, cell: int) -> None:
        """Take away a file, an empty directory, or a link itself."""
        with self._at(handle, "files.delete", cell, itself=True) as place:
            decision = self._changeable(place)
            if self._places.hide_names and place.status is not None and stat.S_ISDIR(place.status.st_mode):
                decision = Denied("the policy hides classified names, and whether a folder is empty would tell of them")
            self._allow(place, "files.delete", cell, decision)
            assert place.status is not None
            handle.scope.require()
            if stat.S_ISDIR(place.status.st_mode):
                os.rmdir(place.rest[-1], dir_fd=place.base)
            else:
                os.unlink(place.rest[-1], dir_fd=place.base)

    def append(self, handle: FileHandle, data: bytes, cell: int) -> None:
        """Add `data` at the end; creates the file and its parents."""
        with self._at(handle, "files.append", cell, to_change=True) as place:
            decision = self._writable(place)
            named = place.status is not None and stat.S_ISREG(place.status.st_mode) and place.status.st_nlink > 1
            if decision == ALLOWED and named:
                decision = Denied("the file has several names (hard links), and appending would change them all")
            self._allow(place, "files.append", cell, decision, size=len(data))
            flags = os.O_WRONLY | os.O_APPEND
            with self._directory_of(handle, place, len(data)) as directory:
                handle.scope.require()
                if place.fd is not None:
                    fd = reopen(place.fd, flags)
                else:
                    flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    fd = os.open(place.rest[-1], flags, 0o666, dir_fd=directory)
            try:
                atomic.write_all(fd, data)
            finally:
                os.close(fd)

    def make_directory(self, handle: FileHandle, cell: int) -> None:
        """Make a directory and its parents; an existing one is fine."""
        with self._at(handle, "files.mkdir", cell, to_change=True) as place:
            self._allow(place, "files.mkdir", cell, self._changeable(place))
            if place.status is not None:
                if not stat.S_ISDIR(place.status.st_mode):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                return
            handle.scope.require()
            self._no_dangling_link(place)
            self._take_room(0, len(place.rest))
            os.close(atomic.make_directories(place.base, place.rest))

    @contextmanager
    def _directory_of(self, handle: FileHandle, place: Place, size: int) -> Iterator[int]:
        """The directory that the file is in, made when it is missing. size: of what is to be written."""
        if not place.rest or (place.status is not None and stat.S_ISDIR(place.status.st_mode)):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.status is not None:
            self._regular(place)
        else:
            self._no_dangling_link(place)
        handle.scope.require()
        self._take_room(size, len(place.rest))
        fd = atomic.make_directories(place.base, place.rest[:-1])
        try:
            yield fd
        finally:
            os.close(fd)

    def _take_room(self, size: int, entries: int) -> None:
        if self._room is not None:
            self._room.take(self._rules, size, entries)

    def _reserve(
        self, handle: FileHandle, place: Place, sink: ClassifiedFiles, cell: int, *, replacing: bool = False
    ) -> Reservation:
        if place.status is None:
            self._take_room(sink.limit, len(place.rest))
        return sink.reserve(place, cell, handle.scope.require, replacing=replacing)

    def _no_dangling_link(self, place: Place) -> None:
        try:
            found = os.stat(place.rest[0], dir_fd=place.base, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISLNK(found.st_mode):
            raise denied("the path is a link to something that does not exist, and links are not replaced")

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _at(
        self, handle: FileHandle, what: str, cell: int, *, to_change: bool = False, itself: bool = False,
        seek: bool = False,
    ) -> Iterator[Place]:  # fmt: skip
        """The place of a handle. to_change: see `Places.at`. itself: of a link the link. seek: also behind a hidden
        name; then the cell must not learn what came of it."""
        with handle.scope.borrow() as root:
            hidden = None if seek else self._places.unseen(root, handle.path, follow=not itself)
            if hidden is not None:
                yield hidden
                return
            find = self._places.named if itself else partial(self._places.at, to_change=to_change)
            try:
                with find(root, handle.path) as place:
                    if place.excluded is not None:
                        refusal = Denied(f"no file is granted here: {place.excluded}")
                        self._record(what, refusal, cell, place.shown)
                        raise denied(refusal.reason)
                    yield place
            except Escape:
                refusal = Denied("the path leaves its granted root")
                self._record(what, refusal, cell, lexical(handle.path) or handle.path)
                raise denied(refusal.reason) from None

    def _allow(
        self, place: Place, what: str, cell: int, decision: Decision, *, size: int | None = None, ask: bool = True
    ) -> None:
        """Write the decision down, and raise what it means. size: bytes of new content. ask: whether the policy's word
        that this effect asks counts; the person may have been asked already."""
        if ask and decision == ALLOWED and self._asking.asks(what):
            decision = self._asking.decide(what, cell, about_file(what, place, cell, size))
        self._record(what, decision, cell, place.shown)
        if isinstance(decision, Denied):
            raise denied(decision.reason)

    def _record(self, what: str, decision: Decision, cell: int, path: str) -> None:
        """Raises NeedsPerson for a question, which is written down where it is asked (`approvals`)."""
        if isinstance(decision, AskPerson):
            raise NeedsPerson(decision)
        if isinstance(decision, Denied):
            self._audit.record(what, "denied", cell=cell, path=path, reason=decision.reason)
        else:
            self._audit.record(what, "allowed", cell=cell, path=path)

    def _named(self, place: Place) -> Decision:
        if place.classified and self._places.hide_names:
            return Denied(
                "the policy calls this path classified and hides what is there: whether it exists is not told"
            )
        return ALLOWED

    def _plain(self, place: Place, what: str) -> Decision:
        if place.classified:
            return Denied(
                f"the policy calls this path classified, so {what}: use read_classified() and write_classified()"
            )
        return ALLOWED

    def _writable(self, place: Place) -> Decision:
        if place.classified:
            return Denied(
                "the policy calls this path classified: write a Classified value with write_classified(); "
                "read_classified() reads it"
            )
        return self._changeable(place)

    def _changeable(self, place: Place) -> Decision:
        if place.protected is not None:
            return Denied(
                f"this path is protected ({place.protected}): it can be read; "
                "the operator may name it in files.unprotect to have it written"
            )
        return self._plain(place, "nothing is made here")

    def _regular(self, place: Place) -> os.stat_result:
        if place.status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if stat.S_ISDIR(place.status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(place.status.st_mode):
            raise denied("this is a pipe, device or socket, and only regular files are read and written")
        return place.status

    def _too_large(self, handle: FileHandle) -> EffectError:
        message = f"the file has more than {MAX_READ} bytes, which is the most that one read gives"
        return EffectError("OSError", message, errno.EFBIG, handle.path)


def in_words_of_cell(problem: OSError, path: str) -> EffectError:
    """An OSError in the cell's words; a path that left its root is a refusal."""
    if isinstance(problem, Escape):
        return denied("the path leaves its granted root")
    return os_failure(problem, path)
