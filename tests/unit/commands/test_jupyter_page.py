"""What doctor says of secrets in the Jupyter page, and what `install` writes for the servers of other environments."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capkernel import cli
from capkernel.checker import cache
from capkernel.commands import jupyter_page

REPOSITORY = Path(__file__).resolve().parents[3]


@dataclass
class Place:
    """Jupyter's directories, as an installation leaves them, and the metadata of the kernelspec."""

    path: Path
    metadata: dict[str, Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(jupyter_page, "jupyter_config_path", lambda: [str(tmp_path / "user"), str(tmp_path / "config")])
    monkeypatch.setattr(jupyter_page, "jupyter_path", lambda *parts: [str(tmp_path.joinpath("share", *parts))])
    (tmp_path / "config" / "jupyter_server_config.d").mkdir(parents=True)
    settings = (REPOSITORY / "capkernel/viewer/jupyter/config/capkernel.json").read_text()
    (tmp_path / "config" / "jupyter_server_config.d" / "capkernel.json").write_text(settings)
    card = tmp_path / "share" / "labextensions" / jupyter_page.LABEXTENSION
    card.mkdir(parents=True)
    (card / "package.json").write_text("{}")
    entry = EntryPoint(jupyter_page.NAME, "x:y", "jupyter_client.kernel_provisioners")
    monkeypatch.setattr(jupyter_page, "entry_points", lambda **_: [entry])
    metadata = json.loads((REPOSITORY / "kernelspec" / "kernel.json").read_text())["metadata"]

    class Specs:
        def get_kernel_spec(self, name: str) -> Any:
            if not metadata:
                raise jupyter_page.NoSuchKernel(name)
            return SimpleNamespace(metadata=metadata, resource_dir="/x/kernels/capkernel")

    monkeypatch.setattr(jupyter_page, "KernelSpecManager", Specs)
    return Place(tmp_path, metadata)


@pytest.mark.usefixtures("place")
def test_an_installation_shows_them() -> None:
    assert jupyter_page.line_ambient().startswith("secrets in the Jupyter page: shown, on request")


def test_each_thing_that_is_missing_is_named_with_what_to_do(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(*words: str) -> None:
        line = jupyter_page.line_ambient()
        assert "not shown" in line
        assert "capkernel view" in line
        for word in words:
            assert word in line, line

    with monkeypatch.context() as now:
        now.setattr(jupyter_page, "entry_points", lambda **_: [])
        says("provisioner capkernel-provisioner is not registered")
    (place.path / "user").mkdir()
    off = place.path / "user" / "jupyter_server_config.json"
    off.write_text('{"ServerApp": {"jpserver_extensions": {"capkernel.viewer.jupyter": false}}}')
    says("jupyter server extension enable capkernel.viewer.jupyter")
    off.write_text("nonsense")
    assert "on request" in jupyter_page.line_ambient()
    (place.path / "share" / "labextensions" / jupyter_page.LABEXTENSION / "package.json").unlink()
    says("card for JupyterLab")
    del place.metadata["kernel_provisioner"]
    says("names no provisioner", "--sys-prefix")
    place.metadata.clear()
    says("there is no kernelspec")
    with monkeypatch.context() as now:
        find = importlib.util.find_spec
        now.setattr(importlib.util, "find_spec", lambda name: None if name == "jupyter_server" else find(name))
        assert "no Jupyter server in this environment" in jupyter_page.line_ambient()


@pytest.mark.parametrize(
    ("option", "registered", "named"),
    [("--user", True, False), ("--sys-prefix", True, True), ("--sys-prefix", False, False)],
)
def test_install_names_the_provisioner_in_its_own_environment_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    registered: bool,
    named: bool,
) -> None:
    monkeypatch.setattr(jupyter_page, "provisioner_registered", lambda: registered)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(cache, "build_cache", lambda _say: None)
    assert cli.main(["install", option]) == cli.OK
    (written,) = tmp_path.rglob("kernel.json")
    spec = json.loads(written.read_text())
    assert ("kernel_provisioner" in spec["metadata"]) is named
    assert spec["argv"][0] == sys.executable
    assert ("--sys-prefix" in capsys.readouterr().out) is not named


def test_lab_starts_the_server_with_the_extension(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(cli.os, "execv", lambda _program, command: started.append(command))
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    cli.main(["lab", str(notebook), "--", "--no-browser"])
    (command,) = started
    assert "--ServerApp.jpserver_extensions=capkernel.viewer.jupyter=True" in command
    assert command[-2:] == ["--no-browser", str(notebook)]
