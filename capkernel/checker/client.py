"""The kernel's side of the checker process: ask, and never wait without a bound.

Rule 1: no answer is a refusal. Time-out, end of file, a message that is not of the link: the process is killed, the
cell is Rejected, and a new process is started and told the session again.
Rule 2: what the session holds is what this client recorded (the accepted cells and what they bound), so a checker can
be lost at any moment without losing the session.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from capkernel.checker import pinned
from capkernel.checker.protocol import (
    Accepted,
    Check,
    Commit,
    Discard,
    FromChecker,
    Look,
    Looked,
    Progress,
    Rejected,
    Started,
    ToChecker,
)
from capkernel.checker.turns import Turns
from capkernel.diagnostics.model import Diagnostic, Span
from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.local_names import NO_NAMES, LocalNames

_READ = 65536
START_SECONDS = 180.0  # the first start on a machine reads the types of the libraries
_HELP = {"too-much-work": "split the cell, or name its parts", "checker-unavailable": "run the cell again"}
_REAP_SECONDS = 2.0
_RECYCLE_AFTER = 5000  # checks: each leaves a little in mypy's memory, a refusal most of all (10 KB)
_IDLE_SECONDS = 3.0


class Process(Protocol):
    """A started process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...
    def kill(self) -> None: ...
    def poll(self) -> int | None: ...


Spawn = Callable[[list[int], list[str]], Process]
"""Start `python -P -s -E -m capkernel.checker.main` with these descriptors inherited and these arguments added."""


class CheckerUnavailable(Exception):
    """The checker could not be started."""


