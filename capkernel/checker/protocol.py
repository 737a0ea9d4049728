"""The link between the kernel and the checker process: one stream (`wire.frames`), one question at a time."""

from __future__ import annotations

import msgspec

from capkernel.diagnostics.model import Diagnostic
from capkernel.wire.local_names import NO_NAMES, LocalNames
from capkernel.wire.plan import Plan

# ── kernel → checker ─────────────────────────────────────────────────────────────────────────────────────────────────


class Check(msgspec.Struct, tag="check", frozen=True):
    """Judge `text` as cell number `cell`, against what the session holds so far. Changes nothing by itself. `names`:
    what it means by names of local modules. `trial`: it will not run, so nothing of it is remembered."""

    cell: int
    text: str
    names: LocalNames = NO_NAMES
    trial: bool = False


class Commit(msgspec.Struct, tag="commit", frozen=True):
    """The accepted cell ran: these names were bound, these deleted. Answered by Committed."""

    cell: int
    bound: tuple[str, ...]
    deleted: tuple[str, ...] = ()
    raised: bool = False  # it stopped half-way: a name has the type it may have anywhere in the cell


class Discard(msgspec.Struct, tag="discard", frozen=True):
    """The accepted cell did not run, or its effects are gone: forget it. Answered by Committed."""

    cell: int


class Complete(msgspec.Struct, tag="complete", frozen=True):
    """What could stand at `cursor` (characters) of an unfinished text? Changes nothing. `cell` is only this question's
    number: no cell has it."""

    cell: int
    text: str
    cursor: int
    names: LocalNames = NO_NAMES


class Describe(msgspec.Struct, tag="describe", frozen=True):
    """What is it that stands at `cursor`? Likewise."""

    cell: int
    text: str
    cursor: int
    names: LocalNames = NO_NAMES


class ListNames(msgspec.Struct, tag="list_names", frozen=True):
    """Which names does the session hold? Likewise."""

    cell: int


Look = Complete | Describe | ListNames
ToChecker = Check | Commit | Discard | Look

# ── checker → kernel ─────────────────────────────────────────────────────────────────────────────────────────────────


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """What takes long before Started: the first start on a machine reads the types of the libraries."""

    line: str


class Started(msgspec.Struct, tag="started", frozen=True):
    """Warm and ready. Sent once."""

    mypy: str
    seconds: float


class Accepted(msgspec.Struct, tag="accepted", frozen=True):
    """May run. `warnings` are shown and change nothing; `more` were found than are listed. `names` are
    the names the cell can bind, with their types."""

    cell: int
    plan: Plan
    warnings: tuple[Diagnostic, ...] = ()
    names: dict[str, str] = {}
    last_type: str = ""  # of the last expression, "" when the cell ends otherwise
    more: int = 0


class Rejected(msgspec.Struct, tag="rejected", frozen=True):
    """Must not run. The session is as it was. `parting`: the process ends after it, its memory is not to be trusted."""

    cell: int
    diagnostics: tuple[Diagnostic, ...]
    parting: bool = False


class Committed(msgspec.Struct, tag="committed", frozen=True):
    cell: int


class Match(msgspec.Struct, frozen=True):
    """`kind` as Jupyter's completers name it, "" when it is not known; `signature` without a name, "" for none."""

    text: str
    kind: str = ""
    signature: str = ""


class Completed(msgspec.Struct, tag="completed", frozen=True):
    """What could stand in place of the characters `start:end`."""

    cell: int
    matches: tuple[Match, ...]
    start: int
    end: int


class Described(msgspec.Struct, tag="described", frozen=True):
    """What stands there; `name` is "" when nothing is known. `fullname`: of the library's definition that documents it.
    `label`: "plain", "classified" or "capability"; `standing`: of a capability, whether it is live there, and why."""

    cell: int
    name: str = ""
    static_type: str = ""
    signatures: tuple[str, ...] = ()
    fullname: str = ""
    documentation: str = ""
    label: str = "plain"
    standing: str = ""


class KnownName(msgspec.Struct, frozen=True):
    """A name of the session: its static type, the cell that bound it, and the rest as in Described."""

    name: str
    type: str
    cell: int
    label: str = "plain"
    standing: str = ""


class KnownNames(msgspec.Struct, tag="known_names", frozen=True):
    """In the order of the alphabet; `count` is of all, also of those that are left out because there are too many."""

    cell: int
    names: tuple[KnownName, ...]
    count: int


Looked = Completed | Described | KnownNames
FromChecker = Progress | Started | Accepted | Rejected | Committed | Looked
