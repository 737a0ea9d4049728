"""The viewer secret on its way from the provisioner to the kernel: read once, from a pipe, by the launcher's child."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capkernel.kernel import __main__ as front
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


# ── the front, which executes the kernel in its place ────────────────────────────────────────────────────────────────


class _Executed(Exception):
    pass


def executed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int) -> tuple[list[str], tuple[int, ...]]:
    """The arguments of the kernel that the front executes, and the descriptors that it leaves open."""
    found: dict[str, Any] = {}

    def execute(_program: str, argv: list[str], _environment: dict[str, str]) -> None:
        found["argv"] = argv
        raise _Executed

    monkeypatch.setattr(front.os, "execve", execute)
    monkeypatch.setattr(front.os, "chdir", lambda _directory: None)
    monkeypatch.setattr(front.signal, "signal", lambda *_: None)
    monkeypatch.setattr(front, "_close_others", lambda *keep: found.update(keep=keep))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(front.sys, "argv", ["kernel", "-f", "connection.json", "--viewer-secret", str(number)])
    with pytest.raises(_Executed):
        front.main()
    for fd in found["keep"]:
        if fd != number:
            os.close(fd)
    return found["argv"], found["keep"]


def test_the_front_leaves_the_pipe_open_for_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fd = filled(SECRET)
    try:
        argv, keep = executed(monkeypatch, tmp_path, fd)
        assert argv[argv.index("--viewer-secret") + 1] == str(fd)
        assert fd in keep
        assert os.get_inheritable(fd)
        assert Launcher.received(fd) is not None, "and read nothing of it"
    finally:
        if is_open(fd):
            os.close(fd)


def test_where_the_pipe_was_lost_its_number_means_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The front opens descriptors of its own, which may get that number."""
    for ahead in range(6):
        number = os.dup(0) + ahead
        os.close(number - ahead)
        if is_open(number):
            continue
        argv, keep = executed(monkeypatch, tmp_path, number)
        assert "--viewer-secret" not in argv
        assert len(keep) == 2


def test_only_what_is_kept_stays_open() -> None:
    """In a process of its own: it closes everything else."""
    program = """
import os, sys
from capkernel.kernel.__main__ import _close_others
opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
keep = [opened[30], opened[3], opened[17]]
_close_others(*keep)
def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
assert [fd for fd in range(3, 256) if is_open(fd)] == sorted(keep)
assert all(is_open(fd) for fd in (0, 1, 2))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stdin=subprocess.DEVNULL,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
