"""Values on their way to the person: revealed, as lines of the secure output, or exactly, before one is released.

Rule 1: a value leaves for the person only rendered, by a job in a process of its own like any function: hostile bytes
meet pandas there, not here.
Rule 2: the rendering leaves sealed to the viewer's key, or as a line of the secure output, through the descriptor of
it. A whole value leaves by the person's decision alone (`vault.person`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from capkernel.vault.entries import Entries
from capkernel.vault.mirror import append_entry
from capkernel.vault.person import MAX_EXACT, Releases, why_not
from capkernel.wire import values
from capkernel.wire.shown import (
    MAX_JSON_BYTES,
    Pending,
    Poison,
    Release,
    Shown,
    Unknown,
    from_json,
    release_name,
    release_to_json,
    to_json,
)
from capkernel.wire.vault import (
    FromKeeper,
    FunctionBundle,
    GivenOut,
    GiveOut,
    Job,
    Limits,
    Mirror,
    Mirrored,
    Piece,
    ReleaseShown,
    Reveal,
    Revealed,
    ShowRelease,
)

Rendered = Reveal | ShowRelease | Mirror
Work = tuple[Job, list[tuple[Piece, bytes]]]

_BUNDLES: dict[type[Rendered], FunctionBundle] = {
    Reveal: FunctionBundle(table="capkernel.vault.render.rendered"),
    ShowRelease: FunctionBundle(table="capkernel.vault.person.exact"),
    Mirror: FunctionBundle(table="capkernel.vault.render.rendered_plain"),
}
_NOTHING_CAPTURED = values.encode({})
_RENDER_SECONDS = 10.0
_MAX_WAITING = 16
_TOO_MANY = "too many values are being shown at once"


class Showing:
    """`tell` sends a message to the kernel. Jobs are made here and started by the keeper."""

    def __init__(self, entries: Entries, tell: Callable[[FromKeeper], None]) -> None:
        self._entries = entries
        self._tell = tell
        self._releases = Releases()
        self.waiting: deque[Reveal | ShowRelease] = deque()  # for a job; their values are known
        self.secure_output: int | None = None

    def reveal(self, message: Reveal) -> None:
        entry = self._entries.get(message.handle)
        if entry is None:
            self._show(message, Unknown())
        elif entry.state == "pending":
            self._show(message, Pending())
        elif entry.state == "poison":
            self._show(message, Poison(entry.reason, entry.place))
        elif len(self.waiting) >= _MAX_WAITING:
            self._show(message, Poison(_TOO_MANY))
        else:
            self.waiting.append(message)

    def show_release(self, message: ShowRelease) -> None:
        problem = why_not(self._entries.get(message.handle))
        if not problem and len(self.waiting) >= _MAX_WAITING:
            problem = _TOO_MANY
        if problem:
            self._seal_release(message, Release(problem=problem))
        else:
            self.waiting.append(message)

    def give_out(self, message: GiveOut) -> None:
        """The value itself, when the person has seen exactly it."""
        entry = self._entries.get(message.handle)
        given = entry is not None and not why_not(entry) and self._releases.take(message.handle, message.seen)
        self._tell(GivenOut(message.ticket, entry.blob if given and entry is not None else b""))

    def job(self, message: Rendered, number: int, limits: Limits) -> Work | None:
        """The job that renders the value; None when there is none to render, which is answered then."""
        entry = self._entries.get(message.handle)
        if entry is None:  # released while it waited
            if isinstance(message, ShowRelease):
                self._seal_release(message, Release(problem=why_not(None)))
            else:
                self._show(message, Unknown())
            return None
        if isinstance(message, Mirror) and entry.state != "value":
            # Never pending: its turn comes after that of everything it was made from (`vault.keeper`, Rule 5).
            self._show(message, Poison(entry.reason, entry.place))
            return None
        job = Job(
            number=number,
            bundle=_BUNDLES[type(message)],
            flat=False,
            pieces=2,
            libraries=values.libraries(entry.blob),
            seconds=_RENDER_SECONDS,
            memory_bytes=limits.job_memory_bytes,
            result_bytes=(MAX_EXACT if isinstance(message, ShowRelease) else MAX_JSON_BYTES) + 1024,
        )
        return job, [(Piece(), entry.blob), (Piece(), _NOTHING_CAPTURED)]

    def done(self, message: Rendered, result: bytes | None, reason: str) -> None:
        """The job ended; `result` is what its process sent, None when it has no result."""
        if isinstance(message, ShowRelease):
            self._exactly(message, result)
        else:
            self._rendered(message, result, reason)

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

    def _exactly(self, message: ShowRelease, result: bytes | None) -> None:
        try:
            text = values.text_of(result) if result is not None else None
        except values.BadValue:
            text = None
        exact = text if isinstance(text, str) else None
        entry = self._entries.get(message.handle)
        if entry is None:  # released while it was rendered
            self._seal_release(message, Release(problem=why_not(None)))
        else:
            self._seal_release(message, self._releases.shown(message.handle, entry, exact))

    def _show(self, message: Reveal | Mirror, shown: Shown) -> None:
        if isinstance(message, Reveal):
            self._seal(message, to_json(shown))
        else:
            self._tell(Mirrored(message.ticket, append_entry(self.secure_output, message.header, shown)))

    def _seal(self, message: Reveal, plain: bytes) -> None:
        self._tell(Revealed(message.ticket, _sealed(plain[:MAX_JSON_BYTES], message.key, message.handle)))

    def _seal_release(self, message: ShowRelease, release: Release) -> None:
        sealed = _sealed(release_to_json(release), message.key, release_name(message.handle))
        self._tell(ReleaseShown(message.ticket, sealed))


def _sealed(plain: bytes, key: bytes, name: str) -> bytes:
    """b"" for a key that is none."""
    from capkernel.vault.seal import seal  # OpenSSL is loaded for those who look

    try:
        return seal(plain, key, name)
    except ValueError:
        return b""
