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
    MAX_BODY_TO_VIEWER,
    SECRET_BYTES,
    SECRET_NAME,
    SOCKET_NAME,
    VERSION,
    AskAudit,
    AskAuthority,
    AskLineage,
    AskReleased,
    AskValue,
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
    Questions,
    Refused,
    SealedRelease,
    SealedValue,
    ToViewer,
    Values,
    Welcome,
    proof,
)

OPEN_SECONDS = 5.0
SECONDS = 75.0  # beyond what the kernel takes to give up on the vault
_CHUNK = 1 << 18
_CREDENTIALS = struct.Struct("3i")

_NO_QUESTION = "no such question"
_TOO_LONG = "search for at most 200 characters"

T = TypeVar("T", bound=msgspec.Struct)
_Asked = (
    ListValues
    | AskLineage
    | AskValue
    | AskAudit
    | AskAuthority
    | ListQuestions
    | Decide
    | AskReleased
    | GiveSecret
    | ForgetDenied
)
A = TypeVar("A", bound=msgspec.Struct)


class LinkRefused(Exception):
    """The session does not answer this viewer. The text says why and what to do."""


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
        held = os.open(runtime, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(held)
            if found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise LinkRefused("the session's directory is not private to this user")
            secret = _secret(held)
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connected.connect(f"/proc/self/fd/{held}/{SOCKET_NAME}")
            except BaseException:
                connected.close()
                raise
        finally:
            os.close(held)
        return cls(connected, secret, viewer)

    def values(self, count: int = 500, words: str = "") -> Values:
        """The newest values in which each of the words stands. Raises LinkRefused for too many words, as all do."""
        return self._ask(_sound(ListValues(self._next(), count, words), _TOO_LONG), Values)

    def lineage(self, handle: str) -> Lineage:
        """What the value was made from, and what was made from it."""
        return self._ask(_sound(AskLineage(self._next(), handle), "no such value"), Lineage)

    def reveal(self, handle: str, key: bytes) -> bytes:
        """The value, sealed to the public key `key`. It is in the session's audit before it is here."""
        return self._ask(
            _sound(AskValue(self._next(), handle, key), "no such value, or no X25519 public key"), SealedValue
        ).sealed

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

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    # ── within ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self, secret: bytes, viewer: str) -> Welcome:
        peer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(peer)[1] != os.getuid():
            raise LinkRefused("the session's socket is held by another user")
        challenge = self._received()
        if not isinstance(challenge, Challenge) or challenge.version != VERSION:
            raise LinkRefused(_why(challenge) or "the session speaks another version: restart its kernel")
        self._socket.sendall(encode(Open(proof(secret, challenge.challenge), viewer)))
        welcome = self._received()
        if not isinstance(welcome, Welcome):
            raise LinkRefused(_why(welcome) or "the session gave no welcome")
        return welcome

    def _ask(self, question: _Asked, kind: type[T]) -> T:
        self._socket.sendall(encode(question))
        answer = self._received()
        if not isinstance(answer, kind) or getattr(answer, "request", None) != question.request:
            raise LinkRefused(_why(answer) or "the session gave another answer than the one to this question")
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


def _why(message: ToViewer) -> str:
    return message.reason if isinstance(message, Refused) else ""


def _sound(question: A, why: str) -> A:
    """The message, when the other end would take it: what is wrong with it would end the link."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(question), type=type(question))
    except (msgspec.ValidationError, UnicodeEncodeError):
        raise LinkRefused(why) from None


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
