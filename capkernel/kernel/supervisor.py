"""The processes of a session: started together, watched, started again, ended together.

Rule 1: no cell runs unless worker, checker and broker are up and the worker is isolated as the policy demands; and no
cell that can touch classified values unless the vault is, too, which starts after the others. When they are not, every
cell is answered with the reason; the kernel never dies in silence.
Rule 2: a dead worker takes its names with it, and nothing else; a dead vault its values, and nothing else. The next
cell finds what is needed started anew, and the person is told what was lost.
Rule 3: nothing is left behind: no process, no scratch directory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from capkernel.kernel.classified_bundle import Bundles
from capkernel.kernel.ports import ApprovalsPort, BrokerPort, CheckerPort, VaultPort, ViewPort
from capkernel.kernel.worker_process import Handlers, Spawned, WorkerDied, WorkerProcess, WorkerUnfit
from capkernel.sandbox import Level, Report
from capkernel.wire.worker import Comm, InputRequest, Published

_NAMES_SHOWN = 20
_DEATHS_IN_A_ROW = 3
_CLOSE_SECONDS = 8.0  # for each part: more than the broker gives to writes under way
_TURNS = 5  # of the loop, for every part to start its process


class NotReady(Exception):
    """No cell can run. The text says why and what to do."""


@dataclass(frozen=True)
class Parts:
    """What a supervisor puts together. `make_checker` gives a new checker, not started. `listen` takes who is to be
    told that the vault died, and who is to be told what a long start is doing. `classified`: what clients get of a
    displayed Classified."""

    spawn_worker: Callable[[], Spawned]
    make_checker: Callable[[], CheckerPort]
    broker: BrokerPort
    vault: VaultPort | None
    minimum: Level
    listen: Callable[[Callable[[str], None], Callable[[str], None]], None] | None = None
    view: ViewPort | None = None
    approvals: ApprovalsPort | None = None
    classified: Bundles = lambda _: None


@dataclass(frozen=True)
class Sinks:
    """Where a worker's outputs, comm messages and questions go, and who is told that a worker has ended."""

    published: Callable[[Published], None]
    comm: Callable[[Comm, bytes], None]
    printed: Callable[[str, str], None]
    asked: Callable[[InputRequest], None]
    ended: Callable[[], None]


