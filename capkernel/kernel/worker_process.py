"""One worker process, from start to end: its link, its pipes, its death.

Rule 1: the worker's word is never trusted. A request number is looked up, a report is compared with what the operating
system says, a message out of turn ends the process.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from capkernel.kernel.quick_link import QuickLink
from capkernel.sandbox import Level, Report
from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.states import WorkerLink
from capkernel.wire.worker import (
    MAX_BODY_FROM_WORKER,
    Call,
    CallResult,
    Classify,
    Comm,
    Complete,
    Dropped,
    Evaluate,
    Execute,
    Failure,
    Finished,
    FromWorker,
    InputReply,
    InputRequest,
    Inspect,
    Invoke,
    MapClassified,
    MaskShown,
    Post,
    Published,
    Ready,
    Request,
    Shutdown,
    ToWorker,
    ZipClassified,
)

_log = logging.getLogger("capkernel")
_PIPE_CHUNK = 64 * 1024
_DRAINS = 20  # chunks: more than a pipe holds
_TAIL = 2000  # characters of its last words that are kept to explain a death
_START_SECONDS = 60.0
_EXIT_TRIES = 20  # of 10 ms


class WorkerDied(Exception):
    """The worker is gone. The text says how, in words for the person."""


class WorkerUnfit(Exception):
    """The worker is not isolated as the policy demands; nothing runs in it."""


class ChildPort(Protocol):
    """What is needed of `sandbox.Child`."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: int) -> bool: ...

    def terminate_hard(self) -> None: ...


@dataclass
class Spawned:
    """A worker that was just started: its process, the kernel's ends of its three links and its two output pipes."""

    child: ChildPort
    link: socket.socket
    requests: socket.socket
    quick: socket.socket
    stdout: int
    stderr: int
    verify: Callable[[], list[str]]
    clean_up: Callable[[], None]


@dataclass(frozen=True)
class Handlers:
    """Where a worker's messages go. All are called on the event loop, but `call_quickly` in the quick link's thread."""

    published: Callable[[Published], None]
    comm: Callable[[Comm, bytes], None]
    printed: Callable[[str, str], None]  # stream name, text that came through a pipe
    asked: Callable[[InputRequest], None]
    call: Callable[[Call, bytes], Awaitable[tuple[CallResult, bytes]]]
    call_quickly: Callable[[int, Invoke], tuple[CallResult, bytes]]
    post: Callable[[Post, bytes], None]
    ended: Callable[[WorkerProcess], None]


