"""The life of a cell: one text, a verdict, a run, a commit.

Rule 1: nothing of a cell runs before the checker accepted all of it, and what runs is the text it accepted.
Rule 2: whatever happens to a cell, the broker closes it before the next begins.
Rule 3: the checker learns the names that were really bound, before it judges the next cell.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from capkernel.checker.protocol import Accepted, Rejected
from capkernel.diagnostics import (
    MIME_TYPE,
    Diagnostic,
    Span,
    for_client,
    render_concise,
    render_html,
    render_text,
    to_json,
)
from capkernel.kernel.authority_view import line_output
from capkernel.kernel.cell_text import CellRefused, CellTexts, as_typed, help_wanted, not_an_expression
from capkernel.kernel.firewall import CellOutput, Output, clean_bundle, clean_error
from capkernel.kernel.local_modules import LocalModules, UnreadableModule, refusal
from capkernel.kernel.looking import Looking
from capkernel.kernel.ports import CheckerPort
from capkernel.kernel.recorder import Transcript
from capkernel.kernel.supervisor import NotReady, Supervisor
from capkernel.kernel.timing_magics import Expanded
from capkernel.kernel.waits import Waits
from capkernel.kernel.worker_process import WorkerDied, WorkerProcess
from capkernel.wire.authority import authority_data, authority_line
from capkernel.wire.errors import LocalProtocolError
from capkernel.wire.local_names import NO_NAMES, LocalNames
from capkernel.wire.worker import Comm, Evaluate, Execute, Finished, Timed

_GRACE_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_SOURCES_KEPT = 2000
_WARNINGS_SHOWN = 5  # lines; the page unfolds them all
_WARNINGS_KEPT = 5000  # so as not to say them again when the same text runs again
_PAGE = 1_000_000  # characters of a help page
_LONG_TEXT = 8192  # characters of a cell


class _Interrupted(Exception):
    """While it waited for the session to be ready."""


@dataclass
class CellRun:
    """A cell on its way through. `number` is unique in the session; `count` is what the person sees."""

    request: int
    number: int
    count: int
    raw: str
    silent: bool
    store_history: bool
    allow_stdin: bool
    output: CellOutput
    publish: Callable[[Output], None]
    text: str = ""
    names: LocalNames = NO_NAMES  # of local modules, as the text means them
    timed: tuple[Timed, ...] = ()  # its lines that `%time` and `%timeit` stood on
    handed: bool = False  # to the worker: before that, and when it is refused, nothing the worker says belongs to it
    authority: str = ""  # the line that says what it may do, once it is accepted
    metadata: dict[str, Any] | None = None  # of its reply
    waits: Waits = field(default_factory=Waits)  # for the person
    transcript: Transcript = field(default_factory=Transcript)  # for the records
    known_as: str = ""  # to the client, when outputs may be active
    callback: bool = False  # no cell, but what a widget's message calls

    def let_go(self) -> None:
        """It was answered. Its outputs may come later still; they need none of this."""
        self.raw = self.text = ""
        self.names, self.timed, self.metadata = NO_NAMES, (), None


class Pipeline:
    """Runs cells, one at a time. The caller sees to that."""

    def __init__(
        self,
        supervisor: Supervisor,
        texts: CellTexts,
        *,
        cell_seconds: float,
        numbers: itertools.count[int] | None = None,
        memory_mb: int | None = None,
    ) -> None:
        """numbers: of the requests to the worker. memory_mb: what the worker may take, to say so when it is used up."""
        self._supervisor = supervisor
        self._texts = texts
        self._cell_seconds = cell_seconds
        self._memory_mb = memory_mb
        self.sources: dict[int, str] = {}  # the texts of the last cells, for excerpts
        self.modules = LocalModules()
        self.looking = Looking(supervisor, self.modules.names, itertools.count(1) if numbers is None else numbers)
        self._modules_in: WorkerProcess | None = None  # the worker that has loaded them
        self._warned: dict[tuple[int, str, Span, str], None] = {}
        self._committing: asyncio.Task[None] | None = None
        self._interrupted = False
        self.running: CellRun | None = None  # what the worker has in hand

    def interrupt(self) -> None:
        """Stop the cell, wherever it is on its way. From any thread."""
        self._interrupted = True
        if self.running is not None:
            self._supervisor.interrupt()

    async def run(self, cell: CellRun) -> dict[str, Any]:
        """The content of the cell's reply, without its count."""
        self._interrupted = False
        try:
            expanded = await self._one_text(cell)
            cell.text, cell.timed = expanded.text, expanded.timed
        except CellRefused as refused:
            return self._refused(cell, (refused.diagnostic,), {cell.number: refused.text})
        self._remember(cell)
        try:
            worker, checker = await self._ready(cell)
            self._tell_losses(cell)
            if self._committing is not None:
                await asyncio.shield(self._committing)
            wanted = help_wanted(cell.text)
            if wanted is not None:
                return await self._help(cell, *wanted)
            if worker is not self._modules_in:
                self._modules_in = worker
                self.modules.forget()
            stopped = await self._load_modules(cell, worker, checker)
            if stopped is not None:
                return stopped
            cell.names = self.modules.names()
            verdict = await checker.check(cell.number, cell.text, cell.names)
        except NotReady as problem:
            return _failed(cell, "SessionNotReady", f"nothing ran: {problem}")
        except _Interrupted:
            return _failed(cell, "KeyboardInterrupt", "interrupted before the session was ready")
        if worker.ended:  # and its checker with it, whatever the verdict
            return _failed(cell, "WorkerDied", f"nothing of the cell ran: {self._obituary(worker)}")
        if isinstance(verdict, Rejected):
            shown, diagnostics = as_typed(cell.raw, cell.text, verdict.diagnostics)
            return self._refused(cell, diagnostics, {**self.sources, cell.number: shown})
        if self._interrupted:
            await checker.discard(cell.number)
            return _failed(cell, "KeyboardInterrupt", "interrupted before the cell ran")
        if _may_need_vault(cell, verdict):
            try:
                await self._supervisor.vault_ready()
            except NotReady as problem:
                await checker.discard(cell.number)
                return _failed(cell, "SessionNotReady", f"nothing ran: {problem}")
        return await self._run_accepted(cell, verdict, worker, checker)

    async def _load_modules(self, cell: CellRun, worker: WorkerProcess, checker: CheckerPort) -> dict[str, Any] | None:
        """Judge and run the local modules that the cell imports and that are new or changed; the reply of the cell when
        that fails. Each is a proposal of its own, and outputs of its top level are the cell's."""
        broker = self._supervisor.broker
        try:
            wanted = await self.modules.wanted(
                cell.number, cell.text, lambda path: broker.read_module(path, cell.number)
            )
        except UnreadableModule as problem:
            return self._refused(cell, (problem.diagnostic,), self.sources)
        for module in wanted:
            self.sources[module.number] = module.text
            verdict = await checker.check(module.number, module.text, module.names)
            if isinstance(verdict, Rejected):
                found = tuple(refusal(module, one, cell.number) for one in verdict.diagnostics)
                return self._refused(cell, found, self.sources)
            if self._interrupted:
                await checker.discard(module.number)
                return _failed(cell, "KeyboardInterrupt", "interrupted before the cell ran")
            if _may_need_vault(cell, verdict):
                await self._supervisor.vault_ready()
            broker.open_cell(module.number, verdict.plan)
            self.running = cell
            execute = Execute(
                request=cell.request, cell=module.number, raw=module.text, text=module.text, silent=True,
                store_history=False, allow_stdin=cell.allow_stdin, masks=verdict.plan.masks, names=module.names,
            )  # fmt: skip
            try:
                finished = await self._finish(cell, worker, execute)
            except WorkerDied as death:
                return _failed(cell, "WorkerDied", self._obituary(worker, str(death), f"while {module.path} ran"))
            finally:
                self.running = None
                broker.close_cell()
            bound, deleted = _names(finished.bound), _names(finished.deleted)
            raised = finished.content.get("status") != "ok"
            await _commit(checker, module.number, bound, deleted, raised=raised)
            if raised:
                return self._reply(finished.content)
            self.modules.loaded(module)
        return None

    def named(self, text: str) -> str:
        """`text` with the files of local modules in place of their numbers."""
        return self.modules.named(text)

    def named_error(self, content: dict[str, Any]) -> dict[str, Any]:
        """An error of a cell, with the files of local modules in place of their numbers."""
        return {
            key: self.modules.named(value)
            if isinstance(value, str)
            else [self.modules.named(line) for line in value]
            if key == "traceback"
            else value
            for key, value in content.items()
        }

    def _reply(self, content: dict[str, Any]) -> dict[str, Any]:
        """The worker's reply, as far as a client may see it."""
        if content.get("status") == "ok":
            return {"status": "ok", "user_expressions": {}, "payload": _pages(content.get("payload"))}
        return {"status": "error", **self.named_error(clean_error(content)), "user_expressions": {}, "payload": []}

    async def _one_text(self, cell: CellRun) -> Expanded:
        if len(cell.raw) < _LONG_TEXT:
            return self._texts.checked(cell.raw, cell.number)
        # Seconds, for the longest: interrupts and other requests go on meanwhile.
        return await asyncio.to_thread(self._texts.checked, cell.raw, cell.number)

    async def settle(self) -> None:
        """Wait until the last cell is committed."""
        if self._committing is not None:
            await asyncio.shield(self._committing)

    async def _ready(self, cell: CellRun) -> tuple[WorkerProcess, CheckerPort]:
        """Worker and checker. The first start on a machine takes a while: the person sees why, and may interrupt."""
        up = self._supervisor.up
        if up is not None:
            return up
        told = ""
        waiting = asyncio.ensure_future(self._supervisor.ready())
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
            if done:
                return waiting.result()
            if self._interrupted:
                waiting.cancel()
                raise _Interrupted
            if self._supervisor.progress != told and not cell.silent:
                told = self._supervisor.progress
                cell.publish(_told(told))

    async def _help(self, cell: CellRun, name: str, detail: int) -> dict[str, Any]:
        """Answer `name?`: looked up as the help key does, shown as a page of text."""
        found = await self.looking.inspect(name, len(name), detail, idle=True)
        if not found["found"]:
            return _failed(cell, "HelpNotFound", f"nothing is known of `{name}`")
        return self._reply({"status": "ok", "payload": [{"source": "page", "data": found["data"]}]})

    async def _run_accepted(
        self, cell: CellRun, verdict: Accepted, worker: WorkerProcess, checker: CheckerPort
    ) -> dict[str, Any]:
        cell.authority = authority_line(verdict.plan)
        cell.metadata = authority_data(verdict.plan)
        if cell.authority and not cell.silent:
            cell.publish(line_output(cell.authority))
        if not cell.silent:
            self._warn(cell, verdict.warnings, verdict.more)
        broker = self._supervisor.broker
        broker.open_cell(cell.number, verdict.plan)
        self.running = cell
        try:
            finished = await self._finish(cell, worker, _execute(cell, verdict))
        except WorkerDied as problem:
            return _failed(cell, "WorkerDied", self._obituary(worker, str(problem), "while the cell ran"))
        finally:
            self.running = None
            broker.close_cell()
        bound, deleted = _names(finished.bound), _names(finished.deleted)
        self._supervisor.commit(bound, deleted)
        self.modules.ran(cell.text, cell.names, bound, deleted)
        # The reply need not wait for it; the next check does.
        self._committing = asyncio.get_running_loop().create_task(
            _commit(checker, cell.number, bound, deleted, raised=finished.content.get("status") != "ok")
        )
        if finished.content.get("ename") == "MemoryError" and not cell.silent:
            cell.publish(_told(self._used_up()))
        loss = self._supervisor.vault_loss()
        if loss and finished.content.get("status") == "ok":  # what the cell did with secrets came to nothing
            return _failed(cell, "VaultLost", loss)
        if loss:
            cell.publish(_told(loss))
        return self._reply(finished.content)

    def _used_up(self) -> str:
        most = "most of the machine's memory"
        limit = most if self._memory_mb is None or self._memory_mb >= 2**20 else f"{self._memory_mb:,} MiB"
        return (
            f"the cell wanted more memory than the session may have ({limit}; limits.cell_memory_mb in the policy). "
            "What it had bound is still there: `del` what is not needed"
        )

    def _obituary(self, worker: WorkerProcess, how: str = "", when: str = "before it could run") -> str:
        words = f"\n{worker.last_words}" if worker.last_words else ""
        return (
            f"the worker process ended {when}: {how or worker.obituary()}; {self._supervisor.lost()}. "
            f"The next cell runs in a new worker.{words}"
        )

    def _tell_losses(self, cell: CellRun) -> None:
        """What died between cells took something along, which the next cell may miss."""
        if not cell.silent:
            for loss in self._supervisor.losses():
                cell.publish(_told(loss))

    async def evaluate(self, cell: CellRun, number: int, request: int, text: str) -> dict[str, Any]:
        """One of the `user_expressions` of a cell that has run: checked as a cell of its own, evaluated when accepted.

        It may bind nothing, so there is nothing to commit."""
        problem = not_an_expression(text)
        if problem:
            return failure("NotEvaluated", problem)
        try:
            worker, checker = await self._ready(cell)
            await self.settle()
            names = self.modules.names()
            verdict = await checker.check(number, text, names)
        except NotReady as why:
            return failure("NotEvaluated", str(why))
        except _Interrupted:
            return failure("KeyboardInterrupt", "interrupted before it was evaluated")
        if isinstance(verdict, Rejected):
            self._supervisor.broker.refuse_cell(number, _codes(verdict.diagnostics))
            lines = [render_concise(diagnostic) for diagnostic in verdict.diagnostics]
            return failure("CellRefused", "\n".join(lines) or "the checker gave no reason")
        await checker.discard(number)
        if self._interrupted or worker.ended:
            return failure("KeyboardInterrupt", "interrupted before it was evaluated")
        broker = self._supervisor.broker
        broker.open_cell(number, verdict.plan)
        self.running = cell
        try:
            finished = await self._finish(cell, worker, Evaluate(request, number, text, verdict.plan.masks, names))
        except WorkerDied as death:
            return failure("WorkerDied", self._obituary(worker, str(death), "while an expression was evaluated"))
        finally:
            self.running = None
            broker.close_cell()
        return _evaluated(finished.content)

    async def deliver(self, callback: CellRun, message: Comm, blob: bytes) -> None:
        """Hand a comm message to the worker. What it calls there is limited as a cell is, and no cell is open for it:
        the broker does nothing on its word. When the worker dies of it, the next cell tells."""
        worker = self._supervisor.idle_worker
        if worker is None:
            return
        self._interrupted = False
        self.running = callback
        try:
            await self._finish(callback, worker, message, blob)
        except (WorkerDied, LocalProtocolError):
            return
        finally:
            self.running = None

    async def _finish(
        self, cell: CellRun, worker: WorkerProcess, message: Execute | Evaluate | Comm, blob: bytes = b""
    ) -> Finished:
        """The end of the cell in the worker, or its forced end when it takes longer than the policy allows."""
        cell.handed = True
        future = worker.request(message, blob)
        if self._interrupted:  # it came between the verdict and now
            self._supervisor.interrupt()
        begun = time.monotonic()
        left = self._cell_seconds
        while left > 0:
            done, _ = await asyncio.wait({future}, timeout=left)
            if done:
                return future.result()
            left = self._cell_seconds - (time.monotonic() - begun - cell.waits.seconds())
        limit = f"longer than {self._cell_seconds:g} s (limits.cell_seconds in the policy)"
        worker.interrupt()
        done, _ = await asyncio.wait({future}, timeout=_GRACE_SECONDS)
        if not done:
            worker.kill(f"the cell ran {limit} and did not stop when interrupted")
        finished = await future
        cell.publish(Output("stream", {"name": "stderr", "text": f"[interrupted: the cell ran {limit}]\n"}))
        return finished

    def _refused(self, cell: CellRun, diagnostics: tuple[Diagnostic, ...], sources: dict[int, str]) -> dict[str, Any]:
        self._supervisor.broker.refuse_cell(cell.number, _codes(diagnostics))
        diagnostics = for_client(diagnostics, cell.raw, cell.text)
        text = self.modules.named(render_text(diagnostics, sources))
        lines = [self.modules.named(render_concise(diagnostic)) for diagnostic in diagnostics]
        first = lines[0] if lines else "the checker gave no reason"
        if not cell.silent:
            bundle = {
                "text/plain": text,
                "text/html": self.modules.named(render_html(diagnostics, sources)),
                MIME_TYPE: to_json(diagnostics),
            }
            cell.publish(Output("display_data", {"data": bundle, "metadata": {}, "transient": {}}))
            # The page has the whole above; an error of one line per finding says that the cell failed.
            cell.publish(Output("error", {"ename": "CellRefused", "evalue": first, "traceback": lines or [first]}))
        return {
            "status": "error", "ename": "CellRefused", "evalue": first, "traceback": text.splitlines() or [first],
            "user_expressions": {}, "payload": [],
        }  # fmt: skip

    def _warn(self, cell: CellRun, warnings: tuple[Diagnostic, ...], more: int) -> None:
        """Show a few lines; nothing that this very text was already warned of. `more` were found than are listed."""
        warnings = tuple(warning for warning in warnings if self._is_news(cell.text, warning))
        if not warnings:
            return
        lines = [self.modules.named(render_concise(warning)) for warning in warnings[:_WARNINGS_SHOWN]]
        rest = max(len(warnings) - _WARNINGS_SHOWN, 0) + more
        if rest:
            lines.append(f"... and {_count(rest, 'more warning')}")
        bundle = {
            "text/plain": "\n".join(lines),
            "text/html": f"<details><summary>{_count(len(warnings) + more, 'warning')} of the checker</summary>"
            f"{self.modules.named(render_html(warnings, self.sources, more))}</details>",
            MIME_TYPE: to_json(warnings, more),
        }
        cell.publish(Output("display_data", {"data": bundle, "metadata": {}, "transient": {}}))

    def _is_news(self, text: str, warning: Diagnostic) -> bool:
        said = (hash(text), warning.code, warning.span, warning.message)
        if said in self._warned:
            return False
        self._warned[said] = None
        while len(self._warned) > _WARNINGS_KEPT:
            del self._warned[next(iter(self._warned))]
        return True

    def _remember(self, cell: CellRun) -> None:
        self.sources[cell.number] = cell.text
        while len(self.sources) > _SOURCES_KEPT:
            del self.sources[next(iter(self.sources))]


