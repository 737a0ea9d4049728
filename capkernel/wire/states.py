"""Which message may come when: the state tables of the links whose ends the kernel and the keeper hold.

Rule 1: no I/O. A table is told of every message that is sent or received, before anything is done with it.
Rule 2: a message out of turn is an error, whoever sent it: LocalProtocolError for ours (nothing is sent),
RemoteProtocolError for the peer's (its process is ended). Nothing out of turn is ignored.

What may come at any time is in no table: outputs, questions and Classified operations of threads that a cell left
behind are lawful between cells; the kernel decides what becomes of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError
from capkernel.wire.vault import (
    Answer,
    Begin,
    Count,
    Describe,
    Described,
    Ended,
    Expect,
    Expected,
    FromKeeper,
    FromRunner,
    GivenOut,
    GiveOut,
    KeeperReady,
    Kept,
    Mirror,
    Mirrored,
    NewRunner,
    ReleaseShown,
    Request,
    Reveal,
    Revealed,
    RunnerLost,
    RunnerReady,
    SecureFile,
    Settle,
    Settled,
    ShowRelease,
    Status,
    ToKeeper,
    Typed,
    Write,
    Written,
)
from capkernel.wire.worker import (
    Call,
    CallResult,
    Comm,
    Complete,
    Evaluate,
    Execute,
    Finished,
    FromWorker,
    Inspect,
    Ready,
    Shutdown,
    ToWorker,
)

_REQUESTS: Final = (Execute, Complete, Inspect, Evaluate, Comm)
_RUNS_CODE: Final = (Execute, Evaluate, Comm)
_ANSWERS: Final[dict[type[Request], type[Answer]]] = {
    Write: Written,
    Mirror: Mirrored,
    Describe: Described,
    Reveal: Revealed,
    ShowRelease: ReleaseShown,
    GiveOut: GivenOut,
    Expect: Expected,
    Typed: Kept,
    Count: Status,
    Settle: Settled,
}


class WorkerLink:
    """The kernel's end of a worker's link.

    state     | the worker may send           | the kernel may send
    ----------|-------------------------------|---------------------------------------------------------------
    starting  | Ready, once                   | Shutdown
    ready     | everything else; Finished for | everything but a second request that runs code;
              | an open request, Call under a | CallResult for an open call
              | number that is not open       |
    closed    | nothing                       | nothing
    """

    def __init__(self) -> None:
        self.state = "starting"
        self._requests: dict[int, type] = {}
        self._calls: set[int] = set()

    def sending(self, message: ToWorker) -> None:
        if self.state == "closed":
            raise LocalProtocolError(f"{_name(message)} after the link was closed")
        if isinstance(message, Shutdown):
            self.state = "closed"
            return
        if self.state != "ready":
            raise LocalProtocolError(f"{_name(message)} before the worker was ready")
        if isinstance(message, _REQUESTS):
            if message.request in self._requests:
                raise LocalProtocolError("a request number that is in use")
            if isinstance(message, _RUNS_CODE) and any(kind in _RUNS_CODE for kind in self._requests.values()):
                raise LocalProtocolError(f"{_name(message)} while code runs")
            self._requests[message.request] = type(message)
        elif isinstance(message, CallResult):
            if message.call not in self._calls:
                raise LocalProtocolError("an answer to a call that is not open")
            self._calls.remove(message.call)

    def received(self, message: FromWorker) -> None:
        if isinstance(message, Ready):
            if self.state != "starting":
                raise RemoteProtocolError("it said twice that it was ready")
            self.state = "ready"
        elif self.state != "ready":
            raise RemoteProtocolError(f"{_name(message)} before it was ready")
        elif isinstance(message, Finished):
            if self._requests.pop(message.request, None) is None:
                raise RemoteProtocolError("it answered a request that was not made")
        elif isinstance(message, Call):
            if message.call in self._calls:
                raise RemoteProtocolError("it used the number of an open call again")
            self._calls.add(message.call)


class KeeperLink:
    """The kernel's end of the control link.

    Begin comes first and once, KeeperReady once after it. SecureFile comes at most once, and before every Mirror.
    RunnerReady and RunnerLost name a generation that was sent; RunnerReady comes once for it. A ticket is answered
    once, by the answer that belongs to its question.
    """

    def __init__(self) -> None:
        self._begun = self._ready = self._secure = False
        self._generation = 0
        self._runner_ready = 0  # the last generation that said so
        self._tickets: dict[int, type[Answer]] = {}

    def sending(self, message: ToKeeper) -> None:
        if isinstance(message, Begin) == self._begun:
            raise LocalProtocolError("Begin is the first message and comes once")
        self._begun = True
        if isinstance(message, NewRunner):
            if message.generation <= self._generation:
                raise LocalProtocolError("a runner of an earlier generation")
            self._generation = message.generation
        elif isinstance(message, SecureFile) and self._secure:
            raise LocalProtocolError("the secure output was handed over before")
        elif isinstance(message, SecureFile):
            self._secure = True
        elif isinstance(message, Request):
            if isinstance(message, Mirror) and not self._secure:
                raise LocalProtocolError("Mirror without a secure output")
            if message.ticket in self._tickets:
                raise LocalProtocolError("a ticket that is in use")
            self._tickets[message.ticket] = _ANSWERS[type(message)]

    def received(self, message: FromKeeper) -> None:
        if isinstance(message, KeeperReady):
            if self._ready or not self._begun:
                raise RemoteProtocolError("the keeper said twice that it was ready")
            self._ready = True
        elif not self._ready:
            raise RemoteProtocolError(f"{_name(message)} before the keeper was ready")
        elif isinstance(message, RunnerReady):
            if not self._runner_ready < message.generation <= self._generation:
                raise RemoteProtocolError("a runner was ready that was not sent, or was ready before")
            self._runner_ready = message.generation
        elif isinstance(message, RunnerLost):
            if not 0 < message.generation <= self._generation:
                raise RemoteProtocolError("a runner was lost that was not sent")
        elif self._tickets.pop(message.ticket, None) is not type(message):
            raise RemoteProtocolError("the keeper answered what was not asked")


class RunnerLink:
    """The keeper's end of one runner's link: ready once, then the end of each job it was sent, and nothing else."""

    def __init__(self) -> None:
        self.is_ready = False
        self._job: int | None = None

    def sending(self, number: int) -> None:
        if not self.is_ready or self._job is not None:
            raise LocalProtocolError("a job for a runner that is not ready or has one")
        self._job = number

    def received(self, message: FromRunner) -> None:
        if isinstance(message, RunnerReady):
            if self.is_ready:
                raise RemoteProtocolError("the runner said twice that it was ready")
            self.is_ready = True
        elif isinstance(message, Ended):
            if self._job is None or message.number != self._job:
                raise RemoteProtocolError("the end of a job that does not run")
            self._job = None


def _name(message: msgspec.Struct) -> str:
    return type(message).__name__
