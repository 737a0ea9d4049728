"""The queue of questions to the person: what is open, what it waits for, what stands. No I/O, and no clock of its own.

Rule 1: only `decide` with allow=True allows. Time, the end of the cell, a full queue and everything else deny.
Rule 2: one question is open, the oldest; its time runs from the moment it became the open one.
Rule 3: what the person denied is denied without asking until `forget`. What nobody answered is asked again in another
cell only.
Rule 4: a question's words are the broker's. The cell's own are its reason: bounded, one visible line, told apart.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Literal

from capkernel.policy.decision import AskPerson, Denied
from capkernel.wire.shown_text import visible
from capkernel.wire.view import Question

MAX_QUESTIONS: Final = 16
MAX_DENIED: Final = 200
MAX_FACTS: Final = 20
MAX_FACT: Final = 500  # characters, before what is invisible is written out
MAX_REASON: Final = 400
WHERE: Final = "`capkernel view` or `capkernel approve`"

Ending = Literal["allowed", "denied", "expired", "ended"]


class NoQuestion(Exception):
    """There is no such question, or it is not its turn. The text says which."""


@dataclass(eq=False)
class Waiting:
    """A question that is not decided. cell: None when it is no cell's. asked: Unix seconds. opened: seconds of the
    caller's clock at which it became the open one."""

    id: str
    ask: AskPerson
    cell: int | None
    asked: float
    opened: float | None = None
    ending: Ending | None = None

    @property
    def kind(self) -> str:
        return self.ask.kind

    @property
    def about(self) -> str:
        """What it is about, in one visible line: nothing that the cell does not know."""
        return one_line(self.ask.about, MAX_FACT)


class Questions:
    """The questions of one session, oldest first. `now` is always the caller's monotonic clock, in seconds."""

    def __init__(self, seconds: float) -> None:
        """seconds: how long an open question waits."""
        self._seconds = seconds
        self._waiting: OrderedDict[str, Waiting] = OrderedDict()
        self._denied: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self._unanswered: int | None = None  # the last cell that waited in vain

    def ask(self, ask: AskPerson, cell: int | None, now: float, asked: float) -> Waiting | Denied:
        """Queue it, or say why nobody is asked. asked: Unix seconds, for the person."""
        refused = self.refusal(ask, cell)
        if refused is not None:
            return refused
        made = Waiting(secrets.token_hex(16), ask, cell, asked)
        self._waiting[made.id] = made
        self._open_next(now)
        return made

    def refusal(self, ask: AskPerson, cell: int | None) -> Denied | None:
        """Why nobody would be asked this now; None when somebody would."""
        if _subject(ask) in self._denied:
            return Denied(f"the person denied this before, so it is not asked again until {WHERE} says otherwise")
        if cell is not None and cell == self._unanswered:
            return Denied(f"nobody answered an earlier question of this cell: answer in {WHERE}")
        if len(self._waiting) >= MAX_QUESTIONS:
            return Denied(f"{MAX_QUESTIONS} questions wait for you already: answer them in {WHERE}")
        return None

    @property
    def open(self) -> Waiting | None:
        return next(iter(self._waiting.values()), None)

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        return tuple(self._waiting.values())

    @property
    def denied(self) -> tuple[str, ...]:
        """What is denied without asking, in words."""
        return tuple(self._denied.values())

    def find(self, question: str) -> Waiting:
        """The open question, when it is the one of this id. Raises NoQuestion."""
        found = self._waiting.get(question)
        if found is None:
            raise NoQuestion("this question is not waiting any more: it was decided, expired, or its cell has ended")
        if found is not self.open:
            raise NoQuestion("an older question comes first")
        return found

    def decide(self, question: str, allow: bool, now: float) -> Waiting:
        """The person's word on the open question. Raises NoQuestion."""
        found = self.find(question)
        if not allow:
            self._denied[_subject(found.ask)] = one_line(found.ask.title, MAX_FACT)
            while len(self._denied) > MAX_DENIED:
                self._denied.popitem(last=False)
        self._end(found, "allowed" if allow else "denied")
        self._open_next(now)
        return found

    def expire(self, now: float) -> list[Waiting]:
        """Deny the open question when its time is up, and with it what its cell still asks."""
        found, due = self.open, self.due()
        if found is None or due is None or now < due:
            return []
        late = [found]
        if found.cell is not None:
            self._unanswered = found.cell
            late += [other for other in self.waiting if other is not found and other.cell == found.cell]
        for one in late:
            self._end(one, "expired")
        self._open_next(now)
        return late

    def end(self, cell: int | None, now: float) -> list[Waiting]:
        """The cell is over: its questions vanish, as denied. None: all of them, the session is over."""
        gone = [one for one in self.waiting if cell is None or one.cell == cell]
        for one in gone:
            self._end(one, "ended")
        self._open_next(now)
        return gone

    def withdraw(self, one: Waiting, now: float) -> list[Waiting]:
        """Who asked does not wait any more."""
        if one.ending is not None:
            return []
        self._end(one, "ended")
        self._open_next(now)
        return [one]

    def forget(self) -> int:
        """Have asked again what was denied: how much that was."""
        count = len(self._denied)
        self._denied.clear()
        self._unanswered = None
        return count

    def due(self) -> float | None:
        """When `expire` has something to do, in seconds of the clock; None while nothing is open."""
        found = self.open
        return None if found is None or found.opened is None else found.opened + self._seconds

    def shown(self, now: float, wall: float) -> tuple[Question, ...]:
        """The questions for the person. wall: Unix seconds of `now`."""
        return tuple(self._shown(one, now, wall) for one in self._waiting.values())

    def _shown(self, one: Waiting, now: float, wall: float) -> Question:
        ask = one.ask
        expires = 0.0 if one.opened is None else wall + one.opened + self._seconds - now
        facts = tuple((one_line(name, 40), one_line(text, MAX_FACT)) for name, text in ask.facts[:MAX_FACTS])
        return Question(
            one.id, ask.kind, one.cell or 0, one.asked, expires, ask.needs, one_line(ask.title, MAX_FACT), facts,
            one_line(ask.reason, MAX_REASON), ask.handle, ask.key,
        )  # fmt: skip

    def _end(self, one: Waiting, ending: Ending) -> None:
        one.ending = ending
        del self._waiting[one.id]

    def _open_next(self, now: float) -> None:
        found = self.open
        if found is not None and found.opened is None:
            found.opened = now


def one_line(text: str, most: int) -> str:
    """At most so many characters of it, what is invisible written out, so that no text looks like several."""
    return visible(text[:most]) + ("…" if len(text) > most else "")


def _subject(ask: AskPerson) -> tuple[str, ...]:
    return (ask.kind, *ask.subject)
