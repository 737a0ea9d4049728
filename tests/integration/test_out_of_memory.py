"""Processes that may have no more memory: the cell is told what was lost, and the session goes on.

A running process gets a limit a little above what it has, as it would meet the end of the machine's memory. (The
checker: `test_checker_process.py`; functions in the vault that eat memory: `attacks/test_vault_oracle.py`. A process
that the system kills for its memory is a killed one: `test_kill_matrix.py`.)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from unchecked import UncheckedKernel, impatient_kernel

MEGABYTE = 2**20


@pytest.fixture
def kernel(project: Path) -> Iterator[UncheckedKernel]:
    policy = project / "capkernel.toml"
    policy.write_text("[limits]\ncell_seconds = 60\n")
    with impatient_kernel(project, policy) as kernel:
        yield kernel


@pytest.mark.parametrize(
    "greedy", ["big = bytearray(10**9)", "held = []\nwhile True:\n    held.append(bytearray(2 * 10**7))"]
)
def test_the_policy_says_how_much_cells_may_take(project: Path, greedy: str) -> None:
    policy = project / "capkernel.toml"
    policy.write_text("[limits]\ncell_memory_mb = 400\n")
    with impatient_kernel(project, policy) as kernel:
        assert kernel.run("kept = bytearray(10**8)").ok
        ran = kernel.run(greedy)
        assert ran.reply["ename"] == "MemoryError"
        assert "400 MiB; limits.cell_memory_mb in the policy" in ran.everything
        assert kernel.run("held = None\nlen(kept)").text == "100000000"
        assert kernel.run("more = bytearray(10**8)").ok  # what the cell had is free again


def leave_room(kernel: UncheckedKernel, module: str, megabytes: int) -> psutil.Process:
    process = kernel.process(module)
    limit = process.memory_info().vms + megabytes * MEGABYTE
    process.rlimit(psutil.RLIMIT_AS, (limit, limit))
    return process


def is_secret_alive(kernel: UncheckedKernel, name: str) -> bool:
    """Write `secret` where only the vault can, wait for that, and look."""
    ran = kernel.run(f"with request_file_system('secrets') as fs:\n    fs.access('{name}').write_classified(secret)")
    assert ran.ok, ran.everything
    # A value posted later is written later: when the second is there, so is the first, if ever.
    ran = kernel.run(
        "with request_file_system('secrets') as fs:\n"
        f"    fs.access('{name}.after').write_classified(classify('written'))"
    )
    assert ran.ok, ran.everything
    argv = psutil.Process(kernel.pid).cmdline()
    folder = Path(argv[argv.index("--base") + 1]) / "secrets"
    after = folder / f"{name}.after"
    for _ in range(600):
        if after.read_text() == "written":
            break
        kernel.run("1")
    else:
        pytest.fail("the vault writes nothing")
    return (folder / name).read_text() == "alive"


@pytest.mark.parametrize(
    "greedy",
    [
        "big = bytearray(10**10)",
        "held = []\nwhile True:\n    held.append(bytearray(10**6))",
        "held = []\nwhile True:\n    held.append([0])",
        "def eat() -> None:\n    held = []\n    while True:\n        held.append(object())\neat()",
    ],
    ids=["at once", "in pieces", "in crumbs", "in a function"],
)
def test_a_cell_that_eats_the_memory(kernel: UncheckedKernel, greedy: str) -> None:
    assert kernel.run("kept = 7\nsecret = classify('alive')").ok
    leave_room(kernel, "capkernel.worker.main", 150)
    seen = [kernel.run(greedy)]
    assert seen[0].reply["status"] == "error"
    # Where nothing at all is left, native code of the worker may crash with the next allocation.
    while len(seen) < 5 and seen[-1].text != "21":
        seen.append(kernel.run("20 + 1"))
    assert seen[-1].text == "21"
    failed = [ran.reply["ename"] for ran in seen if not ran.ok]
    assert set(failed) <= {"MemoryError", "WorkerDied"}
    told = "".join(ran.everything for ran in seen)
    if "the worker process ended" in told:
        assert "these names are lost: " in told
        assert "kept" in told.split("these names are lost: ")[1]
        assert kernel.run("kept").codes == ["unbound-name"]
        assert kernel.run("secret = classify('alive')").ok
    else:
        assert kernel.run("kept").text == "7"
    assert kernel.run("eval('1')").codes == ["unsafe-feature"]
    assert is_secret_alive(kernel, "a.txt")


def test_a_vault_that_can_hold_no_more(kernel: UncheckedKernel) -> None:
    assert kernel.run("kept = 7\nsecret = classify('alive')").ok
    assert is_secret_alive(kernel, "a.txt")
    keeper = leave_room(kernel, "capkernel.vault.keeper_main", 60)
    ran = kernel.run("many = [classify('a' * 10_000_000 + str(n)) for n in range(30)]")
    keeper.wait(30)
    seen = ran.everything + kernel.run("1").everything
    assert "every Classified value of this session is lost" in seen
    assert kernel.run("kept").text == "7"
    assert "***" in kernel.run("print(secret)").stdout
    assert not is_secret_alive(kernel, "b.txt")
    assert kernel.run("secret = classify('alive')").ok
    assert is_secret_alive(kernel, "c.txt")
