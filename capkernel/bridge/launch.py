"""Starting our kernel from a program: always the capkernel of this interpreter, whatever kernelspecs are installed."""

from __future__ import annotations

import sys
from pathlib import Path

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager, KernelManager

KERNEL_NAME = "capkernel"


def kernel_argv(*, policy: Path | None = None, profile: str | None = None) -> list[str]:
    """The command that starts a kernel. `policy` and `profile` are the launcher's, never the notebook's."""
    argv = [sys.executable, "-P", "-s", "-E", "-m", "capkernel.kernel", "-f", "{connection_file}"]
    if policy is not None:
        argv += ["--policy", str(policy.resolve())]
    if profile is not None:
        argv += ["--profile", profile]
    return argv


def kernel_manager(*, policy: Path | None = None, profile: str | None = None) -> KernelManager:
    """A manager, not started, for a kernel with that policy. Its Jupyter key and ports are jupyter_client's own."""
    manager = KernelManager(kernel_name=KERNEL_NAME)
    manager.kernel_spec_manager = _OneSpec(kernel_argv(policy=policy, profile=profile))
    return manager


def async_kernel_manager(*, policy: Path | None = None, profile: str | None = None) -> AsyncKernelManager:
    """As `kernel_manager`, for a program with an event loop."""
    manager = AsyncKernelManager(kernel_name=KERNEL_NAME)
    manager.kernel_spec_manager = _OneSpec(kernel_argv(policy=policy, profile=profile))
    return manager


class _OneSpec(KernelSpecManager):
    """Knows one kernelspec, held in memory: nothing of the user's Jupyter directories decides what is started."""

    def __init__(self, argv: list[str]) -> None:
        super().__init__()
        self._spec = KernelSpec(
            argv=argv,
            display_name="capkernel",
            language="python",
            interrupt_mode="signal",
            metadata={"debugger": False},
        )

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002
        return self._spec
