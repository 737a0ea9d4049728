"""Cells through a kernel, and what a person would see of it, made comparable between two runs."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from corpus import Notebook
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

CELL_SECONDS = 20
NOTEBOOK_SECONDS = 60
MOST_TIMEOUTS = 2
MOST_STARTS = 3
STOCK = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
_MASKS = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x"),  # addresses
    (re.compile(r"[\d.]+(e-?\d+)? ?(ns|µs|us|μs|ms|s)\b"), "TIME"),
    (re.compile(r"[\d,]+ loops? each"), "LOOPS"),
    (re.compile(r"<ipython-input-\S+>|/\S*?/ipykernel_\d+/\d+\.py|cell \d+|Cell In\[\d+\]"), "CELL"),
)
_OBJECT = re.compile(r"<IPython\.core\.display\.\w+ object>")


@dataclass
class Outcome:
    """Of one cell. `outputs` are texts with what differs between any two runs masked; `codes` only of refusals."""

    ok: bool
    error: str = ""
    outputs: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    message: str = ""
    stable: bool = True


class Kernel:
    """One kernel, run cell by cell. Ends with `close`."""

    def __init__(self, argv: list[str], directory: str) -> None:
        for attempt in range(MOST_STARTS):
            try:
                self._start(argv, directory)
                return
            except RuntimeError:  # its ports are chosen before it takes them: another program may have been faster
                self.close()
                if attempt == MOST_STARTS - 1:
                    raise

    def _start(self, argv: list[str], directory: str) -> None:
        self.manager = KernelManager()
        self.manager._kernel_spec = KernelSpec(
            argv=argv, display_name="bench", language="python", interrupt_mode="signal"
        )
        self.manager.start_kernel(cwd=directory)
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def send(self, text: str) -> str:
        request: str = self.client.execute(text, allow_stdin=False)
        return request

    def outcome(self, request: str, seconds: float = CELL_SECONDS) -> Outcome:
        outcome = Outcome(ok=True)
        streams: dict[str, str] = {}
        end, interrupted = time.monotonic() + seconds, False
        while True:
            if time.monotonic() > end:
                if interrupted:
                    return Outcome(ok=False, error="Timeout")
                self.manager.interrupt_kernel()
                interrupted, end = True, time.monotonic() + 5
            try:
                message = self.client.get_iopub_msg(timeout=0.5)
            except Empty:
                if not self.manager.is_alive():
                    return Outcome(ok=False, error="Died")
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "stream":
                streams[content["name"]] = streams.get(content["name"], "") + content["text"]
            elif kind in ("execute_result", "display_data"):
                self._shown(content, outcome)
            elif kind == "error":
                outcome.ok, outcome.error = False, content["ename"]
                outcome.message = content["evalue"][:300]
        if interrupted:
            outcome.ok, outcome.error = False, "Timeout"
        outcome.outputs = [masked(text) for text in outcome.outputs]
        outcome.outputs += [f"stdout {masked(streams['stdout'])}"] if "stdout" in streams else []
        return outcome

    def _shown(self, content: dict[str, Any], outcome: Outcome) -> None:
        data, ours = content["data"], content["metadata"].get("capkernel", {})
        told = data.get("application/vnd.capkernel.diagnostics+json")
        if told is not None:
            outcome.codes += [entry["code"] for entry in told["diagnostics"] if entry["severity"] == "error"]
        elif ours.get("kind") != "authority":
            outcome.outputs.append(data.get("text/plain", ""))

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def masked(text: str) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text.strip()


def same_outputs(ours: list[str], stock: list[str]) -> bool:
    """Whether a person sees the same text. Where stock's text is only the name of a display object, or nothing, the
    firewall writes what the object holds: then it counts that something is shown."""
    if len(ours) != len(stock):
        return False
    return all(
        not theirs or _OBJECT.fullmatch(theirs) is not None or masked(mine) == masked(theirs)
        for mine, theirs in zip(ours, stock, strict=True)
    )


def stock_outcomes(notebook: Notebook, cache: Path) -> list[Outcome]:
    """Two stock kernels side by side: an output counts as stable when both show the same. Shorter when time is out."""
    key = hashlib.sha256(json.dumps([notebook.cells, CELL_SECONDS, 3]).encode()).hexdigest()[:24]
    place = cache / f"{key}.json"
    if place.exists():
        return [Outcome(**entry) for entry in json.loads(place.read_text("utf-8"))]
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        kernels = [Kernel(STOCK, one), Kernel(STOCK, two)]
        try:
            end, timeouts = time.monotonic() + NOTEBOOK_SECONDS, 0
            for text in notebook.cells:
                if time.monotonic() > end or timeouts >= MOST_TIMEOUTS:
                    break
                requests = [kernel.send(text) for kernel in kernels]
                first, second = [k.outcome(r) for k, r in zip(kernels, requests, strict=True)]
                timeouts += first.error == "Timeout"
                first.ok = first.ok and second.ok
                first.stable = first.outputs == second.outputs
                found.append(first)
                if "Died" in (first.error, second.error):
                    break
        finally:
            for kernel in kernels:
                kernel.close()
    cache.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps([asdict(outcome) for outcome in found]), "utf-8")
    return found
