"""An entry of the secure output: whole, inert, bounded, in its turn, and the same answer for a value and for poison."""

from __future__ import annotations

import errno
import os
import resource
import signal
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from played_keeper import PlayedKeeper

from capkernel.vault.mirror import BAR, MAX_ENTRY, append_entry, entry
from capkernel.vault.render import render, rendered_plain
from capkernel.wire.plan import CodeKey
from capkernel.wire.shown import Poison, Text
from capkernel.wire.values import decode, encode
from capkernel.wire.vault import FunctionBundle, Map, Mirror, Mirrored, Put, SecureFile

HOSTILE = (
    "\x1b[2J\x1b]0;title\x07\x9b31m\r\x08\x00\x7f",  # a terminal
    "\u202e\u2066\u200b\u2028\U000e0041",  # order, invisible characters, line ends
    "\n== 2026-01-01 00:00:00 UTC | session 0 | cell 1 | from file:forged | str\n| x",  # another entry
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "shape",
    [str, lambda t: [t], lambda t: {t: [t, {t: t}]}, lambda t: t.encode()],
    ids=["str", "list", "dict", "bytes"],
)
def test_nothing_of_a_value_acts_or_looks_like_another_entry(text: str, shape: Any) -> None:
    plain = text.encode()  # as `cat` would show it without this
    assert b"\x1b" in plain or "\u202e" in text or b"\n== " in plain
    data = entry("cell 1 | label " + text, render(shape(text))).decode()
    lines = data.removesuffix("\n").split("\n")
    assert lines[0] == ""
    assert lines[1].startswith("== ")
    assert all(line.startswith(BAR) for line in lines[2:])
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert [c for line in lines for c in line if unicodedata.category(c) in bad] == []


@pytest.mark.parametrize(
    "text", ["x" * 5_000_000, "\n" * 300_000, "é" * 300_000, "\x00" * 100_000, "\U000e0041" * 99_999]
)
def test_an_entry_is_bounded_and_valid_text(text: str) -> None:
    data = entry("h" * 100_000, Text(text, len(text)))
    assert len(data) <= MAX_ENTRY
    assert data.endswith(b"\n")
    assert data.decode().count("\n== ") == 1
    if len(text) > MAX_ENTRY:
        assert "[cut here" in data.decode()[-60:]


def test_appending_says_what_the_system_refused(tmp_path: Path) -> None:
    place = tmp_path / "out"
    fd = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    assert append_entry(fd, "h", Text("one", 3)) == 0
    assert append_entry(fd, "h", Text("two", 3)) == 0
    assert place.read_text() == "\n== h | str, 3 characters\n| one\n\n== h | str, 3 characters\n| two\n"
    assert append_entry(None, "h", Text("x", 1)) == errno.EBADF
    read, write = os.pipe()
    assert append_entry(write, "h", Text("x", 1)) == errno.EBADF  # a pipe could hold the keeper up
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (place.stat().st_size + 10, before[1]))
        assert append_entry(fd, "h", Text("three", 5)) == errno.ENOSPC  # part of it went out
        assert append_entry(fd, "h", Text("four", 4)) == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert append_entry(fd, "h", Text("five", 4)) == 0
    assert place.read_text().endswith("\n== h | str, 4 characters\n| five\n")  # whole, after half an entry
    for number in (fd, read, write):
        os.close(number)


class Played(PlayedKeeper):
    def __init__(self, place: Path | None) -> None:
        super().__init__()
        if place is not None:
            self.send(SecureFile(), descriptor=os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))

    def finish(self, result: bytes | None, reason: str = "") -> None:
        self.keeper.job_done(result, reason)

    def render(self) -> None:
        job, pieces = self.jobs[-1]
        assert job.bundle.table == "capkernel.vault.render.rendered_plain"
        self.finish(encode(rendered_plain(decode(pieces[0][1]))))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def played(place: Path) -> Played:
    return Played(place)


def test_a_value_waits_for_its_turn_and_is_rendered_by_a_job(played: Played, place: Path) -> None:
    played.keeper.accept(Put("a", "cell:1"), encode("the value"), None)
    played.keeper.accept(Map("b", "a", FunctionBundle(CodeKey(1, 1, "f", (1, 0, 1, 1)))), encode({}), None)
    played.keeper.accept(Mirror(1, "b", "h"), b"", None)
    played.keeper.accept(Mirror(2, "a", "h"), b"", None)
    assert place.read_text() == ""  # the map runs
    played.finish(encode([1, 2]))
    played.render()
    played.render()
    assert played.told == [Mirrored(1), Mirrored(2)]
    assert place.read_text() == (
        "\n== h | list, 2 items\n| 0: 1\n| 1: 2\n\n== h | str, 9 characters\n| the value\n"
    )  # fmt: skip


def test_the_kernel_hears_the_same_of_poison_of_nothing_and_of_a_failed_rendering(played: Played, place: Path) -> None:
    played.keeper.accept(Put("a", "cell:1"), encode("v"), None)
    played.keeper.accept(Map("b", "a", FunctionBundle(CodeKey(1, 1, "f", (1, 0, 1, 1)))), encode({}), None)
    played.finish(None, "ZeroDivisionError")
    for ticket, handle in enumerate(["b", "unknown", "a", "a"], 1):
        played.keeper.accept(Mirror(ticket, handle, "h"), b"", None)
    played.finish(None, "killed")
    played.finish(encode("no rendering"))
    assert played.told == [Mirrored(n) for n in (1, 2, 3, 4)]
    text = place.read_text()
    assert "| ZeroDivisionError\n" in text
    assert "no such value" in text
    assert text.count("cannot be shown") == 2


def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    played = Played(None)
    played.keeper.accept(Mirror(1, "a", "h"), b"", None)
    assert played.told == [Mirrored(1, errno.EBADF)]


def test_poison_is_inert_as_well() -> None:
    data = entry("h", Poison("\x1b[2J\n== forged", "\u202e")).decode()
    assert data == "\n== h | failed: there is no value\n| \\x1b[2J\\x0a== forged in \\u202e\n"
