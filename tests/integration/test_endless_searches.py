"""Patterns of a cell that never end: the cell is ended, by its limit or by an interrupt, and the session goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from live_kernel import CELL_SECONDS, LiveKernel, live_kernel

TEXT = "a" * 60 + "!"
PATTERN = "(a+)+$"  # tries every way to cut the letters into groups
LIMIT = 3  # seconds, of the cell

pytestmark = pytest.mark.timeout(300)

SEARCHES = {
    "grep": f'fs.grep("data/long.txt", "{PATTERN}")',
    "grep_recursive": f'fs.grep_recursive(".", "{PATTERN}", "*.txt")',
}
GLOBS = {
    "stars": '"*a" * 100 + "b"',
    "questions": '"?" * 2000',
    "classes": '"[a-z]" * 500 + "*"',
    "folders": '"*/" * 300 + "*"',
    "stars in folders": '("*a" * 40 + "/") * 3 + "*b"',
}


def test_the_pattern_does_not_end() -> None:
    """Where nothing ends it: 2 ** 60 ways are tried."""
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", f"import re; re.search({PATTERN!r}, {TEXT!r})"], timeout=4, check=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    (made / "data" / ("a" * 200)).mkdir(parents=True)
    (made / "data" / "long.txt").write_text(f"{TEXT}\nshort\n")
    (made / "data" / ("a" * 200) / ("a" * 250)).write_text("x")
    return made


@contextmanager
def limited(project: Path, folder: Path, seconds: int) -> Iterator[LiveKernel]:
    policy = folder / "capkernel.toml"
    policy.write_text(f'[files]\nroots = ["{project}"]\n[limits]\ncell_seconds = {seconds}\n')
    with live_kernel(project, policy=policy) as started:
        yield started


@pytest.fixture(scope="module")
def kernel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    with limited(project, tmp_path_factory.mktemp("policy"), LIMIT) as started:
        yield started


def searching(call: str) -> str:
    return f'with request_file_system(".") as fs:\n    print("begun")\n    found = {call}\n    print(found)\n'


def goes_on(kernel: LiveKernel) -> None:
    found = kernel.run(searching('[m.line_number for m in fs.grep("data/long.txt", "^s")]'))
    assert found.ok, found.reply
    assert found.stdout == "begun\n[2]\n"


@pytest.mark.parametrize("name", SEARCHES)
def test_the_limit_of_the_cell_ends_it(kernel: LiveKernel, name: str) -> None:
    ran = kernel.run(searching(SEARCHES[name]))
    assert ran.stdout == "begun\n"
    assert not ran.ok
    assert not ran.codes, "it was accepted"
    goes_on(kernel)


def test_an_interrupt_ends_it(project: Path, tmp_path: Path) -> None:
    with limited(project, tmp_path, 10 * CELL_SECONDS) as kernel:  # the limit does not come first
        assert kernel.run("kept = 1").ok
        # Not by what it prints: a search lets no other thread of its process run.
        mark = 'with request_file_system(".") as fs:\n    fs.access("begun").write("x")\n'
        request = kernel.client.execute(mark + searching(SEARCHES["grep"]))
        wait_for(project / "begun")
        kernel.manager.interrupt_kernel()
        while True:
            reply = kernel.client.get_shell_msg(timeout=CELL_SECONDS)
            if reply["parent_header"].get("msg_id") == request:
                break
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        assert kernel.run("print(kept)").stdout == "1\n"
        goes_on(kernel)


def wait_for(path: Path) -> None:
    end = time.monotonic() + CELL_SECONDS
    while not path.exists():
        assert time.monotonic() < end, "the cell did not begin"
        time.sleep(0.01)


@pytest.mark.parametrize("name", GLOBS)
def test_globs_end_by_themselves(kernel: LiveKernel, name: str) -> None:
    ran = kernel.run(searching(f'fs.find(".", {GLOBS[name]})'))
    assert ran.ok, ran.reply
    assert ran.stdout == "begun\n[]\n"
    goes_on(kernel)