class Supervisor:
    """Owns the processes of one session. All methods but `interrupt` belong to the event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._sinks = Sinks(lambda _: None, lambda *_: None, lambda *_: None, lambda _: None, lambda: None)
        self.broker = parts.broker
        self.approvals = parts.approvals
        self.classified = parts.classified
        self._handlers = Handlers(
            published=lambda message: self._sinks.published(message),
            comm=lambda message, blob: self._sinks.comm(message, blob),
            printed=lambda name, text: self._sinks.printed(name, text),
            asked=lambda request: self._sinks.asked(request),
            call=parts.broker.call,
            call_quickly=parts.broker.call_quickly,
            post=parts.broker.post,
            ended=self._worker_ended,
        )
        if parts.listen is not None:
            parts.listen(self._vault_lost, self._progressed)
        self.progress = ""  # what a long start is doing
        self._starting: asyncio.Task[None] | None = None
        self._vaulting: asyncio.Task[None] | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._worker: WorkerProcess | None = None
        self._checker: CheckerPort | None = None
        self._vault_up = parts.vault is None
        self._vault_died = False  # once; from then on every cell waits for it
        self._vault_problem = ""  # why its last start failed
        self._problem = ""  # why the last start of another part failed
        self._unfit = ""  # why no start will help
        self._worker_loss = ""
        self._vault_loss = ""
        self._closed = False
        self.report: Report | None = None
        self.epoch = 0  # counts up whenever the names of the session may have changed
        self.names: set[str] = set()  # what the session's cells have bound

    async def begin(self) -> None:
        """Start everything, in the background. When this returns, the processes are there and on their way."""
        self._starting = asyncio.get_running_loop().create_task(self._start())
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    def attach(self, sinks: Sinks) -> None:
        """From now on outputs and questions go there. Before, there is no cell they could belong to."""
        self._sinks = sinks

    async def ready(self) -> tuple[WorkerProcess, CheckerPort]:
        """Worker and checker, up. What is down is started again. Raises NotReady."""
        if self._closed:
            raise NotReady("the session is closed")
        if self._starting is None:
            raise NotReady("the session was not started")
        await asyncio.shield(self._starting)
        for _ in range(_DEATHS_IN_A_ROW):
            if not self._is_up():
                self._problem = ""
                self._restart_soon()
            if self._restarting is not None:
                await asyncio.shield(self._restarting)
            if self._unfit:
                raise NotReady(self._unfit)
            if self._problem:
                raise NotReady(f"{self._problem}. The next cell tries again")
            if self._is_up() and self._worker is not None and self._checker is not None:
                if self._vault_died:
                    await self.vault_ready()
                return self._worker, self._checker
        raise NotReady("a process of this session ends as soon as it has started: restart the kernel")

    @property
    def up(self) -> tuple[WorkerProcess, CheckerPort] | None:
        """What `ready` would give at once; None when it would have to wait or to refuse."""
        begun = self._starting
        if begun is None or not begun.done() or begun.cancelled() or begun.exception() or self._restarting is not None:
            return None
        if self._closed or self._unfit or self._problem or self._vault_died or not self._is_up():
            return None
        return None if self._worker is None or self._checker is None else (self._worker, self._checker)

    async def vault_ready(self) -> None:
        """Wait until the vault is up, after `ready`. Raises NotReady."""
        for _ in range(_DEATHS_IN_A_ROW):
            if self._vault_up:
                return
            self._vault_soon()
            if self._vaulting is not None:
                await asyncio.shield(self._vaulting)
            if self._vault_problem:
                problem, self._vault_problem = self._vault_problem, ""
                raise NotReady(f"{problem}. The next cell tries again")
        raise NotReady("the vault ends as soon as it has started: restart the kernel")

    @property
    def idle_worker(self) -> WorkerProcess | None:
        """The worker when it is up, without waiting."""
        worker = self._worker
        return worker if worker is not None and worker.fit and not worker.ended else None

    @property
    def idle_checker(self) -> CheckerPort | None:
        """The checker when it is up, without waiting."""
        return self._checker

    def interrupt(self) -> None:
        """Interrupt what runs in the worker. From any thread."""
        worker = self._worker
        if worker is not None:
            worker.interrupt()
        if self.approvals is not None:
            self.approvals.interrupt()

    def commit(self, bound: tuple[str, ...], deleted: tuple[str, ...]) -> None:
        """Remember names, to say which are lost when the worker dies."""
        self.epoch += 1
        self.names.update(bound)
        self.names.difference_update(deleted)

    def lost(self) -> str:
        """The names that went with the worker, as a phrase; forgets them."""
        names = sorted(self.names)
        self.names.clear()
        self._worker_loss = ""
        if not names:
            return "no names were bound"
        more = len(names) - _NAMES_SHOWN
        return "these names are lost: " + ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

    def vault_loss(self) -> str:
        """What was lost with the vault since this was asked last; "" for nothing."""
        loss, self._vault_loss = self._vault_loss, ""
        return loss

    def losses(self) -> list[str]:
        """What was lost, with worker or vault, and was not told yet."""
        told = [f"{self._worker_loss}; {self.lost()}"] if self._worker_loss else []
        vault = self.vault_loss()
        return [*told, vault] if vault else told

    async def close(self) -> None:
        """End everything, and wait for nothing that hangs. Safe to call twice."""
        self._closed = True
        for task in (self._starting, self._restarting, self._vaulting):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CLOSE_SECONDS)
        if self._worker is not None:
            self._worker.close()
        for part in (self._parts.view, self._checker, self._parts.broker, self._parts.vault):
            if part is not None:
                closing = asyncio.ensure_future(part.close())
                await asyncio.wait({closing}, timeout=_CLOSE_SECONDS)
                if closing.done() and not closing.cancelled():
                    closing.exception()  # nobody is left to be told

    def _is_up(self) -> bool:
        worker = self._worker
        return worker is not None and worker.fit and not worker.ended and self._checker is not None

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self) -> None:
        # The checker takes longest, so its process is the first; the vault is not needed by most first cells.
        waiting = [self._start_checker(), self._start_worker()]
        if self._parts.view is not None:
            waiting.append(self._start_view(self._parts.view))
        await asyncio.gather(*waiting)
        self._vault_soon()

    async def _start_worker(self) -> None:
        try:
            # The process is forked here, but not waited for: the other parts start meanwhile.
            self._worker = WorkerProcess(self._parts.spawn_worker(), self._handlers, self._parts.minimum)
            self.report = await self._worker.start()
        except WorkerUnfit as problem:
            self._unfit = (
                f"the worker process is not isolated as the policy demands: {problem}. Run `capkernel doctor`; to run "
                'without isolation, the operator sets `[sandbox] minimum = "none"` in the policy'
            )
        except (WorkerDied, OSError, RuntimeError) as problem:
            words = self._worker.last_words if self._worker is not None else ""
            self._failed(f"the worker process did not start: {problem}{f' ({words})' if words else ''}")

    async def _start_checker(self) -> None:
        checker = self._parts.make_checker()
        try:
            await checker.start()
        except Exception as problem:
            with contextlib.suppress(Exception):
                await checker.close()
            self._failed(f"the checker did not start, so nothing can be checked: {problem}")
            return
        self._checker = checker

    async def _start_vault(self, vault: VaultPort) -> None:
        try:
            await vault.start()
        except Exception as problem:
            self._vault_problem = f"the vault did not start, so classified values would have no place: {problem}"
            return
        self._vault_up = True

    async def _start_view(self, view: ViewPort) -> None:
        try:
            await view.start()
        except OSError as problem:
            self._unfit = (  # no start will help
                f"the viewer's socket cannot be made in the session's runtime directory: {problem.strerror}"
            )

    def _progressed(self, line: str) -> None:
        self.progress = line

    def _vault_lost(self, why: str) -> None:
        """The vault was up and died. The running cell, or the next one, tells what is lost."""
        if self._closed:
            return
        self._vault_up = False
        self._vault_died = True
        self._vault_loss = f"{why}. Handles of before are poison; what is classified from now on is kept"
        self._vault_soon()

    def _vault_soon(self) -> None:
        """Start the vault in the background, unless it is up or on its way."""
        vault = self._parts.vault
        if vault is not None and not self._vault_up and (self._vaulting is None or self._vaulting.done()):
            self._vaulting = asyncio.get_running_loop().create_task(self._start_vault(vault))

    def _failed(self, why: str) -> None:
        self._problem = self._problem or why

    def _worker_ended(self, worker: WorkerProcess) -> None:
        if self._closed or worker is not self._worker or not worker.fit:
            return  # one that never was up: its start fails, which is told there
        self.epoch += 1
        self._worker_loss = f"the worker process ended between cells: {worker.obituary()}"
        self._parts.broker.close_cell()
        self._sinks.ended()
        if self._starting is not None and self._starting.done():
            self._restart_soon()

    def _restart_soon(self) -> None:
        if (self._restarting is None or self._restarting.done()) and not self._unfit:
            self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        """Start what is down. A new worker gets a checker that knows nothing of the old one's names."""
        if self._worker is None or self._worker.ended:
            self._parts.broker.worker_lost()
            old, self._checker = self._checker, None
            await asyncio.gather(self._start_worker(), self._close_checker(old))
        if self._checker is None and not self._unfit:
            await self._start_checker()

    async def _close_checker(self, checker: CheckerPort | None) -> None:
        if checker is not None:
            with contextlib.suppress(Exception):
                await checker.close()