class CheckerClient:
    """One checker for one session. Calls may come from several tasks; they are answered one at a time."""

    def __init__(
        self,
        spawn: Spawn,
        *,
        profile: str,
        wall_seconds: float = 5.0,
        start_seconds: float | None = None,
        memory_mb: int = 4096,
        cache_directory: Path | None = None,
        progress: Callable[[str], None] | None = None,
        recycle_after: int = _RECYCLE_AFTER,
    ) -> None:
        self._spawn = spawn
        self._profile = profile
        self._wall = wall_seconds
        self._start_seconds = START_SECONDS if start_seconds is None else start_seconds
        self._memory_mb = memory_mb
        self._cache_directory = cache_directory
        self._progress = progress
        self._link: _Link | None = None
        self._history: list[tuple[Check, Commit]] = []  # accepted cells that ran, oldest first
        self._pending: dict[int, Check] = {}  # accepted cells that may be running
        self._ended: list[_Link] = []  # killed, and perhaps not yet out of the process table
        self._lock = asyncio.Lock()
        self._restarting: asyncio.Task[None] | None = None
        self._closed = False
        self._recycle_after = recycle_after
        self._checks = 0  # that this process has answered
        self._recycling: asyncio.TimerHandle | None = None
        self._replacing: asyncio.Task[None] | None = None

    async def start(self) -> Started:
        """Start the process. Raises CheckerUnavailable when it does not get ready."""
        async with self._lock:
            self._link, started = await self._connect()
            self._checks = 0
            return started

    async def check(
        self, cell: int, text: str, names: LocalNames = NO_NAMES, *, trial: bool = False
    ) -> Accepted | Rejected:
        """The verdict on `text` as cell `cell`. Always answers within the time limits; without a verdict, Rejected.
        `trial`: the cell will not run, and is forgotten at once."""
        question = Check(cell, text, names, trial)
        async with self._lock:
            self._pending.pop(cell, None)
            self._checks += 1
            try:
                answer = await self._ask(question, (Accepted, Rejected))
            except LocalProtocolError:
                return _no_verdict(cell, "syntax", "the text is too long, or holds what is no character")
            except TimeoutError:
                self._lose()
                return _no_verdict(cell, "too-much-work", f"checking this cell took longer than {self._wall:g} s")
            except _LOST as problem:
                self._lose()
                return _no_verdict(cell, "checker-unavailable", _how(problem))
            except asyncio.CancelledError:
                self._lose()  # its answer would be taken for the next one's
                raise
            if isinstance(answer, Accepted) and trial:
                await self._tell(Discard(cell))
            elif isinstance(answer, Accepted):
                self._pending[cell] = question
            elif answer.parting:
                self._lose()  # or the next question meets a process that is ending
            self._recycle_when_idle()
            return answer

    async def commit(
        self, cell: int, bound: tuple[str, ...], deleted: tuple[str, ...] = (), *, raised: bool = False
    ) -> None:
        """The accepted cell ran. Raises KeyError for a cell that was not accepted."""
        async with self._lock:
            message = Commit(cell, bound, deleted, raised)
            self._history.append((self._pending.pop(cell), message))
            await self._tell(message)
            self._recycle_when_idle()

    async def discard(self, cell: int) -> None:
        """The accepted cell did not run. One that was never accepted is fine."""
        async with self._lock:
            if self._pending.pop(cell, None) is not None:
                await self._tell(Discard(cell))

    async def look(self, question: Look) -> Looked | None:
        """Answer a question about an unfinished text; None when there is no answer in time. Changes nothing."""
        async with self._lock:
            self._checks += 1
            try:
                answer = await (await self._alive()).ask(question, self._wall)
            except LocalProtocolError:
                return None
            except (TimeoutError, *_LOST):
                self._lose()
                return None
            except asyncio.CancelledError:
                self._lose()
                raise
            self._recycle_when_idle()
            return answer if isinstance(answer, Looked) else None

    async def close(self) -> None:
        """End the process."""
        self._closed = True
        if self._recycling is not None:
            self._recycling.cancel()
        for task in (self._restarting, self._replacing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        link, self._link = self._link, None
        for ended in (*self._ended, *(() if link is None else (link,))):
            await ended.close()
        self._ended.clear()

    # ── the process ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, message: Check, kinds: tuple[type[Accepted], type[Rejected]]) -> Accepted | Rejected:
        link = await self._alive()
        answer = await link.ask(message, self._wall)
        assert isinstance(answer, kinds)  # see `turns`
        return answer

    async def _tell(self, message: Commit | Discard) -> None:
        # It is recorded already: a process that does not hear it hears it in the replay.
        try:
            if self._link is not None:
                await self._link.ask(message, self._wall)
        except (TimeoutError, *_LOST):
            self._lose()
        except asyncio.CancelledError:
            self._lose()
            raise

    def _recycle_when_idle(self) -> None:
        """A process that has checked much is replaced while nobody waits for it."""
        if self._recycling is not None:
            self._recycling.cancel()
            self._recycling = None
        if self._checks >= self._recycle_after:
            # One that is never idle is replaced all the same.
            seconds = _IDLE_SECONDS if self._checks < 2 * self._recycle_after else 0.0
            self._recycling = asyncio.get_running_loop().call_later(seconds, self._recycle)

    def _recycle(self) -> None:
        if self._link is not None and (self._replacing is None or self._replacing.done()):
            self._replacing = asyncio.get_running_loop().create_task(self._replace(self._link))

    async def _replace(self, old: _Link) -> None:
        """Start a process beside this one and tell it the session; when it knows all, it takes over."""
        try:
            link, _started = await self._connect()
            try:
                told = len(self._history)
                await self._tell_history(link, 0, told)
                async with self._lock:
                    if self._link is not old or self._closed:
                        raise CheckerUnavailable("another process took over")
                    await self._tell_history(link, told, len(self._history))
                    await self._tell_pending(link)
                    self._link, self._checks = link, 0
            except BaseException:
                await link.close()
                raise
        except (TimeoutError, *_LOST):
            return  # the old one goes on, and is replaced another time
        self._ended.append(old)
        old.kill()
        await self._bury()

    async def _alive(self) -> _Link:
        await self._restarted()
        if self._link is not None and self._link.is_dead():
            self._lose()
            await self._restarted()
        if self._link is None and not self._closed:
            try:
                await self._restart()
            except TimeoutError:
                raise CheckerUnavailable("the checker could not be told the session in time") from None
        if self._link is None:
            raise CheckerUnavailable("the checker is closed or does not start")
        return self._link

    async def _restarted(self) -> None:
        if self._restarting is not None:
            done, _late = await asyncio.wait({self._restarting}, timeout=self._start_seconds)
            if not done:
                raise CheckerUnavailable("the checker is still being told the session")
            self._restarting = None

    def _lose(self) -> None:
        """Kill the process and start another in the background."""
        link, self._link = self._link, None
        if link is not None:
            link.kill()
            self._ended.append(link)
        if not self._closed and (self._restarting is None or self._restarting.done()):
            self._restarting = asyncio.get_running_loop().create_task(self._restart_quietly())

    async def _restart_quietly(self) -> None:
        await self._bury()
        try:
            await self._restart()
        except (TimeoutError, *_LOST):
            pass  # the next question tries again, and is refused when that fails too

    async def _bury(self) -> None:
        for link in list(self._ended):
            await link.close()
            if link in self._ended:
                self._ended.remove(link)

    async def _restart(self) -> None:
        link, _started = await self._connect()
        try:
            await self._tell_history(link, 0, len(self._history))
            await self._tell_pending(link)
        except BaseException:
            await link.close()
            raise
        self._link, self._checks = link, 0

    async def _tell_history(self, link: _Link, begin: int, end: int) -> None:
        for question, commit in self._history[begin:end]:
            if isinstance(await link.ask(question, 3 * self._wall), Accepted):
                await link.ask(commit, self._wall)

    async def _tell_pending(self, link: _Link) -> None:
        for question in self._pending.values():
            await link.ask(question, 3 * self._wall)

    async def _connect(self) -> tuple[_Link, Started]:
        """A new process, ready but knowing nothing. Raises CheckerUnavailable."""
        wrong = pinned.problem()
        if wrong:
            raise CheckerUnavailable(wrong)
        mine, theirs = socket.socketpair()
        try:
            with theirs:
                process = self._spawn([theirs.fileno()], self._arguments(theirs.fileno()))
        except Exception as problem:
            mine.close()
            raise CheckerUnavailable(f"the checker could not be started: {type(problem).__name__}") from None
        except BaseException:
            mine.close()
            raise
        link = await _Link.over(process, mine)
        try:
            async with asyncio.timeout(self._start_seconds):
                while True:
                    message = await link.receive()
                    if isinstance(message, Started):
                        return link, message
                    if isinstance(message, Progress) and self._progress is not None:
                        self._progress(message.line)
        except (TimeoutError, OSError, EOFError, RemoteProtocolError) as problem:
            await link.close()
            raise CheckerUnavailable(f"the checker did not start: {type(problem).__name__}") from None
        except BaseException:
            await link.close()
            raise

    def _arguments(self, descriptor: int) -> list[str]:
        arguments = ["--fd", str(descriptor), "--profile", self._profile, "--memory-mb", str(self._memory_mb)]
        arguments += ["--wall-seconds", f"{self._wall:g}"]
        if self._cache_directory is not None:
            arguments += ["--cache", str(self._cache_directory)]
        return arguments


_LOST = (OSError, EOFError, RemoteProtocolError, CheckerUnavailable)


class _Link:
    """One process and the stream to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._frames: FrameReader[FromChecker] = FrameReader(FromChecker, max_blob=0)
        self._turns = Turns()
        self._ready: list[FromChecker] = []

    @classmethod
    async def over(cls, process: Process, stream: socket.socket) -> _Link:
        stream.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=stream)
        return cls(process, reader, writer)

    async def ask(self, message: ToChecker, seconds: float) -> FromChecker:
        """Send, and wait for the answer. Raises TimeoutError, EOFError, OSError, RemoteProtocolError."""
        async with asyncio.timeout(seconds):
            frame = encode(message)
            if self._ready:
                raise RemoteProtocolError("the checker spoke without being asked")
            try:
                self._turns.sending(message)
            except LocalProtocolError as problem:  # whoever is wrong, this link is finished
                raise RemoteProtocolError(str(problem)) from None
            self._writer.write(frame)
            await self._writer.drain()
            return await self.receive()

    async def receive(self) -> FromChecker:
        while not self._ready:
            data = await self._reader.read(_READ)
            if not data:
                raise EOFError("the checker closed the link")
            self._frames.feed(data)
            self._ready.extend(message for message, _blob in self._frames.frames())
        message = self._ready.pop(0)
        self._turns.received(message)
        return message

    def is_dead(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._writer.close()
        if self._process.poll() is None:
            self._process.kill()

    async def close(self) -> None:
        """Kill, and take the process out of the table."""
        self.kill()
        waited = 0.0
        while self._process.poll() is None and waited < _REAP_SECONDS:
            await asyncio.sleep(0.01)
            waited += 0.01


def _how(problem: Exception) -> str:
    if isinstance(problem, RemoteProtocolError):
        return f"the checker broke the protocol ({problem}) and was ended"
    if isinstance(problem, CheckerUnavailable):
        return str(problem)
    return "the checker ended before it answered"


def _no_verdict(cell: int, code: str, message: str) -> Rejected:
    help_text = _HELP.get(code, "")
    return Rejected(cell, (Diagnostic(code, message, cell, Span(1, 0, 1, 1), help=help_text),))
