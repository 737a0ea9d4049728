"""Can a cell, or a client, learn anything of a secret from the person's secure output?

Two sessions run the same cells, with a secure output, on secrets that differ: what is shown is a value in one, poison
in the other, short in one, huge in the other, at once known in one and never in the other. The file itself differs,
which is what it is for. What a client and a cell see is compared byte for byte. A third session has no secure output,
and sees the same.
"""

from __future__ import annotations

import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from leaks import normal
from live_kernel import LiveKernel, live_kernel

CELLS = [
    "with request_file_system('.') as fs:\n    s = fs.read_classified('.env')\nprint(s)\ns",
    "poison = s.map(lambda t: t[5])\nprint(poison)\ndisplay(poison)",
    "huge = s.map(lambda t: t * (1 + 3_000_000 * t.count('1')))\nfor n in range(5):\n    print(n, huge)",
    "def spin(t: str) -> int:\n    n = 0\n    while t.startswith('1'):\n        n += 1\n    return n\n"
    "never = s.map(spin)\nprint(never, [never], f'{never}')",
    "print(never.map(lambda n: n + 1))",
    "try:\n    raise ValueError(f'with {s}')\nexcept ValueError as problem:\n    print(problem, s)",
    "with request_file_system('.') as fs:\n    fs.write_classified('secrets/out.txt', s)\n"
    "    print(fs.access('secrets/out.txt').exists, s)",
    "kept = 41\nprint(kept + 1, s, poison, huge, never)",
]


def trace(folder: Path, secret: str, policy: Path) -> list[str]:
    """Everything a client sees."""
    lines = []
    with live_kernel(folder, policy=policy) as kernel:
        kernel.run("0")  # what is told once of a first start
        for number, cell in enumerate(CELLS):
            lines += seen(kernel, number, cell)
        assert secret not in "\n".join(lines)
    return lines


def seen(kernel: LiveKernel, number: int, cell: str) -> list[str]:
    ran = kernel.run(cell, seconds=60)
    lines = []
    for name in ("stdout", "stderr"):  # how a stream is cut is a matter of time
        text = "".join(m["content"]["text"] for m in ran.messages
                       if m["msg_type"] == "stream" and m["content"]["name"] == name)  # fmt: skip
        lines.append(f"{number} {name} {text!r}")
    others = [(m["msg_type"], m["content"], m["metadata"]) for m in ran.messages if m["msg_type"] != "stream"]
    return [*lines, *(normal({"cell": number, "message": one}) for one in [*others, ran.reply])]


def a_session(root: Path, name: str, secret: str, *, mirrored: bool) -> tuple[list[str], str]:
    """What is seen, and what the secure output holds."""
    project, place = root / name / "project", root / name / "person" / "out.txt"
    for folder in (project / "secrets", place.parent):
        folder.mkdir(parents=True)
    (project / ".env").write_text(secret)
    policy = root / name / "policy.toml"
    output = f"[output]\nsecure_file = {json.dumps(str(place))}\n" if mirrored else ""
    policy.write_text(f"[files]\nroots = [{json.dumps(str(project))}]\n[limits]\nmap_seconds = 2\n{output}")
    lines = trace(project, secret, policy)
    return lines, place.read_text() if mirrored else ""


@pytest.mark.timeout(300)
def test_two_secrets_leave_the_same_trace_and_two_files(tmp_path: Path) -> None:
    asked = [("a", "0canary", True), ("b", "1can", True), ("c", "1can", False)]
    with ThreadPoolExecutor(2) as pool:
        (one, file_one), (two, file_two), (three, _) = pool.map(
            lambda it: a_session(tmp_path, it[0], it[1], mirrored=it[2]), asked
        )
    assert one == two
    assert one == three
    assert sum("***" in line for line in one) >= len(CELLS)
    # In the file, which no cell sees, everything differs: so there was something to see.
    assert "| 0canary" in file_one
    assert "| 1can" in file_two
    assert "IndexError" not in file_one
    assert "IndexError" in file_two
    assert len(file_two) > 20 * len(file_one)


@pytest.mark.timeout(300)
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The keeper's writes fail: one line says so, the session goes on, and two secrets look alike."""
    traces = []
    for name, secret in (("a", "0canary"), ("b", "1can" * 9)):
        project, place = tmp_path / name / "project", tmp_path / name / "person" / "out.txt"
        for folder in (project, place.parent):
            folder.mkdir(parents=True)
        (project / ".env").write_text(secret)
        policy = tmp_path / name / "policy.toml"
        policy.write_text(
            f"[files]\nroots = [{json.dumps(str(project))}]\n[output]\nsecure_file = {json.dumps(str(place))}\n"
        )
        lines: list[str] = []
        with live_kernel(project, policy=policy) as kernel:
            assert kernel.run(CELLS[0]).ok
            end = time.monotonic() + 60
            while place.read_text().count(secret) < 2:  # without the limit it works
                assert time.monotonic() < end
                time.sleep(0.05)
            keeper = kernel.process("capkernel.vault.keeper_main").pid
            resource.prlimit(keeper, resource.RLIMIT_FSIZE, (0, 0))
            for number in range(6):
                lines += seen(kernel, number, "print(s)")
                time.sleep(1)  # until the refusal has come back, told with the next cell
        told = [line for line in lines if "takes nothing: it cannot be written (File too large)" in line]
        assert len(told) == 1
        assert place.read_text().count(secret) == 2
        traces.append(lines)
    assert traces[0] == traces[1]
