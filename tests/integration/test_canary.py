"""The canary: a random secret is read, mapped twenty times and written; then every place it must not be is searched.

The search itself is proved first: it finds the canary in the keeper, and in a worker that was given a copy on purpose.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from live_kernel import LiveKernel, live_kernel
from memory import count_in_memory, readable

TWENTY_MAPS = """
v = s
for _ in range(20):
    v = v.map(lambda t: t.upper().lower())
n = v.map(len)
"""


@pytest.fixture
def canary(project: Path) -> str:
    text = "canary" + secrets.token_hex(16)
    (project / "secrets" / "canary.txt").write_text(text)
    return text


@pytest.fixture
def kernel(project: Path, canary: str) -> Iterator[LiveKernel]:
    with live_kernel(project) as running:
        yield running


def use_the_secret(kernel: LiveKernel) -> str:
    """Read, twenty maps, a write, every way to show it. Returns all that went out on iopub and in replies."""
    seen = []
    for code in (
        "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/canary.txt')",
        TWENTY_MAPS,
        "with request_file_system('.') as fs:\n    fs.write_classified('secrets/copy.txt', v)",
        "print(s, n, f'{s}')",
        "s",
        "display(v)",
    ):
        ran = kernel.run(code)
        assert ran.ok, ran.everything
        seen.append(ran.everything)
    return "".join(seen)


def wait_for_copy(project: Path, expected: str) -> None:
    """Until the vault has written the classified file: all the maps before it are done then."""
    import time

    end = time.monotonic() + 20
    while time.monotonic() < end:
        if (project / "secrets" / "copy.txt").read_text() == expected:
            return
        time.sleep(0.05)
    raise AssertionError("the vault did not write the file")


def test_the_worker_never_holds_the_secret(kernel: LiveKernel, project: Path, canary: str) -> None:
    use_the_secret(kernel)
    wait_for_copy(project, canary)
    worker = kernel.process("capkernel.worker.main").pid
    keeper = kernel.process("capkernel.vault.keeper_main").pid
    if not readable(worker):
        pytest.skip("reading another process's memory needs root here")
    needle = canary.encode()
    assert count_in_memory(keeper, needle) > 0, "the search must find it where it is"
    assert count_in_memory(worker, needle) == 0
    assert count_in_memory(worker, canary.upper().encode()) == 0
    # The same search, on the same worker, after a cell was given the text: so a zero above means something.
    half = len(canary) // 2
    assert kernel.run(f"copied = {canary[:half]!r} + str({canary[half:]!r})").ok
    assert count_in_memory(worker, needle) > 0


def test_the_kernel_does_not_hold_a_file_read_as_a_secret(kernel: LiveKernel, project: Path, canary: str) -> None:
    use_the_secret(kernel)
    wait_for_copy(project, canary)
    if not readable(kernel.pid):
        pytest.skip("reading another process's memory needs root here")
    assert count_in_memory(kernel.pid, canary.encode()) == 0


def test_nothing_that_leaves_the_kernel_holds_the_secret(kernel: LiveKernel, canary: str) -> None:
    seen = use_the_secret(kernel)
    assert "Classified[str](***)" in seen
    assert "Classified[int](***)" in seen
    assert canary not in seen


def test_no_environment_file_or_argument_holds_the_secret(kernel: LiveKernel, project: Path, canary: str) -> None:
    use_the_secret(kernel)
    wait_for_copy(project, canary)
    worker = kernel.process("capkernel.worker.main")
    assert canary not in "\0".join(worker.environ().values())
    assert canary not in "\0".join(worker.cmdline())
    scratch = Path(worker.environ()["TMPDIR"])
    state = Path(os.environ["XDG_STATE_HOME"])
    searched = 0
    for folder in (scratch, state):
        for path in folder.rglob("*"):
            if path.is_file():
                searched += 1
                assert canary.encode() not in path.read_bytes(), path
    assert searched > 0, "there must be an audit to look into"


def test_the_saved_notebook_holds_masks(project: Path, canary: str) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(
                "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/canary.txt')\ns"
            ),
            nbformat.v4.new_code_cell("print(s.map(str.upper))"),
        ]
    )
    nbformat.write(notebook, project / "n.ipynb")
    command = [
        sys.executable,
        "-P",
        "-m",
        "capkernel.cli",
        "run",
        str(project / "n.ipynb"),
        "--out",
        str(project / "o.ipynb"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = (project / "o.ipynb").read_text()
    assert "Classified[str](***)" in saved
    for text in (saved, done.stdout, done.stderr):
        assert canary not in text
        assert canary.upper() not in text
