"""The link between the kernel and the person's viewer: one Unix socket of the session, these messages (`wire.frames`).

It starts with a challenge: the viewer proves that it could read the session's secret, which never crosses the link, so
nothing that was recorded opens it again. Then every request is answered by one message with its number, or by Refused.

Rule 1: no cleartext crosses: a value travels sealed to the viewer's own key, and the kernel cannot open it.
Rule 2: nothing a worker sends gets here; nothing here reaches iopub.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated

import msgspec

from capkernel.wire.frames import MAX_BODY
from capkernel.wire.shown import KEY_BYTES

VERSION = 1
SOCKET_NAME = "view.sock"
SECRET_NAME = "view.secret"  # noqa: S105  # the name of a file
SECRET_BYTES = 32
MAX_BODY_FROM_VIEWER = 4096
MAX_BODY_TO_VIEWER = MAX_BODY  # a list of 500 values with every text at its bound needs most of it

HandleText = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=500)]


def proof(secret: bytes, challenge: bytes) -> bytes:
    """What only a holder of the secret can answer to this challenge."""
    return hmac.digest(secret, b"capkernel-view-1|" + challenge, hashlib.sha256)


# ── viewer → kernel ──────────────────────────────────────────────────────────────────────────────────────────────────


class Open(msgspec.Struct, tag="open", frozen=True):
    """The first message. `viewer`: what it is, for the audit ("page", "terminal")."""

    proof: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    viewer: Annotated[str, msgspec.Meta(pattern="^[a-z]{1,20}$")]


class ListValues(msgspec.Struct, tag="list", frozen=True):
    request: int
    count: Count = 500


class AskValue(msgspec.Struct, tag="ask", frozen=True):
    """Reveal one value, sealed to `key` (an X25519 public key)."""

    request: int
    handle: HandleText
    key: Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class AskAudit(msgspec.Struct, tag="ask_audit", frozen=True):
    request: int
    count: Count = 50


class AskAuthority(msgspec.Struct, tag="ask_authority", frozen=True):
    request: int


FromViewer = Open | ListValues | AskValue | AskAudit | AskAuthority

# ── kernel → viewer ──────────────────────────────────────────────────────────────────────────────────────────────────


class Challenge(msgspec.Struct, tag="challenge", frozen=True):
    """Sent first, fresh for every connection."""

    version: int
    challenge: bytes


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """The proof is right. directory: the notebook's. started: Unix time in seconds."""

    session: str
    directory: str
    pid: int
    started: float


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """request: 0 when the link as a whole is refused; it is closed then."""

    request: int
    reason: str


class ValueLine(msgspec.Struct, frozen=True):
    """What is known of a classified value from the posts alone (`broker.ledger`).

    type: static, "" when unknown. origins: of everything it was made from. label: the cell's claim. code: the function,
    as checked. parents: handles.
    """

    handle: str
    cell: int
    how: str
    type: str = ""
    origins: tuple[str, ...] = ()
    label: str = ""
    code: str = ""
    code_cell: int | None = None
    parents: tuple[str, ...] = ()


class Values(msgspec.Struct, tag="values", frozen=True):
    """The newest first. `total`: how many the session keeps track of."""

    request: int
    values: tuple[ValueLine, ...]
    total: int


class SealedValue(msgspec.Struct, tag="sealed", frozen=True):
    """See `wire.shown`."""

    request: int
    handle: str
    sealed: bytes


class AuditLines(msgspec.Struct, tag="audit", frozen=True):
    """JSON lines, oldest first."""

    request: int
    lines: tuple[str, ...]


class Authority(msgspec.Struct, tag="authority", frozen=True):
    """What the running cell may ask for, and how many handles it holds at this moment. cell: None when none runs."""

    request: int
    cell: int | None
    may: tuple[str, ...] = ()
    handles: int = 0


ToViewer = Challenge | Welcome | Refused | Values | SealedValue | AuditLines | Authority