async def _commit(
    checker: CheckerPort, cell: int, bound: tuple[str, ...], deleted: tuple[str, ...], *, raised: bool
) -> None:
    # When it fails the checker is gone; its next verdict says so.
    try:
        await checker.commit(cell, bound, deleted, raised=raised)
    except Exception:
        return


def _codes(diagnostics: tuple[Diagnostic, ...]) -> tuple[str, ...]:
    return tuple(sorted({diagnostic.code for diagnostic in diagnostics}))


def _may_need_vault(cell: CellRun, verdict: Accepted) -> bool:
    """Whether the cell can touch a classified value: its plan says so, or a name of what makes one stands in it. What
    an earlier cell defined made that cell wait."""
    plan = verdict.plan
    return bool(plan.masks or plan.pure or plan.tables or plan.sinks or plan.asks) or "classif" in cell.text.lower()


def _failed(cell: CellRun, name: str, value: str) -> dict[str, Any]:
    content = {**clean_error({"evalue": value, "traceback": [f"{name}: {value}"]}), "ename": name}
    if not cell.silent:
        cell.publish(Output("error", content))
    return {"status": "error", **content, "user_expressions": {}, "payload": []}


def _execute(cell: CellRun, verdict: Accepted) -> Execute:
    return Execute(
        request=cell.request, cell=cell.number, raw=cell.raw, text=cell.text, silent=cell.silent,
        store_history=cell.store_history, allow_stdin=cell.allow_stdin, masks=verdict.plan.masks, names=cell.names,
        timed=cell.timed, parent=cell.known_as,
    )  # fmt: skip


def failure(name: str, value: str) -> dict[str, Any]:
    """The error of one expression, as the protocol has it."""
    return {"status": "error", **clean_error({"evalue": value, "traceback": [f"{name}: {value}"]}), "ename": name}


def _evaluated(content: dict[str, Any]) -> dict[str, Any]:
    """The worker's answer, as far as a client may see it."""
    if content.get("status") == "ok":
        return {"status": "ok", "data": clean_bundle(content.get("data")), "metadata": {}}
    return {"status": "error", **clean_error(content)}


def _pages(payload: Any) -> list[dict[str, Any]]:
    """Of all payloads, help pages, as text: the others act on the front end."""
    pages: list[dict[str, Any]] = []
    for item in payload if isinstance(payload, list) else ():
        if isinstance(item, dict) and item.get("source") == "page" and len(pages) < 10:
            text = clean_bundle(item.get("data"))["text/plain"][:_PAGE]
            pages.append({"source": "page", "data": {"text/plain": text}, "start": 0})
    return pages


def _told(line: str) -> Output:
    return Output("stream", {"name": "stderr", "text": f"capkernel: {line}\n"})


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    # The worker's word: names, and not a million of them.
    return tuple(name for name in names[:100_000] if name.isidentifier())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
