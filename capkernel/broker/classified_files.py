"""Writing a secret into a classified file, so that nothing about the secret shows.

Rule 1: what the cell sees (success, the name, an empty file of mode 0600) is decided before the value is looked at, and
is the same for a value, for poison and for a handle the vault never heard of.
Rule 2: the content goes into an inode without a name, which takes the place of the reservation when it is whole.
Rule 3: only a classified path is a sink, only for a cell whose plan says so, and by default only a new name or one that
this session wrote, or one that the person allowed to be replaced.
Rule 4: writes are counted per call made, never per value, and never by how many are still waiting.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from capkernel.broker import atomic
from capkernel.broker.asking import Asking, about_file
from capkernel.broker.audit import AuditLog, AuditUnavailable
from capkernel.broker.failures import EffectError, denied
from capkernel.broker.places import Place
from capkernel.broker.ports import VaultPort
from capkernel.broker.threads import run_whole
from capkernel.policy.decision import ALLOWED, Decision, Denied
from capkernel.policy.model import Policy

LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Most that one classified write puts into a file; a longer value is written not at all."""
MAX_WRITES_PER_CELL: Final = 256

_Identity = tuple[int, int, int, int]


@dataclass
class Reservation:
    """A name that is taken and waits for its content.

    directory: place descriptor. held: one of the file there; while it is open, no other file gets its inode number.
    Both are closed when the write is over.
    """

    directory: int
    held: int
    name: str
    canonical: str
    shown: str
    cell: int


