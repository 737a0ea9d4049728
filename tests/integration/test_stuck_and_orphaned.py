"""Effects that hang, parts that die while they start, and what is left when a session ends or is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from queue import Empty

import psutil
import pytest
from unchecked import IMPATIENT, UncheckedKernel, impatient_kernel

MODULES = {
    "worker": "capkernel.worker.main",
    "checker": "capkernel.checker.main",
    "keeper": "capkernel.vault.keeper_main",
    "runner": "capkernel.vault.runner_main",
}
READ = "print('begun')\nwith request_file_system('data') as fs:\n    text = fs.access('a.txt').read()"


@pytest.fixture
def policy(project: Path) -> Path:
    file = project / "capkernel.toml"
    file.write_text("[limits]\ncell_seconds = 10\nmap_seconds = 60\n")
    return file


def begun(kernel: UncheckedKernel, code: str) -> str:
    request = str(kernel.client.execute(code))
    while True:
        message = kernel.client.get_iopub_msg(timeout=20)
        if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == request:
            return request


def replied(kernel: UncheckedKernel, request: str, seconds: float) -> dict[str, object]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            reply = kernel.client.get_shell_msg(timeout=0.5)
        except Empty:
            continue
        if reply["parent_header"].get("msg_id") == request:
            content: dict[str, object] = reply["content"]
            return content
    pytest.fail(f"no reply within {seconds} s")


def gone(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that are still there, zombies apart."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_a_stuck_effect_holds_nothing_but_its_cell(project: Path, policy: Path) -> None:
    with impatient_kernel(project, policy, "--slow", "600") as kernel:
        for _ in range(6):  # more than one cell may do at once: hanging effects of earlier cells take nobody's place
            request = begun(kernel, READ)
            time.sleep(0.2)
            kernel.client.control_channel.send(kernel.client.session.msg("kernel_info_request", {}))
            assert kernel.client.get_control_msg(timeout=2)["content"]["status"] == "ok"
            began = time.monotonic()
            kernel.manager.interrupt_kernel()
            assert replied(kernel, request, 5)["ename"] == "KeyboardInterrupt"
            assert time.monotonic() - began < 3
        assert kernel.run("20 + 1", seconds=10).text == "21"
        ran = kernel.run(
            "with request_file_system('data') as fs:\n    found = fs.access('a.txt').exists\nfound", seconds=10
        )
        assert ran.text == "True"
        asked = kernel.client.execute("input('still? ')", allow_stdin=True)
        assert kernel.client.get_stdin_msg(timeout=5)["content"]["prompt"] == "the cell asks: still? "
        kernel.client.input("yes")
        assert replied(kernel, asked, 5)["status"] == "ok"
        front = psutil.Process(kernel.pid)
        started = [front, *front.children(recursive=True)]
        kernel.client.shutdown()
        assert gone(started, 15) == []


@pytest.mark.parametrize("part", MODULES)
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_part_that_dies_while_it_starts(project: Path, policy: Path, part: str, way: int) -> None:
    from jupyter_client.manager import KernelManager
    from unchecked import KernelSpec, sys

    kernel: UncheckedKernel = object.__new__(UncheckedKernel)
    kernel.manager = KernelManager()
    command = [sys.executable, "-P", "-s", "-E", str(IMPATIENT), "-f", "{connection_file}", "--base", str(project)]
    kernel.manager._kernel_spec = KernelSpec(
        argv=[*command, "--policy", str(policy)], display_name="x", language="python", interrupt_mode="signal"
    )
    kernel.manager.start_kernel(cwd=str(project))
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                found = kernel.process(MODULES[part])
            except (AssertionError, IndexError, psutil.Error):
                continue
            found.send_signal(way)
            break
        else:
            pytest.fail("the part was never started")
        kernel.client = kernel.manager.client()
        kernel.client.start_channels()
        kernel.client.wait_for_ready(timeout=60)
        # Each part is waited for by the first cell that needs it: the vault by the second of these.
        for code, shown in (("20 + 1", "21"), ("s = classify('x')\nprint(s)", "***")):
            for _ in range(2):
                ran = kernel.run(code, seconds=40)
                if ran.ok:
                    break
                assert ran.reply["ename"] in ("SessionNotReady", "CellRefused"), ran.everything
            assert shown in ran.text + ran.stdout, ran.everything
    finally:
        kernel.close()


@pytest.mark.parametrize("how", ["killed", "shut down"])
def test_nothing_is_left_not_even_a_job(project: Path, policy: Path, how: str) -> None:
    with impatient_kernel(project, policy) as kernel:
        ran = kernel.run(
            "def forever(text: str) -> int:\n    n = 0\n    while True:\n        n += 1\n"
            "s = classify('x')\nlong = s.map(forever)\nfor i in range(3_000_000): pass"
        )
        assert ran.ok, ran.everything
        time.sleep(1)
        front = psutil.Process(kernel.pid)
        started = [front, *front.children(recursive=True)]
        # A job is a fork of the runner, so it looks like one; bubblewrap's own process names the module as well.
        runners = [p for p in started if MODULES["runner"] in p.cmdline() and "bwrap" not in p.cmdline()[0]]
        assert len(runners) == 2, "the job does not run"
        if how == "killed":
            os.kill(kernel.pid, signal.SIGKILL)
        else:
            kernel.client.shutdown()
        assert gone(started, 15) == []
