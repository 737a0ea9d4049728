"""From Jupyter's id of a kernel to a link to its session, for the server that launched it.

Rule 1: a link is opened with the secret that this process handed over at that launch, and only to the socket that the
launched process holds.
"""

from __future__ import annotations

import os
from typing import Any

from capkernel.kernel.provisioner import CapkernelProvisioner, Launched
from capkernel.viewer.link import Link, LinkRefused

# Sentences: the card says after them that `capkernel view` works in any case.
NOT_OURS = "This kernel is not capkernel's, or another server runs it."
NOT_HANDED_OVER = (
    "This kernel was not started with a secret of this server: its kernelspec names no provisioner (it was installed "
    "for the user or for another environment), or it was started before the extension was loaded. Install capkernel "
    "in the server's own environment and start the kernel again."
)
_MAX_ARGUMENTS = 1_000_000


class NoKernel(Exception):
    """The server has no kernel of this id."""


class NoPage(Exception):
    """This server cannot ask the kernel for its page. The text says why and what to do."""


def launched(kernel_manager: Any, kernel: str) -> Launched:
    """The launch of a running kernel of this server. Raises NoKernel, NoPage."""
    if kernel not in kernel_manager:
        raise NoKernel
    manager = kernel_manager.get_kernel(kernel)
    provisioner = getattr(manager, "provisioner", None)
    if not isinstance(provisioner, CapkernelProvisioner):
        ours = provisioner is not None and "capkernel.kernel" in provisioner.kernel_spec.argv
        raise NoPage(NOT_HANDED_OVER if ours else NOT_OURS)
    if provisioner.launched is None:
        raise NoPage(NOT_HANDED_OVER)
    return provisioner.launched


def open_link(launch: Launched) -> Link:
    """Blocking. Raises LinkRefused, OSError."""
    return Link.open_card(runtime_of(launch.process), launch.secret, launch.process)


def runtime_of(process: int) -> str:
    """The session's own directory, from the arguments that the kernel executed itself with. Raises LinkRefused."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            arguments = file.read(_MAX_ARGUMENTS).split(b"\0")
    except OSError:
        raise LinkRefused("The kernel has ended.") from None
    try:
        return os.fsdecode(arguments[arguments.index(b"--runtime") + 1])
    except (ValueError, IndexError):
        raise LinkRefused("The kernel is still starting: try again in a moment.") from None
