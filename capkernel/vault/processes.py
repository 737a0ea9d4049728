"""The processes of a vault, from their start to their end: the keeper, which holds the values, and its runners.

Rule 1: a runner that is lost is replaced, and nothing is lost with it but its job. A keeper that ends, breaks the
protocol or answers no more takes every value along, which is said once.
Rule 2: nothing is sent or taken that is out of turn (`wire.states`).
Rule 3: a start never loses its processes to a late clean-up of the last one's.

All methods belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from capkernel.vault.control import ControlLink
from capkernel.vault.launch import ChildProcess, Spawn, last_words
from capkernel.wire.states import KeeperLink
from capkernel.wire.vault import (
    Answer,
    Begin,
    FromKeeper,
    KeeperReady,
    Limits,
    NewRunner,
    RunnerLost,
    RunnerReady,
    SecureFile,
    ToKeeper,
)

_START_SECONDS = 60.0
_WATCH_SECONDS = 15.0  # between two questions whether the keeper is alive
_PATIENCE_SECONDS = 45.0  # for its answer: it may be busy with a slow disk, but not for ever
# Seconds before each further try of a runner. What starves a start (memory, processes) often passes, and the values are
# the keeper's. A vault that never had one tries no longer than the quick ones: it cannot work here.
_RUNNER_PAUSES = (0.0, 0.0, 2.0, 5.0, 10.0, 20.0)
_QUICK_TRIES = 2


class VaultFailed(RuntimeError):
    """The vault cannot be started."""


class VaultProcesses:
    """Those of one session's vault, one after the other when it is started again."""

    def __init__(
        self,
        spawn_keeper: Spawn,
        spawn_runner: Spawn,
        limits: Limits,
        secure_output: int | None,
        *,
        answered: Callable[[Answer], None],
        probe: Callable[[], asyncio.Future[Any]],
        ended: Callable[[], None],
        on_lost: Callable[[str], None] | None,
    ) -> None:
        """answered: is told each answer. probe: asks the keeper something that costs nothing. ended: nothing that was
        asked is answered any more. on_lost: see `VaultClient`."""
        self._spawn_keeper = spawn_keeper
        self._spawn_runner = spawn_runner
        self._limits = limits
        self._secure_output = secure_output
        self._answered = answered
        self._probe = probe
        self._ended = ended
        self._on_lost = on_lost
        self._link: ControlLink | None = None
        self._keeper: ChildProcess | None = None
        self._runner: ChildProcess | None = None
        self._turns = KeeperLink()
        self._watch: asyncio.Task[None] | None = None
        self._runner_since: float | None = None  # a runner is awaited since, in seconds of the loop
        self._generation = 0
        self._attempts = 0
        self._keeper_ready: asyncio.Future[str] | None = None
        self._runner_ready: asyncio.Future[str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.life = 0  # counts the vaults that were started
        self.reports: dict[str, str] = {}  # "keeper", "runner": sandbox.Report as JSON

    @property
    def running(self) -> bool:
        return self._link is not None

    @property
    def keeper_pid(self) -> int | None:
        return self._keeper.pid if self._keeper is not None else None

    @property
    def runner_pid(self) -> int | None:
        return self._runner.pid if self._runner is not None else None

    async def start(self) -> None:
        """Start keeper and runner and wait until both are locked down. Raises VaultFailed."""
        if self._link is not None:
            raise VaultFailed("the vault is running already")
        loop = asyncio.get_running_loop()
        self._keeper_ready = loop.create_future()
        self._runner_ready = loop.create_future()
        self._attempts = 0
        try:
            link, theirs = ControlLink.pair(self._received, self._broken)
            self._link, self._turns, self._generation = link, KeeperLink(), 0
            self.life += 1
            try:
                self._keeper = await asyncio.to_thread(self._spawn_keeper, theirs.fileno())
            finally:
                theirs.close()
            self.send(Begin(self._limits))
            if self._secure_output is not None:
                self.send(SecureFile(), descriptor=self._secure_output)
            self.reports["keeper"] = await asyncio.wait_for(self._keeper_ready, _START_SECONDS)
            await self._new_runner()
            await asyncio.wait_for(self._runner_ready, _START_SECONDS)
            self._watch = loop.create_task(self._watched(link))
        except Exception as problem:
            await self.stop()
            detail = str(problem) or type(problem).__name__
            raise VaultFailed(
                f"the vault cannot be started ({detail}); run `capkernel doctor` to see what this machine lacks"
            ) from None

    async def stop(self) -> None:
        """End both processes."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._ended()
        if self._watch is not None:
            self._watch.cancel()
        await _end_all(self._given_up())
        current = asyncio.current_task()
        for task in [task for task in self._tasks if task is not current]:
            with contextlib.suppress(Exception):
                await task

    def send(self, message: ToKeeper, blob: bytes = b"", *, descriptor: int | None = None) -> bool:
        """Queue a message, which never waits. False when there is no keeper: it is lost, with all values."""
        if self._link is None:
            return False
        self._turns.sending(message)
        self._link.send(message, blob, descriptor)
        return True

    def _received(self, message: FromKeeper) -> None:
        self._turns.received(message)
        match message:
            case KeeperReady():
                if self._keeper_ready is not None and not self._keeper_ready.done():
                    self._keeper_ready.set_result(message.report)
            case RunnerReady():
                self._attempts = 0
                self._runner_since = None
                self.reports["runner"] = message.report
                if self._runner_ready is not None and not self._runner_ready.done():
                    self._runner_ready.set_result(message.report)
            case RunnerLost():
                if message.generation == self._generation:
                    self._background(self._replace_runner())
            case _:
                self._answered(message)

    async def _new_runner(self) -> None:
        link = self._link
        if link is None:
            return
        ours, theirs = link.runner_pair()
        try:
            self._generation += 1
            self._runner_since = asyncio.get_running_loop().time()
            runner = await asyncio.to_thread(self._spawn_runner, theirs.fileno())
            if self._link is not link:  # closed meanwhile
                await asyncio.to_thread(_end, runner)
                return
            self._runner = runner
            self.send(NewRunner(self._generation), descriptor=ours.fileno())
        finally:
            ours.close()
            theirs.close()

    async def _watched(self, link: ControlLink) -> None:
        """Ask the keeper now and then whether it is there: one that is stuck closes no link. Also ends the wait for a
        runner that does not get ready."""
        loop = asyncio.get_running_loop()
        while self._link is link:
            await asyncio.sleep(_WATCH_SECONDS)
            if self._link is not link:
                return
            if self._runner_since is not None and loop.time() - self._runner_since > _START_SECONDS:
                self._runner_since = None
                self._background(self._replace_runner())
            answer = self._probe()
            done, _ = await asyncio.wait({answer}, timeout=_PATIENCE_SECONDS)
            if not done and self._link is link:
                self._broken(f"the keeper did not answer for {_PATIENCE_SECONDS:g} seconds")

    async def _replace_runner(self) -> None:
        old, self._runner = self._runner, None
        words = last_words(old)
        if old is not None:
            await asyncio.to_thread(_end, old)
        problem = f"ends before it is ready. {words}".strip()
        had_one = self._runner_ready is not None and self._runner_ready.done()
        while self._attempts < (len(_RUNNER_PAUSES) if had_one else _QUICK_TRIES):
            self._attempts += 1
            await asyncio.sleep(_RUNNER_PAUSES[self._attempts - 1])
            try:
                await self._new_runner()
                return
            except Exception as failure:
                problem = f"cannot be started: {failure}"
        self._broken(f"the runner {problem}")

    def _broken(self, why: str) -> None:
        """The keeper is gone or cannot go on: say so once, clean up."""
        link, self._link = self._link, None
        if link is None:
            return
        link.close()
        starting = False
        why = f"{why}. {last_words(self._keeper)}".removesuffix(". ")
        for ready in (self._keeper_ready, self._runner_ready):
            if ready is not None and not ready.done():
                ready.set_exception(VaultFailed(why))
                ready.exception()  # seen: `start` may be waiting for the other one
                starting = True
        self._ended()
        self._background(_end_all(self._given_up()))
        if self._on_lost is not None and not starting:
            self._on_lost(f"the vault ended and every Classified value of this session is lost ({why})")

    def _given_up(self) -> list[ChildProcess]:
        """The processes, which are ours no longer: the next start must not lose its own to a late clean-up."""
        processes = [process for process in (self._keeper, self._runner) if process is not None]
        self._keeper = self._runner = None
        return processes

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _end_all(processes: list[ChildProcess]) -> None:
    for process in processes:
        await asyncio.to_thread(_end, process)


def _end(process: ChildProcess) -> None:
    with contextlib.suppress(OSError):
        process.terminate_hard()
