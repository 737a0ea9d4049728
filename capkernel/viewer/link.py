"""A viewer's end of a session's socket. Blocking; one request at a time.

Rule 1: the other end must be a process of this user, and is reached through a directory that is this user's.
Rule 2: the session's secret is read, answers one challenge, and is not kept.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from types import TracebackType
from typing import Literal, TypeVar

import msgspec

from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.shown import MAX_TYPED
from capkernel.wire.view import (
    CARD,
    MAX_BODY_TO_VIEWER,
    SECRET_BYTES,
    SECRET_NAME,
    SOCKET_NAME,
    VERSION,
    About,
    Answer,
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
    GiveSecret,
    Lineage,
    ListQuestions,
    ListValues,
    Open,
    Page,
    Questions,
    Refused,
    Request,
    SealedRelease,
    SealedValue,
    ToViewer,
    Values,
    WaitingCount,
    Welcome,
    proof,
)

OPEN_SECONDS = 5.0
SECONDS = 75.0  # beyond what the kernel takes to give up on the vault
_CHUNK = 1 << 18
_CREDENTIALS = struct.Struct("3i")

_NO_QUESTION = "no such question"
_TOO_LONG = "search for at most 200 characters"
_NO_VALUE = "no such value, or no X25519 public key"

Q = TypeVar("Q", bound=Request)
A = TypeVar("A", bound=Answer)


class LinkRefused(Exception):
    """The session does not answer this viewer. The text says why and what to do. name: as in `wire.view.Refused`."""

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(reason)
        self.name = name


class Link:
    """An open link. Use as a context manager."""

    def __init__(self, connected: socket.socket, secret: bytes, viewer: str) -> None:
        """Takes over the socket. Raises LinkRefused, OSError."""
        self._socket = connected
        self._reader: FrameReader[ToViewer] = FrameReader(ToViewer, max_body=MAX_BODY_TO_VIEWER, max_blob=0)
        self._request = 0
        try:
            self._socket.settimeout(OPEN_SECONDS)
            self.welcome = self._opened(secret, viewer)
            self._socket.settimeout(SECONDS)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, runtime: str, viewer: str) -> Link:
        """Connect to the session whose runtime directory this is. Raises LinkRefused, OSError."""
        held = _directory(runtime)
        try:
            secret = _secret(held)
            connected = _connected(held)
        finally:
            os.close(held)
        return cls(connected, secret, viewer)

    def values(self, count: int = 500, words: str = "") -> Values:
        """The newest values in which each of the words stands. Raises LinkRefused for too many words, as all do."""
        return self._ask(_sound(ListValues(self._next(), count, words), _TOO_LONG), Values)

    def lineage(self, handle: str) -> Lineage:
        """What the value was made from, and what was made from it."""
        return self._ask(_sound(AskLineage(self._next(), handle), "no such value"), Lineage)

    @classmethod
    def open_card(cls, runtime: str, secret: bytes, kernel: int) -> Link:
        """Connect as the Jupyter server that launched the process `kernel` and handed it `secret`. Raises LinkRefused,
        OSError."""
        held = _directory(runtime)
        try:
            connected = _connected(held)
        finally:
            os.close(held)
        # Whose socket it is, from the system: no other program can stand in for the kernel.
        if _peer(connected)[0] != kernel:
            connected.close()
            raise LinkRefused("this socket is not the kernel's")
        return cls(connected, secret, CARD)

    def reveal(self, handle: str, key: bytes) -> bytes:
        """The value, sealed to the public key `key`. It is in the session's audit before it is here."""
        return self._ask(_sound(AskValue(self._next(), handle, key), _NO_VALUE, "no-such-value"), SealedValue).sealed

    def audit(self, count: int = 50, who: Literal["", "person"] = "", words: str = "") -> tuple[str, ...]:
        """The newest lines, oldest first."""
        return self._ask(_sound(AskAudit(self._next(), count, who, words), _TOO_LONG), AuditLines).lines

    def authority(self) -> Authority:
        return self._ask(AskAuthority(self._next()), Authority)

    def questions(self) -> Questions:
        """What waits for the person, the open question first."""
        return self._ask(ListQuestions(self._next()), Questions)

    def decide(self, question: str, allow: bool, seen: str = "") -> bool:
        """Whether it is allowed now. Raises LinkRefused when there is nothing (left) to decide."""
        return self._ask(_sound(Decide(self._next(), question, allow, seen), _NO_QUESTION), Decided).allowed

    def released(self, question: str, key: bytes) -> bytes:
        """The `wire.shown.Release` of the open question, sealed to the public key `key`."""
        return self._ask(_sound(AskReleased(self._next(), question, key), _NO_QUESTION), SealedRelease).sealed

    def give_secret(self, question: str, sealed: bytes) -> bool:
        """The typed secret, sealed to the key of the question."""
        said = f"a secret has at most {MAX_TYPED} bytes"
        return self._ask(_sound(GiveSecret(self._next(), question, sealed), said), Decided).allowed

    def forget_denied(self) -> int:
        """Have asked again what was denied. How many were denied without asking."""
        return self._ask(ForgetDenied(self._next()), Forgotten).count

    # What a card may ask.

    def page(self) -> Page:
        return self._ask(AskPage(self._next()), Page)

    def waiting(self) -> int:
        """How many questions wait for the person."""
        return self._ask(AskWaiting(self._next()), WaitingCount).count

    def about(self, handle: str) -> About:
        return self._ask(_sound(AskAbout(self._next(), handle), _NO_VALUE, "no-such-value"), About)

    def reveal_in_page(self, handle: str, key: bytes, *, paired: bool) -> bytes:
        """As `reveal`. paired: whether the person proved that the page is theirs."""
        question = _sound(AskForPage(self._next(), handle, key, paired), _NO_VALUE, "no-such-value")
        return self._ask(question, SealedValue).sealed

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    # ── within ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self, secret: bytes, viewer: str) -> Welcome:
        if _peer(self._socket)[1] != os.getuid():
            raise LinkRefused("the session's socket is held by another user")
        challenge = self._received()
        if not isinstance(challenge, Challenge) or challenge.version != VERSION:
            raise LinkRefused(_why(challenge) or "the session speaks another version: restart its kernel")
        self._socket.sendall(encode(Open(proof(secret, challenge.challenge, viewer), viewer)))
        welcome = self._received()
        if not isinstance(welcome, Welcome):
            raise LinkRefused(_why(welcome) or "the session gave no welcome")
        return welcome

    def _ask(self, question: Request, kind: type[A]) -> A:
        self._socket.sendall(encode(question))
        answer = self._received()
        if not isinstance(answer, kind) or answer.request != question.request:
            name = answer.name if isinstance(answer, Refused) else ""
            raise LinkRefused(_why(answer) or "the session gave another answer than the one to this question", name)
        return answer

    def _next(self) -> int:
        self._request += 1
        return self._request

    def _received(self) -> ToViewer:
        try:
            while True:
                for message, _ in self._reader.frames():
                    return message
                data = self._socket.recv(_CHUNK)
                if not data:
                    raise LinkRefused("the session has ended")
                self._reader.feed(data)
        except RemoteProtocolError as problem:
            raise LinkRefused(str(problem)) from None


def _peer(connected: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    found = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(found)
    return process, user


def _directory(runtime: str) -> int:
    held = os.open(runtime, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(held)
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        os.close(held)
        raise LinkRefused("the session's directory is not private to this user")
    return held


def _connected(directory: int) -> socket.socket:
    found = os.stat(SOCKET_NAME, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise LinkRefused("the session's socket is not a socket of this user")
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.settimeout(OPEN_SECONDS)
        connected.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
    except BaseException:
        connected.close()
        raise
    return connected


def _why(message: ToViewer) -> str:
    return message.reason if isinstance(message, Refused) else ""


def _sound(question: Q, why: str, name: str = "") -> Q:
    """The message, when the other end would take it: what is wrong with it would end the link."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(question), type=type(question))
    except (msgspec.ValidationError, UnicodeEncodeError):
        raise LinkRefused(why, name) from None


def _secret(directory: int) -> bytes:
    fd = os.open(SECRET_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise LinkRefused("the session's viewer secret is not private to this user")
        secret = os.read(fd, SECRET_BYTES + 1)
    finally:
        os.close(fd)
    if len(secret) != SECRET_BYTES:
        raise LinkRefused("the session's viewer secret has another length")
    return secret
