"""The person's way into a session: a Unix socket that answers the viewer and nobody else.

Rule 1: the socket and the viewer secret are files of mode 0600 in the session's own directory (0700). A peer must be a
process of the same user (SO_PEERCRED) and prove, for a fresh challenge, that it could read the secret. A card, the
Jupyter server's page, must be the process that launched us and prove the secret it handed over (`kernel.launcher`);
each kind of viewer has its own requests, and a proof for one is none for the other.
Rule 2: what is answered comes from the broker's own records, or is sealed by the vault to the viewer's key: this
process never holds a value that it passes on.
Rule 3: a reveal is in the audit before it is asked of the vault; when it cannot be written, nothing is revealed.
Rule 4: what waits for the person is decided here and nowhere else (`broker.approvals`); an answer is in the audit
before it counts.
Rule 5: nothing here publishes anything, and nothing a worker or a Jupyter client sends leads here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import os
import secrets
import socket
import struct
import time
from pathlib import Path
from typing import Protocol

import msgspec

from capkernel.broker.approvals import Approvals
from capkernel.broker.audit import AuditLog, AuditUnavailable
from capkernel.broker.ledger import MAX_TEXT, Ledger, Origin
from capkernel.broker.questions import NoQuestion
from capkernel.kernel.page_reveal import NO_PAGE, PageReveal
from capkernel.vault.processes import VaultFailed
from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.view import (
    CARD,
    MAX_BODY_FROM_VIEWER,
    SECRET_BYTES,
    SECRET_NAME,
    SOCKET_NAME,
    VERSION,
    About,
    AskAbout,
    AskAudit,
    AskAuthority,
    AskForPage,
    AskLineage,
    AskPage,
    AskReleased,
    AskValue,
    AskWaiting,
    AuditLines,
    Authority,
    Challenge,
    Decide,
    Decided,
    ForgetDenied,
    Forgotten,
    FromViewer,
    GiveSecret,
    Lineage,
    ListQuestions,
    ListValues,
    Open,
    Page,
    Questions,
    Refused,
    SealedRelease,
    SealedValue,
    Step,
    ToViewer,
    ValueLine,
    Values,
    WaitingCount,
    Welcome,
    proof,
)

MAX_LINKS = 32
MAX_ORIGINS = 20
MAX_STEPS = 60  # of a lineage, in each direction
OPEN_SECONDS = 5.0
IDLE_SECONDS = 600.0
SEND_SECONDS = 30.0
REVEAL_SECONDS = 60.0
_CREDENTIALS = struct.Struct("3i")
_NOT_PROVED = "this is not the session's viewer secret"


class BrokerView(Protocol):
    """What the viewer is told of the broker."""

    ledger: Ledger

    def live(self) -> tuple[int | None, tuple[str, ...], int]: ...
    def authority(self) -> tuple[str, tuple[str, ...]]: ...


class VaultView(Protocol):
    async def reveal(self, handle: str, key: bytes) -> bytes: ...
    def origins(self, handle: str) -> frozenset[str] | None: ...


class ViewServer:
    """Serves the viewers of one session. Belongs to the event loop; `start` binds, `close` takes the files away."""

    def __init__(
        self,
        runtime: Path,
        directory: Path,
        broker: BrokerView,
        vault: VaultView,
        audit: AuditLog,
        approvals: Approvals | None = None,
        *,
        user: int | None = None,
        page: PageReveal = NO_PAGE,
    ) -> None:
        """runtime: the session's own directory, mode 0700. directory: the notebook's. approvals: None when nothing is
        ever asked. user: whose processes may connect, by default ours. page: whether and how a Jupyter server may show
        values."""
        self._approvals = approvals
        self._runtime = runtime
        self._directory = str(directory)
        self._broker = broker
        self._vault = vault
        self._audit = audit
        self._user = os.getuid() if user is None else user
        self._page = page
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._started = time.time()
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises OSError."""
        held = os.open(self._runtime, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _write_secret(held, self._secret)
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                # Through the descriptor: a path may be longer than a socket's name can be.
                listening.bind(f"/proc/self/fd/{held}/{SOCKET_NAME}")
            except BaseException:
                listening.close()
                raise
            finally:
                os.umask(before)
        finally:
            os.close(held)
        listening.setblocking(False)
        self._server = await asyncio.start_unix_server(self._connected, sock=listening, limit=MAX_BODY_FROM_VIEWER * 2)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._links):
            task.cancel()
        for name in (SOCKET_NAME, SECRET_NAME):
            with contextlib.suppress(OSError):
                os.unlink(self._runtime / name)

    # ── a link ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            await _Link(self, reader, writer).serve(crowded=len(self._links) > MAX_LINKS)
        except (OSError, EOFError, TimeoutError, RemoteProtocolError, LocalProtocolError, asyncio.CancelledError):
            pass  # the peer is gone, silent, or does not speak this protocol: the link ends
        finally:
            self._links.discard(task)
            writer.close()

    def allowed(self, user: int) -> bool:
        return user == self._user

    def refusal(self, opening: FromViewer, challenge: bytes, process: int) -> str:
        """Why this peer is not let in, "" when it is."""
        if not isinstance(opening, Open):
            return _NOT_PROVED
        if opening.viewer == CARD:
            return self._page.refusal(opening.proof, challenge, process)
        right = hmac.compare_digest(opening.proof, proof(self._secret, challenge, opening.viewer))
        return "" if right else _NOT_PROVED

    def welcome(self) -> Welcome:
        return Welcome(self._audit.session, self._directory, os.getpid(), self._started)

    async def answer_card(self, message: FromViewer, who: str) -> ToViewer:
        """What a card may ask, and nothing else."""
        match message:
            case AskPage():
                return Page(message.request, self._page.off, self._page.pairing)
            case AskWaiting():
                return WaitingCount(message.request, 0 if self._approvals is None else self._approvals.count)
            case AskAbout():
                known = self._broker.ledger.get(message.handle)
                if known is None:
                    return _unknown(message.request)
                return About(message.request, self._line(known), self._is_high(message.handle))
            case AskForPage():
                if self._broker.ledger.get(message.handle) is None:
                    return _unknown(message.request)
                refused = self._page.refused(message, high=self._is_high(message.handle))
                return refused or await self._reveal(AskValue(message.request, message.handle, message.key), who)
        return Refused(getattr(message, "request", 0), "a page may not ask this")

    async def answer(self, message: FromViewer, who: str) -> ToViewer:
        """What the person's own programs may ask."""
        match message:
            case ListValues():
                return self._values(message)
            case AskLineage():
                return self._lineage(message)
            case AskValue():
                return await self._reveal(message, who)
            case AskAudit():
                lines = self._audit.recent(message.count, message.who, message.words)
                return AuditLines(message.request, tuple(lines))
            case AskAuthority():
                return Authority(message.request, *self._broker.live(), *self._broker.authority())
            case ListQuestions() | Decide() | AskReleased() | GiveSecret() | ForgetDenied():
                if self._approvals is None:
                    return Refused(message.request, "this session asks nothing")
                return await self._answer_about(message, who, self._approvals)
        return Refused(getattr(message, "request", 0), "only the page of a Jupyter server asks this")

    def _is_high(self, handle: str) -> bool:
        return self._page.is_high(self._vault.origins(handle))

    async def _reveal(self, message: AskValue, who: str) -> ToViewer:
        known = self._broker.ledger.get(message.handle)
        if known is None:
            return _unknown(message.request)
        try:
            self._audit.record(
                "classified.reveal", "allowed", cell=known.cell, path=message.handle, reason=who, who="person"
            )
            await asyncio.to_thread(self._audit.sync)
        except AuditUnavailable as problem:
            return Refused(message.request, f"nothing is shown: {problem}")
        try:
            sealed = await asyncio.wait_for(self._vault.reveal(message.handle, message.key), REVEAL_SECONDS)
        except TimeoutError:
            return Refused(message.request, f"the vault did not answer within {REVEAL_SECONDS:g} s: try again")
        except (VaultFailed, ValueError) as problem:
            return Refused(message.request, str(problem))
        return SealedValue(message.request, message.handle, sealed)

    def _values(self, message: ListValues) -> Values:
        ledger = self._broker.ledger
        words = message.words.lower().split()
        entries = (
            entry for entry in ledger.newest_first() if not words or entry.holds(words, self._origins(entry.handle))
        )
        lines = tuple(map(self._line, itertools.islice(entries, message.count)))
        return Values(message.request, lines, len(ledger), ledger.made)

    def _lineage(self, message: AskLineage) -> ToViewer:
        ledger = self._broker.ledger
        found = ledger.ancestors(message.handle, MAX_STEPS + 1)
        if not found:
            return _unknown(message.request)
        children = ledger.children(message.handle, MAX_STEPS + 1)
        steps = tuple(Step(self._line(entry), entry.functions) for entry in found[:MAX_STEPS])
        cut = max(len(found), len(children)) > MAX_STEPS
        return Lineage(message.request, steps, tuple(map(self._line, children[:MAX_STEPS])), cut)

    def _origins(self, handle: str) -> tuple[str, ...]:
        found = sorted(self._vault.origins(handle) or ())
        return tuple(origin[:MAX_TEXT] for origin in found[:MAX_ORIGINS])

    async def _answer_about(self, message: _AboutQuestions, who: str, approvals: Approvals) -> ToViewer:
        try:
            return await asyncio.wait_for(_answered(message, who, approvals), REVEAL_SECONDS)
        except TimeoutError:
            return Refused(message.request, f"the vault did not answer within {REVEAL_SECONDS:g} s: try again")
        except (NoQuestion, VaultFailed, ValueError) as problem:
            return Refused(message.request, str(problem))
        except AuditUnavailable as problem:
            return Refused(message.request, f"nothing is shown or decided: {problem}")

    def _line(self, entry: Origin) -> ValueLine:
        return ValueLine(
            entry.handle, entry.cell, entry.how, entry.type, self._origins(entry.handle), entry.label, entry.code,
            entry.code_cell, entry.parents, entry.name,
        )  # fmt: skip


