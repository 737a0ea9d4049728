"""`capkernel doctor` tells of classified files that git tracks; nothing of the repository runs for it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from capkernel.cli import main
from capkernel.commands import tracked


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CAPKERNEL_POLICY", raising=False)
    place = tmp_path / "project"
    (place / "below").mkdir(parents=True)
    monkeypatch.chdir(place)
    for name in (".env", "a.csv", "below/key.pem", "odd\x1b.key"):
        (place / name).write_text("x")
    for arguments in (("init", "-q"), ("add", "-f", ".")):
        subprocess.run(["git", *arguments], cwd=place, check=True, capture_output=True, timeout=60)
    (place / "secrets.txt").write_text("not tracked")
    return place


def test_lines(repository: Path) -> None:
    lines = tracked.lines_ambient(repository)
    assert len(lines) == 3
    assert any("'.env' is classified and tracked by git: its history has it" in line for line in lines)
    assert any("below/key.pem" in line for line in lines)
    assert "\x1b" not in "".join(lines)
    assert tracked.lines_ambient(repository / "below") == [line for line in lines if "below" in line]
    assert tracked.lines_ambient(repository.parent) == []


def test_doctor(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["git"] == tracked.lines_ambient(repository)
    main(["doctor"])
    assert "git: '.env' is classified and tracked by git" in capsys.readouterr().out.replace("\n", " ")


def test_without_a_policy_that_can_be_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for named in ("relative.toml", str(repository / "none.toml")):
        monkeypatch.setenv("CAPKERNEL_POLICY", named)
        assert tracked.lines_ambient(repository) == []


@pytest.mark.parametrize("setting", ["core.fsmonitor", "core.pager", "alias.ls-files"])
def test_nothing_of_the_repository_runs(repository: Path, setting: str) -> None:
    mark, program = repository / "mark", repository / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    value = f"!{program}" if setting.startswith("alias") else str(program)
    subprocess.run(["git", "config", setting, value], cwd=repository, check=True, timeout=60)
    if setting == "core.fsmonitor":
        subprocess.run(["git", "status"], cwd=repository, capture_output=True, timeout=60, check=False)
        assert mark.exists(), "it does run"
        mark.unlink()
    assert len(tracked.lines_ambient(repository)) == 3
    assert not mark.exists()


def test_a_git_that_lies_in_the_repository_is_not_started(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, program = repository / "mark", repository / "git"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{repository}{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, timeout=60, check=False)
    assert mark.exists(), "it does run"
    mark.unlink()
    (line,) = tracked.lines_ambient(repository)
    assert "git is not installed" in line
    assert not mark.exists()
