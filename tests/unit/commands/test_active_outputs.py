"""What `capkernel doctor` and `policy lint` say of active outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from capkernel.cli import main
from capkernel.commands import active_outputs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CAPKERNEL_POLICY", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_off_without_a_word_of_the_operator(folder: Path) -> None:
    assert active_outputs.line_ambient(folder).startswith("active outputs: off")
    (folder / "capkernel.toml").write_text("[output]\nactive = true\n")
    assert active_outputs.line_ambient(folder).startswith("active outputs: off"), "nobody has trusted that file"


def test_on(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    policy = folder / "policy.toml"
    policy.write_text("[output]\nactive = true\n")
    monkeypatch.setenv("CAPKERNEL_POLICY", str(policy))
    assert active_outputs.line_ambient(folder).startswith("active outputs: ON")
    main(["doctor"])
    assert "active outputs: ON" in capsys.readouterr().out
    assert main(["policy", "lint", str(policy)]) == 0
    assert "act as you" in capsys.readouterr().out


def test_not_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPKERNEL_POLICY", "relative.toml")
    assert "not known, because CAPKERNEL_POLICY" in active_outputs.line_ambient(folder)
