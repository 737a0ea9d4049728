"""Starts kernels for a Jupyter server, and hands each the secret by which the server may show values in its page.

Registered with jupyter_client as `capkernel-provisioner`, and named by the kernelspec that lives in the same
environment. In a process that has not called `hand_over` (nbclient, papermill, a console, a gateway) it is
jupyter_client's own LocalProvisioner and nothing else: what starts a kernel there has no page to show a value in.

Rule 1: the secret exists in the memory of this process and of the kernel; between them it goes through a pipe that is
written, and whose writing end is closed, before the kernel starts. Every launch, also a restart, has a fresh one.
Rule 2: no other process inherits the pipe: its ends are closed on exec, but for the one kernel it is passed to.

The start of a kernel is `launch_kernel` alone: a front that is started ahead of time would be handed out there.
"""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from capkernel.wire.view import SECRET_BYTES

NAME = "capkernel-provisioner"
_serves_pages = False


def hand_over() -> None:
    """From now on, kernels that this process starts get a viewer secret. For a server that has our page handlers."""
    global _serves_pages
    _serves_pages = sys.platform == "linux"  # elsewhere a kernel has no socket for it


@dataclass(frozen=True)
class Launched:
    """A kernel's process and the secret it was given."""

    process: int
    secret: bytes = field(repr=False)


class CapkernelProvisioner(LocalProvisioner):
    """LocalProvisioner that hands over a viewer secret. `launched`: to which kernel, None when none was."""

    launched: Launched | None = None

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        self.launched = None
        if not _serves_pages:
            return await super().launch_kernel(cmd, **kwargs)
        secret = secrets.token_bytes(SECRET_BYTES)
        reading, writing = os.pipe()
        try:
            try:
                os.write(writing, secret)
            finally:
                os.close(writing)
            kwargs["pass_fds"] = (*kwargs.get("pass_fds", ()), reading)
            info = await super().launch_kernel([*cmd, "--viewer-secret", str(reading)], **kwargs)
        finally:
            os.close(reading)
        if self.pid is not None:
            self.launched = Launched(self.pid, secret)
        return info
