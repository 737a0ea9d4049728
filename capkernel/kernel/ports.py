"""The parts a session is made of, as the kernel sees them. The real ones are put together in `assemble`; a test that
runs in this process may give others. There is no flag, variable or file that does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from capkernel.broker.questions import Waiting
from capkernel.checker.protocol import Accepted, Look, Looked, Rejected
from capkernel.wire.local_names import NO_NAMES, LocalNames
from capkernel.wire.plan import Plan
from capkernel.wire.worker import (
    Call,
    CallResult,
    Invoke,
    Post,
)


class CheckerPort(Protocol):
    async def start(self) -> object:
        """Warm up. Raises when there will be no verdicts."""

    async def check(
        self, cell: int, text: str, names: LocalNames = NO_NAMES, /, *, trial: bool = False
    ) -> Accepted | Rejected:
        """The verdict on `text`, with `names` of local modules; a crash or time-out of the checker is a Rejected.
        `trial`: it will not run, whatever the verdict."""

    async def commit(
        self, cell: int, bound: tuple[str, ...], deleted: tuple[str, ...] = (), *, raised: bool = False
    ) -> None:
        """The accepted cell ran, or came half-way (`raised`), and left these names."""

    async def discard(self, cell: int) -> None:
        """The accepted cell did not run."""

    async def look(self, question: Look) -> Looked | None:
        """The answer to a question about an unfinished text or the session's names; None when there is none in time."""

    async def close(self) -> None:
        """End its process."""


class BrokerPort(Protocol):
    def open_cell(self, cell: int, plan: Plan) -> None:
        """From now on the effects of `plan` may be asked for."""

    def refuse_cell(self, cell: int, codes: tuple[str, ...]) -> None:
        """The checker refused a cell, for these diagnostic codes: write it down."""

    def close_cell(self) -> None:
        """The cell has ended, whatever happened: revoke what it was granted."""

    async def call(self, call: Call, blob: bytes) -> tuple[CallResult, bytes]:
        """Decide about an effect and do it. Never raises for what a worker sends; blocking work is not done here."""

    def call_quickly(self, call: int, effect: Invoke) -> tuple[CallResult, bytes]:
        """`call` for one of QUICK_METHODS, done where it is asked: in the thread of the quick link, which may block."""

    def live(self) -> tuple[int | None, tuple[str, ...], int]:
        """The running cell or None, what its plan lets it ask for, how many handles it holds now."""

    async def read_module(self, path: str, cell: int) -> bytes | None:
        """The text of a module beside the notebook, read for `cell`; None when there is none that may be read."""

    def post(self, operation: Post, blob: bytes) -> None:
        """Hand a Classified operation on. Nothing comes back, and it never blocks."""

    def worker_lost(self) -> None:
        """Another worker follows, which holds nothing of the last one's."""

    async def close(self) -> None:
        """Finish what was promised, give everything back."""


class VaultPort(Protocol):
    async def start(self) -> None:
        """Start the keeper. Raises when it is not isolated as promised."""

    async def close(self) -> None:
        """End its processes; the values are gone."""


class ApprovalsPort(Protocol):
    asked: Callable[[Waiting], None]
    settled: Callable[[Waiting], None]

    def interrupt(self) -> None:
        """Nobody waits any more. From any thread."""


class ViewPort(Protocol):
    async def start(self) -> None:
        """Listen for the person's viewers. Raises OSError."""

    async def close(self) -> None:
        """Listen no more."""
