"""The audit: append-only, private, chained, and nothing happens without it."""

from __future__ import annotations

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


@pytest.mark.parametrize("damage", ["change", "remove", "swap", "insert", "half"])
def test_damage_shows_where_it_is(log, tmp_path, damage):
    for number in range(6):
        log.record("files.read", "allowed", cell=1, path=f"data/{number}")
    path = tmp_path / "audit" / "s1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert verify(path).broken is None
    if damage == "change":
        lines[2] = lines[2].replace(b"data/2", b"data/9")
        expected = 4  # the line after the changed one no longer follows from it
    elif damage == "remove":
        del lines[2]
        expected = 3
    elif damage == "swap":
        lines[2], lines[3] = lines[3], lines[2]
        expected = 3
    elif damage == "insert":
        lines.insert(2, lines[1])
        expected = 3
    else:
        lines[5] = lines[5][:20]
        expected = 6
    path.write_bytes(b"".join(lines))
    assert verify(path).broken == expected


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
