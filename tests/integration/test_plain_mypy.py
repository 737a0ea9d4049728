"""The plugin in an ordinary mypy run: it does its part, and says nothing of what it cannot see."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FORGED = """
from capkernel.api import Classified, FileSystem
FileSystem()
class Mine(Classified[int]): ...
"""

UNSEEN = """
from capkernel.api import classify, request_file_system
with request_file_system("data") as fs:
    kept = fs
secret = classify("a")
secret.map(lambda text: print(text))

"""


def mypy(folder: Path, text: str, *, plugin: bool) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    plugins = "plugins = capkernel.checker.mypy_plugin\n" if plugin else ""
    (folder / "mypy.ini").write_text(f"[mypy]\n{plugins}[mypy-pandas.*,numpy.*]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder / "cache"), "script.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


def test_the_plugin_in_a_plain_run(tmp_path: Path) -> None:
    without = mypy(tmp_path, FORGED, plugin=False)
    assert "capability-forge" not in without.stdout
    done = mypy(tmp_path, FORGED, plugin=True)
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if "[capability-forge]" in line]
    assert [line.split(":")[1] for line in found] == ["3", "4"], done.stdout


def test_what_it_does_not_see(tmp_path: Path) -> None:
    done = mypy(tmp_path, UNSEEN, plugin=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cell = tmp_path / "cell.py"
    cell.write_text(UNSEEN.split("\n", 2)[2])  # a cell has the API's names already
    command = [sys.executable, "-P", "-m", "capkernel.cli", "check", str(cell)]
    check = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert check.returncode == 1
    assert "impure-map" in check.stdout, check.stdout
