"""The keeper: every classified value of a session, as encoded bytes by handle.

Rule 1: no value is decoded here but str and bytes at a sink; numpy and pandas are never imported; no user code runs.
Rule 2: a post that names an existing handle as new changes nothing; that one which was released is not named again, the
kernel sees to.
Rule 3: whatever fails makes poison for one handle, and everything made from poison is poison. Nothing is answered.
Rule 4: a value never refers to other handles; captured ones are sent along with the job that needs them, and no others,
so the lineage of a result holds everything its function could see.
Rule 5: jobs run one at a time, in the order they were posted; so every input is known when its turn comes.
Rule 6: a value leaves for the person only, rendered by a job: sealed to the viewer's key, or as a line of the secure
output, through the descriptor of it; or, whole, by the person's decision (`vault.person`).

This class does no I/O of its own beside the files whose descriptors it is handed: `tell` sends a message to the kernel,
`start` hands a job to the runner. `keeper_main` drives it.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from capkernel.vault.descriptors import read_bounded, write_all
from capkernel.vault.entries import Entry
from capkernel.vault.mirror import append_entry
from capkernel.vault.person import MAX_EXACT, Releases, TypedSecrets, why_not
from capkernel.vault.retained import Retained
from capkernel.wire import values
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.shown import (
    MAX_JSON_BYTES,
    Pending,
    Poison,
    Shown,
    Unknown,
    from_json,
    release_name,
    release_to_json,
    to_json,
)
from capkernel.wire.shown import Release as ShownRelease
from capkernel.wire.vault import (
    Begin,
    Count,
    Describe,
    Described,
    Expect,
    Expected,
    Fill,
    FromKeeper,
    FunctionBundle,
    GivenOut,
    GiveOut,
    Job,
    Kept,
    Limits,
    Map,
    Mirror,
    Mirrored,
    Piece,
    Put,
    Release,
    ReleaseShown,
    Reveal,
    Revealed,
    SecureFile,
    Settle,
    Settled,
    ShowRelease,
    Spoil,
    Status,
    Typed,
    Write,
    Written,
    Zip,
    keeps_format,
)

Message = (
    Begin
    | Put
    | Fill
    | Map
    | Zip
    | Spoil
    | Release
    | Write
    | SecureFile
    | Mirror
    | Describe
    | Reveal
    | ShowRelease
    | GiveOut
    | Expect
    | Typed
    | Count
    | Settle
)
_Rendered = Reveal | ShowRelease | Mirror

# Our own function, run on the value in a process of its own like any other: hostile bytes meet pandas there, not here.
_RENDERING = FunctionBundle(table="capkernel.vault.render.rendered")
_PLAIN_RENDERING = FunctionBundle(table="capkernel.vault.render.rendered_plain")
_EXACTLY = FunctionBundle(table="capkernel.vault.person.exact")
_BUNDLES: dict[type[_Rendered], FunctionBundle] = {Reveal: _RENDERING, ShowRelease: _EXACTLY, Mirror: _PLAIN_RENDERING}
_NOTHING_CAPTURED = values.encode({})
_RENDER_SECONDS = 10.0
_MAX_REVEALS = 16
_MAX_REASON = 400


@dataclass(slots=True)
class _WaitingMap:
    message: Map
    captured: bytes


@dataclass(slots=True)
class _WaitingWrite:
    message: Write
    descriptor: int


class Keeper:
    """The state of a vault. `start(job, pieces)` returns False when no runner is there; the job then waits."""

    def __init__(
        self, *, tell: Callable[[FromKeeper], None], start: Callable[[Job, list[tuple[Piece, bytes]]], bool]
    ) -> None:
        self._tell = tell
        self._start = start
        self._limits: Limits | None = None
        self._entries: dict[str, Entry] = {}
        self._queue: deque[_WaitingMap | Zip | Mirror | Release | Settle] = deque()
        self._retained = Retained(0, 0)
        self._writes: dict[str, list[_WaitingWrite]] = {}
        # The handle the running job will fill, or whom it renders for.
        self._running: str | _Rendered | None = None
        self._secure_output: int | None = None
        self._reveals: deque[Reveal | ShowRelease] = deque()
        self._releases = Releases()
        self._typed = TypedSecrets()
        self._jobs = 0
        self._held_bytes = 0
        self.runner_generation = 0

    def accept(self, message: Message, blob: bytes, descriptor: int | None) -> None:
        """Act on one message of the kernel. The descriptor is taken over. Raises RemoteProtocolError."""
        if isinstance(message, Begin) == (self._limits is not None):
            if descriptor is not None:
                os.close(descriptor)
            raise RemoteProtocolError("Begin is the first message and comes once")
        match message:
            case Begin():
                self._limits = message.limits
                self._retained = Retained(message.limits.kept_values, message.limits.kept_bytes)
            case Put():
                self._put(message, blob)
            case Fill():
                assert descriptor is not None
                self._fill(message, descriptor)
            case Map():
                if self._new(message.new, parents=(message.source,)) is not None:
                    self._queue.append(_WaitingMap(message, blob))
            case Zip():
                if self._new(message.new, parents=(message.left, message.right)) is not None:
                    self._queue.append(message)
            case Spoil():
                if self._new(message.new) is not None:
                    self._poison(message.new, message.reason[:_MAX_REASON])
            case Write():
                assert descriptor is not None
                self._write(_WaitingWrite(message, descriptor))
            case SecureFile():
                assert descriptor is not None
                self._secure_output = descriptor
            case Mirror() | Release():
                self._queue.append(message)
            case Describe():
                entry = self._entries.get(message.handle)
                self._tell(entry.described(message.ticket) if entry else Described(message.ticket, "unknown"))
            case Reveal():
                self._reveal(message)
            case ShowRelease():
                self._show_release(message)
            case GiveOut():
                self._give_out(message)
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
        while self._reveals and self._running is None:  # first: a person waits, and their values are known
            if not self._render(self._reveals[0]):
                return
            self._reveals.popleft()
        while self._queue and self._running is None:
            head = self._queue[0]
            if isinstance(head, Settle):
                self._tell(Settled(head.ticket))
            elif isinstance(head, Zip):
                self._zip(head)
            elif isinstance(head, Release):
                self._release(head)
            elif isinstance(head, Mirror):
                if not self._present(head):
                    return
            elif not self._map(head):
                return
            self._queue.popleft()

    def job_done(self, result: bytes | None, reason: str = "", place: str = "") -> None:
        """The running job ended; `result` is what its process sent, None when it has no result."""
        handle, self._running = self._running, None
        assert handle is not None
        if isinstance(handle, ShowRelease):
            self._exactly(handle, result)
            self.advance()
            return
        if isinstance(handle, Reveal | Mirror):
            self._rendered(handle, result, reason)
            self.advance()
            return
        self._jobs += 1
        if result is None:
            self._poison(handle, reason, place)
        else:
            self._hold(handle, result)
        self.advance()

    # ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _new(self, handle: str, *, parents: tuple[str, ...] = (), origin: str = "", label: str = "") -> Entry | None:
        if handle in self._entries:
            return None
        entry = Entry(
            origins=frozenset((origin,)) if origin else frozenset(),
            labels=frozenset((label,)) if label else frozenset(),
            parents=parents,
        )
        self._entries[handle] = entry
        return entry

    def _inherit(self, entry: Entry, parents: list[Entry | None]) -> None:
        for parent in parents:
            if parent is not None:
                entry.origins |= parent.origins
                entry.labels |= parent.labels

    def _hold(self, handle: str, blob: bytes) -> None:
        """Settle an entry with a value, once the bytes are those of a value that stands alone."""
        assert self._limits is not None
        try:
            values.type_name(blob)
            alone = not values.handles(blob)
        except values.BadValue:
            alone = False
        if not alone:
            self._poison(handle, "not an encoded value")
        elif self._held_bytes + len(blob) > self._limits.total_bytes:
            self._poison(handle, "the vault is full")
        else:
            entry = self._entries[handle]
            entry.state, entry.blob = "value", blob
            self._held_bytes += len(blob)
            self._settled(handle)

    def _release(self, message: Release) -> None:
        for handle, shown in zip(message.handles, message.shown, strict=True):
            entry = self._entries.get(handle)
            if entry is None or entry.state == "pending":  # of what was posted before, only what a person still types
                continue
            for gone in self._retained.add(handle, len(entry.blob), shown=shown):
                self._held_bytes -= len(self._entries.pop(gone).blob)

    def _poison(self, handle: str, reason: str, place: str = "") -> None:
        entry = self._entries[handle]
        entry.state, entry.reason, entry.place = "poison", reason, place
        self._settled(handle)

    def _settled(self, handle: str) -> None:
        for waiting in self._writes.pop(handle, []):
            self._write(waiting)

    # ── posts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, message: Put, blob: bytes) -> None:
        entry = self._new(message.handle, origin=message.origin, label=message.label)
        if entry is not None:
            self._hold(message.handle, blob)
            entry.format_kept = values.is_text(blob)

    def _fill(self, message: Fill, descriptor: int) -> None:
        assert self._limits is not None
        try:
            entry = self._new(message.handle, origin=message.origin, label=message.label)
            if entry is None:
                return
            entry.format_kept = message.kind == "str"
            content = read_bounded(descriptor, self._limits.fill_bytes)
            if content is None:
                self._poison(message.handle, "the file is too large")
            elif message.kind == "bytes":
                self._hold(message.handle, values.encode(content))
            else:
                self._hold(message.handle, values.encode(content.decode("utf-8")))
        except UnicodeDecodeError:
            self._poison(message.handle, "UnicodeDecodeError")
        except OSError:
            self._poison(message.handle, "the file could not be read")
        finally:
            os.close(descriptor)

    def _zip(self, message: Zip) -> None:
        entry = self._entries[message.new]
        parents = [self._entries.get(message.left), self._entries.get(message.right)]
        self._inherit(entry, parents)
        if self._spoiled(message.new, parents):
            return
        left, right = (parent.blob for parent in parents if parent is not None)
        try:
            self._hold(message.new, values.pair(left, right))
        except values.BadValue:
            self._poison(message.new, "the pair is too large")

    def _map(self, waiting: _WaitingMap) -> bool:
        """Start the job at the head of the queue, or poison its handle. False when it has to wait for a runner."""
        assert self._limits is not None
        message = waiting.message
        entry = self._entries[message.new]
        try:
            captured_handles = values.handles(waiting.captured)
            needs = set(values.libraries(waiting.captured))
        except values.BadValue:
            self._poison(message.new, "captured data that is not encoded")
            return True
        parents = [self._entries.get(name) for name in (message.source, *captured_handles)]
        entry.parents = (message.source, *captured_handles)
        self._inherit(entry, parents)
        entry.format_kept = (
            len(parents) == 1 and parents[0] is not None and parents[0].format_kept
            and keeps_format(message.bundle) and not message.flat
        )  # fmt: skip
        if self._spoiled(message.new, parents):
            return True
        source, *held = [parent for parent in parents if parent is not None]
        pieces = [(Piece(), source.blob), (Piece(), waiting.captured)]
        pieces += [(Piece(name), other.blob) for name, other in zip(captured_handles, held, strict=True)]
        if sum(len(blob) for _, blob in pieces) > self._limits.job_input_bytes:
            self._poison(message.new, "the function's input is too large")
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
        if not self._start(job, pieces):
            return False
        self._running = message.new
        return True

    def _spoiled(self, new: str, parents: list[Entry | None]) -> bool:
        """Poison the new entry when an input is unknown or poison; the reason is the input's."""
        for parent in parents:
            if parent is None:
                self._poison(new, "an unknown handle")
                return True
            if parent.state != "value":  # pending is impossible here (Rule 5)
                self._poison(new, parent.reason or "an input that is not known", parent.place)
                return True
        return False

    # ── sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, waiting: _WaitingWrite) -> None:
        entry = self._entries.get(waiting.message.handle)
        if entry is not None and entry.state == "pending":
            self._writes.setdefault(waiting.message.handle, []).append(waiting)
            return
        try:
            self._tell(self._written(waiting, entry))
        finally:
            os.close(waiting.descriptor)

    def _written(self, waiting: _WaitingWrite, entry: Entry | None) -> Written:
        ticket = waiting.message.ticket
        if entry is None or entry.state != "value":
            return Written(ticket, "poison")
        try:
            content = values.text_of(entry.blob)
            data = content.encode("utf-8") if isinstance(content, str) else content
        except (values.BadValue, UnicodeEncodeError):
            data = None
        if data is None:
            return Written(ticket, "not_text")
        if len(data) > waiting.message.limit_bytes:
            return Written(ticket, "too_large", len(data))
        try:
            write_all(waiting.descriptor, data)
        except OSError as problem:
            return Written(ticket, "failed", 0, problem.errno or 0)
        return Written(ticket, "written", len(data))

    # ── the person ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _reveal(self, message: Reveal) -> None:
        entry = self._entries.get(message.handle)
        if entry is None:
            self._show(message, Unknown())
        elif entry.state == "pending":
            self._show(message, Pending())
        elif entry.state == "poison":
            self._show(message, Poison(entry.reason, entry.place))
        elif len(self._reveals) >= _MAX_REVEALS:
            self._show(message, Poison("too many values are being shown at once"))
        else:
            self._reveals.append(message)

    def _present(self, mirror: Mirror) -> bool:
        """Put a value into the secure output; what there is to say of one that is not there, at once. False when it has
        to wait for a runner."""
        entry = self._entries.get(mirror.handle)
        if entry is not None and entry.state == "value":
            return self._render(mirror)
        # Never pending: its turn comes after that of everything it was made from (Rule 5).
        self._show(mirror, Unknown() if entry is None else Poison(entry.reason, entry.place))
        return True

    def _render(self, message: _Rendered) -> bool:
        """Start rendering. False when there is no runner yet."""
        assert self._limits is not None
        entry = self._entries.get(message.handle)
        if entry is None:  # released while it waited
            if isinstance(message, ShowRelease):
                self._seal_release(message, ShownRelease(problem=why_not(None)))
            else:
                self._show(message, Unknown())
            return True
        blob = entry.blob
        job = Job(
            number=self._jobs + 1,
            bundle=_BUNDLES[type(message)],
            flat=False,
            pieces=2,
            libraries=values.libraries(blob),
            seconds=_RENDER_SECONDS,
            memory_bytes=self._limits.job_memory_bytes,
            result_bytes=(MAX_EXACT if isinstance(message, ShowRelease) else MAX_JSON_BYTES) + 1024,
        )
        if not self._start(job, [(Piece(), blob), (Piece(), _NOTHING_CAPTURED)]):
            return False
        self._running = message
        return True

    def _rendered(self, message: Reveal | Mirror, result: bytes | None, reason: str) -> None:
        try:
            text = values.text_of(result) if result is not None else None
            if isinstance(text, str) and isinstance(message, Reveal):
                self._seal(message, text.encode("utf-8", "replace"))
                return
            if isinstance(text, str):
                self._show(message, from_json(text.encode("utf-8", "replace")))
                return
        except ValueError:  # BadValue is one
            reason = ""
        self._show(message, Poison(f"the value is there but cannot be shown: {reason or 'not a rendering'}"))

    def _show(self, message: Reveal | Mirror, shown: Shown) -> None:
        if isinstance(message, Reveal):
            self._seal(message, to_json(shown))
        else:
            self._tell(Mirrored(message.ticket, append_entry(self._secure_output, message.header, shown)))

    def _seal(self, message: Reveal, plain: bytes) -> None:
        self._tell(Revealed(message.ticket, _sealed(plain[:MAX_JSON_BYTES], message.key, message.handle)))

    # ── decided by the person ────────────────────────────────────────────────────────────────────────────────────────

    def _show_release(self, message: ShowRelease) -> None:
        problem = why_not(self._entries.get(message.handle))
        if not problem and len(self._reveals) >= _MAX_REVEALS:
            problem = "too many values are being shown at once"
        if problem:
            self._seal_release(message, ShownRelease(problem=problem))
        else:
            self._reveals.append(message)

    def _exactly(self, message: ShowRelease, result: bytes | None) -> None:
        try:
            text = values.text_of(result) if result is not None else None
        except values.BadValue:
            text = None
        exact = text if isinstance(text, str) else None
        entry = self._entries.get(message.handle)
        if entry is None:  # released while it was rendered
            self._seal_release(message, ShownRelease(problem=why_not(None)))
        else:
            self._seal_release(message, self._releases.shown(message.handle, entry, exact))

    def _seal_release(self, message: ShowRelease, release: ShownRelease) -> None:
        sealed = _sealed(release_to_json(release), message.key, release_name(message.handle))
        self._tell(ReleaseShown(message.ticket, sealed))

    def _give_out(self, message: GiveOut) -> None:
        entry = self._entries.get(message.handle)
        given = entry is not None and not why_not(entry) and self._releases.take(message.handle, message.seen)
        self._tell(GivenOut(message.ticket, entry.blob if given and entry is not None else b""))

    def _expect(self, message: Expect) -> None:
        entry = self._new(message.handle, origin=message.origin, label=message.label)
        self._tell(Expected(message.ticket, b"" if entry is None else self._typed.expect(message.handle)))

    def _keep_typed(self, message: Typed) -> None:
        text = self._typed.open(message.handle, message.sealed)
        if text is not None:
            self._hold(message.handle, values.encode(text))
            self._entries[message.handle].format_kept = True
        self._tell(Kept(message.ticket, text is not None))

    def _status(self, ticket: int) -> Status:
        states = Counter(entry.state for entry in self._entries.values())
        types = Counter(entry.type for entry in self._entries.values() if entry.state == "value")
        return Status(
            ticket, states["value"], states["poison"], states["pending"], self._jobs, self._held_bytes, dict(types),
            self.runner_generation,
        )  # fmt: skip


def _sealed(plain: bytes, key: bytes, name: str) -> bytes:
    """b"" for a key that is none."""
    from capkernel.vault.seal import seal  # OpenSSL is loaded for those who look

    try:
        return seal(plain, key, name)
    except ValueError:
        return b""
