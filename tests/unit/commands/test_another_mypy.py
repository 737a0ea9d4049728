"""Whoever asks is told that the installed mypy is not the one, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capkernel import cli

SAID = "capkernel needs mypy 2.4.*, and mypy 2.5.0 is installed. Run: "


@pytest.fixture
def _another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capkernel.checker.pinned.installed", lambda: "2.5.0")


@pytest.mark.usefixtures("_another")
def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == cli.FAILED
    assert SAID in capsys.readouterr().out.replace("\n", " ")
    assert cli.main(["doctor", "--json"]) == cli.FAILED
    assert json.loads(capsys.readouterr().out)["checker"].startswith(SAID)


@pytest.mark.usefixtures("_another")
def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text("# %%\n1\n")
    assert cli.main(["check", str(file)]) == cli.USAGE
    assert SAID in capsys.readouterr().err


@pytest.mark.usefixtures("_another")
def test_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["install"]) == cli.FAILED
    assert SAID in capsys.readouterr().err.replace("\n", " ")


def test_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor"])
    assert "checker: mypy 2.4." in capsys.readouterr().out
