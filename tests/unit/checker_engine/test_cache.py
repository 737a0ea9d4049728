"""The cache of library types: whole or absent, ours alone, and refused when it does not fit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from capkernel.checker import cache


def test_it_is_used_as_it_is(cache_directory: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in cache_directory.rglob("*"))
    said: list[str] = []
    assert cache.build_cache(said.append, cache_directory) == cache_directory
    assert said == []
    assert sorted((path, path.stat().st_mtime_ns) for path in cache_directory.rglob("*")) == before


def test_it_is_private(cache_directory: Path) -> None:
    assert cache_directory.stat().st_mode & 0o077 == 0


def test_a_half_built_one_does_not_count(tmp_path: Path) -> None:
    assert not cache.is_built(tmp_path)
    assert not cache.is_built(tmp_path / "missing")
    (tmp_path / "built").write_text("mypy 1.0")
    assert not cache.is_built(tmp_path)


def test_one_others_can_write_does_not_count(tmp_path: Path, cache_directory: Path) -> None:
    (tmp_path / "built").write_text((cache_directory / "built").read_text())
    os.chmod(tmp_path, 0o700)
    assert cache.is_built(tmp_path)
    os.chmod(tmp_path, 0o777)
    assert not cache.is_built(tmp_path)


def test_a_new_library_version_does_not_fit(cache_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.is_built(cache_directory)
    monkeypatch.setattr(cache, "_version", lambda name: "99" if name == "numpy" else "1")
    assert not cache.is_built(cache_directory)


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capkernel.checker import builds

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(builds, "WarmBuild", fail)
    target = tmp_path / "cache"
    with pytest.raises(OSError, match="disk full"):
        cache.build_cache(lambda _line: None, target)
    assert [path.name for path in tmp_path.iterdir()] == ["cache.lock"]


def test_cells_write_nothing_to_it(cells, cache_directory: Path) -> None:
    before = sorted(path.name for path in cache_directory.rglob("*"))
    cells.run("import sched\nimport chunk\nsched.scheduler()")
    assert sorted(path.name for path in cache_directory.rglob("*")) == before


def test_a_build_removes_those_whose_interpreter_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_build", lambda target, _progress: target.mkdir())
    lines = cache._installed().splitlines()
    assert lines[cache._PREFIX_LINE] == sys.prefix

    def beside(name: str, stamp: str) -> Path:
        made = tmp_path / f"mypy-{name}"
        made.mkdir()
        (made / "built").write_text(stamp)
        (made / "data").write_text("x")
        (tmp_path / f"mypy-{name}.lock").write_text("")
        return made

    lines[cache._PREFIX_LINE] = str(tmp_path / "no" / "such")
    gone = beside("gone", "\n".join(lines))
    lines[cache._PREFIX_LINE] = str(tmp_path)
    kept = [beside("lives", "\n".join(lines)), beside("strange", "?"), beside("relative", "\n".join(["no/such"] * 9))]
    cache.build_cache(lambda _line: None, tmp_path / "mypy-ours")
    assert not gone.exists()
    assert not gone.with_name("mypy-gone.lock").exists()
    assert all((place / "data").exists() and place.with_name(f"{place.name}.lock").exists() for place in kept)
