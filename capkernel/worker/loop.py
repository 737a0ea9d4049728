"""The worker's main thread: take a request, run it in IPython, report how it ended.

The asyncio loop lives as long as the session, so what a cell started (tasks, timers) goes on between cells.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel and IPython leave their methods without annotations)
from __future__ import annotations

import ast
import asyncio
import contextlib
import ctypes
import faulthandler
import os
import socket
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from ipykernel.jsonutil import json_clean

import capkernel.api
from capkernel.api import membrane as installed
from capkernel.api.classified import take_dropped
from capkernel.wire.codekey import FIRST_UNNUMBERED, cell_filename
from capkernel.wire.errors import LocalProtocolError
from capkernel.wire.local_names import BEFORE_NAME, plain_name
from capkernel.wire.local_renaming import rename
from capkernel.wire.worker import (
    MAX_DROPPED,
    Comm,
    Complete,
    Dropped,
    Evaluate,
    Execute,
    Finished,
    Inspect,
    Published,
    Ready,
    Request,
)
from capkernel.worker import bars, looking
from capkernel.worker.channel import Channel
from capkernel.worker.functions import Functions
from capkernel.worker.interrupts import Interrupts
from capkernel.worker.membrane import WorkerMembrane
from capkernel.worker.names import NameLog
from capkernel.worker.quick_link import QuickLink
from capkernel.worker.request_link import RequestLink
from capkernel.worker.session import REQUEST, sendable
from capkernel.worker.shell import WorkerKernel, make_kernel
from capkernel.worker.streams import CellStream, Gatherer


def run(
    link: socket.socket, requests: socket.socket, quick: socket.socket, report: str, *, active_outputs: bool
) -> None:
    """Serve requests until the kernel goes; then the process ends."""
    if not active_outputs:
        bars.as_text()
    with contextlib.suppress(Exception):
        faulthandler.enable(2)  # a crash in native code leaves its stack in the pipe the kernel reads
    link.setblocking(True)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    interrupts = Interrupts()
    signals = interrupts.install()
    loop.add_reader(signals.fileno(), _drain, signals)
    channel = Channel(link, interrupts, QuickLink(quick, interrupts))
    worker = Worker(channel, interrupts, loop)
    task = loop.create_task(worker.serve())
    coming = RequestLink(requests, interrupts)
    loop.add_reader(coming.fileno(), coming.read, worker.take)
    channel.start()
    channel.send(Ready(report))
    while not task.done():
        # An interrupt or an exit in a task that a cell left behind ends the loop's run, not the session.
        with contextlib.suppress(KeyboardInterrupt, SystemExit, RuntimeError):
            loop.run_until_complete(task)
    os._exit(1)  # `serve` never ends by itself


class Worker:
    """One session's IPython and the queue of requests to it."""

    def __init__(self, channel: Channel, interrupts: Interrupts, loop: asyncio.AbstractEventLoop) -> None:
        self._channel = channel
        self._interrupts = interrupts
        self._requests: asyncio.Queue[tuple[Request, bytes]] = asyncio.Queue()
        self._kernel = _kernel(loop, channel, interrupts)
        namespace: dict[str, Any] = self._kernel.shell.user_ns
        api = {name: getattr(capkernel.api, name) for name in capkernel.api.__all__}
        self._kernel.shell.push(api, interactive=False)
        self._membrane = WorkerMembrane(channel, Functions(namespace, {**api, **_fixtures(namespace)}))
        installed.install(self._membrane)
        self._names = NameLog(namespace)
        gatherer = Gatherer()
        sys.stdout = CellStream("stdout", channel, interrupts, gatherer)
        sys.stderr = CellStream("stderr", channel, interrupts, gatherer)
        gatherer.start()

    def take(self, request: Request, blob: bytes) -> None:
        """Serve it when its turn comes."""
        self._requests.put_nowait((request, blob))

    async def serve(self) -> None:
        while True:
            request, blob = await self._requests.get()
            try:
                finished = await self._answer(request, blob)
            except Exception as problem:
                finished = Finished(request.request, _failure(type(problem).__name__, f"in the worker: {problem}"))
            self._flush()
            self._tell_dropped()
            self._finish(finished)

    async def _answer(self, request: Request, blob: bytes) -> Finished:
        match request:
            case Execute():
                return await self._execute(request)
            case Comm():
                return self._comm(request, blob)
            case Evaluate():
                return self._evaluate(request)
            case Complete():
                offered = self._kernel.do_complete(request.code, request.cursor)
                keys = looking.keys_of(request.keys_of, self._kernel.shell.user_ns)
                return Finished(request.request, json_clean({**offered, "keys": keys}))
            case Inspect():
                if request.about:
                    text = looking.documentation(request.about)
                    found = {"status": "ok", "found": bool(text), "data": {"text/plain": text}}
                else:
                    found = self._kernel.do_inspect(request.code, request.cursor, request.detail)
                return Finished(request.request, json_clean(found))

    async def _execute(self, cell: Execute) -> Finished:
        kernel, shell = self._kernel, self._kernel.shell
        shell.reserve.hold()
        kernel.set_parent([], _parent(cell.request, cell.parent), "shell")
        if cell.cell < FIRST_UNNUMBERED:
            shell.execution_count = cell.cell
        shell.begin_cell(cell, self._names)
        shell.last_execution_result = None
        self._membrane.know_cell(cell.cell, cell.masks, cell.text)
        try:
            with self._interrupts.armed():
                reply = await kernel.do_execute(
                    cell.raw, cell.silent, cell.store_history, {}, cell.allow_stdin, cell_meta={}, cell_id=None
                )
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError) as problem:
            # It hit IPython itself, not the cell's code; nothing was shown yet.
            reply = _failure(type(problem).__name__, "")
            self._channel.send(Published(cell.request, "error", {**reply}))
        result = shell.last_execution_result
        # Without a result nobody knows how far the cell came: then only what is seen to be another object is bound.
        failed = KeyboardInterrupt() if result is None else (result.error_before_exec or result.error_in_exec)
        bound, deleted = self._names.end(failed, cell_filename(cell.cell))
        if cell.names.module:
            self._name_plainly(bound)
        return Finished(cell.request, json_clean(reply), bound, deleted)

    def _name_plainly(self, bound: tuple[str, ...]) -> None:
        """Functions and classes of a local module say their names as the module has them."""
        for name in bound:
            made = self._kernel.shell.user_ns.get(name)
            if isinstance(made, type | FunctionType) and BEFORE_NAME in made.__name__:
                made.__name__ = plain_name(made.__name__)
                made.__qualname__ = plain_name(made.__qualname__)

    def _evaluate(self, wanted: Evaluate) -> Finished:
        """The value of a checked expression, as it is displayed. Compiled under the number it was checked under."""
        kernel, shell = self._kernel, self._kernel.shell
        kernel.set_parent([], _parent(wanted.request), "shell")
        self._membrane.know_cell(wanted.cell, wanted.masks, wanted.text)
        try:
            with self._interrupts.armed():
                value = eval(_expression(wanted), shell.user_global_ns, shell.user_ns)  # noqa: S307 — checked like a cell
                data, metadata = shell.display_formatter.format(value)
        except (Exception, KeyboardInterrupt, SystemExit, asyncio.CancelledError) as problem:
            try:
                why = str(problem)
            except Exception:
                why = ""
            return Finished(wanted.request, _failure(type(problem).__name__, why))
        return Finished(wanted.request, json_clean({"status": "ok", "data": data, "metadata": metadata}))

    def _comm(self, message: Comm, blob: bytes) -> Finished:
        """Hand a front end's message to the comm it is for: it calls what a cell gave `on_click`, `observe`, ..."""
        kernel = self._kernel
        cell = kernel.get_parent("shell")
        parent = _parent(message.request, message.parent, message.kind)
        kernel.set_parent([], parent, "shell")
        content = {"comm_id": message.comm, "data": message.data, "target_name": message.target}
        told = {**parent, "content": content, "metadata": message.metadata, "buffers": message.parts(blob)}
        try:
            with self._interrupts.armed():
                getattr(kernel.comm_manager, message.kind)(None, [], told)
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):  # the manager logs every Exception
            kernel.shell.showtraceback()
        kernel.set_parent([], cell, "shell")  # what threads print from now on belongs to the latest cell again
        return Finished(message.request, {"status": "ok"})

    def _tell_dropped(self) -> None:
        while dropped := take_dropped(MAX_DROPPED):
            self._channel.send(Dropped(dropped))

    def _finish(self, finished: Finished) -> None:
        try:
            self._channel.send(finished)
        except LocalProtocolError:
            content = sendable(finished.content)
            try:
                self._channel.send(Finished(finished.request, content, finished.bound, finished.deleted))
            except LocalProtocolError as problem:
                failure = _failure("OutputTooBig", str(problem))
                self._channel.send(Finished(finished.request, failure, finished.bound, finished.deleted))

    def _flush(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        _flush_c()


def _expression(wanted: Evaluate) -> CodeType:
    """Parsed and renamed as the checker did it: as a cell, which is one expression."""
    tree = rename(ast.parse(wanted.text), wanted.names).tree
    statement = tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return compile(ast.Expression(statement.value), cell_filename(wanted.cell), "eval", dont_inherit=True)


def _kernel(loop: asyncio.AbstractEventLoop, channel: Channel, interrupts: Interrupts) -> WorkerKernel:
    async def make() -> WorkerKernel:  # tornado's current loop is the running one
        return make_kernel(channel, interrupts)

    return loop.run_until_complete(make())


def _fixtures(namespace: dict[str, Any]) -> dict[str, Any]:
    """What IPython put there before any cell: known to the kernel, never captured data."""
    return {name: namespace[name] for name in ("get_ipython", "exit", "quit", "open") if name in namespace}


def _parent(request: int, known_as: str = "", kind: str = "execute_request") -> dict[str, Any]:
    header = {
        "msg_id": known_as or str(request), "msg_type": kind, "session": "", "username": "", "version": "5.4",
        "date": None, REQUEST: request,
    }  # fmt: skip
    return {
        "header": header, "msg_id": header["msg_id"], "msg_type": header["msg_type"], "parent_header": {},
        "metadata": {}, "content": {}, "buffers": [],
    }  # fmt: skip


def _failure(name: str, value: str) -> dict[str, Any]:
    return {"status": "error", "ename": name, "evalue": value, "traceback": [f"{name}: {value}" if value else name]}


def _drain(signals: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        signals.recv(4096)


def _make_flush_c() -> Callable[[], object]:
    try:
        flush = ctypes.CDLL(None).fflush
    except (OSError, AttributeError, TypeError):
        return lambda: None
    flush.argtypes = (ctypes.c_void_p,)
    return lambda: flush(None)


_flush_c = _make_flush_c()
