"""The links of the vault: kernel ↔ keeper (the control link), keeper ↔ runner, and keeper ↔ each job's process.

All are streams in the layout of `wire.frames`. A message that hands over a descriptor (`NewRunner`, `Fill`, `Write`,
`SecureFile`, `Job`) is sent with exactly one descriptor as ancillary data on its first byte; the receiver queues
descriptors and gives each such message the next one. Posts (`Put`, `Fill`, `Map`, `Zip`, `Spoil`, `Release`) are never
answered.

Rule 1: values travel only between the keeper and the process of one job, over a stream of that job's own. So the
runner's memory never holds one, and no job can find what an earlier one left there.
Rule 2: nobody but a job's process decodes a value; the keeper reads str and bytes only. What the person sees is
rendered by a job as well, and leaves the keeper sealed to the viewer's key.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from capkernel.wire.plan import CodeKey, Made, PureFunction


class Limits(msgspec.Struct, frozen=True):
    """Bounds on the vault's work. Seconds are wall time; bytes are of encoded values unless said otherwise."""

    job_seconds: float = 20.0
    job_memory_bytes: int = 2 * 1024**3  # address space of a job beyond what the runner itself has
    result_bytes: int = 256 * 1024**2
    fill_bytes: int = 64 * 1024**2  # of a file that `Fill` reads
    job_input_bytes: int = 1024**3  # argument, captured data and captured handles together
    total_bytes: int = 4 * 1024**3  # all values the keeper holds; beyond it new ones become poison
    kept_values: int = 100  # that no cell can reach any more, for the person
    kept_bytes: int = 256 * 1024**2  # of those


class FunctionBundle(msgspec.Struct, frozen=True):
    """A pure function with all it needs, as the kernel hands it to the vault.

    Either `entry` names one of `functions`, or `table` is the qualified name of a library function
    ("builtins.str.upper"). `functions` holds every session function that is reachable from the entry, itself included.

    The captured data beside it is one `wire.values` dict: "globals" {name: value} for all functions, "closure"
    {name: value} for the entry, and optionally "closures" {function_id(key): {name: value}} for others with free
    variables of their own. Classified objects in it are handles. With `made`, "applied" holds {"arguments": list,
    "keywords": dict}.
    """

    entry: CodeKey | None = None
    table: str = ""
    functions: tuple[PureFunction, ...] = ()
    made: Made = ""


_KEEPING_TABLES = frozenset(("builtins.str.strip",))


def keeps_format(bundle: FunctionBundle) -> bool:
    """Whether the function leaves the text of a secret whole: its argument, stripped at most, in fixed text."""
    if bundle.made:
        return False
    return bundle.table in _KEEPING_TABLES or any(f.keeps_format for f in bundle.functions if f.key == bundle.entry)


def function_id(key: CodeKey) -> str:
    """The text that stands for a function in the "closures" of the captured data."""
    return f"{key.cell}:{key.line}:{key.name}:{'.'.join(map(str, key.span))}"


# ── kernel → keeper ──────────────────────────────────────────────────────────────────────────────────────────────────


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """The first message."""

    limits: Limits


class NewRunner(msgspec.Struct, tag="new_runner", frozen=True):
    """With a descriptor: the keeper's end of a fresh runner link. `generation` counts runners from 1."""

    generation: int


class Put(msgspec.Struct, tag="put", frozen=True):
    """Hold the blob under `handle`."""

    handle: str
    origin: str
    label: str = ""


class Fill(msgspec.Struct, tag="fill", frozen=True):
    """With a descriptor of a regular file: read it from its start and hold the content under `handle`."""

    handle: str
    kind: Literal["str", "bytes"]
    origin: str
    label: str = ""


class Map(msgspec.Struct, tag="map", frozen=True):
    """`new` = function(`source`). The blob is the captured data (see FunctionBundle)."""

    new: str
    source: str
    bundle: FunctionBundle
    flat: bool = False


class Zip(msgspec.Struct, tag="zip", frozen=True):
    new: str
    left: str
    right: str


class Spoil(msgspec.Struct, tag="spoil", frozen=True):
    """`new` is poison: the kernel refused what was to make it. `reason` is for the person, of types and names."""

    new: str
    reason: str


class Release(msgspec.Struct, tag="release", frozen=True):
    """When everything posted before is done, no cell can reach these values any more. The keeper keeps some for the
    person (`Limits`), those it was `shown` first. Not answered."""

    handles: tuple[str, ...]
    shown: tuple[bool, ...]


class Request(msgspec.Struct, frozen=True):
    """What is answered, once. `ticket`: its number, which the answer bears."""

    ticket: int


class Write(Request, tag="write", frozen=True):
    """With a descriptor of a regular file open for writing: put the value there once known. Answered by Written."""

    handle: str
    limit_bytes: int


class SecureFile(msgspec.Struct, tag="secure_file", frozen=True):
    """With a descriptor: the person's secure output, open for appending. The keeper keeps it; comes once."""


class Mirror(Request, tag="mirror", frozen=True):
    """Append the value as the person may see it to the secure output, below `header`, when everything posted before is
    done. Answered by Mirrored."""

    handle: str
    header: str


class Describe(Request, tag="describe", frozen=True):
    """What the person's viewer may show of a handle beside the value. Answered by Described."""

    handle: str


class Reveal(Request, tag="reveal", frozen=True):
    """The value as the person may see it (`wire.shown`), sealed to this X25519 public key. Answered by Revealed."""

    handle: str
    key: bytes


class ShowRelease(Request, tag="show_release", frozen=True):
    """The exact value, were it released (`wire.shown.Release`), sealed to this X25519 public key. Answered by
    ReleaseShown."""

    handle: str
    key: bytes


