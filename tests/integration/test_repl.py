"""`capkernel repl`: over a pipe, and (slow) at a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

COMMAND = [sys.executable, "-P", "-m", "capkernel.cli", "repl"]
SECONDS = 90


def test_cells_over_a_pipe(project: Path) -> None:
    typed = (
        "6 * 7\n"
        "def twice(x: int) -> int:\n    return 2 * x\n\n"
        "twice(4)\n"
        "open('data/a.txt')\n"
        "with request_file_system('data') as fs:\n    print(fs.access('a.txt').read())\n\n"
        "word = input('who? ')\nAda\n"
        "word + '!'\n"
        "classify('xyzzy')\n"
        "1 / 0"
    )
    ran = subprocess.run(
        COMMAND, cwd=project, input=typed, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["42", "8"]
    assert ran.stdout.count("error[ambient-authority]") == 1  # the whole refusal, once
    assert "may: read data/a.txt · nothing else\nhello\n" in ran.stdout
    assert "the cell asks: who? " in ran.stdout
    assert "'Ada!'" in lines
    assert "Classified[str](***)" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "xyzzy" not in ran.stdout
    assert "\x1b" not in ran.stdout


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, str(tmp_path / "none")], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 2
    assert "no such folder" in ran.stderr


@pytest.mark.slow
def test_at_a_terminal(project: Path) -> None:
    console = pexpect.spawn(
        COMMAND[0], COMMAND[1:], cwd=str(project), timeout=SECONDS, encoding="utf-8", dimensions=(50, 200),
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    try:
        console.expect_exact("Ctrl-D ends.")
        console.expect("In \\[1\\]:")
        console.sendline("6 * 7")
        console.expect_exact("42")
        console.sendline("import time")
        console.expect("In \\[3\\]:")
        console.sendline("print('be' + 'gun'); time.sleep(600)")
        console.expect_exact("begun\r\n")
        console.sendintr()
        console.expect_exact("KeyboardInterrupt")
        console.expect("In \\[4\\]:")
        console.send("dropped = ")
        console.sendintr()  # drops the line
        console.sendline("input('who? ')")
        console.expect_exact("the cell asks: who?")
        console.sendintr()
        console.expect_exact("KeyboardInterrupt")
        console.sendline("20 + 1")
        console.expect_exact("21")
        console.send("'a'.splitl\t")
        console.expect_exact("splitlines")
        console.sendintr()
        console.sendeof()
        console.expect(pexpect.EOF)
    finally:
        console.close(force=True)
    assert console.exitstatus == 0
