"""A worker's word is never trusted: what a hostile one may send, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from capkernel.kernel.worker_process import Handlers, Spawned, WorkerDied, WorkerProcess, WorkerUnfit
from capkernel.sandbox import Level, Report
from capkernel.sandbox.levels import STANDARD_PROPERTIES
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.worker import (
    Call,
    CallResult,
    Classify,
    Complete,
    Finished,
    InputRequest,
    Invoke,
    Published,
    Ready,
    ToWorker,
)

STANDARD = Report(Level.STANDARD, 7, dict.fromkeys(STANDARD_PROPERTIES, True)).to_json()
NONE = Report(Level.NONE, 0, dict.fromkeys(STANDARD_PROPERTIES, False)).to_json()


class Child:
    pid = 1

    def __init__(self) -> None:
        self.killed = False
        self.signals: list[int] = []
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: int) -> bool:
        self.signals.append(number)
        return True

    def terminate_hard(self) -> None:
        self.killed = True


class Stage:
    """A worker process whose other end is in our hands."""

    def __init__(
        self,
        problems: list[str] | None = None,
        minimum: Level = Level.STANDARD,
        call_quickly: Callable[[int, Invoke], tuple[CallResult, bytes]] | None = None,
    ) -> None:
        ours, self.theirs = socket.socketpair()
        requests, self.requests = socket.socketpair()
        quick, self.quick = socket.socketpair()
        out, self.stdout = os.pipe()
        err, self.stderr = os.pipe()
        self.child = Child()
        self.seen: list[Any] = []
        self.cleaned = False
        self.post_problem: Exception | None = None

        def clean() -> None:
            self.cleaned = True

        async def call(message: Call, blob: bytes) -> tuple[CallResult, bytes]:
            self.seen.append(message)
            if message.call == 13:
                raise ZeroDivisionError("a bug of ours")
            return CallResult(message.call, "done"), blob

        def never(call: int, effect: Invoke) -> tuple[CallResult, bytes]:
            self.seen.append(effect)
            return CallResult(call), b""

        def post(message: Any, blob: bytes) -> None:
            if self.post_problem is not None:
                raise self.post_problem
            self.seen.append(message)

        self.worker = WorkerProcess(
            Spawned(self.child, ours, requests, quick, out, err, lambda: problems or [], clean),
            Handlers(
                published=self.seen.append,
                comm=lambda message, blob: self.seen.append((message, blob)),
                printed=lambda name, text: self.seen.append((name, text)),
                asked=self.seen.append,
                call=call,
                call_quickly=call_quickly or never,
                post=post,
                ended=lambda _: self.seen.append("ended"),
            ),
            minimum,
        )

    def say(self, *messages: Any) -> None:
        for message in messages:
            self.theirs.sendall(message if isinstance(message, bytes) else encode(message))

    def heard(self, link: socket.socket | None = None) -> list[Any]:
        """On the link, or on `link`."""
        reader: FrameReader[Any] = FrameReader(ToWorker)
        link = link or self.theirs
        link.setblocking(False)
        try:
            reader.feed(link.recv(1 << 20))
        except BlockingIOError:
            return []
        return [message for message, _ in reader.frames()]


def play(scene: Callable[[Stage], Awaitable[None]], stage: Stage | None = None) -> Stage:
    stage = stage or Stage()

    async def whole() -> None:
        await scene(stage)
        if not stage.worker.ended:
            stage.worker.close()
        await asyncio.sleep(0)

    asyncio.run(whole())
    for descriptor in (stage.stdout, stage.stderr):
        os.close(descriptor)
    stage.theirs.close()
    stage.requests.close()
    stage.quick.close()
    return stage


async def started(stage: Stage) -> None:
    stage.say(Ready(STANDARD))
    await stage.worker.start()


async def a_moment() -> None:
    for _ in range(5):
        await asyncio.sleep(0.005)


def test_a_good_start_and_end() -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        future = stage.worker.request(Complete(4, "x", 1))
        await a_moment()
        assert stage.heard(stage.requests) == [Complete(4, "x", 1)]
        assert stage.heard() == []
        stage.requests.sendall(b"x" * 1000)  # nobody hears it
        stage.say(Published(4, "stream", {}), Finished(4, {"status": "ok"}))
        assert (await future).content == {"status": "ok"}

    stage = play(scene)
    assert stage.child.killed
    assert stage.cleaned
    assert stage.seen == [Published(4, "stream", {}), "ended"]


def test_a_worker_that_takes_no_requests_is_ended() -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        stage.requests.close()
        with pytest.raises(WorkerDied):
            await asyncio.wait_for(stage.worker.request(Complete(4, "x", 1)), 30)

    assert play(scene).child.killed


@pytest.mark.parametrize(
    ("problems", "report", "minimum", "why"),
    [
        (["no filter"], STANDARD, Level.STANDARD, "no filter"),
        ([], NONE, Level.STANDARD, "the policy demands standard"),
        ([], STANDARD, Level.FULL, "the policy demands full"),
    ],
)
def test_an_unfit_worker_is_ended(problems: list[str], report: str, minimum: Level, why: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.say(Ready(report))
        with pytest.raises(WorkerUnfit, match=why):
            await stage.worker.start()

    assert play(scene, Stage(problems, minimum)).child.killed


def test_the_operator_may_allow_any() -> None:
    async def scene(stage: Stage) -> None:
        stage.say(Ready(NONE))
        assert (await stage.worker.start()).level is Level.NONE

    play(scene, Stage(["no filter"], Level.NONE))


@pytest.mark.parametrize(
    "message",
    [
        b"\xff" * 64,
        struct.pack("<II", 2**31, 0),
        struct.pack("<II", 3, 0) + b"abc",
        struct.pack("<II", 1, 0) + b"\xc0",
        encode(Ready(STANDARD)),
        encode(CallResult(1, "not for the kernel")),
    ],
)
def test_what_is_not_of_the_link_ends_it(message: bytes) -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        future = stage.worker.request(Complete(4, "x", 1))
        stage.say(message)
        with pytest.raises(WorkerDied, match="broke the protocol"):
            await future
        assert stage.worker.ended

    assert play(scene).child.killed


@pytest.mark.parametrize("report", ["", "{}", "[]", '{"level": "full"}', NONE.replace("none", "full", 1)])
def test_a_report_that_is_none_is_no_report(report: str) -> None:
    async def scene(stage: Stage) -> None:
        stage.say(Ready(report))
        with pytest.raises(WorkerDied, match="broke the protocol"):
            await stage.worker.start()

    play(scene)


@pytest.mark.parametrize(
    "out_of_turn",
    [
        [Finished(5, {})], [Finished(-1, {})], [Finished(4, {"a": 1}), Finished(4, {"a": 2})],
        [Call(7, Invoke("slow", "size")), Call(7, Invoke("slow", "size"))],
    ],
    ids=["another request", "no request", "twice", "an open call again"],
)  # fmt: skip
def test_a_message_out_of_turn_ends_it(out_of_turn: list[Any]) -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        stage.worker.request(Complete(4, "x", 1)).add_done_callback(lambda done: done.exception())
        stage.say(*out_of_turn)
        await a_moment()
        assert stage.worker.ended
        assert "it broke the protocol" in stage.worker.obituary()

    play(scene)


def test_effects_are_answered_also_when_we_fail() -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        stage.say(Call(12, Invoke("h", "size")), Call(13, Invoke("h", "size")))
        await a_moment()
        answers = {answer.call: answer for answer in stage.heard()}
        assert answers[12].value == "done"
        assert answers[13].error.kind == "RuntimeError"
        assert "a bug of ours" not in answers[13].error.message

    play(scene)


def test_the_quick_link_is_served_when_the_worker_is_fit_and_never_holds_the_loop() -> None:
    began, ends = threading.Event(), threading.Event()

    def hang(call: int, effect: Invoke) -> tuple[CallResult, bytes]:
        began.set()
        ends.wait(30)
        return CallResult(call, effect.method), b""

    async def scene(stage: Stage) -> None:
        stage.quick.sendall(encode(Call(1, Invoke("h", "size"))))
        assert not began.is_set()
        await started(stage)
        assert await asyncio.to_thread(began.wait, 30)
        stage.say(Call(2, Invoke("h", "size")))  # meanwhile the other link is heard
        while not (heard := stage.heard()):
            await asyncio.sleep(0.005)
        assert heard == [CallResult(2, "done")]
        ends.set()
        assert await asyncio.to_thread(stage.quick.recv, 1000) == encode(CallResult(1, "size"))
        stage.quick.sendall(encode(Call(3, Invoke("h", "write"))))
        while not stage.worker.ended:
            await asyncio.sleep(0.005)
        assert "the quick link" in stage.worker.obituary()

    assert play(scene, Stage(call_quickly=hang)).child.killed


def test_an_unfit_worker_is_not_served() -> None:
    async def scene(stage: Stage) -> None:
        stage.quick.sendall(encode(Call(1, Invoke("h", "size"))))
        stage.say(Ready(NONE))
        with pytest.raises(WorkerUnfit):
            await stage.worker.start()

    assert play(scene).seen == ["ended"]


def test_a_post_that_fails_is_dropped_and_a_forged_one_ends_the_worker() -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        stage.post_problem = ValueError("quota")
        stage.say(Classify("ab"))
        await a_moment()
        assert not stage.worker.ended
        stage.post_problem = RemoteProtocolError("used before")
        stage.say(Classify("ab"))
        await a_moment()
        assert stage.worker.ended

    play(scene)


def test_questions_are_handed_on_only() -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        stage.say(InputRequest(99, "password?"))
        await a_moment()
        assert stage.heard() == []  # the kernel decides; see kernel._asked

    assert InputRequest(99, "password?") in play(scene).seen


def test_pipes_are_read_and_decoded() -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        os.write(stage.stdout, "é".encode()[:1])
        await a_moment()
        os.write(stage.stdout, "é".encode()[1:] + b"\xff")
        os.write(stage.stderr, b"Segmentation fault")
        await a_moment()
        assert stage.worker.last_words == "Segmentation fault"

    seen = play(scene).seen
    assert ("stdout", "é\ufffd") in seen


def test_a_flood_in_a_pipe_does_not_stop_the_loop() -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        os.set_blocking(stage.stdout, False)
        flooding = True

        def flood() -> None:
            while flooding:
                try:
                    os.write(stage.stdout, b"x" * 65536)
                except BlockingIOError:
                    continue

        task = asyncio.create_task(asyncio.to_thread(flood))
        future = stage.worker.request(Complete(4, "x", 1))
        stage.say(Finished(4, {}))
        await asyncio.wait_for(future, 5)
        flooding = False
        await task

    play(scene)


@pytest.mark.parametrize(
    ("code", "how"), [(-11, "SIGSEGV"), (-9, "SIGKILL"), (3, "exited with code 3"), (None, "closed its link")]
)
def test_how_it_ended_is_said(code: int | None, how: str) -> None:
    async def scene(stage: Stage) -> None:
        await started(stage)
        future = stage.worker.request(Complete(4, "x", 1))
        stage.child.code = code
        stage.theirs.shutdown(socket.SHUT_RDWR)
        with pytest.raises(WorkerDied, match=how):
            await future
        with pytest.raises(WorkerDied, match=how):
            await stage.worker.request(Complete(5, "x", 1))

    play(scene)