class ClassifiedFiles:
    """The sink "classified files" of one session."""

    def __init__(
        self, policy: Policy, vault: VaultPort, audit: AuditLog, asking: Asking, limit: int = LIMIT_BYTES
    ) -> None:
        """limit: bytes of one file."""
        self.limit = limit
        self._asking = asking
        self._mode = policy.files.classified_write
        self._vault = vault
        self._audit = audit
        self._own: dict[str, _Identity] = {}  # canonical path → what this session put there last, as it left it
        self._tasks: dict[str, asyncio.Task[None]] = {}  # canonical path → its last write
        self._running: set[asyncio.Task[None]] = set()
        self._count = 0
        self._lock = threading.Lock()

    def begin_cell(self) -> None:
        self._count = 0

    def count(self) -> None:
        """One more call of this cell, whatever becomes of it. On the event loop, before `decide`."""
        self._count += 1

    def decide(self, place: Place, sinks: tuple[str, ...], cell: int, *, may_ask: bool = True) -> Decision:
        """Whether this cell may write a secret here. may_ask: whether the person can be asked about what is there."""
        if "write_classified" not in sinks:
            return Denied("the plan of the running cell does not list write_classified")
        if self._mode is False:
            return Denied("the policy allows no classified writes (files.classified_write = false)")
        if not place.classified:
            return Denied(
                "this path is not classified, so a secret must not go there: choose a path that the policy calls "
                "classified, such as secrets/NAME"
            )
        if place.protected is not None:
            return Denied(f"this path is protected ({place.protected})")
        foreign = False
        if place.status is not None:
            if not stat.S_ISREG(place.status.st_mode):
                return Denied("there is something else than a regular file at this path")
            asks = may_ask and self._asking.asks("files.overwrite_classified")
            foreign = (asks or self._mode == "new") and not self._is_ours(place)
            if foreign and not asks:
                return Denied(
                    'the file exists and this session did not write it; files.classified_write = "new" keeps it: '
                    "choose another name"
                )
        if self._count > MAX_WRITES_PER_CELL:
            return Denied(f"a cell writes at most {MAX_WRITES_PER_CELL} classified files")
        return about_file("files.overwrite_classified", place, cell) if foreign else ALLOWED

    def _is_ours(self, place: Place) -> bool:
        with self._lock:
            # Looked at anew: one of our own writes may have taken its place since the path was opened.
            found = os.stat(place.rest[-1], dir_fd=place.base, follow_symlinks=False)
            return self._own.get(place.canonical) == _identity(found)

    def reserve(self, place: Place, cell: int, require: Callable[[], None], *, replacing: bool = False) -> Reservation:
        """Take the name now: an empty file of mode 0600, unless one of ours is there, or one that the person allowed to
        be replaced. Blocks; raises OSError."""
        require()
        directory = atomic.make_directories(place.base, place.rest[:-1], 0o700)
        name = place.rest[-1]
        try:
            if place.fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                held = os.open(name, flags, 0o600, dir_fd=directory)
                with self._lock:
                    self._own[place.canonical] = _identity(os.fstat(held))
            else:
                held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                if replacing:
                    self._adopt(place, held)
        except FileExistsError:
            os.close(directory)
            raise denied("the path was taken meanwhile, or is a link: choose another name") from None
        except BaseException:
            os.close(directory)
            raise
        return Reservation(directory, held, name, place.canonical, place.shown, cell)

    def _adopt(self, place: Place, held: int) -> None:
        """Take a file for ours: the very one that the person was asked about."""
        found = os.fstat(held)
        if place.status is None or (found.st_dev, found.st_ino) != (place.status.st_dev, place.status.st_ino):
            os.close(held)
            raise FileExistsError
        with self._lock:
            self._own[place.canonical] = _identity(found)

    def start(self, reservation: Reservation, secret: str) -> None:
        """Fill the reservation when the value is known. Returns at once; on the event loop."""
        before = self._tasks.get(reservation.canonical)
        task = asyncio.get_running_loop().create_task(self._fill(reservation, secret, before))
        self._tasks[reservation.canonical] = task
        self._running.add(task)
        task.add_done_callback(self._finished)

    @property
    def idle(self) -> bool:
        """Whether no write waits to be handed to the vault, or for the vault."""
        return not self._running

    async def settle(self, seconds: float, grace: float = 1.0) -> None:
        """Wait for what is under way, at most so long, then give the rest up; what does not let go within `grace`
        seconds hangs in the file system, and is left behind."""
        if not self._running:
            return
        _done, late = await asyncio.wait(set(self._running), timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=grace)

    async def _fill(self, reservation: Reservation, secret: str, before: asyncio.Task[None] | None) -> None:
        fd, temporary = -1, None
        try:
            if before is not None:
                await asyncio.wait({before})  # writes to one name land in the order of the calls
            fd, temporary = await run_whole(lambda: atomic.unlisted(reservation.directory))
            outcome = await self._vault.write(secret, fd, self.limit)
            if outcome.kind != "written":
                self._note(reservation, "failed", outcome.kind)
                return
            self._note(reservation, "done", "")
            kept, temporary = temporary, None  # from here on `_place` takes it away when it fails
            await run_whole(lambda: self._place(reservation, fd, kept))
        except (OSError, EffectError, AuditUnavailable) as problem:
            self._note(reservation, "failed", type(problem).__name__)
        finally:
            await run_whole(lambda: _let_go(reservation, fd, temporary))

    def _place(self, reservation: Reservation, fd: int, temporary: str | None) -> None:
        directory, name = reservation.directory, reservation.name
        try:
            os.fsync(fd)
            # One step for `decide`: it must not find the new file before it is known to be ours.
            with self._lock:
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if self._mode == "new" and self._own.get(reservation.canonical) != _identity(found):
                    raise denied("someone else replaced the file meanwhile")
                if temporary is None:
                    temporary = atomic.give_name(fd, directory)
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                temporary = None
                self._own[reservation.canonical] = _identity(os.fstat(fd))
            atomic.sync_directory(directory)
        finally:
            if temporary is not None:
                atomic.remove(directory, temporary)

    def _note(self, reservation: Reservation, decision: str, reason: str) -> None:
        try:
            self._audit.record(
                "files.write_classified",
                decision,
                cell=reservation.cell,
                path=reservation.shown,
                reason=reason,
                who="broker",
            )
        except AuditUnavailable:
            if decision == "done":
                raise

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        for path, last in list(self._tasks.items()):
            if last is task:
                del self._tasks[path]


def _let_go(reservation: Reservation, fd: int, temporary: str | None) -> None:
    if temporary is not None:
        atomic.remove(reservation.directory, temporary)
    if fd >= 0:
        os.close(fd)
    os.close(reservation.held)
    os.close(reservation.directory)


def _identity(status: os.stat_result) -> _Identity:
    # Device and inode alone would not do: a deleted file's number is given to the next one.
    return (status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size)
