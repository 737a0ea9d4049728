"""Requests arrive whole and in order, and an interrupt finds the cell that it is meant for wherever the cell is."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from capkernel.wire.frames import encode
from capkernel.wire.worker import Complete, Execute, Finished, Request
from capkernel.worker.interrupts import Interrupts
from capkernel.worker.request_link import RequestLink

CELL = Execute(1, 1, "x", "x", silent=False, store_history=True, allow_stdin=False)
QUESTION = Complete(2, "x", 1)


class Stage:
    """The worker's end, and the kernel's in our hands. No signal is sent: their handler is called."""

    def __init__(self) -> None:
        self.kernel, self.theirs = socket.socketpair()
        self.interrupts = Interrupts()
        self.link = RequestLink(self.theirs, self.interrupts)
        self.taken: list[tuple[Request, bytes]] = []

    def say(self, *frames: bytes) -> None:
        self.kernel.sendall(b"".join(frames))

    def read(self) -> None:
        self.link.read(lambda request, blob: self.taken.append((request, blob)))

    def interrupt(self) -> None:
        self.interrupts.handle(signal.SIGINT, None)

    def next_cell_is_interrupted(self) -> bool:
        try:
            with self.interrupts.armed():
                return False
        except KeyboardInterrupt:
            return True


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.kernel.close()
    made.theirs.close()


def test_requests_are_handed_over_whole_and_in_order(stage: Stage) -> None:
    stage.read()  # nothing is there
    assert stage.taken == []
    stage.say(encode(CELL, b"blob"), encode(QUESTION)[:5])
    stage.read()
    assert stage.taken == [(CELL, b"blob")]
    stage.say(encode(QUESTION)[5:])
    stage.read()
    assert stage.taken == [(CELL, b"blob"), (QUESTION, b"")]


def test_without_a_cell_an_interrupt_is_dropped(stage: Stage) -> None:
    stage.interrupt()
    assert not stage.next_cell_is_interrupted()


def test_of_a_cell_in_the_socket(stage: Stage) -> None:
    stage.say(encode(CELL))
    stage.interrupt()
    stage.read()
    assert stage.next_cell_is_interrupted()
    assert not stage.next_cell_is_interrupted()


def test_of_a_cell_that_is_half_read(stage: Stage) -> None:
    stage.say(encode(CELL)[:-1])
    stage.read()
    stage.interrupt()
    stage.say(encode(CELL)[-1:])
    stage.read()
    assert stage.taken == [(CELL, b"")]
    assert stage.next_cell_is_interrupted()


def test_of_a_cell_that_is_being_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.say(encode(CELL))
    feed = stage.link._reader.feed

    def interrupted(data: Any) -> None:
        stage.interrupt()
        feed(data)

    monkeypatch.setattr(stage.link._reader, "feed", interrupted)
    stage.read()
    assert stage.next_cell_is_interrupted()


def test_of_a_cell_that_waits_for_its_turn(stage: Stage) -> None:
    stage.say(encode(CELL))
    stage.read()
    stage.interrupt()
    assert stage.next_cell_is_interrupted()


def test_a_question_is_no_cell(stage: Stage) -> None:
    stage.say(encode(QUESTION))
    stage.interrupt()
    stage.read()
    assert not stage.next_cell_is_interrupted()


def test_a_question_takes_no_interrupt_from_the_cell_before_it(stage: Stage) -> None:
    stage.say(encode(CELL))
    stage.read()
    stage.interrupt()
    stage.say(encode(QUESTION))
    stage.read()
    assert stage.next_cell_is_interrupted()


def test_nor_from_the_cell_behind_it(stage: Stage) -> None:
    stage.say(encode(QUESTION), encode(CELL)[:3])
    stage.interrupt()
    stage.read()
    stage.say(encode(CELL)[3:])
    stage.read()
    assert stage.next_cell_is_interrupted()


def test_an_interrupt_never_costs_a_request(stage: Stage) -> None:
    """Read within a cell that awaits, where an interrupt raises."""

    def taken(request: Request, blob: bytes) -> None:
        stage.interrupt()
        stage.taken.append((request, blob))

    stage.say(encode(QUESTION))
    with pytest.raises(KeyboardInterrupt), stage.interrupts.armed():
        stage.link.read(taken)
    assert stage.taken == [(QUESTION, b"")]


class Ended(Exception):
    """The process would be gone."""


@pytest.mark.parametrize(
    "last", [b"", b"\xff" * 8, encode(Finished(1, {}))], ids=["end", "no frame", "not its message"]
)
def test_without_a_kernel_the_process_ends(stage: Stage, monkeypatch: pytest.MonkeyPatch, last: bytes) -> None:
    def ended(code: int) -> NoReturn:
        raise Ended(code)

    monkeypatch.setattr("capkernel.worker.request_link.os._exit", ended)
    stage.say(last)
    stage.kernel.shutdown(socket.SHUT_WR)
    with pytest.raises(Ended):
        stage.read()
