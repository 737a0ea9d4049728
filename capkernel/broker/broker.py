"""The broker: may this effect happen, and do it.

Rule 1: nothing is granted or done while no cell runs; what a cell was granted ends with it (`scopes`: how it is
granted).
Rule 2: no word of the worker is trusted (`invocations`). What is wrong with it becomes a Failure, never an exception;
or, for what has no answer, poison (`posts`).
Rule 3: no answer depends on a classified value, but one that the person released.
Rule 4: an effect that waits for the person holds nothing meanwhile: it is judged anew when it was allowed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from capkernel.broker.approvals import Approvals, Granted
from capkernel.broker.asking import Asking, NeedsPerson
from capkernel.broker.audit import AuditLog, AuditUnavailable
from capkernel.broker.classified_effects import ClassifiedEffects
from capkernel.broker.classified_files import LIMIT_BYTES, ClassifiedFiles
from capkernel.broker.classified_handles import ClassifiedHandles
from capkernel.broker.failures import EffectError, denied, revoked
from capkernel.broker.files import FileEffects, in_words_of_cell
from capkernel.broker.identity import ClassifiedIndex
from capkernel.broker.invocations import Invocations
from capkernel.broker.ledger import Ledger
from capkernel.broker.module_text import ModuleText
from capkernel.broker.person import PersonEffects
from capkernel.broker.places import Places
from capkernel.broker.ports import VaultPort
from capkernel.broker.posts import ClassifiedPosts
from capkernel.broker.room import SECRET_BYTES, Room
from capkernel.broker.running import Cell, Running
from capkernel.broker.scopes import Scopes
from capkernel.broker.threads import in_background, run_whole
from capkernel.policy.decision import AskPerson, Denied
from capkernel.policy.excluded import Exclusions
from capkernel.policy.model import Policy
from capkernel.policy.paths import PathRules
from capkernel.wire.authority import authority_line
from capkernel.wire.plan import Plan
from capkernel.wire.worker import (
    AskRelease,
    AskSecret,
    Call,
    CallResult,
    CloseScope,
    Failure,
    Invoke,
    OpenScope,
    Post,
)

SETTLE_SECONDS: Final = 5.0
GIVE_UP_SECONDS: Final = 1.0
NO_SECRETS: Final[Mapping[str, int]] = MappingProxyType({})

_log = logging.getLogger(__name__)


class Broker:
    """The effects of one session. All methods but `call_quickly` are called on one event loop; the effects themselves
    run in threads."""

    def __init__(
        self,
        policy: Policy,
        base_dir: Path,
        vault: VaultPort,
        audit: AuditLog,
        exclusions: Exclusions | None = None,
        room: Room | None = None,
        given: Mapping[str, int] = NO_SECRETS,
    ) -> None:
        """base_dir: the notebook's directory. exclusions: `Exclusions.ambient(policy.source)` unless given. room: of a
        root in memory, which is the only one then. given: see `PersonEffects`."""
        rules = PathRules(policy)
        excluded = Exclusions.ambient(policy.source) if exclusions is None else exclusions
        self._index = ClassifiedIndex(rules, lambda: [os.path.realpath(root) for root in policy.root_paths()])
        self._places = Places(rules, excluded, self._index, hide_names=policy.files.hide_classified_names)
        self._asking = asking = Asking(policy.approvals.ask)
        files = FileEffects(policy, os.path.realpath(base_dir), rules, self._places, audit, asking, room)
        self._sink = ClassifiedFiles(policy, vault, audit, asking, LIMIT_BYTES if room is None else SECRET_BYTES)
        self._audit = audit
        self._running = Running()
        handles = ClassifiedHandles()
        self.ledger = Ledger()
        self.approvals = Approvals(audit, vault, policy.limits.approval_seconds)
        self.posts = ClassifiedPosts(self._running, vault, audit, handles, self.ledger, self._sink)
        self._person = PersonEffects(policy, vault, audit, self.approvals, handles, self.ledger, given)
        self._modules = ModuleText(files, audit)
        self._scopes = Scopes(self._running, files, audit)
        classified = ClassifiedEffects(files, self._sink, handles, vault, self.ledger)
        self._invocations = Invocations(self._scopes, files, classified)
        self.at_end: list[Callable[[], None]] = []  # blocking steps of `close`

    # ── the running cell ─────────────────────────────────────────────────────────────────────────────────────────────

    def open_cell(self, cell: int, plan: Plan) -> None:
        """An accepted cell starts: it may do what `plan` lists, as far as the policy allows."""
        self.close_cell()
        self.posts.begin_cell(plan)
        self._sink.begin_cell()
        self._index.begin_cell()
        self._asking.begin_cell()
        self._places.begin_cell()
        self._scopes.begin(cell)
        self._running.cell = Cell(cell, plan)
        try:
            self._audit.record("cell", "allowed", cell=cell, authority=authority_line(plan))
        except AuditUnavailable as problem:
            _log.error("%s", problem)  # every effect is refused now

    def refuse_cell(self, cell: int, codes: tuple[str, ...]) -> None:
        """A cell that does not run, and the codes of the diagnostics that say why."""
        try:
            self._audit.record("cell", "denied", cell=cell, reason=", ".join(codes))
        except AuditUnavailable as problem:
            _log.error("%s", problem)

    def close_cell(self) -> None:
        """The cell is over, however it ended: everything that it was granted is revoked."""
        ended, self._running.cell = self._running.cell, None
        if ended is None:
            return
        self._scopes.end()
        self.approvals.end_cell(ended.number)
        in_background(self._sync)  # a slow disk must not hold the loop

    def _sync(self) -> None:
        try:
            self._audit.sync()
        except AuditUnavailable as problem:
            _log.error("%s", problem)  # the log has closed itself: every later effect is refused

    async def close(self) -> None:
        """End the session: revoke, give classified writes under way SETTLE_SECONDS to finish, close the audit. What
        hangs is left behind."""
        self.close_cell()
        self.approvals.close()
        await asyncio.gather(self._sink.settle(SETTLE_SECONDS, GIVE_UP_SECONDS), self.posts.settle(SETTLE_SECONDS))
        closing = [asyncio.ensure_future(run_whole(step)) for step in (self._audit.close, *self.at_end)]
        await asyncio.wait(closing, timeout=GIVE_UP_SECONDS)

    def live(self) -> tuple[int | None, tuple[str, ...], int]:
        """For the person: the running cell or None, what its plan lets it ask for, how many handles it holds now."""
        cell = self._running.cell
        if cell is None:
            return None, (), 0
        asks = tuple(f"{site.kind} {'(any)' if site.argument is None else site.argument}" for site in cell.plan.scopes)
        person = dict.fromkeys(f"{site.kind} {site.argument or '(any)'}" for site in cell.plan.asks)
        return cell.number, (*asks, *cell.plan.sinks, *person), len(self._scopes)

    def authority(self) -> tuple[str, tuple[str, ...]]:
        """For the person: the line that says what the running cell may do, and what it has open now, in words."""
        cell = self._running.cell
        return ("", ()) if cell is None else (authority_line(cell.plan), self._scopes.words())

    async def read_module(self, path: str, cell: int) -> bytes | None:
        """A module beside the notebook, for the checker to judge: the text at `path`, relative to the notebook's
        directory, when the policy lets a cell read it; else None. Audited like a cell's read."""
        return await run_whole(lambda: self._modules.read(path, cell))

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, message: Call, blob: bytes) -> tuple[CallResult, bytes]:
        """Perform an effect for the worker. What is wrong with it is a Failure in the result, never an exception."""
        path = ""
        try:
            effect = message.effect
            if isinstance(effect, CloseScope):
                # Also after the cell, and twice: closing only takes away.
                self._scopes.close(effect.handle)
                return CallResult(message.call), b""
            cell = self._running.cell
            if cell is None and isinstance(effect, OpenScope):
                raise denied(
                    "no cell is running, and a callback, a thread or a task between cells is granted nothing: ask in a "
                    "cell, and let the callback use the plain data"
                )
            if cell is None:
                raise revoked("no cell is running, so this")
            with cell.asked():
                if isinstance(effect, AskSecret | AskRelease):
                    value, out = await self._given_by_person(effect, cell)
                else:
                    path = effect.argument if isinstance(effect, OpenScope) else self._scopes.path_of(effect)
                    value, out = await self._decided(effect, cell, blob, path)
            return CallResult(message.call, value), out
        except Exception as problem:
            return CallResult(message.call, None, _failure(problem, path)), b""

    def call_quickly(self, call: int, effect: Invoke) -> tuple[CallResult, bytes]:
        """`call` for an effect of QUICK_METHODS, done in the thread that asks: of each worker, one at a time."""
        path = ""
        try:
            cell = self._running.cell
            if cell is None:
                raise revoked("no cell is running, so this")
            path = self._scopes.path_of(effect)
            value, out = self._invocations.quickly(effect, cell)
            return CallResult(call, value), out
        except NeedsPerson:
            return CallResult(call, elsewhere=True), b""  # this thread must not wait for anybody
        except Exception as problem:
            return CallResult(call, None, _failure(problem, path)), b""

    async def _given_by_person(self, effect: AskSecret | AskRelease, cell: Cell) -> tuple[Any, bytes]:
        def ask(question: AskPerson) -> Awaitable[Granted | Denied]:
            return self._ask(question, cell)

        if isinstance(effect, AskSecret):
            answer: tuple[Any, bytes] = await self._person.secret(effect, cell.number, cell.plan, ask), b""
        else:
            answer = None, await self._person.release(effect, cell.number, cell.plan, ask)
        self._running.require(cell)
        return answer

    async def _ask(self, question: AskPerson, cell: Cell) -> Granted | Denied:
        """Ask the person for a cell that runs: its end takes its questions along, and then there are no more."""
        self._running.require(cell)
        return await self.approvals.ask(question, cell.number)

    async def _decided(self, effect: OpenScope | Invoke, cell: Cell, blob: bytes, path: str) -> tuple[Any, bytes]:
        """Do the effect, and ask the person first when the policy says so: once more whenever it is another one by the
        time it was allowed. path: as the cell wrote it."""
        while True:
            try:
                async with cell.slots:
                    return await self._perform(effect, cell, blob)
            except NeedsPerson as needed:
                question = needed.ask
            answer = await self._ask(replace(question, about=path), cell)
            if isinstance(answer, Denied):
                raise denied(f"{question.kind} {path}: {answer.reason}")
            self._running.require(cell)
            self._asking.allow(cell.number, question)

    async def _perform(self, effect: OpenScope | Invoke, cell: Cell, blob: bytes) -> tuple[Any, bytes]:
        with self._running.effect(cell):  # it may have ended while this waited
            if isinstance(effect, OpenScope):
                return await self._scopes.open(effect, cell), b""
            return await self._invocations.perform(effect, cell, blob)

    # ── posts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def post(self, message: Post, blob: bytes) -> None:
        """An operation on Classified values. No answer: what is refused leaves a handle that is poison."""
        self.posts.post(message, blob)

    def worker_lost(self) -> None:
        """The worker ended, and with it every name of a classified value."""
        self.posts.worker_lost()


def _failure(problem: Exception, path: str) -> Failure:
    if isinstance(problem, EffectError):
        return problem.failure()
    if isinstance(problem, AuditUnavailable):
        return Failure("CapabilityDenied", str(problem))
    if isinstance(problem, OSError):
        return in_words_of_cell(problem, path).failure()
    # Not foreseen: refused. Only the type and our own place in the code are safe to tell anyone.
    _log.error("effect failed inside the broker: %s", _where(problem))
    return Failure("RuntimeError", f"the effect failed inside the broker ({type(problem).__name__})")


def _where(problem: BaseException) -> str:
    place = problem.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "?" if place is None else f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
    return f"{type(problem).__name__} at {where}"
