"""A root in memory behaves like one on the disk (`test_verbs` runs over both), is on no disk, and is bounded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from capkernel.api import FileSystem, membrane, request_file_system
from capkernel.api.errors import CapabilityDenied
from capkernel.broker import room
from capkernel.kernel import memory_root as memory
from capkernel.kernel.memory_root import MemoryRoot
from capkernel.policy import Exclusions, default_policy

from .conftest import InProcess, Session, Start, start_in_memory


@pytest.fixture
def session(start: Start, memory_root: MemoryRoot, monkeypatch: pytest.MonkeyPatch) -> Session:
    made = start_in_memory(start, memory_root)
    made.cell()
    monkeypatch.setattr(membrane, "_installed", [InProcess(made)])
    return made


@pytest.fixture
def fs(session: Session) -> Iterator[FileSystem]:
    with request_file_system() as granted:
        yield granted


def test_write_append_read_and_size(fs: FileSystem) -> None:
    entry = fs.access("a/b/c.txt")
    assert not entry.exists
    entry.write("one\n")
    assert (entry.read(), entry.size, entry.is_directory, fs.access("a/b").is_directory) == ("one\n", 4, False, True)
    entry.append("two\n")
    assert (entry.read_lines(), entry.read_bytes()) == (["one", "two"], b"one\ntwo\n")
    entry.write("three")
    assert entry.read() == "three"


def test_listings_and_searches(fs: FileSystem) -> None:
    for path, text in (("t/a.txt", "x\nneedle\n"), ("t/b.py", "needle"), ("t/sub/c.txt", "a needle")):
        fs.access(path).write(text)
    assert [entry.path for entry in fs.access("t").children] == ["t/a.txt", "t/b.py", "t/sub"]
    walked = [(entry.path, entry.is_directory) for entry in fs.access("t").walk()]
    assert walked == [("t/a.txt", False), ("t/b.py", False), ("t/sub", True), ("t/sub/c.txt", False)]
    assert [(match.line_number, match.line) for match in fs.grep("t/a.txt", "need")] == [(2, "needle")]
    assert [match.file for match in fs.grep_recursive("t", "needle", "*.txt")] == ["t/a.txt", "t/sub/c.txt"]
    assert fs.find("t", "*.txt") == ["t/a.txt", "t/sub/c.txt"]


def test_folders_and_deleting(fs: FileSystem) -> None:
    fs.access("m/n").mkdir()
    fs.access("m/n").mkdir()
    fs.access("m/n/x").write("x")
    fs.access("m/n/x").delete()
    assert not fs.access("m/n/x").exists
    for gone in (fs.access("m/n/x").delete, fs.access("m/n/x").read):
        with pytest.raises(FileNotFoundError):
            gone()


@pytest.mark.parametrize("path", ["../out", "a/../../out", "..", "/etc/passwd"])
def test_nothing_leads_out(fs: FileSystem, path: str) -> None:
    with pytest.raises(CapabilityDenied):
        fs.access(path).read()


def test_only_this_root_is_granted(session: Session, memory_root: MemoryRoot, tmp_path: Path) -> None:
    for root in (str(tmp_path), "..", "/dev/shm", str(memory_root.path.parent), str(memory_root.path.parent.parent)):
        with pytest.raises((CapabilityDenied, OSError)):
            session.open(root)


def test_nothing_is_made_on_a_disk_and_nothing_stays(fs: FileSystem, memory_root: MemoryRoot, session: Session) -> None:
    fs.access("x").write("x")
    assert (memory_root.path / "x").read_bytes() == b"x"
    assert memory.is_in_memory(str(memory_root.path))
    assert os.stat(memory_root.path).st_mode & 0o777 == 0o700
    memory_root.close()
    assert not memory_root.path.parent.exists()
    with pytest.raises(OSError):
        fs.access("y").write("y")


def test_secrets_are_as_on_the_disk(session: Session, fs: FileSystem, memory_root: MemoryRoot) -> None:
    (memory_root.path / ".env").write_text("KEY=1")
    with pytest.raises(CapabilityDenied, match="classified"):
        fs.access(".env").read()
    value = fs.read_classified(".env")
    session.vault.content[value._handle] = b"content"
    fs.write_classified("secrets/new", value)
    session.settle()
    assert (memory_root.path / "secrets" / "new").read_bytes() == b"content"
    assert session.vault.writes[0][2] == room.SECRET_BYTES


def test_it_lies_in_excluded_places_and_only_it_is_granted(memory_root: MemoryRoot) -> None:
    inside, beside = str(memory_root.path / "x"), str(memory_root.path.parent / "alive")
    assert Exclusions.ambient().find(inside) is not None
    exclusions = Exclusions.ambient(granted=str(memory_root.path))
    assert exclusions.find(inside) is None
    assert exclusions.find(beside) is not None
    assert exclusions.find(str(memory_root.path / "venv" / "pyvenv.cfg")) is not None


def test_no_files_stay_no_files(memory_root: MemoryRoot) -> None:
    home = default_policy(Path.home())
    assert home.files.roots == ()
    assert memory_root.granted_by(home).files.roots == ()


def test_the_room_is_bounded_and_freed(start: Start, memory_root: MemoryRoot) -> None:
    small = MemoryRoot(memory_root.path, room.Room(str(memory_root.path), 100_000), memory_root.lock)
    session = start_in_memory(start, small)
    session.cell()
    scope = session.open()
    for _ in range(5):
        session.do(scope, "x", "write", b"x" * 40_000)  # replaced: what it took before is free again
    for method in ("write", "append", "create"):
        with pytest.raises(OSError, match="No space left"):
            session.do(scope, "y", method, b"x" * 60_000)
    with pytest.raises(OSError, match="No space left"):
        session.do(scope, "/".join("abcdefghijklmnopqrst"), "mkdir")
    assert os.listdir(memory_root.path) == ["x"]
    session.do(scope, "x", "delete")
    session.do(scope, "y", "write", b"x" * 60_000)


def test_the_room_that_is_left_says_nothing_of_a_secret(start: Start, memory_root: MemoryRoot) -> None:
    left = []
    for content in (b"", b"x" * 3_000_000):
        (memory_root.path / ".env").write_bytes(content)
        bound = room.Room(str(memory_root.path), room.SECRET_BYTES + 200_000)
        session = start_in_memory(start, MemoryRoot(memory_root.path, bound, memory_root.lock))
        session.cell()
        scope = session.open()
        written = 0
        with suppress(OSError):
            while written < 300:
                session.do(scope, "x", "write", b"x" * 100_000)  # at the bound, what is there is measured
                written += 1
        left.append(written)
        session.do(scope, "x", "delete")
    assert 0 < left[0] == left[1] < 300


def test_without_a_file_system_in_memory_there_is_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "is_in_memory", lambda _directory: False)
    with pytest.raises(memory.NoMemoryRoot, match="no tmpfs"):
        MemoryRoot.make()
