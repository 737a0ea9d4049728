"""The link between the kernel and the checker process: one stream (`wire.frames`), one question at a time."""

from __future__ import annotations

import msgspec

from capkernel.diagnostics.model import Diagnostic
from capkernel.wire.local_names import NO_NAMES, LocalNames
from capkernel.wire.plan import Plan

# ── kernel → checker ─────────────────────────────────────────────────────────────────────────────────────────────────


class Check(msgspec.Struct, tag="check", frozen=True):
    """Judge `text` as cell number `cell`, against what the session holds so far. Changes nothing by itself. `names`:
    what it means by names of local modules."""

    cell: int
    text: str
    names: LocalNames = NO_NAMES


class Commit(msgspec.Struct, tag="commit", frozen=True):
    """The accepted cell ran: these names were bound, these deleted. Answered by Committed."""

    cell: int
    bound: tuple[str, ...]
    deleted: tuple[str, ...] = ()
    raised: bool = False  # it stopped half-way: a name has the type it may have anywhere in the cell


class Discard(msgspec.Struct, tag="discard", frozen=True):
    """The accepted cell did not run, or its effects are gone: forget it. Answered by Committed."""

    cell: int


ToChecker = Check | Commit | Discard

# ── checker → kernel ─────────────────────────────────────────────────────────────────────────────────────────────────


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """What takes long before Started: the first start on a machine reads the types of the libraries."""

    line: str


class Started(msgspec.Struct, tag="started", frozen=True):
    """Warm and ready. Sent once."""

    mypy: str
    seconds: float


class Accepted(msgspec.Struct, tag="accepted", frozen=True):
    """May run. `warnings` are shown and change nothing. `names` are the names the cell can bind, with their types."""

    cell: int
    plan: Plan
    warnings: tuple[Diagnostic, ...] = ()
    names: dict[str, str] = {}
    last_type: str = ""  # of the last expression, "" when the cell ends otherwise


class Rejected(msgspec.Struct, tag="rejected", frozen=True):
    """Must not run. The session is as it was. `parting`: the process ends after it, its memory is not to be trusted."""

    cell: int
    diagnostics: tuple[Diagnostic, ...]
    parting: bool = False


class Committed(msgspec.Struct, tag="committed", frozen=True):
    cell: int


FromChecker = Progress | Started | Accepted | Rejected | Committed
