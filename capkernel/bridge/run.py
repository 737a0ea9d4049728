"""Run a notebook through the kernel, cell by cell, and keep what it put out: `capkernel run`.

A cell may be expected to fail: tagged `raises-exception`, it may raise; tagged `refused`, it must be refused by the
checker. Anything else that fails is unexpected and stops the run, as Run All would. What ran until then is saved.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
from jupyter_client.blocking.client import BlockingKernelClient
from nbformat.notebooknode import NotebookNode

from capkernel.bridge.launch import KERNEL_NAME, kernel_manager
from capkernel.bridge.outputs import CellOutputs, outcome_of

START_SECONDS = 120.0  # the first start on a machine builds the checker's cache
POLL_SECONDS = 1.0


class NotebookError(Exception):
    """The notebook cannot be read, or the kernel cannot be started: nothing ran."""


@dataclass
class CellResult:
    """How one code cell went. `index` counts code cells from 1."""

    index: int
    count: int
    source: str
    outcome: str  # "ok" | "error" | "refused"
    expected: bool
    why: str = ""
    seconds: float = 0.0
    outputs: list[NotebookNode] = field(default_factory=list)


@dataclass(frozen=True)
class Watcher:
    """What the caller sees while it runs."""

    started: Callable[[int, int, NotebookNode], None]
    output: Callable[[NotebookNode], None]
    finished: Callable[[CellResult], None]


def read_notebook(path: Path) -> NotebookNode:
    """The notebook at `path` as nbformat 4.5, with cell ids. Raises NotebookError with what to do."""
    try:
        notebook: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except FileNotFoundError:
        raise NotebookError(f"{path}: there is no such notebook") from None
    except OSError as problem:
        raise NotebookError(f"{path}: cannot be read: {problem.strerror}") from None
    except Exception as problem:
        raise NotebookError(f"{path}: this is not a notebook ({type(problem).__name__}: {problem})") from None
    return notebook


def write_notebook(notebook: NotebookNode, path: Path) -> None:
    """Save atomically: a full disk or a kill leaves the old file, never half of the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        nbformat.write(notebook, temporary)  # type: ignore[no-untyped-call]
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def run_notebook(
    notebook: NotebookNode, directory: Path, watcher: Watcher, *, policy: Path | None = None, profile: str | None = None
) -> list[CellResult]:
    """Run every code cell of `notebook` in `directory`, changing its outputs in place. Stops after the first surprise.

    Raises NotebookError when the kernel does not start.
    """
    manager = kernel_manager(policy=policy, profile=profile)
    try:
        manager.start_kernel(cwd=str(directory))
        client = manager.client()
        client.start_channels()
    except Exception as problem:
        raise NotebookError(f"the kernel cannot be started: {problem}") from None
    try:
        try:
            client.wait_for_ready(timeout=START_SECONDS)
        except RuntimeError as problem:
            raise NotebookError(f"the kernel did not become ready: {problem}") from None
        return list(_run_cells(client, notebook, watcher))
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def _run_cells(client: BlockingKernelClient, notebook: NotebookNode, watcher: Watcher) -> Iterator[CellResult]:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    notebook.metadata["kernelspec"] = {"name": KERNEL_NAME, "display_name": KERNEL_NAME, "language": "python"}
    for index, cell in enumerate(cells, 1):
        watcher.started(index, len(cells), cell)
        result = _run_cell(client, cell, index, len(cells), watcher)
        watcher.finished(result)
        yield result
        if not result.expected:
            return


def _run_cell(client: BlockingKernelClient, cell: NotebookNode, index: int, count: int, watcher: Watcher) -> CellResult:
    begin = time.monotonic()
    collected = CellOutputs(watcher.output)
    request = client.execute(cell.source, allow_stdin=False, stop_on_error=False)
    lost = False
    while True:
        try:
            message = client.get_iopub_msg(timeout=POLL_SECONDS)
        except Empty:
            lost = not client.is_alive()
            if lost:
                break
            continue
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
        collected.add(message)
    reply = {"status": "error", "ename": "KernelDied", "evalue": "the kernel died"} if lost else _reply(client, request)
    cell.outputs = collected.outputs
    cell.execution_count = reply.get("execution_count")
    outcome, why = outcome_of(reply, cell.outputs)
    tags = cell.metadata.get("tags", [])
    expected = not lost and _expected(outcome, tags)
    if "refused" in tags and outcome != "refused":
        why = f"tagged `refused`, but it {'ran' if outcome == 'ok' else 'failed otherwise: ' + why}"
    return CellResult(index, count, cell.source, outcome, expected, why, time.monotonic() - begin, cell.outputs)


def _reply(client: BlockingKernelClient, request: str) -> dict[str, Any]:
    while True:
        message = client.get_shell_msg(timeout=START_SECONDS)
        if message["parent_header"].get("msg_id") == request:
            content: dict[str, Any] = message["content"]
            return content


def _expected(outcome: str, tags: list[str]) -> bool:
    if "refused" in tags:
        return outcome == "refused"
    return outcome == "ok" or "raises-exception" in tags