class GiveOut(Request, tag="give_out", frozen=True):
    """Release the value to the kernel, for a person who has seen it: `seen` stands in the rendering. Answered by
    GivenOut."""

    handle: str
    seen: str


class Expect(Request, tag="expect", frozen=True):
    """A person is asked to type what `handle` will be. Answered by Expected."""

    handle: str
    origin: str
    label: str = ""


class Typed(Request, tag="typed", frozen=True):
    """What the person typed, sealed to the key of Expected: hold it under the handle, as str. Answered by Kept."""

    handle: str
    sealed: bytes


class Count(Request, tag="count", frozen=True):
    """Answered at once by Status."""


class Settle(Request, tag="settle", frozen=True):
    """Answered by Settled when everything posted before is done."""


# What the keeper's state acts on; runners are adopted by its loop.
KeeperMessage = (
    Begin
    | Put
    | Fill
    | Map
    | Zip
    | Spoil
    | Release
    | Write
    | SecureFile
    | Mirror
    | Describe
    | Reveal
    | ShowRelease
    | GiveOut
    | Expect
    | Typed
    | Count
    | Settle
)
ToKeeper = NewRunner | KeeperMessage

# ── keeper → kernel ──────────────────────────────────────────────────────────────────────────────────────────────────


class KeeperReady(msgspec.Struct, tag="keeper_ready", frozen=True):
    """Sent once, locked down, before any value. `report` is `sandbox.Report` as JSON."""

    report: str


class RunnerReady(msgspec.Struct, tag="runner_ready", frozen=True):
    """A runner said it is locked down. Passed on by the keeper with the generation."""

    report: str
    generation: int = 0


class RunnerLost(msgspec.Struct, tag="runner_lost", frozen=True):
    """The runner died, hangs or broke the protocol; its job is poison. The kernel kills it and sends a new one."""

    generation: int


class Answer(msgspec.Struct, frozen=True):
    """What answers the request of that number."""

    ticket: int


class Written(Answer, tag="written", frozen=True):
    """Outcome of a Write. For the kernel and the person; never for the worker.

    written: `size` bytes went out · poison · not_text: neither str (without lone surrogates) nor bytes · too_large:
    more than the limit, nothing was written · failed: the system refused (`errno`), part may have been written.
    """

    outcome: Literal["written", "poison", "not_text", "too_large", "failed"]
    size: int = 0
    errno: int = 0


class Mirrored(Answer, tag="mirrored", frozen=True):
    """Whether the secure output took an entry; `errno` 0 when it did. The same for a value and for poison."""

    errno: int = 0


class Described(Answer, tag="described", frozen=True):
    """State, type, lineage and, for poison, the reason. For the person's viewer only: it depends on the value."""

    state: Literal["unknown", "pending", "value", "poison"]
    type_name: str = ""
    size: int = 0
    origins: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    reason: str = ""
    place: str = ""
    format_kept: bool = False  # every step from its one origin, a text, left that text whole


class Revealed(Answer, tag="revealed", frozen=True):
    """A sealed rendering, of a value, of poison or of a value that is not there alike; empty only for a bad key."""

    sealed: bytes


class ReleaseShown(Answer, tag="release_shown", frozen=True):
    """A sealed `Release`, also when there is nothing to release; empty only for a bad key."""

    sealed: bytes


class GivenOut(Answer, tag="given_out", frozen=True):
    """The encoded value (at most MAX_RELEASED bytes), or nothing when `seen` did not stand in a rendering of it."""

    value: bytes = b""


class Expected(Answer, tag="expected", frozen=True):
    """The X25519 public key to seal to; empty when the handle is taken."""

    key: bytes


class Kept(Answer, tag="kept", frozen=True):
    """Whether it could be opened and is held now."""

    kept: bool


class Status(Answer, tag="status", frozen=True):
    """Counts and types, no values. For tests and the person's viewer only."""

    values: int
    poisoned: int
    pending: int
    jobs_done: int
    held_bytes: int
    types: dict[str, int]
    runner_generation: int


class Settled(Answer, tag="settled", frozen=True):
    """Everything posted before the request is done."""


FromKeeper = (
    KeeperReady
    | RunnerReady
    | RunnerLost
    | Written
    | Mirrored
    | Described
    | Revealed
    | ReleaseShown
    | GivenOut
    | Expected
    | Kept
    | Status
    | Settled
)

# ── keeper → runner ──────────────────────────────────────────────────────────────────────────────────────────────────


class Job(msgspec.Struct, tag="job", frozen=True):
    """With a descriptor: one end of a fresh stream. Fork a process that serves this job on it."""

    number: int
    bundle: FunctionBundle
    flat: bool
    pieces: int
    libraries: tuple[str, ...]  # of numpy and pandas, what the values need
    seconds: float
    memory_bytes: int
    result_bytes: int


ToRunner = Job

# ── runner → keeper ──────────────────────────────────────────────────────────────────────────────────────────────────


class Ended(msgspec.Struct, tag="ended", frozen=True):
    """The job's process is gone. `problem` is empty when it exited as one that has answered; else why it has not."""

    number: int
    problem: str = ""


FromRunner = RunnerReady | Ended

# ── keeper → job ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Piece(msgspec.Struct, tag="piece", frozen=True):
    """One encoded value, in the blob: the argument, the captured data, then each captured handle with its name."""

    handle: str = ""


# ── job → keeper ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Result(msgspec.Struct, tag="result", frozen=True):
    """What the function returned, encoded, in the blob."""


class Poisoned(msgspec.Struct, tag="poisoned", frozen=True):
    """The function has no result. `reason` is the name of an exception type or of a limit, `place` a cell and line."""

    reason: str
    place: str = ""


FromJob = Result | Poisoned
