"""The link between the kernel and the person's viewer: one Unix socket of the session, these messages (`wire.frames`).

It starts with a challenge: the viewer proves that it could read the session's secret, which never crosses the link, so
nothing that was recorded opens it again. Then every request is answered by one message with its number, or by Refused.

There are two kinds of viewers, and a proof says of which it is. Those that can read the session's secret file ("page",
"terminal") are the person's own programs. "card" is the Jupyter server that launched the kernel; it proves the secret
it handed over at the launch, which is in no file, and may ask less.

Rule 1: no cleartext crosses: a value travels sealed to the viewer's own key, and the kernel cannot open it.
Rule 2: nothing a worker sends gets here; nothing here reaches iopub.

Questions to the person (`broker.approvals`) are answered here and nowhere else. The first of `Questions` is the open
one: only it can be decided, released or given a secret. What it `needs`:

- decision: `Decide`.
- release: `AskReleased` to a fresh key; the opened rendering (`wire.shown.Release`) shows the exact value and holds
  `seen`; `Decide` with allow=True needs that `seen`, so nobody allows what was not shown.
- secret: seal the typed text (UTF-8, at most MAX_TYPED bytes) to the question's `key` with the info
  `seal_info(secret_name(handle))`, then `GiveSecret`; or `Decide` with allow=False.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Literal

import msgspec

from capkernel.wire.frames import MAX_BODY
from capkernel.wire.shown import KEY_BYTES, MAX_TYPED

VERSION = 2
SOCKET_NAME = "view.sock"
SECRET_NAME = "view.secret"  # noqa: S105  # the name of a file
SECRET_BYTES = 32
MAX_BODY_FROM_VIEWER = 16_384
CARD = "card"  # the viewer that is a Jupyter server
MAX_BODY_TO_VIEWER = MAX_BODY  # a list of 500 values with every text at its bound needs most of it

HandleText = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
QuestionText = HandleText  # drawn by the kernel, 128 bits
Count = Annotated[int, msgspec.Meta(ge=1, le=500)]
PublicKey = Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]  # X25519, of the viewer
Words = Annotated[str, msgspec.Meta(max_length=200)]


def proof(secret: bytes, challenge: bytes, viewer: str) -> bytes:
    """What only a holder of the secret can answer to this challenge, as this kind of viewer."""
    return hmac.digest(secret, b"capkernel-view-2|" + viewer.encode("ascii") + b"|" + challenge, hashlib.sha256)


# ── viewer → kernel ──────────────────────────────────────────────────────────────────────────────────────────────────


class Open(msgspec.Struct, tag="open", frozen=True):
    """The first message. `viewer`: what it is ("page", "terminal", "card"); the proof is for that."""

    proof: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    viewer: Annotated[str, msgspec.Meta(pattern="^[a-z]{1,20}$")]


class Request(msgspec.Struct, frozen=True):
    """Every message of a viewer but the first. `request`: its number, which the answer bears."""

    request: int


class ListValues(Request, tag="list", frozen=True):
    """words: only values in whose names, types, origins, labels or functions each of them stands."""

    count: Count = 500
    words: Words = ""


class AskLineage(Request, tag="ask_lineage", frozen=True):
    """What one value was made from, and what was made from it. Answered by Lineage."""

    handle: HandleText


class AskValue(Request, tag="ask", frozen=True):
    """Reveal one value, sealed to `key` (an X25519 public key)."""

    handle: HandleText
    key: PublicKey


class AskAudit(Request, tag="ask_audit", frozen=True):
    """The newest lines; who: of the person only; words: only lines in which each of them stands."""

    count: Count = 50
    who: Literal["", "person"] = ""
    words: Words = ""


class AskAuthority(Request, tag="ask_authority", frozen=True):
    """What the running cell may do. Answered by Authority."""


class ListQuestions(Request, tag="list_questions", frozen=True):
    """Answered by Questions."""


class Decide(Request, tag="decide", frozen=True):
    """The person's decision about the open question. `seen`: of the opened release, only for allowing one. Answered by
    Decided, or Refused when the question is decided, expired or not the open one."""

    question: QuestionText
    allow: bool
    seen: Annotated[str, msgspec.Meta(max_length=64)] = ""


class AskReleased(Request, tag="ask_released", frozen=True):
    """The exact value that would be released, sealed to `key` (an X25519 public key). Answered by SealedRelease."""

    question: QuestionText
    key: PublicKey


class GiveSecret(Request, tag="give_secret", frozen=True):
    """The secret that the person typed, sealed to the question's key. Answered by Decided."""

    question: QuestionText
    sealed: Annotated[bytes, msgspec.Meta(max_length=MAX_TYPED + 64)]


class ForgetDenied(Request, tag="forget_denied", frozen=True):
    """Ask again where the person denied before. Answered by Forgotten."""


class AskWaiting(Request, tag="ask_waiting", frozen=True):
    """How many questions wait for the person. Answered by WaitingCount."""


