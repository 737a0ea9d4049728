"""The link between the kernel and the person's viewer: one Unix socket of the session, these messages (`wire.frames`).

It starts with a challenge: the viewer proves that it could read the session's secret, which never crosses the link, so
nothing that was recorded opens it again. Then every request is answered by one message with its number, or by Refused.

There are two kinds of viewers, and a proof says of which it is. Those that can read the session's secret file ("page",
"terminal") are the person's own programs. "card" is the Jupyter server that launched the kernel; it proves the secret
it handed over at the launch, which is in no file, and may ask less.

Rule 1: no cleartext crosses: a value travels sealed to the viewer's own key, and the kernel cannot open it.
Rule 2: nothing a worker sends gets here; nothing here reaches iopub.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Literal

import msgspec

from capkernel.wire.frames import MAX_BODY
from capkernel.wire.shown import KEY_BYTES

VERSION = 2
SOCKET_NAME = "view.sock"
SECRET_NAME = "view.secret"  # noqa: S105  # the name of a file
SECRET_BYTES = 32
CARD = "card"  # the viewer that is a Jupyter server
MAX_BODY_FROM_VIEWER = 4096
MAX_BODY_TO_VIEWER = MAX_BODY  # a list of 500 values with every text at its bound needs most of it

HandleText = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=500)]


def proof(secret: bytes, challenge: bytes, viewer: str) -> bytes:
    """What only a holder of the secret can answer to this challenge, as this kind of viewer."""
    return hmac.digest(secret, b"capkernel-view-2|" + viewer.encode("ascii") + b"|" + challenge, hashlib.sha256)


# ── viewer → kernel ──────────────────────────────────────────────────────────────────────────────────────────────────


class Open(msgspec.Struct, tag="open", frozen=True):
    """The first message. `viewer`: what it is ("page", "terminal", "card"); the proof is for that."""

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


class AskPage(msgspec.Struct, tag="ask_page", frozen=True):
    """From a card: may values be shown in the page, and how?"""

    request: int


class AskAbout(msgspec.Struct, tag="ask_about", frozen=True):
    """From a card: what is known of one value."""

    request: int
    handle: HandleText


class AskForPage(msgspec.Struct, tag="ask_for_page", frozen=True):
    """From a card: reveal one value, as AskValue. paired: whether the person proved that the page is theirs."""

    request: int
    handle: HandleText
    key: Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    paired: bool


FromCard = AskPage | AskAbout | AskForPage
FromViewer = Open | ListValues | AskValue | AskAudit | AskAuthority | FromCard

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
    """request: 0 when the link as a whole is refused; it is closed then. name: which refusal it is, for a card."""

    request: int
    reason: str
    name: Literal["", "no-such-value", "reveal-off", "pairing-needed"] = ""


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


class Page(msgspec.Struct, tag="page", frozen=True):
    """off: why no value of this session is shown in a page, "" when they are. pairing: whether the policy wants the
    person to prove that the page is theirs, for every value."""

    request: int
    off: str
    pairing: bool


class About(msgspec.Struct, tag="about", frozen=True):
    """value: as in a list. high: whether its origins are among those that need a paired page."""

    request: int
    value: ValueLine
    high: bool


ToViewer = Challenge | Welcome | Refused | Values | SealedValue | AuditLines | Authority | Page | About
