"""The worker's end of the quick link: whose answer is whose, also when a wait was interrupted."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.worker import QUICK_MAX_BODY, Call, CallResult, Invoke
from capkernel.worker.interrupts import Interrupts
from capkernel.worker.quick_link import QuickLink

SECONDS = 30


class Kernel:
    """The other end, in our hands."""

    def __init__(self) -> None:
        self.end, theirs = socket.socketpair()
        self.end.settimeout(SECONDS)
        self.interrupts = Interrupts()
        self.link = QuickLink(theirs, self.interrupts)
        self._reader: FrameReader[Call] = FrameReader(Call)

    def take(self) -> int:
        while True:
            data = self.end.recv(1 << 16)
            assert data, "the link was closed"
            self._reader.feed(data)
            for call, _ in self._reader.frames():
                return call.call

    def meanwhile(self, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def ask(self, number: int) -> tuple[CallResult, bytes] | None:
        return self.link.call(Call(number, Invoke("h", "read_bytes")))


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.end.close()


def test_an_answer_and_its_content(kernel: Kernel) -> None:
    content = bytes(range(256)) * 8192  # more than a socket holds

    def answer() -> None:
        kernel.end.sendall(encode(CallResult(kernel.take(), 5), content))

    other = kernel.meanwhile(answer)
    assert kernel.ask(1) == (CallResult(1, 5), content)
    other.join(SECONDS)


def test_an_answer_in_pieces_that_comes_late(kernel: Kernel) -> None:
    def answer() -> None:
        for piece in encode(CallResult(kernel.take(), "v"), b"abc"):
            threading.Event().wait(0.001)  # longer than it looks for one, all in all
            kernel.end.sendall(bytes([piece]))

    other = kernel.meanwhile(answer)
    assert kernel.ask(1) == (CallResult(1, "v"), b"abc")
    other.join(SECONDS)


def test_who_finds_it_busy_takes_the_other_link(kernel: Kernel) -> None:
    answers: list[Any] = []
    other = kernel.meanwhile(lambda: answers.append(kernel.ask(1)))
    assert kernel.take() == 1
    assert kernel.ask(2) is None
    kernel.end.sendall(encode(CallResult(1, "first")))
    other.join(SECONDS)
    assert answers == [(CallResult(1, "first"), b"")]
    kernel.end.setblocking(False)
    with pytest.raises(BlockingIOError):  # nothing was asked
        kernel.end.recv(1)


def test_a_call_that_is_too_long_takes_the_other_link(kernel: Kernel) -> None:
    assert kernel.link.call(Call(1, Invoke("h", "access", "x" * QUICK_MAX_BODY))) is None


def test_a_link_that_is_gone_is_not_used(kernel: Kernel) -> None:
    kernel.end.close()
    assert kernel.ask(1) is None
    assert kernel.ask(2) is None


def test_what_is_no_answer_is_none(kernel: Kernel) -> None:
    kernel.end.sendall(encode(Call(1, Invoke("h", "size"))))
    assert kernel.ask(1) is None
    assert kernel.ask(2) is None


@pytest.fixture
def running(kernel: Kernel) -> Iterator[Kernel]:
    """As while a cell runs: SIGINT is the interrupts' in the main thread."""
    before = signal.signal(signal.SIGINT, kernel.interrupts.handle)
    try:
        yield kernel
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_wait_and_its_answer_is_never_another_s(running: Kernel) -> None:
    kernel = running

    def interrupt() -> None:
        assert kernel.take() == 1
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    other = kernel.meanwhile(interrupt)
    with pytest.raises(KeyboardInterrupt), kernel.interrupts.armed():
        kernel.ask(1)
    other.join(SECONDS)
    assert kernel.ask(2) is None, "the first answer is still owed"
    kernel.end.sendall(encode(CallResult(1, "late"), b"x" * 1000))

    def answer() -> None:
        assert kernel.take() == 3
        kernel.end.sendall(encode(CallResult(3, "third")))

    other = kernel.meanwhile(answer)
    assert kernel.ask(3) == (CallResult(3, "third"), b"")
    other.join(SECONDS)


def test_an_interrupt_that_comes_while_it_looks_is_not_lost(running: Kernel) -> None:
    interrupts = running.interrupts

    def look_and_wait() -> None:
        with interrupts.shield():
            signal.raise_signal(signal.SIGINT)  # held back by the shield
            with interrupts.lowered():
                pytest.fail("it must not be reached")

    with pytest.raises(KeyboardInterrupt), interrupts.armed():
        look_and_wait()
    with interrupts.armed(), interrupts.shield(), interrupts.shield(), interrupts.lowered():
        assert interrupts.shielded, "under two shields it stays up"
