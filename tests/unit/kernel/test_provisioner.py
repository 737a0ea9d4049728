"""What the provisioner hands to the kernels it starts, and to nothing else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from capkernel.kernel import provisioner
from capkernel.kernel.provisioner import CapkernelProvisioner
from capkernel.wire.view import SECRET_BYTES

# Says what it was given: its arguments, its environment, its open descriptors, and what is in the pipe.
CHILD = """\
import json, os, sys
fds = []
for fd in range(3, 256):
    try:
        os.fstat(fd)
        fds.append(fd)
    except OSError:
        pass
secret = ""
if "--viewer-secret" in sys.argv:
    fd = int(sys.argv[sys.argv.index("--viewer-secret") + 1])
    secret = os.read(fd, 100).hex()
    rest = os.read(fd, 100).hex()
    assert rest == "", "the writing end is closed"
json.dump({"argv": sys.argv[1:], "env": dict(os.environ), "fds": fds, "secret": secret}, open(sys.argv[1], "w"))
"""


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provisioner, "_serves_pages", False)
    provisioner.hand_over()


def launch(out: Path, ours: CapkernelProvisioner, **options: Any) -> dict[str, Any]:
    import json

    async def main() -> None:
        ours.connection_info = {}
        await ours.launch_kernel([sys.executable, "-I", "-c", CHILD, str(out)], env=dict(os.environ), **options)
        assert ours.process is not None
        process = ours.process
        await asyncio.to_thread(process.wait, 60)

    asyncio.run(main())
    return json.loads(out.read_text())  # type: ignore[no-any-return]


def test_a_program_without_a_page_starts_kernels_as_jupyter_does(tmp_path: Path) -> None:
    ours = CapkernelProvisioner()
    said = launch(tmp_path / "out", ours)
    assert said["argv"] == [str(tmp_path / "out")]
    assert said["fds"] == []
    assert ours.launched is None


@pytest.mark.usefixtures("serving")
def test_each_launch_hands_over_a_fresh_secret_through_one_pipe_and_keeps_it(tmp_path: Path) -> None:
    ours = CapkernelProvisioner()
    seen = set()
    for number in range(2):
        before = set(os.listdir("/proc/self/fd"))
        said = launch(tmp_path / str(number), ours)
        assert ours.launched is not None
        secret = ours.launched.secret
        assert said["secret"] == secret.hex()
        assert len(secret) == SECRET_BYTES
        assert ours.launched.process == ours.pid
        # Nothing but the number of the pipe is on the command line, and no other descriptor came along.
        assert said["argv"] == [str(tmp_path / str(number)), "--viewer-secret", str(said["fds"][0])]
        assert len(said["fds"]) == 1
        assert secret.hex() not in str(said["env"])
        assert set(os.listdir("/proc/self/fd")) <= before, "the server keeps no end of the pipe"
        seen.add(secret)
    assert len(seen) == 2


@pytest.mark.usefixtures("serving")
def test_what_else_is_passed_stays(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        said = launch(tmp_path / "out", CapkernelProvisioner(), pass_fds=(writing,))
        assert writing in said["fds"]
        assert len(said["fds"]) == 2
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.usefixtures("serving")
def test_a_kernel_that_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    ours = CapkernelProvisioner()
    before = set(os.listdir("/proc/self/fd"))

    async def main() -> None:
        with pytest.raises(OSError, match="No such file"):
            await ours.launch_kernel([str(tmp_path / "missing")], env={})

    asyncio.run(main())
    assert ours.launched is None
    assert len(os.listdir("/proc/self/fd")) <= len(before)


@pytest.mark.usefixtures("serving")
def test_other_children_of_the_server_do_not_inherit_the_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that starts at the same moment, with close_fds off as pty programs do."""
    look = "import os; print([fd for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')])"
    found: list[str] = []
    original = provisioner.LocalProvisioner.launch_kernel

    async def meanwhile(self: Any, cmd: list[str], **kwargs: Any) -> Any:
        (pipe,) = kwargs["pass_fds"]
        for inheritable in (True, False):
            if inheritable:
                os.set_inheritable(pipe, True)
            done = subprocess.run([sys.executable, "-c", look], close_fds=False, capture_output=True, text=True)
            found.append(str(f"'{pipe}'" in done.stdout))
            os.set_inheritable(pipe, False)
        return await original(self, cmd, **kwargs)

    monkeypatch.setattr(provisioner.LocalProvisioner, "launch_kernel", meanwhile)
    launch(tmp_path / "out", CapkernelProvisioner())
    assert found == ["True", "False"], "inheritable it would be seen; as it is made, it is not"


def test_what_jupyter_keeps_of_a_provisioner_has_no_secret() -> None:
    ours = CapkernelProvisioner()
    ours.launched = provisioner.Launched(7, b"s" * SECRET_BYTES)
    ours.connection_info = {}
    assert "ssss" not in str(asyncio.run(ours.get_provisioner_info()))
    assert "ssss" not in str(ours.__getstate__())


def test_a_server_without_the_entry_point_does_not_list_such_a_kernelspec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why `capkernel install --user` writes none: the same spec is read by the servers of every environment."""
    for name, metadata in (("named", {"kernel_provisioner": {"provisioner_name": provisioner.NAME}}), ("plain", {})):
        place = tmp_path / "kernels" / name
        place.mkdir(parents=True)
        spec = KernelSpec(argv=["x"], display_name=name, language="python", metadata=metadata)
        (place / "kernel.json").write_text(spec.to_json())
    kernels = KernelSpecManager(kernel_dirs=[str(tmp_path / "kernels")])
    factory = KernelProvisionerFactory.instance()
    monkeypatch.setattr(factory, "provisioners", {"local-provisioner": object()})
    monkeypatch.setattr(factory, "_get_provisioner", lambda _name: (_ for _ in ()).throw(RuntimeError))
    with pytest.raises(NoSuchKernel):
        kernels.get_kernel_spec("named")
    assert kernels.get_kernel_spec("plain").display_name == "plain"
    monkeypatch.setattr(factory, "provisioners", {provisioner.NAME: object()})
    assert kernels.get_kernel_spec("named").display_name == "named"
