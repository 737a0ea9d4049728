"""The index of second names."""

from __future__ import annotations

import os

import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.broker import identity, places
from capkernel.broker.identity import ClassifiedIndex
from capkernel.policy import PathRules, default_policy
from capkernel.wire.worker import Invoke


@pytest.fixture
def index(project):
    return ClassifiedIndex(PathRules(default_policy(project)), lambda: [str(project)])


def answer(index: ClassifiedIndex, path) -> bool:
    return index.is_classified(os.path.realpath(path), os.stat(path))


def test_plain_files_are_not_classified(index, project):
    assert answer(index, project / "data" / "a.txt") is False


def test_a_walk_that_could_not_see_everything_makes_files_of_many_names_classified(project):
    small = ClassifiedIndex(PathRules(default_policy(project)), lambda: [str(project)], max_entries=1)
    os.link(project / "data" / "a.txt", project / "data" / "b.txt")
    assert answer(small, project / "data" / "b.txt") is True
    large = ClassifiedIndex(PathRules(default_policy(project)), lambda: [str(project)])
    assert answer(large, project / "data" / "b.txt") is False


def test_a_second_root_counts_too(project, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    os.link(project / ".env", other / "copy.txt")
    both = ClassifiedIndex(PathRules(default_policy(project)), lambda: [str(other), str(project)])
    assert answer(both, other / "copy.txt") is True


def test_environments_are_not_walked(index, project):
    (project / "venv").mkdir()
    (project / "venv" / "pyvenv.cfg").touch()
    (project / "venv" / "x.pem").write_text("x")
    os.link(project / "venv" / "x.pem", project / "data" / "cert")
    assert answer(index, project / "data" / "cert") is False


# ── file systems that take one name for another ──────────────────────────────────────────────────────────────────────


@pytest.fixture
def short_names(project, monkeypatch):
    """`SHORT~1` is another name of `secrets`, and what is opened under it says so, as in a vfat file system."""
    real_open, real_path = places.open_beneath, places.canonical_path
    monkeypatch.setattr(
        places, "open_beneath", lambda fd, path, *rest: real_open(fd, path.replace("SHORT~1", "secrets"), *rest)
    )
    monkeypatch.setattr(places, "canonical_path", lambda fd: real_path(fd).replace("/secrets", "/SHORT~1"))


METHODS = ("read_bytes", "size", "open_read", "append", "write")


def test_a_name_that_no_pattern_knows_is_told_by_what_was_opened(start, project, short_names, monkeypatch):
    session = start()
    session.cell()
    assert session.read("SHORT~1/key.txt") == b"not-the-canary\n"  # the attack works
    monkeypatch.setattr(identity, "folds_names", lambda _directory, names: "secrets" in names or "key.txt" in names)
    session = start()
    session.cell()
    scope = session.open()
    for method in METHODS:
        with pytest.raises(CapabilityDenied, match="classified"):
            session.do(scope, "SHORT~1/key.txt", method, b"x")
    for path, method in (
        ("SHORT~1", "children"),
        ("SHORT~1", "walk"),
        ("SHORT~1/new", "write"),
        ("SHORT~1/n", "mkdir"),
    ):
        with pytest.raises(CapabilityDenied, match="classified"):
            session.do(scope, path, method, b"x")
    top = session.access(scope, ".")
    assert session.result(Invoke(top, "read_many", paths=("SHORT~1/key.txt", "data/a.txt")))[0] == [-1, 6]
    assert session.read("data/a.txt") == b"hello\n"


def test_what_is_new_under_such_a_name_is_found_at_once(start, project, short_names, monkeypatch):
    monkeypatch.setattr(identity, "folds_names", lambda *_: True)
    session = start()
    session.cell()
    assert session.read("data/a.txt") == b"hello\n"  # what there is has been looked at
    (project / "secrets" / "late").write_bytes(b"late")
    with pytest.raises(CapabilityDenied, match="classified"):
        session.read("SHORT~1/late")


def test_whether_a_directory_folds_names_is_seen_by_another_spelling(project, monkeypatch):
    names = os.listdir(project / "data")
    assert not identity.folds_names(str(project / "data"), names)
    os.link(project / "data" / "a.txt", project / "data" / "A.TXT")  # two names of one file, in an ordinary directory
    assert not identity.folds_names(str(project / "data"), os.listdir(project / "data"))
    (project / "data" / "A.TXT").unlink()
    real = os.lstat
    monkeypatch.setattr(
        os, "lstat", lambda path: real(os.path.join(os.path.dirname(path), os.path.basename(path).lower()))
    )
    assert identity.folds_names(str(project / "data"), names)
