"""The link between the kernel (trusted) and the worker (untrusted): one stream, these messages. Requests to the worker
have a second one (`Request`), small effects a third, the quick link (`QUICK_METHODS`).

`request` is the kernel's number of the Jupyter request a message belongs to. The kernel looks it up and ignores what
it does not know; a worker's word is never trusted.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any, Final, Literal, get_args

import msgspec

from capkernel.wire.local_names import NO_NAMES, LocalNames
from capkernel.wire.plan import CodeKey, Made, MaskSite

# A body from the worker is decoded into Python objects in the kernel, which take far more room than its bytes. Outputs
# are limited anyway; contents of files travel as the blob.
MAX_BODY_FROM_WORKER = 16 * 1024 * 1024

# Of a displayed Classified: its handle, from which the kernel makes what clients get. It never leaves the kernel.
HANDLE_MIME: Final = "application/vnd.capkernel.handle"

CommKind = Literal["comm_open", "comm_msg", "comm_close"]
COMM_KINDS: Final = frozenset(get_args(CommKind))

# ── both directions ──────────────────────────────────────────────────────────────────────────────────────────────────


class Comm(msgspec.Struct, tag="comm", frozen=True):
    """A message of a comm, as Jupyter has it. Its binary buffers, of these lengths, are the frame's blob, one after the
    other. To the worker it is a request: what it calls has run when Finished comes. `parent`: as in Execute."""

    request: int
    kind: CommKind
    comm: str
    data: Any = None
    target: str = ""  # of comm_open
    module: str | None = None  # of comm_open: where a front end loads the target from
    metadata: dict[str, Any] = {}
    buffers: tuple[int, ...] = ()
    parent: str = ""

    def parts(self, blob: bytes) -> list[bytes]:
        """The buffers. Raises ValueError when the lengths are not those of the blob."""
        if any(length < 0 for length in self.buffers) or sum(self.buffers) != len(blob):
            raise ValueError("buffers that do not add up")
        ends = list(accumulate(self.buffers, initial=0))
        return [blob[start:end] for start, end in pairwise(ends)]


# ── kernel → worker ──────────────────────────────────────────────────────────────────────────────────────────────────


class Timed(msgspec.Struct, frozen=True):
    """The statements that begin on these lines (1-based, inclusive) are timed: once, or (`many`) in `repeat` runs of
    `loops` each, 0 for as many as `%timeit` takes."""

    line: int
    end_line: int
    many: bool = False
    loops: int = 0
    repeat: int = 0


class Execute(msgspec.Struct, tag="execute", frozen=True):
    """Run `text`, the very text that was checked. `raw` is what the person typed, kept for `In[n]` only. `names`: what
    it means by names of local modules; with a `module` it is that module's text, and nobody typed it. `parent`: the id
    by which the client knows the request, when outputs may be active: widgets tell it to the page."""

    request: int
    cell: int
    raw: str
    text: str
    silent: bool = False
    store_history: bool = True
    allow_stdin: bool = False
    masks: tuple[MaskSite, ...] = ()
    names: LocalNames = NO_NAMES
    timed: tuple[Timed, ...] = ()
    parent: str = ""


class Complete(msgspec.Struct, tag="complete", frozen=True):
    """What could stand at `cursor`? `keys_of`: when that is in a text, names whose columns or keys it may be; those of
    the first that has any are the `keys` of the answer."""

    request: int
    code: str
    cursor: int
    keys_of: tuple[str, ...] = ()


class Inspect(msgspec.Struct, tag="inspect", frozen=True):
    """What is it that stands at `cursor`? With `about`, the full name of a library's definition, only its docstring is
    wanted."""

    request: int
    code: str
    cursor: int
    detail: int = 0
    about: str = ""


class Evaluate(msgspec.Struct, tag="evaluate", frozen=True):
    """Evaluate `text`, one expression that was checked as a cell of its own, and give back how it is displayed:
    `{"status": "ok", "data": …, "metadata": …}`, or the error as a cell's reply has it."""

    request: int
    cell: int
    text: str
    masks: tuple[MaskSite, ...] = ()
    names: LocalNames = NO_NAMES


class InputReply(msgspec.Struct, tag="input_reply", frozen=True):
    request: int
    value: str | None  # None: the person gave no answer (end of file)


class CallResult(msgspec.Struct, tag="call_result", frozen=True):
    """The broker's answer to a Call. Bulk data (file contents) is the frame's blob. elsewhere: on the quick link, that
    nothing was done and the other link must be asked, since the effect waits for the person."""

    call: int
    value: Any = None  # plain: None, bool, int, str, list, dict of such
    error: Failure | None = None
    elsewhere: bool = False