class WorkerProcess(asyncio.Protocol):
    """The kernel's end of the links to one worker."""

    def __init__(self, spawned: Spawned, handlers: Handlers, minimum: Level) -> None:
        self._spawned = spawned
        self._handlers = handlers
        self._minimum = minimum
        self._reader: FrameReader[Any] = FrameReader(FromWorker, max_body=MAX_BODY_FROM_WORKER)
        self._turns = WorkerLink()
        self._waiting: dict[int, asyncio.Future[Finished]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._pipes: list[_Pipe] = []
        self._words = ""
        self._why = ""
        self._quick = QuickLink(spawned.quick, handlers.call_quickly)
        self._transport: asyncio.Transport | None = None
        self._requests: asyncio.WriteTransport | None = None
        self._ready: asyncio.Future[Report] | None = None
        self.ended = False
        self.fit = False  # ready, and isolated as demanded: only then it may be asked anything

    async def start(self) -> Report:
        """Wait until it is ready and found fit. Raises WorkerDied or WorkerUnfit."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        self._pipes = [
            _Pipe(loop, self._spawned.stdout, "stdout", self._printed),
            _Pipe(loop, self._spawned.stderr, "stderr", self._printed),
        ]
        self._requests, _ = await loop.connect_accepted_socket(lambda: _Requests(self._end), self._spawned.requests)
        await loop.connect_accepted_socket(lambda: self, self._spawned.link)
        try:
            async with asyncio.timeout(_START_SECONDS):
                report = await self._ready
        except TimeoutError:
            self.kill(f"it was not ready after {_START_SECONDS:.0f} seconds")
            raise WorkerDied(self.obituary()) from None
        problems = self._spawned.verify() if self._minimum > Level.NONE else []
        if report.level < self._minimum:
            problems.append(f"it proved the level {report.level.label}, the policy demands {self._minimum.label}")
            problems += report.notes
        if problems and self._spawned.child.poll() is not None:  # of a dead process nothing can be verified
            self._end()
        if self.ended:
            raise WorkerDied(self.obituary())
        if problems:
            self.kill("it is not isolated")
            raise WorkerUnfit("; ".join(problems))
        self.fit = True
        self._quick.start(lambda why: loop.call_soon_threadsafe(partial(self.kill, why)))
        return report

    def request(
        self, message: Execute | Evaluate | Complete | Inspect | Comm, blob: bytes = b""
    ) -> asyncio.Future[Finished]:
        """Send a request; the future is its end, or WorkerDied. Raises LocalProtocolError when it is too large."""
        future: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        if self.ended:
            future.set_exception(WorkerDied(self.obituary()))
            return future
        if isinstance(message, Execute):
            self._words = ""
        self._send(message, blob)
        self._waiting[message.request] = future
        return future

    def answer(self, reply: InputReply) -> None:
        self._send(reply)

    def interrupt(self) -> None:
        """Send it SIGINT. From any thread."""
        self._spawned.child.send_signal(signal.SIGINT)

    def kill(self, why: str) -> None:
        """End it now. What waits for it fails with WorkerDied."""
        self._why = self._why or why
        self._end()

    def close(self) -> None:
        """End it because it is not needed any more."""
        if not self.ended:
            self._send(Shutdown())
            self.kill("the session was closed")

    def obituary(self) -> str:
        """How it ended."""
        code = self._spawned.child.poll()
        if self._why:
            how = self._why
        elif code is not None and code < 0:
            how = f"it was ended by {_signal_name(-code)}"
        elif code is not None:
            how = f"it exited with code {code}"
        else:
            how = "it closed its link"
        return how

    @property
    def last_words(self) -> str:
        """The end of what it printed past Python, which explains a crash."""
        return self._words.strip()

    # ── asyncio.Protocol ─────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def pause_writing(self) -> None:
        # A worker that asks and does not read the answers is not heard until it does; nothing piles up here.
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            for message, blob in self._reader.frames():
                self._take(message, blob)
                if self.ended:
                    return
        except RemoteProtocolError as problem:
            self.kill(f"it broke the protocol: {problem}")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._end()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, message: Any, blob: bytes) -> None:
        self._turns.received(message)
        match message:
            case Published():
                self._handlers.published(message)
            case Comm():
                self._handlers.comm(message, blob)
            case Finished():
                future = self._waiting.pop(message.request, None)
                if future is not None and not future.done():
                    for pipe in self._pipes:  # what C code printed before the end belongs before it
                        pipe.drain()
                    future.set_result(message)
            case Call():
                task = asyncio.get_running_loop().create_task(self._call(message, blob))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
            case Classify() | MapClassified() | ZipClassified() | MaskShown() | Dropped():
                self._post(message, blob)
            case InputRequest():
                self._handlers.asked(message)
            case Ready():
                self._take_report(message)

    def _post(self, message: Post, blob: bytes) -> None:
        try:
            self._handlers.post(message, blob)
        except RemoteProtocolError:
            raise
        except Exception as problem:  # a quota, or bytes that are no value: the handle stays unknown, nobody is told
            _log.error("a classified operation was dropped: %s", type(problem).__name__)

    def _take_report(self, message: Ready) -> None:
        assert self._ready is not None
        if self._ready.done():  # the wait for it was given up
            return
        try:
            self._ready.set_result(Report.from_json(message.report))
        except ValueError:
            raise RemoteProtocolError("its report of the sandbox is not one") from None

    async def _call(self, call: Call, blob: bytes) -> None:
        try:
            result, content = await self._handlers.call(call, blob)
        except Exception as problem:  # a bug of ours must not leave the cell waiting for ever
            why = f"the broker failed ({type(problem).__name__}); the effect may not have happened"
            failure = Failure("RuntimeError", why)
            result, content = CallResult(call.call, error=failure), b""
        try:
            self._send(result, content)
        except LocalProtocolError:
            failure = Failure("OSError", "the answer is too large to be handed over in one piece")
            self._send(CallResult(call.call, error=failure))

    def _send(self, message: ToWorker, blob: bytes = b"") -> None:
        transport = self._requests if isinstance(message, Request) else self._transport
        if transport is not None and not self.ended:
            frame = encode(message, blob)
            self._turns.sending(message)
            transport.write(frame)

    def _printed(self, name: str, text: str) -> None:
        if name == "stderr":
            self._words = (self._words + text)[-_TAIL:]
        self._handlers.printed(name, text)

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        for pipe in self._pipes:
            pipe.drain()
        if not self._why:
            with contextlib.suppress(Exception):  # it closed its link on its own: give it a moment to leave its code
                _await_exit(self._spawned.child)
        how = self.obituary()
        self._quick.close()
        self._spawned.child.terminate_hard()
        for pipe in self._pipes:
            pipe.drain()
            pipe.close()
        for transport, link in ((self._transport, self._spawned.link), (self._requests, self._spawned.requests)):
            if transport is not None:
                transport.abort()
            else:
                link.close()
        self._why = self._why or how
        self._spawned.clean_up()
        died = WorkerDied(self.obituary())
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(died)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(died)
        self._waiting.clear()
        for task in self._calls:
            task.cancel()
        self._handlers.ended(self)


class _Requests(asyncio.Protocol):
    """The way of requests to the worker. Nothing is read from it: what a worker has to say, it says on its link, which
    also tells of its end. `broken`: called when a request could not be sent."""

    def __init__(self, broken: Callable[[], None]) -> None:
        self._broken = broken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._broken()


class _Pipe:
    """One of the worker's output pipes: what C code prints, and the last words of a crash."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, name: str, printed: Callable[[str, str], None]
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._name = name
        self._printed = printed
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = True
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Read what is there now. Bounded, because a worker may go on printing while we read."""
        for _ in range(_DRAINS):
            if not self._open or not self._read():
                return

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _PIPE_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        text = self._decoder.decode(data)
        if text:
            self._printed(self._name, text)
        return len(data) == _PIPE_CHUNK


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _await_exit(child: ChildPort) -> None:
    for _ in range(_EXIT_TRIES):
        if child.poll() is not None:
            return
        time.sleep(0.01)
