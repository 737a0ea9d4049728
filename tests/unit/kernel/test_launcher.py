"""The viewer secret on its way from the provisioner to the kernel: read once, from a pipe, by the launcher's child."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from capkernel.kernel import secret_pipe
from capkernel.kernel.launcher import Launcher
from capkernel.wire.view import CARD, SECRET_BYTES, proof

SECRET = bytes(range(SECRET_BYTES))
CHALLENGE = b"c" * 32


def filled(data: bytes) -> int:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_the_secret_is_read_once_and_the_pipe_is_closed() -> None:
    fd = filled(SECRET)
    again = os.dup(fd)
    try:
        launcher = Launcher.received(fd)
        assert launcher is not None
        assert launcher.proved(proof(SECRET, CHALLENGE, CARD), CHALLENGE)
        assert not is_open(fd)
        assert os.read(again, 100) == b"", "nothing is left for whoever else holds the pipe"
    finally:
        os.close(again)


@pytest.mark.parametrize("data", [b"", SECRET[:-1], SECRET + b"x"])
def test_anything_but_one_secret_is_none(data: bytes) -> None:
    fd = filled(data)
    assert Launcher.received(fd) is None
    assert not is_open(fd)


def test_a_pipe_that_nothing_was_written_to_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    try:
        assert Launcher.received(reading) is None
        assert not is_open(reading)
    finally:
        os.close(writing)


@pytest.fixture
def others() -> Iterator[list[int]]:
    """Descriptors that are no pipes: a file, a socket's stand-in, a directory."""
    with tempfile.TemporaryFile() as file:
        opened = [file.fileno(), os.open("/", os.O_RDONLY), os.open("/dev/null", os.O_RDWR)]
        yield opened
        for fd in opened[1:]:
            os.close(fd)


def test_what_is_no_pipe_is_left_alone(others: list[int]) -> None:
    for fd in (*others, 0, -1, 10**6, None):
        assert secret_pipe.checked(fd) is None
        assert Launcher.received(fd) is None
    assert all(is_open(fd) for fd in others)


def test_only_a_proof_as_a_card_for_this_challenge_counts() -> None:
    launcher = Launcher(SECRET, os.getppid())
    assert launcher.proved(proof(SECRET, CHALLENGE, CARD), CHALLENGE)
    for wrong in (
        proof(SECRET, b"d" * 32, CARD), proof(SECRET, CHALLENGE, "page"), proof(b"x" * 32, CHALLENGE, CARD),
        SECRET, b"",
    ):  # fmt: skip
        assert not launcher.proved(wrong, CHALLENGE)


def test_the_launcher_is_our_parent_as_long_as_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher(SECRET, os.getppid())
    parent = os.getppid()
    assert launcher.is_process(parent)
    assert not launcher.is_process(os.getpid())
    monkeypatch.setattr(os, "getppid", lambda: 1)  # it ended; later its number is given to another process
    assert not launcher.is_process(parent)
    assert not launcher.is_process(1)


def test_processes_outside_of_our_namespace_are_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: 0)
    assert Launcher.received(filled(SECRET)) is None
