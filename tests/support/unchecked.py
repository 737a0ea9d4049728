"""Starting `unchecked_kernel.py` as a client starts a kernel."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from live_kernel import START_SECONDS, LiveKernel

PROGRAM = Path(__file__).with_name("unchecked_kernel.py")
CHECKER_OFF = Path(__file__).with_name("checker_off_kernel.py")


def argv(*options: str) -> list[str]:
    return [sys.executable, "-P", "-s", "-E", str(PROGRAM), "-f", "{connection_file}", *options]


class UncheckedKernel(LiveKernel):
    """A LiveKernel started by a program of ours that leaves the checker out."""

    def __init__(self, directory: Path, command: list[str]) -> None:
        self.manager = KernelManager()
        self.manager._kernel_spec = KernelSpec(
            argv=command, display_name="unchecked", language="python", interrupt_mode="signal"
        )
        self.manager.start_kernel(cwd=str(directory))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=START_SECONDS)


@contextmanager
def unchecked_kernel(directory: Path, *options: str) -> Iterator[UncheckedKernel]:
    """Real front and worker, a checker that accepts what parses, a broker for slow effects, no vault."""
    kernel = UncheckedKernel(directory, argv(*options))
    try:
        yield kernel
    finally:
        kernel.close()


@contextmanager
def checker_off_kernel(directory: Path, *options: str) -> Iterator[UncheckedKernel]:
    """Everything real but the checker, which allows everything: what holds then, the processes hold.

    With `--bare` the worker has no sandbox either: what holds then, Python's objects hold.
    """
    command = [sys.executable, "-P", "-s", "-E", str(CHECKER_OFF), "-f", "{connection_file}", "--base", str(directory)]
    kernel = UncheckedKernel(directory, [*command, *options])
    try:
        yield kernel
    finally:
        kernel.close()


IMPATIENT = Path(__file__).with_name("impatient_kernel.py")


@contextmanager
def impatient_kernel(directory: Path, policy: Path, *options: str) -> Iterator[UncheckedKernel]:
    """Everything real, checker included; only the waits for stuck processes are short."""
    command = [sys.executable, "-P", "-s", "-E", str(IMPATIENT), "-f", "{connection_file}", "--base", str(directory)]
    kernel = UncheckedKernel(directory, [*command, "--policy", str(policy), *options])
    try:
        yield kernel
    finally:
        kernel.close()


def install_spec(jupyter_path: Path, name: str = "unchecked") -> None:
    """A kernelspec for clients that look kernels up by name."""
    directory = jupyter_path / "kernels" / name
    directory.mkdir(parents=True)
    spec: dict[str, Any] = {
        "argv": argv(), "display_name": name, "language": "python", "interrupt_mode": "signal",
        "metadata": {"debugger": False},
    }  # fmt: skip
    (directory / "kernel.json").write_text(json.dumps(spec))
