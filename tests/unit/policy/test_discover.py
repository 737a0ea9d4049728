"""Where a session looks for policy files by itself, and what it reads of them."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from capkernel.policy import PolicyError
from capkernel.policy.discover import MAX_FOUND_BYTES, directories_above, read_found
from capkernel.policy.load import Source


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home" / "me"
    (place / "project" / "sub").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place))
    return place


def test_upwards_until_the_home_directory(home):
    assert list(directories_above(home / "project" / "sub")) == [home / "project" / "sub", home / "project"]


def test_the_notebooks_own_directory_is_looked_at_and_nothing_above_the_home(home):
    assert list(directories_above(home)) == [home]
    assert Path("/") not in list(directories_above(home.parent))
    assert list(directories_above(Path("/"))) == [Path("/")]


def test_not_beyond_the_file_system(home, monkeypatch):
    real = os.stat

    class Other:
        st_dev = -1

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path, **how: Other() if path == home / "project" else real(path, **how))
        assert list(directories_above(home / "project" / "sub")) == [home / "project" / "sub"]


def test_what_is_there_is_read_once_and_whole(tmp_path):
    place = tmp_path / "capkernel.toml"
    assert read_found(place) is None
    place.write_bytes(b"# x\n")
    found = read_found(place)
    assert isinstance(found, Source)
    assert found.data == b"# x\n"
    assert found.sha256 == hashlib.sha256(b"# x\n").hexdigest()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: place.symlink_to("other.toml"), "is a link"),
        (lambda place: place.symlink_to("missing"), "is a link"),
        (lambda place: os.mkfifo(place), "regular file"),
        (lambda place: place.mkdir(), "cannot be read|regular file"),
        (lambda place: place.write_bytes(b"#" * (MAX_FOUND_BYTES + 1)), "at most"),
        (lambda place: os.truncate(os.open(place, os.O_CREAT | os.O_RDWR), 50_000_000), "at most"),
    ],
)
def test_what_is_no_small_regular_file_is_not_read(tmp_path, make, message):
    (tmp_path / "other.toml").write_text("")
    make(tmp_path / "capkernel.toml")
    found = read_found(tmp_path / "capkernel.toml")
    assert isinstance(found, PolicyError)
    assert re.search(message, found.problem)
