"""A notebook's directory full of files that Python, IPython and mypy would read: no process of a session does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from live_kernel import LiveKernel, live_kernel

MODULES = (
    "msgspec",
    "json",
    "sitecustomize",
    "usercustomize",
    "capkernel",
    "mypy_hostile_plugin",
    "argparse",
    "IPython",
    "zmq",
    "ipython_config",
    "ipython_kernel_config",
    "jupyter_config",
    "numpy",
    "nh3",
    "tornado",
    "traitlets",
    "typing",
)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """The directory. Whoever reads one of its Python files leaves a mark."""
    place = tmp_path / "notebook"
    (place / "marks").mkdir(parents=True)
    for name in MODULES:
        mark = place / "marks" / name
        (place / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\nplugin = None\n")
    (place / "mypy.ini").write_text("[mypy]\nplugins = mypy_hostile_plugin.py\nignore_errors = True\n")
    (place / "setup.cfg").write_text("[mypy]\nplugins = mypy_hostile_plugin.py\nignore_errors = True\n")
    (place / "pyproject.toml").write_text('[tool.mypy]\nplugins = ["mypy_hostile_plugin.py"]\nignore_errors = true\n')
    (place / "numpy.pyi").write_text("def hostile() -> int: ...\n")
    (place / "profile_default" / "startup").mkdir(parents=True)
    start = place / "marks" / "startup"
    (place / "profile_default" / "startup" / "a.py").write_text(f"open({str(start)!r}, 'w').close()\n")
    shutil.copytree(place / "profile_default", place / "settings" / "profile_default")
    (place / "data").mkdir()
    (place / "data" / "a.txt").write_text("hello")
    return place


def marks(place: Path) -> set[str]:
    return {entry.name for entry in (place / "marks").iterdir()}


STEERING = ("PYTHONPATH", "MYPYPATH", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "MPLCONFIGDIR")


def steered(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STEERING:
        # Where the user's Jupyter and IPython are configured, no cell may read or write: not the whole directory then.
        own = name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR")
        monkeypatch.setenv(name, str(place / "settings" if own else place))
    monkeypatch.setenv("PYTHONSTARTUP", str(place / "sitecustomize.py"))
    monkeypatch.setenv("MYPY_CONFIG_FILE", str(place / "mypy.ini"))
    monkeypatch.setenv("SECRET_TOKEN", "sk-do-not-hand-on")


def test_stock_programs_do_read_them(hostile: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    subprocess.run(
        [sys.executable, "-m", "ipykernel", "--help"],
        cwd=hostile,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    assert marks(hostile) & set(MODULES)
    for mark in (hostile / "marks").iterdir():
        mark.unlink()
    subprocess.run(
        [sys.executable, "-c", "pass"],
        cwd=hostile,
        env={"PYTHONPATH": str(hostile)},
        timeout=60,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert "sitecustomize" in marks(hostile)


def test_stock_mypy_does_read_them(hostile: Path) -> None:
    (hostile / "cell.py").write_text("x: int = 'text'\n")
    subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "cell.py"],
        cwd=hostile,
        stdout=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert "mypy_hostile_plugin" in marks(hostile)


@pytest.mark.parametrize("environment", [False, True])
def test_no_process_of_a_session_reads_them(hostile: Path, monkeypatch: pytest.MonkeyPatch, environment: bool) -> None:
    with monkeypatch.context() as patch:
        if environment:
            steered(hostile, patch)
        kernel = LiveKernel(hostile)
    try:
        ran = kernel.run("import json\nimport numpy as np\nprint(json.dumps(np.arange(3).tolist()))")
        assert ran.stdout == "[0, 1, 2]\n", ran.everything
        # A numpy of the directory's would have `hostile`, and types in it; the real one has not.
        assert "hostile" in kernel.run("np.hostile()").everything
        assert kernel.run("np.hostile()").reply["status"] == "error"
        # Nothing silences the checker.
        assert kernel.run("__import__('os').system('true')").reply["ename"] == "CellRefused"
        # What the person may have, they have: the broker opens it.
        read = kernel.run("with request_file_system('data') as fs:\n    print(fs.access('a.txt').read())")
        assert read.stdout == "hello\n", read.everything
        kernel.client.complete("js", 2)
        kernel.client.get_shell_msg(timeout=10)
        assert marks(hostile) == set()
        started = [psutil.Process(kernel.pid), *psutil.Process(kernel.pid).children(recursive=True)]
        assert len(started) >= 5
        for process in started:
            assert_clean(process, hostile)
    finally:
        kernel.close()
    assert marks(hostile) == set()


def assert_clean(process: psutil.Process, hostile: Path) -> None:
    try:
        where, environment = process.cwd(), process.environ()
    except psutil.Error:  # locked processes cannot be looked into, not even by us
        return
    assert not where.startswith(str(hostile))
    for name in (*STEERING, "PYTHONSTARTUP", "MYPY_CONFIG_FILE", "SECRET_TOKEN"):
        if name != "MPLCONFIGDIR":
            assert name not in environment, (process.cmdline()[:8], name)
    assert str(hostile) not in environment.values()


def test_a_link_or_a_relative_policy_in_the_directory_decides_nothing(hostile: Path) -> None:
    (hostile / "capkernel.toml").write_text('[sandbox]\nminimum = "none"\n[files]\nroots = ["/"]\n')
    with live_kernel(hostile) as kernel:
        ran = kernel.run("with request_file_system('/etc') as fs:\n    print(fs.access('hostname').read())")
        assert ran.reply["ename"] in ("CapabilityDenied", "CellRefused")
        assert "grants nothing" in ran.everything


def test_the_front_is_the_process_that_jupyter_started(hostile: Path) -> None:
    with live_kernel(hostile) as kernel:
        front = psutil.Process(kernel.pid)
        assert "capkernel.kernel.app" in front.cmdline()
        assert front.ppid() == os.getpid()
        began = time.monotonic()
        kernel.manager.interrupt_kernel()
        assert kernel.run("1 + 1").text == "2"
        assert time.monotonic() - began < 30
