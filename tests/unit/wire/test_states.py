"""State tables: what may come when, and that everything else is an error of the one who sent it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from capkernel.checker.protocol import Accepted, Check, Commit, Committed, Progress, Rejected, Started
from capkernel.checker.turns import Turns
from capkernel.wire import states
from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError
from capkernel.wire.plan import NOTHING
from capkernel.wire.states import KeeperLink, RunnerLink, WorkerLink
from capkernel.wire.vault import (
    Answer,
    Begin,
    Count,
    Describe,
    Described,
    Ended,
    FromKeeper,
    KeeperReady,
    Limits,
    Mirror,
    Mirrored,
    NewRunner,
    Request,
    RunnerLost,
    RunnerReady,
    SecureFile,
    Settle,
    Settled,
    Status,
    ToKeeper,
    Write,
    Written,
)
from capkernel.wire.worker import (
    Call,
    CallResult,
    Classify,
    CloseScope,
    Complete,
    Evaluate,
    Execute,
    Finished,
    InputReply,
    InputRequest,
    Inspect,
    MaskShown,
    Published,
    Ready,
    Shutdown,
)

READY, RUN, CALL = Ready("{}"), Execute(1, 1, "x", "x"), Call(1, CloseScope("h"))
BEGIN, KEPT, RUNNER = Begin(Limits()), KeeperReady("{}"), NewRunner(1)
STATUS = Status(1, 0, 0, 0, 0, 0, {}, 1)

# "<" is received, ">" is sent; the last one is the one that is wrong, all before it are lawful.
WORKER = [
    [("<", Published(1, "stream", {}))], [("<", Finished(1, {}))], [("<", CALL)], [("<", Classify("a"))],
    [("<", MaskShown("a"))],
    [("<", InputRequest(1, ""))], [("<", READY), ("<", READY)], [(">", RUN)], [(">", Complete(1, "x", 1))],
    [("<", READY), ("<", Finished(1, {}))], [("<", READY), (">", RUN), ("<", Finished(1, {})), ("<", Finished(1, {}))],
    [("<", READY), (">", RUN), ("<", Finished(2, {}))], [("<", READY), ("<", CALL), ("<", CALL)],
    [("<", READY), (">", CallResult(1))], [("<", READY), ("<", CALL), (">", CallResult(1)), (">", CallResult(1))],
    [("<", READY), (">", RUN), (">", Execute(2, 2, "x", "x"))], [("<", READY), (">", RUN), (">", Evaluate(2, 2, "x"))],
    [("<", READY), (">", RUN), (">", Inspect(1, "x", 1))], [(">", Shutdown()), (">", Shutdown())],
    [(">", Shutdown()), ("<", Published(1, "stream", {}))], [("<", READY), (">", Shutdown()), (">", RUN)],
]  # fmt: skip
KEEPER = [
    [(">", RUNNER)], [("<", KEPT)], [(">", BEGIN), (">", BEGIN)], [(">", BEGIN), ("<", KEPT), ("<", KEPT)],
    [(">", BEGIN), ("<", Settled(1))], [(">", BEGIN), ("<", RunnerReady("{}", 1))],
    [(">", BEGIN), ("<", KEPT), ("<", RunnerReady("{}", 1))], [(">", BEGIN), ("<", KEPT), ("<", RunnerLost(1))],
    [(">", BEGIN), ("<", KEPT), (">", RUNNER), ("<", RunnerReady("{}", 1)), ("<", RunnerReady("{}", 1))],
    [(">", BEGIN), ("<", KEPT), (">", RUNNER), ("<", RunnerReady("{}", 2))], [(">", BEGIN), (">", RUNNER), (">", RUNNER)],  # noqa: E501
    [(">", BEGIN), ("<", KEPT), ("<", Settled(1))], [(">", BEGIN), ("<", KEPT), (">", Count(1)), ("<", Settled(1))],
    [(">", BEGIN), ("<", KEPT), (">", Count(1)), ("<", STATUS), ("<", STATUS)],
    [(">", BEGIN), (">", Settle(1)), (">", Count(1))], [(">", BEGIN), ("<", KEPT), (">", Write(1, "h", 1)), ("<", STATUS)],  # noqa: E501
    [(">", BEGIN), ("<", KEPT), (">", Describe(1, "h")), ("<", Written(1, "poison"))],
    [(">", BEGIN), ("<", KEPT), (">", Describe(2, "h")), ("<", Described(1, "unknown"))],
    [(">", BEGIN), (">", Mirror(1, "h", ""))], [(">", BEGIN), (">", SecureFile()), (">", SecureFile())],
    [(">", BEGIN), (">", SecureFile()), ("<", KEPT), (">", Mirror(1, "h", "")), ("<", Written(1, "poison"))],
    [(">", BEGIN), (">", SecureFile()), ("<", KEPT), ("<", Mirrored(1))],
]  # fmt: skip
CHECKER = [
    [(">", Check(1, "x"))], [("<", Committed(1))], [("<", Started("", 0)), ("<", Started("", 0))],
    [("<", Started("", 0)), ("<", Progress("x"))], [("<", Started("", 0)), ("<", Rejected(1, ()))],
    [("<", Started("", 0)), (">", Check(1, "x")), (">", Check(2, "x"))],
    [("<", Started("", 0)), (">", Check(1, "x")), ("<", Accepted(2, NOTHING))],
    [("<", Started("", 0)), (">", Check(1, "x")), ("<", Committed(1))],
    [("<", Started("", 0)), (">", Commit(1, ())), ("<", Accepted(1, NOTHING))],
    [("<", Started("", 0)), (">", Check(1, "x")), ("<", Rejected(1, ())), ("<", Rejected(1, ()))],
]  # fmt: skip
RUNNER_END = [
    [("<", Ended(1))], [(">", 1)], [("<", RunnerReady("{}")), ("<", RunnerReady("{}"))],
    [("<", RunnerReady("{}")), ("<", Ended(1))], [("<", RunnerReady("{}")), (">", 1), ("<", Ended(2))],
    [("<", RunnerReady("{}")), (">", 1), (">", 2)], [("<", RunnerReady("{}")), (">", 1), ("<", Ended(1)), ("<", Ended(1))],  # noqa: E501
]  # fmt: skip
ALL = [
    (kind, steps)
    for kind, sequences in ((WorkerLink, WORKER), (KeeperLink, KEEPER), (Turns, CHECKER), (RunnerLink, RUNNER_END))
    for steps in sequences
]


def play(link: Any, steps: list[tuple[str, Any]]) -> None:
    for direction, message in steps:
        (link.received if direction == "<" else link.sending)(message)


@pytest.mark.parametrize(("kind", "steps"), ALL, ids=str)
def test_out_of_turn(kind: type, steps: list[tuple[str, Any]]) -> None:
    link = kind()
    play(link, steps[:-1])  # lawful so far
    error = RemoteProtocolError if steps[-1][0] == "<" else LocalProtocolError
    if isinstance(link, WorkerLink) and link.state == "closed" and steps[-1][0] == "<":
        error = RemoteProtocolError
    with pytest.raises(error):
        play(link, steps[-1:])


def test_every_request_to_the_keeper_has_its_answer() -> None:
    assert states._ANSWERS.keys() == {kind for kind in get_args(ToKeeper) if issubclass(kind, Request)}
    answers = [kind for kind in get_args(FromKeeper) if issubclass(kind, Answer)]
    assert sorted(kind.__name__ for kind in states._ANSWERS.values()) == sorted(kind.__name__ for kind in answers)


def test_lawful_orders() -> None:
    play(WorkerLink(), [
        ("<", READY), ("<", Published(9, "stream", {})), ("<", Classify("a")), ("<", MaskShown("a")), (">", Complete(1, "x", 1)), (">", Execute(2, 1, "x", "x")),  # noqa: E501
        ("<", CALL), ("<", Call(2, CloseScope("h"))), ("<", Finished(1, {})), (">", CallResult(2)), ("<", InputRequest(2, "")),  # noqa: E501
        (">", InputReply(2, "x")), ("<", Finished(2, {})), (">", CallResult(1)), ("<", CALL), (">", Evaluate(3, 2, "x")),  # noqa: E501
        (">", Shutdown()),
    ])  # fmt: skip
    play(KeeperLink(), [
        (">", BEGIN), (">", Describe(1, "0")), ("<", KEPT), (">", RUNNER), ("<", Described(1, "unknown")), ("<", RunnerLost(1)),  # noqa: E501
        (">", NewRunner(2)), ("<", RunnerLost(1)), ("<", RunnerReady("{}", 2)), (">", Settle(2)), ("<", Settled(2)),
        (">", SecureFile()), (">", Mirror(3, "h", "")), ("<", Mirrored(3)),
    ])  # fmt: skip
    play(Turns(), [
        ("<", Progress("x")), ("<", Started("", 0)), (">", Check(1, "x")), ("<", Accepted(1, NOTHING)), (">", Commit(1, ())),  # noqa: E501
        ("<", Committed(1)),
    ])  # fmt: skip
