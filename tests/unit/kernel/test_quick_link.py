"""The kernel's end of the quick link: what a hostile worker may send on it, and what becomes of it."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from capkernel.kernel.quick_link import QuickLink
from capkernel.wire.frames import MAX_BLOB, FrameReader, encode
from capkernel.wire.worker import QUICK_MAX_BODY, Call, CallResult, CloseScope, Finished, Invoke, OpenScope

SECONDS = 30
READ = Invoke("h", "read_bytes")


class Stage:
    """A quick link whose other end is in our hands."""

    def __init__(self, serve: Callable[[int, Invoke], tuple[CallResult, bytes]] | None = None) -> None:
        ours, self.theirs = socket.socketpair()
        self.theirs.settimeout(SECONDS)
        self.broken: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.asked: list[Invoke] = []
        self.link = QuickLink(ours, serve or self._serve)
        self._reader: FrameReader[CallResult] = FrameReader(CallResult)

    def _serve(self, call: int, effect: Invoke) -> tuple[CallResult, bytes]:
        self.asked.append(effect)
        return CallResult(call, "done"), b"content"

    def start(self) -> None:
        self.link.start(self.broken.put)

    def answer(self) -> tuple[CallResult, bytes]:
        while True:
            data = self.theirs.recv(1 << 20)
            assert data, "the link was closed"
            self._reader.feed(data)
            for found in self._reader.frames():
                return found

    def is_closed(self) -> bool:
        try:
            return self.theirs.recv(1) == b""
        except ConnectionResetError:  # closed with something of ours unread
            return True


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.link.close()
    made.theirs.close()


def test_calls_are_answered_in_turn(stage: Stage) -> None:
    stage.start()
    for number in range(5):
        stage.theirs.sendall(encode(Call(number, READ)))
        assert stage.answer() == (CallResult(number, "done"), b"content")
    assert stage.asked == [READ] * 5


def test_a_call_may_come_in_pieces(stage: Stage) -> None:
    stage.start()
    for piece in encode(Call(1, READ)):
        stage.theirs.sendall(bytes([piece]))
    assert stage.answer()[0].value == "done"


def test_nothing_is_served_before_the_start(stage: Stage) -> None:
    stage.theirs.sendall(encode(Call(1, READ)))
    assert stage.asked == []
    stage.link.close()
    stage.start()
    assert stage.is_closed()
    assert stage.asked == []


@pytest.mark.parametrize(
    "sent",
    [
        encode(Call(1, Invoke("h", "write"))),
        encode(Call(1, Invoke("h", "write_classified", secret="s"))),
        encode(Call(1, Invoke("h", "walk"))),
        encode(Call(1, OpenScope("file_system", "."))),
        encode(Call(1, CloseScope("h"))),
        encode(Call(1, READ), b"content"),
        encode(Call(1, READ)) + encode(Call(2, READ)),
        encode(Call(1, READ)) + b"\0",
        encode(Call(1, Invoke("h", "access", "x" * QUICK_MAX_BODY))),
        encode(Finished(1, {})),
        struct.pack("<II", 3, 0) + b"abc",
        struct.pack("<II", 3, MAX_BLOB) + b"abc",
    ],
    ids=["write", "a secret", "walk", "open a scope", "close one", "content", "two", "more than one", "long",
         "another message", "no message", "long content"],
)  # fmt: skip
def test_what_does_not_belong_on_it_ends_the_worker(stage: Stage, sent: bytes) -> None:
    stage.theirs.sendall(sent)
    stage.start()
    assert "it broke the protocol of the quick link" in stage.broken.get(timeout=SECONDS)
    assert stage.is_closed()
    assert stage.asked == []


def test_an_answer_that_is_too_large_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capkernel.wire.frames.MAX_BLOB", 3)
    stage = Stage()
    stage.start()
    stage.theirs.sendall(encode(Call(1, READ)))
    answer, content = stage.answer()
    assert answer.error is not None
    assert answer.error.kind == "OSError"
    assert content == b""
    stage.link.close()


def test_closing_does_not_wait_for_an_effect() -> None:
    began, ends = threading.Event(), threading.Event()

    def hang(call: int, effect: Invoke) -> tuple[CallResult, bytes]:
        began.set()
        ends.wait(SECONDS)
        return CallResult(call), b""

    stage = Stage(hang)
    stage.start()
    stage.theirs.sendall(encode(Call(1, READ)))
    assert began.wait(SECONDS)
    stage.link.close()
    stage.link.close()
    assert stage.is_closed()
    ends.set()
    assert stage.broken.empty()


def test_the_thread_ends_when_the_worker_does(stage: Stage) -> None:
    def ours() -> set[Any]:
        return {thread for thread in threading.enumerate() if thread.name == "capkernel-quick"}

    before = ours()
    stage.start()
    [thread] = ours() - before
    stage.theirs.close()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert stage.broken.empty()
