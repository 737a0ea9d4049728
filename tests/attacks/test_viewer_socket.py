"""Code in the worker reaches for the person's socket, with the checker switched off.

The same program first runs in a plain process of the user, where it must succeed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from live_kernel import live_kernel
from unchecked import checker_off_kernel

from capkernel.viewer import sessions
from capkernel.wire.view import SECRET_NAME, SOCKET_NAME

REACH = """
import os, socket
folder = {folder!r}
for name, act in {{
    "list": lambda: os.listdir(folder),
    "secret": lambda: open(os.path.join(folder, {secret!r}), "rb").read().hex(),
    "socket": lambda: _connect(),
}}.items():
    def _connect():
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(5)
        link.connect(os.path.join(folder, {socket!r}))
        return link.recv(100)
    try:
        print(name, "REACHED", bool(act()))
    except Exception as problem:
        print(name, "stopped", type(problem).__name__)
"""


@pytest.fixture(autouse=True)
def _own_sessions(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


def test_the_worker_reaches_neither_the_secret_nor_the_socket(project: Path) -> None:
    with checker_off_kernel(project) as kernel:
        assert kernel.run("x = 1").ok
        (session,) = sessions.running("test")
        program = REACH.format(folder=session.runtime, secret=SECRET_NAME, socket=SOCKET_NAME)
        outside = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30).stdout
        assert outside.count("REACHED True") == 3, outside
        inside = kernel.run(program)
        assert "REACHED" not in inside.stdout, inside.stdout
        assert inside.stdout.count("stopped") == 3, inside.everything


@pytest.mark.parametrize("place", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_no_grant_reaches_the_session_directory(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A policy whose root holds the runtime directory: the broker says no, to the very files a cell could name."""
    around = tmp_path_factory.mktemp("around")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv(place, str(around))
    if place == "TMPDIR":
        monkeypatch.setattr(tempfile, "tempdir", str(around))
    policy = project / "policy.toml"
    policy.write_text(f'[files]\nroots = ["{around}"]\n')
    (around / "plain.txt").write_text("12345")
    with live_kernel(project, policy=policy) as kernel:
        assert kernel.run("x = 1").ok
        (session,) = sessions.running("test")
        secret = Path(session.runtime, SECRET_NAME)
        assert len(secret.read_bytes()) == 32
        read = f"with request_file_system({str(around)!r}) as fs:\n    print(len(fs.access({{path!r}}).read_bytes()))"
        plain = kernel.run(read.format(path="plain.txt"))
        assert plain.stdout == "5\n", plain.everything
        reached = kernel.run(read.format(path=str(secret.relative_to(around))))
        assert reached.reply["ename"] == "CapabilityDenied", reached.everything
        assert "runtime directory" in reached.reply["evalue"], reached.reply["evalue"]