_AboutQuestions = ListQuestions | Decide | AskReleased | GiveSecret | ForgetDenied


async def _answered(message: _AboutQuestions, who: str, approvals: Approvals) -> ToViewer:
    match message:
        case ListQuestions():
            return Questions(message.request, *approvals.questions())
        case Decide():
            allowed = await approvals.decide(message.question, message.allow, message.seen, who)
            return Decided(message.request, message.question, allowed)
        case AskReleased():
            sealed = await approvals.show_release(message.question, message.key, who)
            return SealedRelease(message.request, message.question, sealed)
        case GiveSecret():
            allowed = await approvals.give(message.question, message.sealed, who)
            return Decided(message.request, message.question, allowed)
        case ForgetDenied():
            return Forgotten(message.request, approvals.forget_denied())


class _Link:
    """One connection: who it is, then its requests, one at a time."""

    def __init__(self, server: ViewServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._frames: FrameReader[FromViewer] = FrameReader(FromViewer, max_body=MAX_BODY_FROM_VIEWER, max_blob=0)
        self._waiting: list[FromViewer] = []

    async def serve(self, *, crowded: bool) -> None:
        process, user, _ = _CREDENTIALS.unpack(
            self._writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if not self._server.allowed(user):
            await self._send(Refused(0, "only the user who runs this session may look into it"))
            return
        if crowded:
            await self._send(Refused(0, f"more than {MAX_LINKS} viewers at once: close one"))
            return
        challenge = secrets.token_bytes(32)
        await self._send(Challenge(VERSION, challenge))
        opening = await asyncio.wait_for(self._next(), OPEN_SECONDS)
        refused = self._server.refusal(opening, challenge, process)
        if refused or not isinstance(opening, Open):
            await self._send(Refused(0, refused))
            return
        answer = self._server.answer_card if opening.viewer == CARD else self._server.answer
        await self._send(self._server.welcome())
        while True:
            message = await asyncio.wait_for(self._next(), IDLE_SECONDS)
            if isinstance(message, Open):
                return
            await self._send(await answer(message, f"{opening.viewer}, process {process}"))

    async def _next(self) -> FromViewer:
        while not self._waiting:
            data = await self._reader.read(MAX_BODY_FROM_VIEWER)
            if not data:
                raise EOFError
            self._frames.feed(data)
            self._waiting += [message for message, _ in self._frames.frames()]
        return self._waiting.pop(0)

    async def _send(self, message: msgspec.Struct) -> None:
        self._writer.write(encode(message))
        await asyncio.wait_for(self._writer.drain(), SEND_SECONDS)


def _unknown(request: int) -> Refused:
    return Refused(request, "this session has no such value, or has made too many since", "no-such-value")


def _write_secret(directory: int, secret: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # A descriptor opened with O_PATH serves as the directory of an open.
    fd = os.open(SECRET_NAME, flags, 0o600, dir_fd=directory)
    try:
        os.write(fd, secret)
    finally:
        os.close(fd)
