"""Staying below a directory, at the level of single opens."""

from __future__ import annotations

import errno
import os

import pytest

from capkernel.broker import confine
from capkernel.broker.failures import EffectError


@pytest.fixture
def root(project):
    (project.parent / "outside.txt").write_text("out")
    fd = os.open(project, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_plain_opens_relative_to_a_directory_do_escape(root):
    os.close(os.open("../outside.txt", os.O_RDONLY, dir_fd=root))  # what open_beneath is there to stop


@pytest.mark.parametrize("path", ["../outside.txt", "..", "/etc/passwd", "data/../../outside.txt"])
def test_paths_that_leave(root, opener, path):
    with pytest.raises(confine.Escape):
        confine.open_beneath(root, path, os.O_PATH)


def test_descriptors_are_not_inherited(root, opener):
    fd = confine.open_beneath(root, "data/a.txt", os.O_RDONLY)
    try:
        assert not os.get_inheritable(fd)
        assert os.read(fd, 10) == b"hello\n"
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("path", "number"),
    [("none", errno.ENOENT), ("data/a.txt/x", errno.ENOTDIR), ("none/x", errno.ENOENT)],
)
def test_ordinary_errors_stay_ordinary(root, opener, path, number):
    with pytest.raises(OSError) as caught:
        confine.open_beneath(root, path, os.O_PATH)
    assert caught.value.errno == number
    assert not isinstance(caught.value, confine.Escape)


def test_the_fallback_follows_no_link_at_all(root, project):
    (project / "link").symlink_to("data/a.txt")
    (project / "folder").symlink_to("data")
    for path in ("link", "folder/a.txt"):
        for flags in (os.O_PATH, os.O_RDONLY):
            with pytest.raises(confine.Escape):
                confine.walk_beneath(root, path, flags)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_a_system_without_the_call_uses_the_walk(monkeypatch, root, number):
    def missing(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(confine, "_openat2", missing)
    confine.openat2_works.cache_clear()
    try:
        assert confine.openat2_works() is False
        os.close(confine.open_beneath(root, "data/a.txt", os.O_PATH))
    finally:
        confine.openat2_works.cache_clear()


@pytest.mark.parametrize(
    ("given", "expected"),
    [("a", "a"), ("./a//b/", "a/b"), ("", "."), (".", "."), ("a/../b", "a/../b"), ("./..", ".."), ("a ", "a ")],
)
def test_paths_are_tidied_without_touching_dot_dot(given, expected):
    assert confine.checked_path(given) == expected


@pytest.mark.parametrize("path", ["\0", "a\0", "/a", "\ud800", "x" * 256, "é" * 128, "a/" * 257 + "a", "z" * 4096])
def test_what_can_be_no_path_below_a_root(path):
    with pytest.raises(EffectError):
        confine.checked_path(path)


def test_a_deleted_file_has_no_path_and_one_named_like_it_has(project):
    odd = project / "x (deleted)"
    odd.write_text("x")
    for path, gone in ((odd, False), (project / "data" / "a.txt", True)):
        fd = os.open(path, os.O_PATH)
        try:
            if gone:
                path.unlink()
                with pytest.raises(FileNotFoundError):
                    confine.canonical_path(fd)
            else:
                assert confine.canonical_path(fd) == str(path)
        finally:
            os.close(fd)


def test_a_link_that_dots_lead_back_from_is_no_directory(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside" / "deep"
    root.mkdir()
    outside.mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (root / "here").write_text("inside")
    (root / "plain").mkdir()
    held = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        openers = [confine.walk_beneath, *([confine._openat2] if confine.openat2_works() else [])]
        for opener in openers:
            with pytest.raises(confine.Escape):
                opener(held, "link/../here", os.O_PATH, 0)
            with pytest.raises(FileNotFoundError):
                opener(held, "nowhere/../here", os.O_PATH, 0)
            with pytest.raises(NotADirectoryError):
                opener(held, "here/../plain", os.O_PATH, 0)
            for path in ("plain/../here", "plain/.", "plain/..", "."):
                os.close(opener(held, path, os.O_PATH, 0))
    finally:
        os.close(held)
