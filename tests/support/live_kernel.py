"""A real kernel, started as a client starts it, for tests: run a cell, see everything it put out."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
import zmq

from capkernel.bridge.launch import kernel_manager
from capkernel.diagnostics.render_json import MIME_TYPE

START_SECONDS = 90
CELL_SECONDS = 60


@dataclass
class Ran:
    """What one cell did, as a client sees it."""

    reply: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)
    reply_metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.reply["status"] == "ok"

    @property
    def codes(self) -> list[str]:
        """The diagnostic codes of a refusal."""
        found = []
        for message in self.messages:
            bundle = message["content"].get("data", {}).get(MIME_TYPE)
            if bundle is not None:
                found += [entry["code"] for entry in bundle["diagnostics"] if entry["severity"] == "error"]
        return found

    @property
    def stdout(self) -> str:
        return "".join(
            message["content"]["text"]
            for message in self.messages
            if message["msg_type"] == "stream" and message["content"]["name"] == "stdout"
        )

    @property
    def text(self) -> str:
        """text/plain of the last result or display."""
        shown = [m["content"]["data"].get("text/plain", "") for m in self.messages if "data" in m["content"]]
        return shown[-1] if shown else ""

    @property
    def everything(self) -> str:
        """All of it as one text, for looking for what must not be there."""
        return json.dumps([self.reply, [m["content"] for m in self.messages], [m["metadata"] for m in self.messages]])


class LiveKernel:
    def __init__(self, directory: Path, *, policy: Path | None = None, profile: str | None = None) -> None:
        try:
            self._start(directory, policy, profile)
        except (RuntimeError, zmq.Again):
            # Another program may take a port between jupyter_client's choice and the kernel's bind; nothing else ends
            # a kernel so early that is not seen again in the second try.
            if self.manager.is_alive():
                raise
            self.close()
            warnings.warn("a kernel ended at its start and was started again", stacklevel=2)
            self._start(directory, policy, profile)

    def _start(self, directory: Path, policy: Path | None, profile: str | None) -> None:
        self.manager = kernel_manager(policy=policy, profile=profile)
        self.manager.start_kernel(cwd=str(directory))
        self.client = self.manager.client()
        self.client.context.setsockopt(
            zmq.SNDTIMEO, 1000 * START_SECONDS
        )  # where the peer is no kernel, send would block
        self.client.start_channels()
        self.client.wait_for_ready(timeout=START_SECONDS)

    @property
    def pid(self) -> int:
        pid: int = self.manager.provisioner.pid  # type: ignore[union-attr]
        return pid

    def run(self, code: str, *, seconds: float = CELL_SECONDS, **options: Any) -> Ran:
        request = self.client.execute(code, **options)
        messages = []
        end = time.monotonic() + seconds
        while True:
            if time.monotonic() > end:
                raise TimeoutError(f"no end of the cell within {seconds} s: {code[:80]!r}")
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except Empty:
                assert self.manager.is_alive(), "the kernel died"
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
            messages.append(message)
        while True:
            reply = self.client.get_shell_msg(timeout=CELL_SECONDS)
            if reply["parent_header"].get("msg_id") == request:
                return Ran(reply["content"], messages, reply["metadata"])

    def process(self, module: str) -> psutil.Process:
        """The running process of this session that was started with `-m module`."""
        found = [p for p in psutil.Process(self.pid).children(recursive=True) if module in _command(p)]
        # Under bubblewrap the wrapper's own command line names the module as well; the interpreter is the innermost.
        inner = [p for p in found if "bwrap" not in Path(_command(p)[0]).name]
        assert inner, f"no process of {module} below the kernel"
        return inner[-1]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline() or [""]
    except psutil.Error:
        return [""]


@contextmanager
def live_kernel(directory: Path, *, policy: Path | None = None, profile: str | None = None) -> Iterator[LiveKernel]:
    kernel = LiveKernel(directory, policy=policy, profile=profile)
    try:
        yield kernel
    finally:
        kernel.close()
