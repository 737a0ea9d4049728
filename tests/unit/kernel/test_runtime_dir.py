"""What a killed kernel leaves, its directory and a waiting bubblewrap, the next start ends, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capkernel.kernel import runtime_dir

Start = Callable[[str, str], "subprocess.Popen[bytes]"]


@pytest.fixture
def sleeping() -> Iterator[Start]:
    """Starts a process that sleeps, under a name and with a directory among its arguments."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, directory: str) -> subprocess.Popen[bytes]:
        code = "import sys, time; sys.stdout.buffer.write(b'.'); sys.stdout.flush(); time.sleep(600)"
        argv = [f"/usr/bin/{name}", "-c", code, "--chdir", f"{directory}/vault"]
        process = subprocess.Popen(argv, executable=sys.executable, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_a_waiting_bubblewrap_of_a_session_that_is_gone_is_ended(sleeping: Start) -> None:
    gone, lock = runtime_dir.make()
    alive, held = runtime_dir.make()
    of_gone, of_alive, other = sleeping("bwrap", gone), sleeping("bwrap", alive), sleeping("python", gone)
    os.close(lock)  # as when its kernel is killed
    _, another = runtime_dir.make()
    assert of_gone.wait(20) == -9
    assert not Path(gone).exists()
    assert of_alive.poll() is None
    assert other.poll() is None  # no bubblewrap: whatever it is, it is not ours to end
    os.close(held)
    os.close(another)


def test_a_name_that_only_begins_alike_is_another_session(sleeping: Start) -> None:
    gone, lock = runtime_dir.make()
    alike = sleeping("bwrap", gone + "x")
    os.close(lock)
    _, another = runtime_dir.make()
    assert not Path(gone).exists()
    assert alike.poll() is None
    os.close(another)
