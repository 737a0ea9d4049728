"""Processes that are alive and talk nonsense: bytes, too long a frame, out of turn, answers nobody asked for, a flood.

The worker is the real one, in a kernel that leaves the checker out, so that a cell can write to its link. Checker,
keeper and runner do not let anyone write to theirs; there the descriptor is taken over from outside, with the right of
this process to do that to its own children (`pidfd_getfd`), and the bytes are put into the stream as if they had sent them.
"""  # noqa: E501

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from pathlib import Path

import psutil
import pytest
from unchecked import UncheckedKernel, checker_off_kernel, impatient_kernel

from capkernel.checker.protocol import Committed, Started
from capkernel.wire.frames import encode
from capkernel.wire.vault import Ended, KeeperReady, RunnerReady, Settled
from capkernel.wire.worker import Call, CloseScope, Finished, Ready

GARBAGE = b"\xff" * 64
HUGE = struct.pack("<II", 0xFFFFFFF, 0)
SEND = (
    "import os, socket, stat, time\n"
    "for n in range(3, 100):\n"
    "    try:\n"
    "        if stat.S_ISSOCK(os.fstat(n).st_mode):\n"
    "            link = socket.socket(fileno=os.dup(n))\n"
    "            link.sendall({data!r} * {times})\n"
    "    except OSError: pass\n"
    "time.sleep(3)"
)
FROM_WORKER = {
    "garbage": (GARBAGE, 1),
    "a frame too long": (HUGE, 1),
    "ready again": (encode(Ready("{}")), 1),
    "an answer to nothing": (encode(Finished(999_999, {})), 1),
    "a call twice": (encode(Call(7_777_777, CloseScope("x"))), 2_000),
    "a flood": (GARBAGE, 100_000),
}


@pytest.mark.parametrize("name", FROM_WORKER)
def test_worker(project: Path, name: str) -> None:
    data, times = FROM_WORKER[name]
    with checker_off_kernel(project) as kernel:
        assert kernel.run("kept = 1\ns = classify('x')").ok
        ran = kernel.run(SEND.format(data=data, times=times), seconds=30)
        assert ran.reply["ename"] == "WorkerDied", ran.everything
        assert "broke the protocol" in ran.reply["evalue"]
        assert "kept" in ran.reply["evalue"]
        assert kernel.run("20 + 1").text == "21"


def put_into(kernel: UncheckedKernel, module: str, data: bytes) -> None:
    """Write to the link of a process as if it had. Its link is the descriptor of its `--fd`."""
    process = kernel.process(module)
    words = process.cmdline()
    number = int(words[words.index("--fd") + 1])
    pidfd = os.pidfd_open(process.pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        taken = libc.syscall(438, pidfd, number, 0)  # pidfd_getfd
        if taken < 0:
            pytest.skip(f"this system does not let a test take a descriptor over ({os.strerror(ctypes.get_errno())})")
    finally:
        os.close(pidfd)
    with socket.socket(fileno=taken) as link:
        link.sendall(data)


OTHERS = [
    ("capkernel.checker.main", encode(Started("", 0.0))), ("capkernel.checker.main", encode(Committed(1))),
    ("capkernel.vault.keeper_main", encode(KeeperReady("{}"))), ("capkernel.vault.keeper_main", encode(Settled(999))),
    ("capkernel.vault.runner_main", encode(RunnerReady("{}"))), ("capkernel.vault.runner_main", encode(Ended(5))),
]  # fmt: skip
OTHERS += [
    (module, data)
    for module in dict.fromkeys(module for module, _ in OTHERS)
    for data in (GARBAGE, HUGE, GARBAGE * 1500)
]


@pytest.mark.timeout(300)
def test_the_others(project: Path) -> None:
    policy = project / "capkernel.toml"
    policy.write_text("[limits]\ncell_seconds = 5\nchecker_seconds = 3\nmap_seconds = 2\n")
    with impatient_kernel(project, policy) as kernel:
        assert kernel.run("kept = 7").ok
        for module, data in OTHERS:
            assert kernel.run("s = classify('x')").ok
            before = kernel.process(module).pid
            put_into(kernel, module, data)
            time.sleep(0.3)
            told = ""
            for _ in range(3):
                ran = kernel.run("kept", seconds=20)
                told += ran.everything
                if ran.ok:
                    break
            assert ran.text == "7", (module, data[:40], told)
            assert "***" in kernel.run("print(s)").stdout
            if "keeper" in module:
                assert "every Classified value of this session is lost" in told
            elif "runner" in module:
                assert "capkernel:" not in told
            end = time.monotonic() + 10
            while True:
                try:
                    if kernel.process(module).pid != before:
                        break
                except (AssertionError, psutil.Error):
                    pass
                assert time.monotonic() < end, f"{module} was kept after {data[:40]!r}"
                time.sleep(0.1)
            time.sleep(2)  # three runners in a row that are struck before they are ready would be one too many
        assert kernel.run("20 + 1").text == "21"
