"""`capkernel audit`: shows, filters, and names the first broken line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from capkernel.broker.audit import AuditLog, directory_ambient
from capkernel.cli import main

NAMES = ("aaa1", "bbb2")


@pytest.fixture
def place() -> Path:
    """Two ended sessions where the command looks by itself."""
    for number, name in enumerate(NAMES):
        log = AuditLog.open_ambient(name)
        log.record("cell", "allowed", cell=1, authority="may: read data/a.csv · nothing else")
        log.record("files.read", "allowed", cell=1, path="data/a.csv")
        log.record("files.write", "denied", cell=2, path=".git/x\x1b[2J\n", reason="protected")
        log.close()
        os.utime(directory_ambient() / f"{name}.jsonl", (number, number))
    return directory_ambient()


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["audit", *arguments]) == code
    read = capsys.readouterr()
    return read.out if code != 2 else read.err


def test_it_shows_who_what_decision_and_cell(place, capsys):
    lines = said(capsys, "--session", "aaa").splitlines()
    assert len(lines) == 4
    assert "aaa1  cell 1  cell  cell  allowed  (may: read data/a.csv · nothing else)" in lines[0]
    assert "aaa1  cell 1  cell  files.read  allowed  data/a.csv" in lines[1]
    assert "aaa1  cell 2  cell  files.write  denied  .git/x\\x1b[2J\\n  (protected)" in lines[2]
    assert "aaa1  session  kernel  session.end  done" in lines[3]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 8),
        (("--session", "bbb"), 4),
        (("--session", "last"), 4),
        (("--cell", "2"), 2),
        (("--kind", "files"), 4),
        (("--kind", "files.read"), 2),
        (("--kind", "file"), 0),
        (("--session", "last", "--cell", "1", "--kind", "cell"), 1),
    ],
)
def test_filters(place, capsys, options, count):
    assert len(said(capsys, *options).splitlines()) == count
    entries = [json.loads(line) for line in said(capsys, *options, "--json").splitlines()]
    assert len(entries) == count
    if "last" in options:
        assert {entry["session"] for entry in entries} == {"bbb2"}


def test_verify_says_what_is_sound(place, capsys):
    text = said(capsys, "--verify")
    assert text.count("4 lines, sound, to the end of the session") == 2
    found = json.loads(said(capsys, "--verify", "--json"))
    assert [(entry["session"], entry["broken"], entry["end"]) for entry in found] == [
        ("aaa1", None, "ended"), ("bbb2", None, "ended"),
    ]  # fmt: skip
    assert all(len(entry["head"]) == 64 for entry in found)


def test_verify_names_the_first_broken_line_and_fails(place, capsys):
    file = place / "bbb2.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], lines[1].replace(b"a.csv", b"b.csv"), *lines[2:]]))
    text = said(capsys, "--verify", code=1)
    assert "bbb2: BROKEN at line 2: it was edited" in text
    assert "aaa1: 4 lines, sound" in text
    (_, broken) = json.loads(said(capsys, "--verify", "--json", code=1))
    assert (broken["broken"], broken["lines"]) == (2, 2)


def test_verify_is_honest_about_a_cut_tail(place, capsys):
    file = place / "bbb2.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert "its kernel was killed, or lines at the end were cut off" in said(capsys, "--verify", "--session", "bbb")


def test_two_kernels_at_once_have_an_audit_each(place, capsys):
    """In processes of their own, as kernels are: neither breaks the other's chain, and both are seen as running."""
    program = (
        "import sys\nfrom capkernel.broker.audit import AuditLog\n"
        "log = AuditLog.open_ambient(sys.argv[1])\n"
        "for n in range(200): log.record('files.read', 'allowed', cell=n)\n"
        "print('ready', flush=True)\nsys.stdin.read()\nlog.close()\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        again = subprocess.run(
            [sys.executable, "-c", program, "one"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "AuditUnavailable" in again.stderr
        found = {entry["session"]: entry for entry in json.loads(said(capsys, "--verify", "--json"))}
        assert [found[name]["end"] for name in ("one", "two")] == ["running", "running"]
    finally:
        for process in started:
            process.communicate(timeout=30)
    found = {entry["session"]: entry for entry in json.loads(said(capsys, "--verify", "--json"))}
    assert [(found[name]["end"], found[name]["lines"]) for name in ("one", "two")] == [("ended", 201)] * 2


def test_what_cannot_be_shown_gets_one_clear_line(place, capsys, tmp_path):
    assert "no session has written" in said(capsys, "--directory", str(tmp_path / "none"), code=2)
    assert "no audit of such a session" in said(capsys, "--session", "zzz", code=2)
    assert "leave --cell and --kind out" in said(capsys, "--verify", "--cell", "1", code=2)


def test_a_link_a_pipe_and_nonsense_are_said_not_followed(place, capsys, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text('{"what": "hunter2"}\n')
    (place / "link.jsonl").symlink_to(secret)
    os.mkfifo(place / "pipe.jsonl")
    (place / "junk.jsonl").write_bytes(b"\xff\n[1]\n" + b"[" * 200_000)
    assert main(["audit"]) == 1
    read = capsys.readouterr()
    assert "hunter2" not in read.out + read.err
    assert "not a regular file" in read.err or "Invalid argument" in read.err
    assert "junk: line 1 is not a line" in read.err
    assert main(["audit", "--verify"]) == 1
