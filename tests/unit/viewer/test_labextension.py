"""The labextension as it is shipped: complete, of this version, and nothing that was built or fetched."""

from __future__ import annotations

import importlib.resources
import json
import re
from pathlib import Path

from capkernel.version import __version__

ROOT = Path(str(importlib.resources.files("capkernel.viewer") / "labextension"))
PACKAGE = json.loads((ROOT / "package.json").read_text())
FILES = ROOT / "static" / __version__
REPOSITORY = Path(__file__).resolve().parents[3]


def test_its_version_is_ours_and_so_is_its_directory() -> None:
    """A browser keeps files by their address: a new version must have another."""
    assert PACKAGE["version"] == __version__
    assert [entry.name for entry in (ROOT / "static").iterdir()] == [__version__]
    assert PACKAGE["jupyterlab"]["_build"]["load"] == f"static/{__version__}/load.js"
    assert (FILES / "load.js").is_file()


def test_it_loads_its_own_files_and_they_are_all_there() -> None:
    for file in FILES.glob("*.js"):
        text = file.read_text()
        assert text.startswith("// @ts-check\n"), file.name
        for wanted in re.findall(r'(?:from|import\(new URL\()\s*"([^"]+)"', text):
            assert (FILES / wanted).is_file(), f"{file.name} imports {wanted}"
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text


def test_no_markup_is_made_of_text_and_no_request_carries_a_token() -> None:
    code = "".join(re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL) for file in FILES.glob("*.js"))
    words = """innerHTML outerHTML insertAdjacentHTML document.write eval( Function( Authorization makeRequest
        localStorage sessionStorage indexedDB"""
    for word in words.split():
        assert word not in code, word
    assert code.count("fetch(") == 1


def test_the_wheel_puts_it_where_jupyter_looks() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    assert '"capkernel/viewer/labextension" = "share/jupyter/labextensions/@capkernel/card"' in project
    assert json.loads((ROOT / "install.json").read_text())["packageName"] == "capkernel"
