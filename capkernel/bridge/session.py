"""A session for programs: `async with capkernel.Session() as s: r = await s.execute("1 + 1")`.

The kernel is the same, in processes of its own; this is a client of it, and holds no more than any client: masks.

Rule 1: one cell at a time; a second `execute`, and every other question but `state`, waits for the first.
Rule 2: a message that does not belong to the cell that is waited for is dropped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from nbformat.notebooknode import NotebookNode

from capkernel.bridge.answers import CHECK, STATE, State, Verdict, state_of, verdict_of
from capkernel.bridge.launch import async_kernel_manager
from capkernel.bridge.outputs import CellOutputs, Outcome, outcome_of
from capkernel.diagnostics.model import Diagnostic
from capkernel.diagnostics.render_json import MIME_TYPE, from_json

START_SECONDS = 120.0  # the first start on a machine builds the checker's cache
_POLL_SECONDS = 0.5
_INTERRUPT_SECONDS = 10.0
_KEY = "capkernel"  # in the metadata of replies and outputs: only the kernel can write it
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_Answer = TypeVar("_Answer")
Ask = Callable[[str, bool], str | None]


class SessionError(Exception):
    """The kernel cannot be started, or has died: nothing more can be run in this session."""


@dataclass(frozen=True)
class Result:
    """How one cell went.

    `status`: "ok", "error" (it raised) or "refused" (the checker said no, and nothing ran). `text`: what a terminal
    would show. `diagnostics`: refusals and warnings. `authority`: what the cell may do, "" for nothing. `error`:
    "NameError: …" unless ok. `outputs`: as in a notebook (nbformat 4).
    """

    status: Outcome
    text: str
    diagnostics: tuple[Diagnostic, ...]
    authority: str
    error: str
    count: int | None
    outputs: tuple[NotebookNode, ...]


class Session:
    """A kernel for the time of an `async with` block.

    `policy`: a policy file, the operator's (default: the user's and the machine's, as docs/policy.md lists).
    `profile`: "strict", "standard" or "relaxed". `directory`: what is the notebook's folder for the cells (default:
    the current one). `ask(prompt, hidden)` answers `input()` and is called in a thread; without it `input()` fails.
    """

    def __init__(
        self, *, policy: Path | str | None = None, profile: str | None = None, directory: Path | str | None = None,
        ask: Ask | None = None,
    ) -> None:  # fmt: skip
        self._policy = None if policy is None else Path(policy)
        self._profile = profile
        self._directory = Path.cwd() if directory is None else Path(directory)
        self._ask = ask
        self._one_at_a_time = asyncio.Lock()
        self._one_state_at_a_time = asyncio.Lock()
        self._manager: AsyncKernelManager | None = None
        self._client: AsyncKernelClient | None = None

    async def __aenter__(self) -> Self:
        if self._policy is not None and not self._policy.is_file():
            raise SessionError(f"{self._policy}: there is no such policy file")
        manager = async_kernel_manager(policy=self._policy, profile=self._profile)
        try:
            await manager.start_kernel(cwd=str(self._directory))
        except Exception as problem:
            raise SessionError(f"the kernel cannot be started: {problem}") from None
        client = manager.client()
        client.start_channels()
        self._manager, self._client = manager, client
        try:
            await client.wait_for_ready(timeout=START_SECONDS)
        except BaseException as problem:
            await self._end()
            if isinstance(problem, RuntimeError):
                raise SessionError(f"the kernel did not become ready: {problem}") from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        client, manager = self._client, self._manager
        self._client = self._manager = None
        if client is not None:
            client.stop_channels()
        if manager is not None:
            await manager.shutdown_kernel()

    async def execute(self, code: str, *, watch: Callable[[NotebookNode], None] | None = None) -> Result:
        """Run one cell and wait for its end. `watch` is given each output when it comes.

        A cancelled call interrupts the cell. Raises SessionError when the kernel is gone; a cell that is refused or
        raises is a result.
        """
        async with self._one_at_a_time:
            client, _ = self._running()
            request = client.execute(code, allow_stdin=self._ask is not None, stop_on_error=False)
            try:
                return await self._result(request, CellOutputs(watch or _nothing))
            except asyncio.CancelledError:
                await self.interrupt()
                raise

    async def interrupt(self) -> None:
        """Stop the running cell; the session stays."""
        _, manager = self._running()
        await asyncio.wait_for(manager.interrupt_kernel(), _INTERRUPT_SECONDS)

    async def check(self, code: str) -> Verdict:
        """The verdict on `code`, were it the next cell. Nothing runs and nothing changes."""
        return self._read(verdict_of, await self._own(CHECK, {"code": code}))

    async def state(self) -> State:
        """Names, types, labels, what is live; also while a cell runs. Never a value."""
        client, manager = self._running()
        async with self._one_state_at_a_time:
            message = client.session.msg(STATE, {})
            client.control_channel.send(message)
            while True:
                try:
                    reply = await client.get_control_msg(timeout=_POLL_SECONDS)
                except Empty:
                    await _alive(manager)
                    continue
                if reply["parent_header"].get("msg_id") == message["msg_id"]:
                    return self._read(state_of, reply["content"])

    async def is_complete(self, code: str) -> tuple[str, str]:
        """As a console needs it: ("complete" | "incomplete" | "invalid" | "unknown", the next line's indent)."""
        reply = await self._asked(lambda client: client.is_complete(code))
        return str(reply.get("status", "unknown")), str(reply.get("indent", ""))

    async def complete(self, code: str, cursor: int | None = None) -> tuple[list[str], int, int]:
        """Completions at the cursor (characters), and the range of the text that each would replace."""
        reply = await self._asked(lambda client: client.complete(code, cursor))
        return list(reply.get("matches", ())), int(reply.get("cursor_start", 0)), int(reply.get("cursor_end", 0))

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _running(self) -> tuple[AsyncKernelClient, AsyncKernelManager]:
        if self._client is None or self._manager is None:
            raise SessionError("the session is not open: use `async with capkernel.Session() as session`")
        return self._client, self._manager

    async def _result(self, request: str, gathered: CellOutputs) -> Result:
        client, _ = self._running()
        while True:
            message = await self._next(client.get_iopub_msg, request)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
            gathered.add(message)
        reply = await self._next(client.get_shell_msg, request)
        status, error = outcome_of(reply["content"], gathered.outputs)
        return Result(
            status=status,
            text=text_of(gathered.outputs),
            diagnostics=tuple(found for output in gathered.outputs for found in _diagnostics(output)),
            authority=str(reply["metadata"].get(_KEY, {}).get("authority", "")),
            error=error,
            count=reply["content"].get("execution_count"),
            outputs=tuple(gathered.outputs),
        )  # fmt: skip

    async def _own(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        def send(client: AsyncKernelClient) -> str:
            message = client.session.msg(kind, content)
            client.shell_channel.send(message)
            return str(message["msg_id"])

        return await self._asked(send)

    def _read(self, read: Callable[[dict[str, Any]], _Answer], content: dict[str, Any]) -> _Answer:
        if content.get("status") != "ok":
            raise SessionError(f"{content.get('ename', 'error')}: {content.get('evalue', 'no answer')}")
        try:
            return read(content)
        except msgspec.ValidationError as problem:
            raise SessionError(f"the kernel is of another version: {problem}") from None

    async def _asked(self, send: Callable[[AsyncKernelClient], str]) -> dict[str, Any]:
        """The reply to a request on the shell channel, which cells use, too: one at a time."""
        async with self._one_at_a_time:
            client, _ = self._running()
            content: dict[str, Any] = (await self._next(client.get_shell_msg, send(client)))["content"]
            return content

    async def _next(self, get: Any, request: str) -> dict[str, Any]:
        """The next message of a channel that belongs to `request`; meanwhile questions are answered."""
        while True:
            client, manager = self._running()
            try:
                message: dict[str, Any] = await get(timeout=_POLL_SECONDS)
            except Empty:
                await self._answer(client)
                await _alive(manager)
                continue
            if message["parent_header"].get("msg_id") == request:
                return message

    async def _answer(self, client: AsyncKernelClient) -> None:
        if self._ask is None:
            return
        try:
            message = await client.get_stdin_msg(timeout=0)
        except Empty:
            return
        asked = message["content"]
        answer = await asyncio.to_thread(self._ask, str(asked["prompt"]), bool(asked.get("password")))
        client.input("\x04" if answer is None else answer)  # end of file, as a terminal says it


def text_of(outputs: list[NotebookNode]) -> str:
    """Outputs as a terminal would show them; the line that says what a cell may do is left out."""
    kept = (output for output in outputs if not repeats_refusal(output))
    return "".join(found if found.endswith("\n") or not found else found + "\n" for found in map(shown, kept))


def repeats_refusal(output: NotebookNode) -> bool:
    """Whether this error only says again, shorter, what the diagnostics before it said. No cell can raise one of this
    name: the kernel renames it."""
    return bool(output.output_type == "error" and output.ename == "CellRefused")


def shown(output: NotebookNode) -> str:
    """One output as text, without colours."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return _COLOURS.sub("", "\n".join(output.traceback))
    if is_authority(output):
        return ""
    return str(output.data.get("text/plain", ""))


def is_authority(output: NotebookNode) -> bool:
    """Whether this is the line that says what the cell may do."""
    return bool(output.get("metadata", {}).get(_KEY, {}).get("kind") == "authority")


def _diagnostics(output: NotebookNode) -> tuple[Diagnostic, ...]:
    bundle = output.get("data", {}).get(MIME_TYPE)
    try:
        return () if bundle is None else from_json(bundle)
    except msgspec.ValidationError:  # a kernel of another version
        return ()


async def _alive(manager: AsyncKernelManager) -> None:
    if not await manager.is_alive():
        raise SessionError("the kernel died: what the session held is lost; start a new one") from None


def _nothing(_output: NotebookNode) -> None:
    pass
