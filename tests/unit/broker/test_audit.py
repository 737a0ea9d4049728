"""The audit: append-only, private, chained, and nothing happens without it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading

import pytest

from capkernel.broker.audit import AuditLog, AuditUnavailable, directory_ambient, verify


@pytest.fixture
def log(tmp_path):
    made = AuditLog.open_ambient("s1", tmp_path / "audit")
    yield made
    made.close()


def test_lines_are_private_and_chained(log, tmp_path):
    for number in range(5):
        log.record("files.read", "allowed", cell=1, path=f"data/{number}")
    log.record("files.read", "denied", cell=1, path="x\n\u2028\ud800", reason="why")
    log.sync()
    path = tmp_path / "audit" / "s1.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    lines = path.read_text().splitlines()
    assert len(lines) == 6
    entry = json.loads(lines[5])
    assert entry["path"] == "x\n\u2028\ud800"
    assert (entry["what"], entry["decision"], entry["who"], entry["cell"]) == ("files.read", "denied", "cell", 1)
    checked = verify(path)
    assert (checked.lines, checked.broken, checked.head) == (6, None, log.head)


DAMAGE = {  # → the first line that is wrong, and the words that say how
    "edit": (3, "edited"),
    "edit the number": (3, "number is wrong"),
    "edit the last line's link": (5, "link to it"),
    "remove": (3, "1 line was removed"),
    "remove two": (3, "2 lines were removed"),
    "remove the first": (1, "1 line was removed"),
    "swap": (3, "moved: it is line 4"),
    "repeat": (3, "repeated: it is line 2"),
    "half": (6, "not a whole line"),
    "nonsense": (4, "not a whole line"),
    "add": (8, "added"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_first_broken_line_and_the_kind_of_damage_are_named(log, tmp_path, damage):
    for number in range(6):
        log.record("files.read", "allowed", cell=1, path=f"data/{number}")
    path = tmp_path / "audit" / "s1.jsonl"
    if damage in ("add", "edit the last line's link"):
        log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    assert verify(path).broken is None
    match damage:
        case "edit":
            lines[2] = lines[2].replace(b"data/2", b"data/9")
        case "edit the number":
            lines[2] = lines[2].replace(b'"n":2', b'"n":9')
        case "edit the last line's link":
            del lines[6]
            lines[5] = lines[5].replace(b'"previous":"', b'"previous":"0')
        case "remove":
            del lines[2]
        case "remove two":
            del lines[2:4]
        case "remove the first":
            del lines[0]
        case "swap":
            lines[2], lines[3] = lines[3], lines[2]
        case "repeat":
            lines.insert(2, lines[1])
        case "half":
            log.close()
            lines[5] = lines[5][:20]
        case "nonsense":
            lines[3] = b"[" * 50_000 + b"\n"
        case "add":
            entry = json.loads(lines[6]) | {"n": 7, "previous": hashlib.sha256(lines[6][:-1]).hexdigest()}
            lines.append(json.dumps(entry).encode() + b"\n")
    path.write_bytes(b"".join(lines))
    found = verify(path)
    assert (found.broken, DAMAGE[damage][1] in found.problem) == (DAMAGE[damage][0], True), found


def test_a_session_says_that_it_ended_and_one_that_was_cut_does_not(log, tmp_path):
    log.record("a", "allowed", cell=1)
    path = tmp_path / "audit" / "s1.jsonl"
    assert verify(path).end == "running"
    log.close()
    log.close()
    assert (verify(path).end, verify(path).lines) == ("ended", 2)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert (verify(path).end, verify(path).broken) == ("missing", None)


def test_a_line_that_is_being_written_is_no_damage(log, tmp_path):
    log.record("a", "allowed", cell=1)
    path = tmp_path / "audit" / "s1.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"n":1,')
    assert (verify(path).broken, verify(path).end) == (None, "running")
    log.close()
    assert verify(path).broken == 2


def test_a_whole_new_chain_shows_in_the_head_only(log, tmp_path):
    """What a chain without a key cannot show, said here so that nobody takes it for more."""
    log.record("files.read", "denied", cell=1, path="secret")
    log.close()
    forger = AuditLog.open_ambient("s2", tmp_path / "audit")
    forger.record("files.read", "allowed", cell=1, path="other")
    forger.close()
    forged = (tmp_path / "audit" / "s2.jsonl").read_bytes()
    path = tmp_path / "audit" / "s1.jsonl"
    path.write_bytes(forged)
    found = verify(path)
    assert (found.broken, found.end) == (None, "ended")
    assert found.head != log.head


def test_a_link_and_a_pipe_are_not_read(tmp_path):
    (tmp_path / "real.jsonl").write_text("")
    (tmp_path / "link.jsonl").symlink_to("real.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert verify(tmp_path / "real.jsonl").broken is None
    with pytest.raises(OSError, match="symbolic links"):
        verify(tmp_path / "link.jsonl")
    assert verify(tmp_path / "pipe.jsonl").lines == 0  # and does not wait for a writer


def test_a_cut_at_the_end_shows_in_the_head(log, tmp_path):
    log.record("a", "allowed", cell=1)
    log.record("b", "allowed", cell=1)
    path = tmp_path / "audit" / "s1.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    checked = verify(path)
    assert checked.broken is None
    assert checked.head != log.head


def test_an_existing_file_or_a_link_is_not_written(tmp_path):
    audit = tmp_path / "audit"
    audit.mkdir()
    (audit / "taken.jsonl").write_text("old\n")
    (audit / "link.jsonl").symlink_to(tmp_path / "elsewhere")
    for session in ("taken", "link", "../x", "", "a/b"):
        with pytest.raises(AuditUnavailable):
            AuditLog.open_ambient(session, audit)
    assert (audit / "taken.jsonl").read_text() == "old\n"
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_closes_the_log(monkeypatch, log):
    def full(_fd: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    log.record("a", "allowed", cell=1)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AuditUnavailable, match="No space left"):
        log.record("b", "allowed", cell=1)
    monkeypatch.undo()
    with pytest.raises(AuditUnavailable):
        log.record("c", "allowed", cell=1)


def test_half_a_line_closes_the_log(monkeypatch, log):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:5]))
    with pytest.raises(AuditUnavailable, match="full"):
        log.record("b", "allowed", cell=1)
    monkeypatch.undo()
    with pytest.raises(AuditUnavailable):
        log.record("c", "allowed", cell=1)


def test_threads_do_not_break_the_chain(log, tmp_path):
    def many() -> None:
        for _ in range(200):
            log.record("files.read", "allowed", cell=1)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify(tmp_path / "audit" / "s1.jsonl").lines == 800


def test_it_lives_in_the_state_directory_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert directory_ambient() == tmp_path / "capkernel" / "audit"