class AskPage(Request, tag="ask_page", frozen=True):
    """From a card: may values be shown in the page, and how?"""


class AskAbout(Request, tag="ask_about", frozen=True):
    """From a card: what is known of one value."""

    handle: HandleText


class AskForPage(Request, tag="ask_for_page", frozen=True):
    """From a card: reveal one value, as AskValue. paired: whether the person proved that the page is theirs."""

    handle: HandleText
    key: PublicKey
    paired: bool


FromCard = AskPage | AskAbout | AskForPage
FromViewer = (
    Open
    | ListValues
    | AskLineage
    | AskValue
    | AskAudit
    | AskAuthority
    | ListQuestions
    | Decide
    | AskReleased
    | GiveSecret
    | ForgetDenied
    | AskWaiting
    | FromCard
)

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


class Answer(msgspec.Struct, frozen=True):
    """What answers the request of that number, when it is not refused."""

    request: int


class ValueLine(msgspec.Struct, frozen=True):
    """What is known of a classified value from the posts alone (`broker.ledger`).

    type: static, "" when unknown. origins: of everything it was made from. label: the cell's claim. code: the function,
    as checked. parents: handles. name: what the cell's text assigns it to, as far as that can be told; a claim as well.
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
    name: str = ""


class Values(Answer, tag="values", frozen=True):
    """The newest first. `total`: how many the session keeps track of. `made`: how many it has made so far, which tells
    whether there is anything new."""

    values: tuple[ValueLine, ...]
    total: int
    made: int = 0


class UsedFunction(msgspec.Struct, frozen=True):
    """A function that made a value, as checked. cell: where it was written; None for a library's, which has a name
    only."""

    name: str
    cell: int | None
    source: str


class Step(msgspec.Struct, frozen=True):
    """One value of a lineage. functions: the one that was given to `map`, then those that it calls."""

    value: ValueLine
    functions: tuple[UsedFunction, ...] = ()


class Lineage(Answer, tag="lineage", frozen=True):
    """steps: the value, then all it was made from, the nearest first. children: made from it directly, the newest
    first. cut: whether some are left out."""

    steps: tuple[Step, ...]
    children: tuple[ValueLine, ...]
    cut: bool = False


class SealedValue(Answer, tag="sealed", frozen=True):
    """See `wire.shown`."""

    handle: str
    sealed: bytes


class AuditLines(Answer, tag="audit", frozen=True):
    """JSON lines, oldest first."""

    lines: tuple[str, ...]


class Authority(Answer, tag="authority", frozen=True):
    """What the running cell may ask for, and how many handles it holds at this moment. cell: None when none runs.

    line: the same in one line (`wire.authority`). held: what is open now, in words.
    """

    cell: int | None
    may: tuple[str, ...] = ()
    handles: int = 0
    line: str = ""
    held: tuple[str, ...] = ()


class Question(msgspec.Struct, frozen=True):
    """One question to the person. Every text is one line and visible (`wire.shown_text.visible`).

    kind: the audit name of the effect ("files.write"), "secret.request", "secret.declassify" or "session.join".
    title: what is asked, in the kernel's words. facts: names and what the broker knows, in order. reason: the cell's
    claim, "" for none: show it in quotes, as a claim. asked, expires: Unix seconds; `expires` is 0 until this is the
    open question. handle: the value it is about, "" for none. key: what a secret is sealed to.
    """

    id: str
    kind: str
    cell: int
    asked: float
    expires: float
    needs: Literal["decision", "release", "secret"]
    title: str
    facts: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    handle: str = ""
    key: bytes = b""


class Questions(Answer, tag="questions", frozen=True):
    """The oldest first: the open one. denied: what is denied without asking until the person says otherwise."""

    questions: tuple[Question, ...]
    denied: tuple[str, ...] = ()


class Decided(Answer, tag="decided", frozen=True):
    question: str
    allowed: bool


class SealedRelease(Answer, tag="sealed_release", frozen=True):
    """A `wire.shown.Release` as JSON, sealed with `seal_info(release_name(handle))`, handle of the question."""

    question: str
    sealed: bytes


class WaitingCount(Answer, tag="waiting_count", frozen=True):
    count: int


class Forgotten(Answer, tag="forgotten", frozen=True):
    count: int


class Page(Answer, tag="page", frozen=True):
    """off: why no value of this session is shown in a page, "" when they are. pairing: whether the policy wants the
    person to prove that the page is theirs, for every value."""

    off: str
    pairing: bool


class About(Answer, tag="about", frozen=True):
    """value: as in a list. high: whether its origins are among those that need a paired page."""

    value: ValueLine
    high: bool


ToViewer = (
    Challenge
    | Welcome
    | Refused
    | Values
    | Lineage
    | SealedValue
    | AuditLines
    | Authority
    | Questions
    | Decided
    | SealedRelease
    | Forgotten
    | WaitingCount
    | Page
    | About
)