class Failure(msgspec.Struct, frozen=True):
    """Why an effect did not happen. `kind` is a name out of `api.errors`; the message holds no classified content."""

    kind: str
    message: str
    errno: int = 0
    filename: str = ""


class Shutdown(msgspec.Struct, tag="shutdown", frozen=True):
    pass


Request = Execute | Evaluate | Complete | Inspect | Comm  # on the request link
Answer = InputReply | CallResult | Shutdown
ToWorker = Request | Answer

# ── worker → kernel ──────────────────────────────────────────────────────────────────────────────────────────────────


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """Sent once, locked down, before any cell. `report` is `sandbox.Report` as JSON."""

    report: str


class Published(msgspec.Struct, tag="published", frozen=True):
    """What IPython would have sent on iopub. The kernel's firewall decides what of it goes out."""

    request: int
    kind: Literal["stream", "display_data", "update_display_data", "execute_result", "error", "clear_output"]
    content: dict[str, Any]
    metadata: dict[str, Any] = {}


class InputRequest(msgspec.Struct, tag="input_request", frozen=True):
    request: int
    prompt: str
    password: bool = False


class Finished(msgspec.Struct, tag="finished", frozen=True):
    """The end of an Execute, Evaluate, Complete, Inspect or Comm: its reply content, and for a cell the names bound and
    deleted."""

    request: int
    content: dict[str, Any]
    bound: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


class OpenScope(msgspec.Struct, tag="open_scope", frozen=True):
    kind: str  # "file_system"
    argument: str


class CloseScope(msgspec.Struct, tag="close_scope", frozen=True):
    handle: str


class Invoke(msgspec.Struct, tag="invoke", frozen=True):
    """A method call on a capability. Content to write is the frame's blob; `secret` is a Classified handle; `offset` is
    the first byte that is asked for of an open file."""

    handle: str
    method: str
    path: str = ""
    secret: str = ""
    paths: tuple[str, ...] = ()
    offset: int = 0


class AskSecret(msgspec.Struct, tag="ask_secret", frozen=True):
    """The secret of this name. The answer is a Classified handle. `label`: the cell's claim."""

    name: str
    label: str = ""


class AskRelease(msgspec.Struct, tag="ask_release", frozen=True):
    """The value behind a Classified handle. The answer's blob is the encoded value (`wire.values`), when the person
    allowed it. `reason`: the cell's claim."""

    handle: str
    reason: str


Effect = OpenScope | CloseScope | Invoke | AskSecret | AskRelease


class Call(msgspec.Struct, tag="call", frozen=True):
    """An effect the cell waits for. Answered by one CallResult with the same number."""

    call: int
    effect: Effect


QUICK_METHODS: Final = frozenset(
    ("access", "exists", "is_directory", "is_classified", "size", "read_bytes", "may_write", "may_create")
)
"""What may be asked for on the quick link: an Invoke of one of these, in a Call of which one is open at a time,
answered by its CallResult. Each is bounded work, changes nothing, and names nothing that the other link still carries.
"""


QUICK_MAX_BODY: Final = 64 * 1024  # bytes of a call on it: a longest path, and more


class FunctionRef(msgspec.Struct, frozen=True):
    """Which function the worker says it passes: one of a cell, or a library function by qualified name."""

    key: CodeKey | None = None
    table: str = ""
    made: Made = ""  # what is made of it, with the arguments that stand in the captured data


class Classify(msgspec.Struct, tag="classify", frozen=True):
    """Take the plain value in the blob (`wire.values`) under `new`. No answer, as for every Classified operation.
    `mask`, here and below: the static type that the worker found; it counts only when the checker gave it to the cell.
    """

    new: str
    label: str = ""
    mask: str = ""


class MapClassified(msgspec.Struct, tag="map", frozen=True):
    """`new` = function(`source`). The blob holds the captured data: `wire.values`, a dict of dicts by function key."""

    new: str
    source: str
    function: FunctionRef
    flat: bool = False
    mask: str = ""


class ZipClassified(msgspec.Struct, tag="zip", frozen=True):
    new: str
    left: str
    right: str
    mask: str = ""


class MaskShown(msgspec.Struct, tag="mask_shown", frozen=True):
    """The mask of this value became text. The person's secure output, when there is one, gets the value. No answer."""

    handle: str


class Dropped(msgspec.Struct, tag="dropped", frozen=True):
    """These Classified values are gone from the worker: no cell can name them again. At most MAX_DROPPED. No answer."""

    handles: tuple[str, ...]


MAX_DROPPED: Final = 10_000

Post = Classify | MapClassified | ZipClassified | MaskShown | Dropped

FromWorker = Ready | Published | Comm | InputRequest | Finished | Call | Post
