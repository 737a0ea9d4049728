"""What `capkernel doctor` and `policy lint` say of a secure output; neither makes the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capkernel.cli import main
from capkernel.commands import secure_output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("CAPKERNEL_POLICY", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def named(folder: Path, monkeypatch: pytest.MonkeyPatch, place: Path) -> Path:
    policy = folder / "policy.toml"
    roots = json.dumps(str(folder / "project"))
    policy.write_text(f"[files]\nroots = [{roots}]\n[output]\nsecure_file = {json.dumps(str(place))}\n")
    monkeypatch.setenv("CAPKERNEL_POLICY", str(policy))
    return policy


def test_none(folder: Path) -> None:
    assert secure_output.line_ambient(folder / "project").startswith("secure output: none")


def test_one_that_is_fine(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "out.txt"
    policy = named(folder, monkeypatch, place)
    assert f"{place} takes, in clear text" in secure_output.line_ambient(folder / "project")
    assert main(["policy", "lint", str(policy)]) == 0
    assert "in clear text" in capsys.readouterr().out
    assert main(["policy", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"]["output.secure_file"]["value"] == str(place)
    assert not place.exists()


@pytest.mark.parametrize("where", ["inside", "readable"])
def test_one_that_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    place = folder / ("project/out.txt" if where == "inside" else "out.txt")
    if where == "readable":
        place.touch(0o644)
        place.chmod(0o644)
    policy = named(folder, monkeypatch, place)
    why = "where cells may ask for files" if where == "inside" else "chmod 600"
    line = secure_output.line_ambient(folder / "project")
    assert "takes nothing" in line
    assert why in line
    assert main(["policy", "lint", str(policy)]) == 0
    assert why in capsys.readouterr().out


def test_a_file_of_a_repository(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "project" / "capkernel.toml").write_text('[output]\nsecure_file = "~/x\\u001b[2J.txt"\n')
    assert secure_output.line_ambient(folder / "project").startswith("secure output: none")
    assert main(["policy", "lint"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("text", ['"x/"', '"x\\u0000"', "3", '"x/.."'])
def test_what_is_no_path_of_a_file(folder: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    policy = folder / "policy.toml"
    policy.write_text(f"[output]\nsecure_file = {text}\n")
    assert main(["policy", "lint", str(policy)]) == 1
    assert "policy.toml:2: output.secure_file" in capsys.readouterr().out


def test_doctor_says_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["secure_output"].startswith("secure output: none")
