"""Which files may be the secure output. Each one that is refused is first seen to be usable by a plain `open`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from capkernel.broker import secure_file
from capkernel.broker.secure_file import SecureFileUnusable, open_ambient, problem_with_ambient, reachable
from capkernel.policy import default_policy


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir(mode=0o700)
    return tmp_path / "out" / "secrets.txt"


def link(place: Path) -> str:
    (place.parent / "other").touch(0o600)
    place.symlink_to("other")
    return "symbolic link"


def dangling_link(place: Path) -> str:
    place.symlink_to("nowhere")
    return "symbolic link"


def pipe(place: Path) -> str:
    os.mkfifo(place, 0o600)
    return "not a regular file"


def directory(place: Path) -> str:
    place.mkdir()
    return "not a regular file"


def world_readable(place: Path) -> str:
    place.touch()
    place.chmod(0o644)
    return "mode is 0644"


def group_readable(place: Path) -> str:
    place.touch()
    place.chmod(0o640)
    return "chmod 600"


def hard_link(place: Path) -> str:
    place.touch(0o600)
    os.link(place, place.parent / "second")
    return "another name"


def open_directory(place: Path) -> str:
    place.parent.chmod(0o777)
    return "changed by anyone"


def missing_directory(place: Path) -> str:
    place.parent.rmdir()
    return "No such file"


@pytest.mark.parametrize(
    "make",
    [
        link,
        dangling_link,
        pipe,
        directory,
        world_readable,
        group_readable,
        hard_link,
        open_directory,
        missing_directory,
    ],
)
def test_what_is_refused(place: Path, make: Callable[[Path], str]) -> None:
    why = make(place)
    with pytest.raises(SecureFileUnusable, match=why):
        open_ambient(place, [])
    assert why in problem_with_ambient(place, [])
    assert str(place.parent) not in problem_with_ambient(place, [])


@pytest.mark.parametrize("make", [link, dangling_link, world_readable, group_readable, hard_link])
def test_a_plain_open_takes_them(place: Path, make: Callable[[Path], str]) -> None:
    make(place)
    with open(place, "a") as file:
        file.write("secret")
    assert place.read_text() == "secret"


def test_a_pipe_that_is_read_is_refused_as_well(place: Path) -> None:
    pipe(place)
    reader = os.open(place, os.O_RDWR)
    os.close(os.open(place, os.O_WRONLY | os.O_NONBLOCK))  # now it can be opened without waiting
    with pytest.raises(SecureFileUnusable, match="not a regular file"):
        open_ambient(place, [])
    os.close(reader)


def test_someone_elses_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.touch(0o600)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(SecureFileUnusable, match="belongs to someone else"):
        open_ambient(place, [])


def test_a_full_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write_text("xxx")
    place.chmod(0o600)
    monkeypatch.setattr(secure_file, "MAX_BYTES", 3)
    with pytest.raises(SecureFileUnusable, match="move it away"):
        open_ambient(place, [])


def test_where_cells_may_ask_for_files(tmp_path: Path) -> None:
    base = tmp_path / "project"
    (base / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(base)
    forbidden = reachable(default_policy(base), base)
    for place in (base / "secrets.txt", base / "deep" / "x", tmp_path / "link" / "x", base / "deep/../../project/x"):
        with pytest.raises(SecureFileUnusable, match="where cells may ask for files"):
            open_ambient(place, forbidden)
        assert not place.exists()
    open_ambient(tmp_path / "outside.txt", forbidden).close()


def test_a_file_is_made_and_kept(place: Path) -> None:
    assert problem_with_ambient(place, []) == ""
    assert not place.exists()
    file = open_ambient(place, [])
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    os.write(file.fd, b"one")
    file.close()
    again = open_ambient(place, [])
    os.lseek(again.fd, 0, os.SEEK_SET)
    os.write(again.fd, b"two")
    assert place.read_text() == "onetwo"  # it appends, whatever the position
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(again.fd, 1)
    again.close()


def replaced(place: Path) -> str:
    place.rename(place.with_name("moved"))
    place.touch(0o600)
    return "was replaced"


def removed(place: Path) -> str:
    place.unlink()
    return "was removed"


def opened(place: Path) -> str:
    place.chmod(0o666)
    return "mode is 0666"


def linked(place: Path) -> str:
    os.link(place, place.parent / "second")
    return "another name"


@pytest.mark.parametrize("change", [replaced, removed, opened, linked])
def test_it_is_looked_at_again(place: Path, change: Callable[[Path], str]) -> None:
    file = open_ambient(place, [])
    file.look()
    why = change(place)
    with pytest.raises(SecureFileUnusable, match=why):
        file.look()
    file.close()
