"""Places no grant reaches."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from capkernel.policy import Exclusions


def test_by_path_and_by_inode(tmp_path):
    place = tmp_path / "private"
    place.mkdir()
    (place / "x").write_text("x")
    found = Exclusions([(str(place), "a test")])
    assert found.find(str(place)) == "a test"
    assert found.find(str(place / "x")) == "a test"
    assert found.find(str(tmp_path / "private-not")) is None
    place.rename(tmp_path / "renamed")  # another path, the same directory
    assert found.find(str(tmp_path / "renamed" / "x")) == "a test"
    assert found.find(str(place)) == "a test"  # and the name stays taken


def test_a_single_file_by_another_name(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text("")
    os.link(file, tmp_path / "other")
    status = os.stat(tmp_path / "other")
    found = Exclusions([(str(file), "the policy file")])
    assert found.find(str(tmp_path / "moved meanwhile"), (status.st_dev, status.st_ino)) == "the policy file"
    assert found.find(str(tmp_path / "other"), (status.st_dev, status.st_ino)) == "the policy file"


def test_links_to_a_place_are_resolved(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Exclusions([(str(tmp_path / "link"), "a test")]).find(str(tmp_path / "real" / "x")) == "a test"


def test_a_place_that_appears_later(tmp_path):
    found = Exclusions([(str(tmp_path / "later"), "a test")])
    (tmp_path / "later").mkdir()
    assert found.find(str(tmp_path / "later" / "x")) == "a test"


def test_python_environments(tmp_path):
    (tmp_path / "env" / "lib").mkdir(parents=True)
    found = Exclusions([])
    assert found.find(str(tmp_path / "env" / "lib" / "x")) is None
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert found.find(str(tmp_path / "env" / "lib" / "x")) == "a Python environment"
    assert found.find(str(tmp_path / "env")) == "a Python environment"
    assert found.find(str(tmp_path / "new" / "PyVenv.cfg")) == "a Python environment"


def test_the_trusted_process_itself(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = Exclusions.ambient(tmp_path / "policy.toml")
    for path in (
        tmp_path / "config" / "capkernel" / "trust",
        tmp_path / "state" / "capkernel" / "audit" / "x.jsonl",
        tmp_path / ".jupyter" / "jupyter_config.py",
        tmp_path / ".ipython" / "profile_default",
        tmp_path / "policy.toml",
        Path(sysconfig.get_path("purelib")) / "x.py",
        Path(sysconfig.get_path("stdlib")) / "os.py",
        Path("/proc/self/environ"),
        Path("/dev/mem"),
        Path("/sys/x"),
    ):
        assert found.find(os.path.realpath(path)) is not None, path
    assert found.find(str(tmp_path / "notes.txt")) is None


def test_every_import_path_is_excluded_or_not_writable_for_importable_files(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Exclusions.ambient()
    for entry in sys.path:
        if os.path.isdir(entry):
            target = os.path.join(os.path.realpath(entry), "json.py")
            assert found.find(target) is not None or found.imported_from(target), entry
    assert not found.imported_from(str(tmp_path / "table.csv"))
    assert found.imported_from(str(tmp_path / "deep" / "X.PY"))


@pytest.mark.parametrize("suffix", [".py", ".pyc", ".so", ".pth"])
def test_importable_suffixes(tmp_path, suffix):
    found = Exclusions([], imports=[str(tmp_path)])
    assert found.imported_from(f"{tmp_path}/a{suffix}")
    assert not found.imported_from(f"/elsewhere/a{suffix}")
