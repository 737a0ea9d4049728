"""The keeper: every classified value of a session, and the order in which it is worked on.

Rule 1: no value is decoded here but str and bytes at a sink (`writes`); numpy and pandas are never imported; no user
code runs.
Rule 2: a post that names an existing handle as new changes nothing; that one which was released is not named again, the
kernel sees to.
Rule 3: whatever fails makes poison for one handle, and everything made from poison is poison. Nothing is answered.
Rule 4: a value never refers to other handles; captured ones are sent along with the job that needs them, and no others,
so the lineage of a result holds everything its function could see.
Rule 5: jobs run one at a time, in the order they were posted; so every input is known when its turn comes.
Rule 6: a value leaves for the person only (`showing`), or for a file (`writes`).

This class does no I/O of its own beside the files whose descriptors it is handed: `tell` sends a message to the kernel,
`start` hands a job to the runner. `keeper_main` drives it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from capkernel.vault.descriptors import read_bounded
from capkernel.vault.entries import Entries
from capkernel.vault.person import TypedSecrets
from capkernel.vault.showing import Rendered, Showing
from capkernel.vault.writes import Writes
from capkernel.wire import values
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.vault import (
    Begin,
    Count,
    Describe,
    Described,
    Expect,
    Expected,
    Fill,
    FromKeeper,
    GiveOut,
    Job,
    KeeperMessage,
    Kept,
    Limits,
    Map,
    Mirror,
    Piece,
    Put,
    Release,
    Reveal,
    SecureFile,
    Settle,
    Settled,
    ShowRelease,
    Spoil,
    Status,
    Typed,
    Write,
    Zip,
    keeps_format,
)

_MAX_REASON = 400


@dataclass(slots=True)
class _WaitingMap:
    message: Map
    captured: bytes


class Keeper:
    """The state of a vault. `start(job, pieces)` returns False when no runner is there; the job then waits."""

    def __init__(
        self, *, tell: Callable[[FromKeeper], None], start: Callable[[Job, list[tuple[Piece, bytes]]], bool]
    ) -> None:
        self._tell = tell
        self._start = start
        self._limits: Limits | None = None
        self._entries = Entries(lambda handle: self._writes.settled(handle))
        self._writes = Writes(self._entries, tell)
        self._showing = Showing(self._entries, tell)
        self._typed = TypedSecrets()
        self._queue: deque[_WaitingMap | Zip | Mirror | Release | Settle] = deque()
        # The handle the running job will fill, or whom it renders for.
        self._running: str | Rendered | None = None
        self._jobs = 0
        self.runner_generation = 0

    def accept(self, message: KeeperMessage, blob: bytes, descriptor: int | None) -> None:
        """Act on one message of the kernel. The descriptor is taken over. Raises RemoteProtocolError."""
        if isinstance(message, Begin) == (self._limits is not None):
            if descriptor is not None:
                os.close(descriptor)
            raise RemoteProtocolError("Begin is the first message and comes once")
        match message:
            case Begin():
                self._limits = message.limits
                self._entries.begin(message.limits)
            case Put():
                self._put(message, blob)
            case Fill():
                assert descriptor is not None
                self._fill(message, descriptor)
            case Map():
                if self._entries.new(message.new, parents=(message.source,)) is not None:
                    self._queue.append(_WaitingMap(message, blob))
            case Zip():
                if self._entries.new(message.new, parents=(message.left, message.right)) is not None:
                    self._queue.append(message)
            case Spoil():
                if self._entries.new(message.new) is not None:
                    self._entries.poison(message.new, message.reason[:_MAX_REASON])
            case Write():
                assert descriptor is not None
                self._writes.write(message, descriptor)
            case SecureFile():
                assert descriptor is not None
                self._showing.secure_output = descriptor
            case Mirror() | Release():
                self._queue.append(message)
            case Describe():
                entry = self._entries.get(message.handle)
                self._tell(entry.described(message.ticket) if entry else Described(message.ticket, "unknown"))
            case Reveal():
                self._showing.reveal(message)
            case ShowRelease():
                self._showing.show_release(message)
            case GiveOut():
                self._showing.give_out(message)
            case Expect():
                self._expect(message)
            case Typed():
                self._keep_typed(message)
            case Count():
                self._tell(self._status(message.ticket))
            case Settle():
                self._queue.append(message)
        self.advance()

    def advance(self) -> None:
        """Do what can be done now, until a job runs or nothing is left."""
        shown = self._showing.waiting
        while shown and self._running is None:  # first: a person waits, and their values are known
            if not self._render(shown[0]):
                return
            shown.popleft()
        while self._queue and self._running is None:
            head = self._queue[0]
            if isinstance(head, Settle):
                self._tell(Settled(head.ticket))
            elif isinstance(head, Zip):
                self._zip(head)
            elif isinstance(head, Release):
                self._entries.release(head.handles, head.shown)
            elif isinstance(head, Mirror):
                if not self._render(head):
                    return
            elif not self._map(head):
                return
            self._queue.popleft()

    def job_done(self, result: bytes | None, reason: str = "", place: str = "") -> None:
        """The running job ended; `result` is what its process sent, None when it has no result."""
        done, self._running = self._running, None
        assert done is not None
        if not isinstance(done, str):
            self._showing.done(done, result, reason)
        else:
            self._jobs += 1
            if result is None:
                self._entries.poison(done, reason, place)
            else:
                self._entries.hold(done, result)
        self.advance()

    # ── posts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, message: Put, blob: bytes) -> None:
        entry = self._entries.new(message.handle, origin=message.origin, label=message.label)
        if entry is not None:
            self._entries.hold(message.handle, blob)
            entry.format_kept = values.is_text(blob)

    def _fill(self, message: Fill, descriptor: int) -> None:
        assert self._limits is not None
        try:
            entry = self._entries.new(message.handle, origin=message.origin, label=message.label)
            if entry is None:
                return
            entry.format_kept = message.kind == "str"
            content = read_bounded(descriptor, self._limits.fill_bytes)
            if content is None:
                self._entries.poison(message.handle, "the file is too large")
            elif message.kind == "bytes":
                self._entries.hold(message.handle, values.encode(content))
            else:
                self._entries.hold(message.handle, values.encode(content.decode("utf-8")))
        except UnicodeDecodeError:
            self._entries.poison(message.handle, "UnicodeDecodeError")
        except OSError:
            self._entries.poison(message.handle, "the file could not be read")
        finally:
            os.close(descriptor)

    def _zip(self, message: Zip) -> None:
        entry = self._entries[message.new]
        parents = [self._entries.get(message.left), self._entries.get(message.right)]
        entry.inherit(parents)
        if self._entries.spoiled(message.new, parents):
            return
        left, right = (parent.blob for parent in parents if parent is not None)
        try:
            self._entries.hold(message.new, values.pair(left, right))
        except values.BadValue:
            self._entries.poison(message.new, "the pair is too large")

    def _map(self, waiting: _WaitingMap) -> bool:
        """Start the job at the head of the queue, or poison its handle. False when it has to wait for a runner."""
        assert self._limits is not None
        message = waiting.message
        entry = self._entries[message.new]
        try:
            captured_handles = values.handles(waiting.captured)
            needs = set(values.libraries(waiting.captured))
        except values.BadValue:
            self._entries.poison(message.new, "captured data that is not encoded")
            return True
        parents = [self._entries.get(name) for name in (message.source, *captured_handles)]
        entry.parents = (message.source, *captured_handles)
        entry.inherit(parents)
        entry.format_kept = (
            len(parents) == 1 and parents[0] is not None and parents[0].format_kept
            and keeps_format(message.bundle) and not message.flat
        )  # fmt: skip
        if self._entries.spoiled(message.new, parents):
            return True
        source, *held = [parent for parent in parents if parent is not None]
        pieces = [(Piece(), source.blob), (Piece(), waiting.captured)]
        pieces += [(Piece(name), other.blob) for name, other in zip(captured_handles, held, strict=True)]
        if sum(len(blob) for _, blob in pieces) > self._limits.job_input_bytes:
            self._entries.poison(message.new, "the function's input is too large")
            return True
        needs.update(*(values.libraries(blob) for _, blob in pieces))
        job = Job(
            number=self._jobs + 1,
            bundle=message.bundle,
            flat=message.flat,
            pieces=len(pieces),
            libraries=tuple(sorted(needs)),
            seconds=self._limits.job_seconds,
            memory_bytes=self._limits.job_memory_bytes,
            result_bytes=self._limits.result_bytes,
        )
        return self._begin(message.new, job, pieces)

    # ── the person ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _render(self, message: Rendered) -> bool:
        """Start rendering, or say that there is nothing to. False when it has to wait for a runner."""
        assert self._limits is not None
        work = self._showing.job(message, self._jobs + 1, self._limits)
        return work is None or self._begin(message, *work)

    def _expect(self, message: Expect) -> None:
        entry = self._entries.new(message.handle, origin=message.origin, label=message.label)
        self._tell(Expected(message.ticket, b"" if entry is None else self._typed.expect(message.handle)))

    def _keep_typed(self, message: Typed) -> None:
        text = self._typed.open(message.handle, message.sealed)
        if text is not None:
            self._entries.hold(message.handle, values.encode(text))
            self._entries[message.handle].format_kept = True
        self._tell(Kept(message.ticket, text is not None))

    def _status(self, ticket: int) -> Status:
        states = self._entries.states()
        return Status(
            ticket, states["value"], states["poison"], states["pending"], self._jobs, self._entries.held_bytes,
            dict(self._entries.types()), self.runner_generation,
        )  # fmt: skip

    def _begin(self, what: str | Rendered, job: Job, pieces: list[tuple[Piece, bytes]]) -> bool:
        if not self._start(job, pieces):
            return False
        self._running = what
        return True
