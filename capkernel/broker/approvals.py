"""Effects that wait for the person: asking, waiting, and what the person's viewer may say.

Rule 1: a question is in the audit before anyone sees it, and an allowing before it counts; when that cannot be written,
the answer is no.
Rule 2: only the viewer's link calls `decide` and `give`. No message of Jupyter and no worker leads here.
Rule 3: a value is released only when the vault says that the person has seen that very value; a typed secret passes
through sealed to the vault.

All methods belong to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from capkernel.broker.audit import AuditLog, AuditUnavailable
from capkernel.broker.ports import VaultPort
from capkernel.broker.questions import WHERE, NoQuestion, Questions, Waiting, one_line
from capkernel.policy.decision import AskPerson, Denied
from capkernel.wire.view import Question

_ENDINGS: Final = {
    "denied": "the person did not allow this",
    "expired": f"nobody answered in time, so this is not allowed: answer in {WHERE}",
    "ended": "the cell was stopped before the person decided, so this is not allowed",
}
NOT_RELEASED: Final = f"this value is not released: the person decides, in {WHERE}"
"""For whatever ends a release but its allowing: nothing here may depend on what the person saw, or could not see."""


@dataclass(frozen=True)
class Granted:
    """The person allowed it. blob: the encoded value that was released."""

    blob: bytes = b""


class Approvals:
    """The questions of one session, and who waits for them."""

    def __init__(self, audit: AuditLog, vault: VaultPort, seconds: float) -> None:
        self._audit = audit
        self._vault = vault
        self._queue = Questions(seconds)
        self._answers: dict[str, asyncio.Future[Granted | Denied]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # once somebody has asked
        self.asked: Callable[[Waiting], None] = lambda _: None  # the session tells that a decision waits
        self.settled: Callable[[Waiting], None] = lambda _: None

    def refusal(self, question: AskPerson, cell: int | None) -> Denied | None:
        """Why nobody would be asked this now, written down; None when somebody would. Raises AuditUnavailable."""
        refused = self._queue.refusal(question, cell)
        if refused is not None:
            self._refuse(question, cell, refused)
        return refused

    def _refuse(self, question: AskPerson, cell: int | None, refused: Denied) -> None:
        self._audit.record(
            question.kind, "denied", cell=cell, path=_path(question), reason=refused.reason, who="kernel"
        )

    async def ask(self, question: AskPerson, cell: int | None) -> Granted | Denied:
        """Wait for the person. Raises AuditUnavailable."""
        waiting = self._queue.ask(question, cell, time.monotonic(), time.time())
        path, claim = _path(question), one_line(question.reason, 400)
        if isinstance(waiting, Denied):
            self._refuse(question, cell, waiting)
            return waiting
        self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[Granted | Denied] = self._loop.create_future()
        self._answers[waiting.id] = answer
        try:
            said = f"the cell says: {claim}" if claim else ""
            self._audit.record(question.kind, "asked", cell=cell, path=path, reason=said)
            self._watch()
            self.asked(waiting)
            return await answer
        finally:
            if waiting.ending is None:  # the caller was cancelled, or the audit could not be written
                self._drop(self._queue.withdraw(waiting, time.monotonic()))
            self._answers.pop(waiting.id, None)
            self.settled(waiting)

    # ── for the person's viewer ──────────────────────────────────────────────────────────────────────────────────────

    def questions(self) -> tuple[tuple[Question, ...], tuple[str, ...]]:
        """What waits, the open one first; and what is denied without asking."""
        return self._queue.shown(time.monotonic(), time.time()), self._queue.denied

    @property
    def count(self) -> int:
        return len(self._queue.waiting)

    async def decide(self, question: str, allow: bool, seen: str, who: str) -> bool:
        """The person's decision about the open question. Raises NoQuestion, VaultFailed."""
        waiting = self._queue.find(question)
        blob = b""
        if allow and waiting.ask.needs == "secret":
            raise NoQuestion("this question is answered with a secret, or denied")
        if allow and waiting.ask.needs == "release":
            found = await self._vault.release(waiting.ask.handle, seen)
            if found is None:
                raise NoQuestion("look at the exact value first: only what was shown can be released")
            blob = found
        return await self._settle(question, allow, who, Granted(blob))

    async def give(self, question: str, sealed: bytes, who: str) -> bool:
        """What the person typed, for the open question. Raises NoQuestion, VaultFailed."""
        waiting = self._queue.find(question)
        if waiting.ask.needs != "secret":
            raise NoQuestion("this question does not ask for a secret")
        if not await self._vault.receive(waiting.ask.handle, sealed):
            raise NoQuestion("the vault cannot open this: it was sealed for another question")
        return await self._settle(question, True, who, Granted())

    async def show_release(self, question: str, key: bytes, who: str) -> bytes:
        """The exact value that would be released, sealed to the key. Raises NoQuestion, VaultFailed, ValueError,
        AuditUnavailable."""
        waiting = self._queue.find(question)
        if waiting.ask.needs != "release":
            raise NoQuestion("this question releases nothing")
        self._audit.record(
            "classified.reveal", "allowed", cell=waiting.cell, path=waiting.ask.handle, reason=who, who="person"
        )
        await asyncio.to_thread(self._audit.sync)
        return await self._vault.show_release(waiting.ask.handle, key)

    def forget_denied(self) -> int:
        """Ask again what was denied."""
        return self._queue.forget()

    # ── for the broker ───────────────────────────────────────────────────────────────────────────────────────────────

    def end_cell(self, cell: int) -> None:
        """Its questions vanish, as denied."""
        self._drop(self._queue.end(cell, time.monotonic()))

    def interrupt(self) -> None:
        """Nobody waits any more: what cells ask is denied. From any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: so is the session
                loop.call_soon_threadsafe(self._interrupted)

    def _interrupted(self) -> None:
        for cell in {waiting.cell for waiting in self._queue.waiting if waiting.cell is not None}:
            self.end_cell(cell)

    async def join(self, who: str, facts: tuple[tuple[str, str], ...]) -> bool:
        """Whether the person lets someone take part in the session. Belongs to no cell. Raises AuditUnavailable."""
        question = AskPerson("session.join", f"let {who} take part in this session", (who,), facts)
        return isinstance(await self.ask(question, None), Granted)

    def close(self) -> None:
        """The session ends."""
        self._drop(self._queue.end(None, time.monotonic()))

    # ── within ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _settle(self, question: str, allow: bool, who: str, granted: Granted) -> bool:
        waiting = self._queue.find(question)  # anew: it may have ended while the vault was asked
        answer: Granted | Denied = granted if allow else _refusal(waiting.ask, "denied")
        try:
            self._audit.record(
                waiting.ask.kind, "allowed" if allow else "denied", cell=waiting.cell, path=_path(waiting.ask),
                reason=who, who="person",
            )  # fmt: skip
            self._queue.decide(question, allow, time.monotonic())
            self._watch()
            await asyncio.to_thread(self._audit.sync)
        except AuditUnavailable as problem:
            allow, answer = False, Denied(str(problem))
            if waiting.ending is None:
                self._queue.withdraw(waiting, time.monotonic())
        self._tell(waiting, answer)
        return allow

    def _watch(self) -> None:
        """See to it that the open question expires."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._queue.due()
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, due - time.monotonic()) + 0.01, self._expired)

    def _expired(self) -> None:
        self._drop(self._queue.expire(time.monotonic()))

    def _drop(self, gone: list[Waiting]) -> None:
        for waiting in gone:
            ending = waiting.ending or "ended"
            with contextlib.suppress(AuditUnavailable):  # denied anyway
                self._audit.record(
                    waiting.ask.kind, "denied", cell=waiting.cell, path=_path(waiting.ask), reason=ending, who="kernel"
                )
            self._tell(waiting, _refusal(waiting.ask, ending))
        self._watch()

    def _tell(self, waiting: Waiting, answer: Granted | Denied) -> None:
        future = self._answers.get(waiting.id)
        if future is not None and not future.done():
            future.set_result(answer)


def _refusal(ask: AskPerson, ending: str) -> Denied:
    return Denied(NOT_RELEASED if ask.needs == "release" else _ENDINGS[ending])


def _path(ask: AskPerson) -> str:
    return ask.subject[0] if ask.subject else ""
