"""The viewer secret of a real kernel, launched by our provisioner in this process: who holds it, and who can use it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import live_kernel
import psutil
import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from live_kernel import LiveKernel
from memory import count_in_memory, readable
from page_client import Key

from capkernel.bridge.launch import kernel_manager
from capkernel.kernel import provisioner
from capkernel.kernel.provisioner import NAME, CapkernelProvisioner, Launched
from capkernel.vault.seal import unseal
from capkernel.viewer import sessions
from capkernel.viewer.jupyter.kernels import open_link, runtime_of
from capkernel.viewer.link import Link, LinkRefused

pytestmark = pytest.mark.timeout(240)

READ = "with request_file_system('.') as fs:\n    s = fs.read_classified('.env')"


@pytest.fixture(scope="module")
def pipes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """This process is a Jupyter server as far as kernels are concerned. The pipes it made since, the first is the one
    that a secret went through."""
    found: list[str] = []
    make = os.pipe

    def seen() -> tuple[int, int]:
        ends = make()
        found.append(f"pipe:[{os.fstat(ends[0]).st_ino}]")
        return ends

    def managed(**options: Any) -> Any:
        manager = kernel_manager(**options)
        spec = manager.kernel_spec_manager.get_kernel_spec("capkernel")
        spec.metadata = {"kernel_provisioner": {"provisioner_name": NAME}}
        return manager

    entry = EntryPoint(NAME, "capkernel.kernel.provisioner:CapkernelProvisioner", "jupyter_client.kernel_provisioners")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patch.setattr(provisioner, "_serves_pages", True)
        patch.setitem(KernelProvisionerFactory.instance().provisioners, NAME, entry)
        patch.setattr(provisioner.os, "pipe", seen)
        patch.setattr(live_kernel, "kernel_manager", managed)
        yield found


@pytest.fixture(scope="module")
def kernel(pipes: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    project = tmp_path_factory.mktemp("project")
    (project / ".env").write_text("NAME=shop\n")
    with live_kernel.live_kernel(project) as running:
        assert running.run(READ).ok
        yield running


def launch_of(kernel: LiveKernel) -> Launched:
    ours = kernel.manager.provisioner
    assert isinstance(ours, CapkernelProvisioner)
    assert ours.launched is not None
    return ours.launched


def handle_of() -> str:
    (session,) = sessions.running("test")
    with Link.open(session.runtime, "test") as link:
        return link.values().values[0].handle


def revealed(launch: Launched) -> bytes:
    key = Key.fresh()
    handle = handle_of()
    with open_link(launch) as link:
        sealed = link.reveal_in_page(handle, key.private.public_key().public_bytes_raw(), paired=False)
    return unseal(sealed, key.private, handle)


def open_files(pid: int) -> list[str]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return found


ASK = """
import sys
from capkernel.kernel.provisioner import Launched
from capkernel.viewer.jupyter.kernels import open_link
from capkernel.viewer.link import LinkRefused
try:
    with open_link(Launched(int(sys.argv[1]), bytes.fromhex(sys.stdin.read()))) as link:
        print("IN", link.page())
except LinkRefused as refused:
    print(refused)
"""


def test_no_other_process_of_this_user_can_use_the_secret(kernel: LiveKernel) -> None:
    launch = launch_of(kernel)
    with open_link(launch) as link:
        assert link.page().off == "", "here it works"
    said = subprocess.run(
        [sys.executable, "-c", ASK, str(launch.process)], input=launch.secret.hex(), capture_output=True, text=True,
        timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert "Only the process that started this kernel" in said.stdout, said.stdout + said.stderr
    assert "IN" not in said.stdout


def test_no_process_of_the_session_has_the_pipe_and_only_the_kernel_the_secret(
    kernel: LiveKernel, pipes: list[str]
) -> None:
    pipe = pipes[0]
    secret = launch_of(kernel).secret
    reading, writing = os.pipe()
    try:  # an inherited one is seen
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(reading,))
        assert f"pipe:[{os.fstat(reading).st_ino}]" in open_files(child.pid)
        child.communicate(b"\n", timeout=30)
    finally:
        os.close(reading)
        os.close(writing)
    assert pipe not in open_files(os.getpid())
    session = psutil.Process(kernel.pid)
    processes = [session, *session.children(recursive=True)]
    assert len(processes) >= 4, "kernel, checker, worker, keeper at least"
    looked_at = 0
    for process in processes:
        try:
            held, environment = open_files(process.pid), Path(f"/proc/{process.pid}/environ").read_bytes()
            arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            times = count_in_memory(process.pid, secret) if readable(process.pid) else None
        except PermissionError:
            assert os.geteuid() != 0
            continue
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        looked_at += 1
        assert pipe not in held, arguments
        for form in (secret, secret.hex().encode()):
            assert form not in environment
            assert form not in arguments
        assert times is None or (times > 0) is (process.pid == kernel.pid), arguments
    assert looked_at >= 4 or os.geteuid() != 0
    for file in Path(runtime_of(kernel.pid)).rglob("*"):
        if file.is_file():
            assert secret not in file.read_bytes()


def test_the_launcher_reveals_and_a_restart_has_another_secret(kernel: LiveKernel) -> None:
    launch = launch_of(kernel)
    assert b"NAME=shop" in revealed(launch)
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=90)
    assert kernel.run(READ).ok
    again = launch_of(kernel)
    assert again.secret != launch.secret
    assert b"NAME=shop" in revealed(again)
    for stale in (Launched(again.process, launch.secret), Launched(again.process, bytes(32))):
        with pytest.raises(LinkRefused, match="not the viewer secret that this kernel was started with"):
            open_link(stale)
