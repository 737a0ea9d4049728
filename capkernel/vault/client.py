"""The kernel's end of the vault.

Rule 1: a post never waits for the vault, never fails because of what the vault did, and is never answered; its limits
count posts and bytes made, never progress. So nothing about a value can be seen in posting.
Rule 2: a handle is accepted once in the life of this client, restarts of the vault included.
Rule 3: nothing of a value is in this process: content goes in encoded by the worker, sealed or through a descriptor,
and out through a descriptor; what comes back are outcomes, types and counts, which are for the kernel and the person
only. The one exception is `release`, which the person decides about each value.

All methods belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from capkernel.vault.launch import Spawn
from capkernel.vault.lineage import Lineage
from capkernel.vault.processes import VaultFailed, VaultProcesses
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.shown import MAX_TYPED
from capkernel.wire.values import handles, is_text
from capkernel.wire.vault import (
    Answer,
    Count,
    Describe,
    Described,
    Expect,
    Expected,
    Fill,
    FunctionBundle,
    GivenOut,
    GiveOut,
    KeeperMessage,
    Kept,
    Limits,
    Map,
    Mirror,
    Mirrored,
    Put,
    Release,
    ReleaseShown,
    Reveal,
    Revealed,
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

_MAX_HANDLE = 64
A = TypeVar("A", bound=Answer)


class DuplicateHandle(RemoteProtocolError):
    """A new handle that was used before. An honest worker draws them at random: kill it."""


class VaultQuota(RuntimeError):
    """The session has made as many posts, or as many bytes of them, as it may."""


@dataclass(frozen=True)
class WriteOutcome:
    """What became of a sink's write; for the kernel and the person, never for the worker.

    written: `size` bytes · poison · not_text · too_large: `size` bytes wanted, none written · failed: `errno` ·
    lost: the vault died first.
    """

    kind: Literal["written", "poison", "not_text", "too_large", "failed", "lost"]
    size: int = 0
    errno: int = 0


class VaultClient:
    """One session's vault.

    `spawn_keeper` and `spawn_runner` start the processes (see `vault.launch.spawners`); they are called in a thread.
    `on_lost` is told once per vault that died, with a sentence, when every value is gone; `start` may then be called
    again. `secure_output`: the descriptor of the person's secure output, which stays the caller's.
    """

    def __init__(
        self,
        *,
        spawn_keeper: Spawn,
        spawn_runner: Spawn,
        limits: Limits | None = None,
        max_posts: int = 100_000,
        max_post_bytes: int = 4 * 1024**3,
        on_lost: Callable[[str], None] | None = None,
        secure_output: int | None = None,
    ) -> None:
        self._processes = VaultProcesses(
            spawn_keeper, spawn_runner, limits or Limits(), secure_output,
            answered=lambda answer: self._resolve(answer.ticket, answer), probe=self._probe, ended=self._give_up,
            on_lost=on_lost,
        )  # fmt: skip
        self._posts_left = max_posts
        self._bytes_left = max_post_bytes
        self._secure_output = secure_output
        self._lineage = Lineage()
        self._tickets = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Start keeper and runner and wait until both are locked down. Raises VaultFailed."""
        await self._processes.start()

    async def close(self) -> None:
        """End both processes; every value is gone, outcomes still awaited become `lost`, later posts are ignored."""
        await self._processes.stop()

    @property
    def life(self) -> int:
        """Counts the vaults that were started."""
        return self._processes.life

    @property
    def reports(self) -> dict[str, str]:
        """Of "keeper" and "runner": sandbox.Report as JSON."""
        return self._processes.reports

    @property
    def keeper_pid(self) -> int | None:
        return self._processes.keeper_pid

    @property
    def runner_pid(self) -> int | None:
        return self._processes.runner_pid

    # ── posts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, handle: str, blob: bytes, origin: str, label: str = "") -> None:
        """Keep the encoded value under a new handle."""
        self._post(handle, len(blob))
        self._lineage.begin(handle, origin, text=is_text(blob))
        self._send(Put(handle, origin, label), blob)

    def fill(self, handle: str, fd: int, kind: Literal["str", "bytes"], origin: str, label: str = "") -> None:
        """Keep the content of the regular file behind `fd` (which stays the caller's), read by the keeper."""
        self._post(handle, 0)
        self._lineage.begin(handle, origin, text=kind == "str")
        self._send(Fill(handle, kind, origin, label), descriptor=fd)

    def map(self, new: str, source: str, bundle: FunctionBundle, captured: bytes, flat: bool = False) -> None:
        """`new` = function(`source`), with `captured` as FunctionBundle says. Raises BadValue for no encoded value."""
        parents = (source, *handles(captured))
        self._post(new, len(captured))
        self._lineage.derive(new, parents, keeps_format=keeps_format(bundle) and not flat)
        self._send(Map(new, source, bundle, flat), captured)

    def zip(self, new: str, left: str, right: str) -> None:
        """`new` = (`left`, `right`)."""
        self._post(new, 0)
        self._lineage.derive(new, (left, right))
        self._send(Zip(new, left, right))

    def spoil(self, new: str, reason: str, origin: str = "", *, text: bool = False) -> None:
        """`new` is poison from the start, for this reason, which only the person sees. origin, text: as of `fill`, when
        it stands for a value that was to come from there."""
        self._post(new, 0)
        if origin:
            self._lineage.begin(new, origin, text=text)
        else:
            self._lineage.derive(new, ())
        self._send(Spoil(new, reason))

    def drop(self, handles: tuple[str, ...], shown: tuple[bool, ...]) -> None:
        """No cell can reach these values any more. Some are kept for the person, those that were `shown` before others
        (`Limits.kept_values`)."""
        known = [(handle, seen) for handle, seen in zip(handles, shown, strict=True) if handle in self._lineage]
        for handle, _ in known:
            self._lineage.drop(handle)
        if known:
            self._send(Release(tuple(handle for handle, _ in known), tuple(seen for _, seen in known)))

    def origins(self, handle: str) -> frozenset[str] | None:
        """The origins of everything the value was made from, from the posts alone; None for an unknown handle."""
        return self._lineage.origins(handle)

    def format_kept(self, handle: str) -> bool:
        """Whether every step from the value's one origin, a text, left that text whole; from the posts as well."""
        return self._lineage.format_kept(handle)

    # ── answers, for the kernel and the person ───────────────────────────────────────────────────────────────────────

    def write(self, handle: str, fd: int, limit_bytes: int) -> asyncio.Future[WriteOutcome]:
        """Have the keeper write the value, once known, to the regular file behind `fd` (which stays the caller's).

        str goes out as UTF-8. Needs a running event loop; never raises through the future.
        """
        outcome: asyncio.Future[WriteOutcome] = asyncio.get_running_loop().create_future()
        ticket, answer = self._ask()

        def settle(done: asyncio.Future[Any]) -> None:
            if outcome.done():
                return
            written = None if done.cancelled() or done.exception() is not None else done.result()
            if isinstance(written, Written):
                outcome.set_result(WriteOutcome(written.outcome, written.size, written.errno))
            else:
                outcome.set_result(WriteOutcome("lost"))

        answer.add_done_callback(settle)
        self._send(Write(ticket, handle, limit_bytes), descriptor=fd)
        return outcome

    async def mirror(self, handle: str, header: str) -> int | None:
        """Have the keeper append the value to the secure output, when its turn comes. 0 when the file took it, else the
        errno; None when the vault is gone, or was not given a secure output."""
        if self._secure_output is None:
            return None
        try:
            return (await self._answer(lambda ticket: Mirror(ticket, handle, header), Mirrored)).errno
        except VaultFailed:
            return None

    async def status(self) -> Status:
        """Counts and types. Raises VaultFailed when the vault is not running or dies meanwhile, like the next two."""
        return await self._answer(Count, Status)

    async def describe(self, handle: str) -> Described:
        """State, type, lineage and reason of one handle."""
        return await self._answer(lambda ticket: Describe(ticket, handle), Described)

    async def reveal(self, handle: str, key: bytes) -> bytes:
        """The value for the person, sealed to the X25519 public key of their viewer (`wire.shown`).

        Raises ValueError for a key that is none, VaultFailed like the others.
        """
        found = await self._answer(lambda ticket: Reveal(ticket, handle, key), Revealed)
        if not found.sealed:
            raise ValueError("the vault cannot seal to this key: an X25519 public key has 32 bytes")
        return found.sealed

    async def show_release(self, handle: str, key: bytes) -> bytes:
        """The `wire.shown.Release` of a value, sealed to the person's key. Raises ValueError for a key that is none,
        VaultFailed like the others."""
        found = await self._answer(lambda ticket: ShowRelease(ticket, handle, key), ReleaseShown)
        if not found.sealed:
            raise ValueError("the vault cannot seal to this key: an X25519 public key has 32 bytes")
        return found.sealed

    async def release(self, handle: str, seen: str) -> bytes | None:
        """The encoded value, for a person who has seen exactly it; None when `seen` does not say so.

        The one place where a value comes out of the vault: it is on its way to the cell, by the person's decision.
        """
        return (await self._answer(lambda ticket: GiveOut(ticket, handle, seen), GivenOut)).value or None

    async def expect(self, handle: str, origin: str, label: str = "") -> bytes:
        """A new handle whose value a person will type: the key (32 bytes) to seal it to."""
        self._post(handle, MAX_TYPED)
        self._lineage.begin(handle, origin, text=True)
        return (await self._answer(lambda ticket: Expect(ticket, handle, origin, label), Expected)).key

    async def receive(self, handle: str, sealed: bytes) -> bool:
        """Hold what the person typed for this handle. False when it cannot be opened."""
        return (await self._answer(lambda ticket: Typed(ticket, handle, sealed), Kept)).kept

    async def settle(self) -> None:
        """Wait until everything posted so far is done."""
        await self._answer(Settle, Settled)

    # ── within ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _post(self, handle: str, size: int) -> None:
        """Account for a post that makes `handle`, before anything of it is kept."""
        if not 0 < len(handle) <= _MAX_HANDLE or not (handle.isascii() and handle.isalnum()):
            raise RemoteProtocolError("a vault handle has 1 to 64 letters and digits")
        if handle in self._lineage:
            raise DuplicateHandle("a new vault handle was used before")
        if self._posts_left <= 0 or size > self._bytes_left:
            raise VaultQuota(
                "this session has made as many Classified operations, or as many bytes of them, as one session may: "
                "restart the kernel to go on"
            )
        self._posts_left -= 1
        self._bytes_left -= size

    def _send(self, message: KeeperMessage, blob: bytes = b"", *, descriptor: int | None = None) -> None:
        # Else lost; the handle designates nothing, as it will for the next vault.
        if not self._processes.send(message, blob, descriptor=descriptor) and isinstance(message, Write):
            self._resolve(message.ticket, None)

    def _ask(self) -> tuple[int, asyncio.Future[Any]]:
        self._tickets += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._tickets] = answer
        return self._tickets, answer

    async def _answer(self, question: Callable[[int], KeeperMessage], kind: type[A]) -> A:
        if not self._processes.running:
            raise VaultFailed("the vault is not running")
        ticket, answer = self._ask()
        self._send(question(ticket))
        found = await answer
        if not isinstance(found, kind):
            raise VaultFailed("the vault died before it answered")
        return found

    def _resolve(self, ticket: int, message: Answer | None) -> None:
        answer = self._waiting.pop(ticket, None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _probe(self) -> asyncio.Future[Any]:
        ticket, answer = self._ask()
        self._send(Describe(ticket, "0"))  # no such handle: the answer costs nothing
        return answer

    def _give_up(self) -> None:
        for ticket in list(self._waiting):
            self._resolve(ticket, None)
