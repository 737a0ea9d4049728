"""From Jupyter's kernel to the session: whose launch it is, where its socket is, what is said when it is not ours."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from capkernel.kernel.provisioner import CapkernelProvisioner, Launched
from capkernel.viewer.jupyter import kernels, shared
from capkernel.viewer.jupyter.kernels import NoKernel, NoPage
from capkernel.viewer.link import LinkRefused


@dataclass
class Managers:
    """As Jupyter's mapping kernel manager, with one kernel "k"."""

    provisioner: Any

    def __contains__(self, kernel: str) -> bool:
        return kernel == "k"

    def get_kernel(self, kernel: str) -> Any:
        assert kernel in self
        return self


def local(*argv: str) -> LocalProvisioner:
    return LocalProvisioner(kernel_spec=KernelSpec(argv=list(argv)))


def test_a_launch_of_this_server_is_found() -> None:
    ours = CapkernelProvisioner()
    ours.launched = Launched(7, b"s" * 32)
    assert kernels.launched(Managers(ours), "k") is ours.launched


def test_what_is_not_ours_is_told_apart() -> None:
    with pytest.raises(NoKernel):
        kernels.launched(Managers(CapkernelProvisioner()), "other")
    for managers, words in (
        (Managers(CapkernelProvisioner()), "provisioner"),  # without a secret
        (Managers(local("python", "-m", "capkernel.kernel")), "own environment"),  # `capkernel install --user`
        (Managers(local("python", "-m", "ipykernel_launcher")), "is not capkernel's"),
        (Managers(None), "another server runs it"),  # a gateway
    ):
        with pytest.raises(NoPage, match=words):
            kernels.launched(managers, "k")


def test_a_launch_says_nothing_of_its_secret() -> None:
    assert "ssss" not in repr(Launched(7, b"s" * 32))


def test_the_runtime_directory_is_what_the_kernel_was_executed_with() -> None:
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    for arguments, directory in (
        (["-f", "x", "--runtime", "/run/session-1", "--lock", "3"], "/run/session-1"),
        ([], ""),
    ):
        started = subprocess.Popen(
            [sys.executable, "-I", "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"up\n"
            if directory:
                assert kernels.runtime_of(started.pid) == directory
            else:
                with pytest.raises(LinkRefused, match="still starting"):
                    kernels.runtime_of(started.pid)
        finally:
            started.communicate(timeout=30)
    with pytest.raises(LinkRefused, match="has ended"):
        kernels.runtime_of(started.pid)


@dataclass
class Server:
    """As a ServerApp. names: extensions that are there, and whether they are on."""

    names: dict[str, bool] = field(default_factory=dict)
    auth: bool = True
    provider: type = SimpleNamespace

    @property
    def identity_provider(self) -> Any:
        return self.provider(auth_enabled=self.auth)

    @property
    def extension_manager(self) -> Any:
        return SimpleNamespace(extensions={name: SimpleNamespace(enabled=on) for name, on in self.names.items()})


def test_which_pages_count_as_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTERHUB_SERVICE_PREFIX", raising=False)
    assert shared.why_shared(Server()) == ""
    assert shared.why_shared(Server({"jupyterlab": True, "jupyter_server_ydoc": False})) == ""
    assert "jupyter_server_ydoc" in shared.why_shared(Server({"jupyter_server_ydoc": True}))
    assert "jupyter_collaboration" in shared.why_shared(Server({"jupyter_collaboration": True}))
    assert "asks nobody" in shared.why_shared(Server(auth=False))
    hub = type("Hub", (SimpleNamespace,), {"__module__": "jupyterhub.singleuser.extension"})
    assert "JupyterHub" in shared.why_shared(Server(provider=hub))
    monkeypatch.setitem(os.environ, "JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    assert "JupyterHub" in shared.why_shared(Server())
