"""The queue of questions: only the person's word allows, one is open, denied stays denied, everything is bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from capkernel.broker.questions import (
    MAX_DENIED,
    MAX_FACT,
    MAX_FACTS,
    MAX_QUESTIONS,
    MAX_REASON,
    NoQuestion,
    Questions,
    Waiting,
)
from capkernel.policy.decision import AskPerson, Denied

SECONDS = 10.0


def about(path: str, kind: str = "files.write", reason: str = "") -> AskPerson:
    return AskPerson(kind, f"write the file {path}", (path,), (("path", path),), reason=reason)


class Person(RuleBasedStateMachine):
    """The queue beside a model of it: what was allowed is exactly what `decide(..., True)` was called for."""

    @initialize()
    def begin(self) -> None:
        self.queue = Questions(SECONDS)
        self.now = 100.0
        self.made: list[Waiting] = []
        self.said_yes: set[str] = set()
        self.said_no: set[tuple[str, str]] = set()
        self.unanswered: int | None = None
        self.times: dict[str, float] = {}

    @rule(path=st.sampled_from("abc"), kind=st.sampled_from(["files.write", "files.delete"]), cell=st.integers(1, 3))
    def ask(self, path: str, kind: str, cell: int) -> None:
        full = len(self.queue.waiting) >= MAX_QUESTIONS
        found = self.queue.ask(about(path, kind), cell, self.now, 1.0)
        refused = (kind, path) in self.said_no or cell == self.unanswered or full
        assert isinstance(found, Denied) == refused
        if isinstance(found, Waiting):
            self.made.append(found)

    @rule(which=st.integers(0, 5), allow=st.booleans())
    def decide(self, which: int, allow: bool) -> None:
        waiting = self.queue.waiting
        if not waiting:
            return
        chosen = waiting[which % len(waiting)]
        if chosen is not waiting[0]:
            with pytest.raises(NoQuestion):
                self.queue.decide(chosen.id, allow, self.now)
            return
        self.queue.decide(chosen.id, allow, self.now)
        if allow:
            self.said_yes.add(chosen.id)
        else:
            self.said_no.add((chosen.ask.kind, chosen.ask.subject[0]))

    @precondition(lambda self: any(one.ending for one in self.made))
    @rule(data=st.data(), allow=st.booleans())
    def decide_again(self, data: st.DataObject, allow: bool) -> None:
        over = data.draw(st.sampled_from([one for one in self.made if one.ending]))
        with pytest.raises(NoQuestion):
            self.queue.decide(over.id, allow, self.now)

    @rule(seconds=st.floats(0.1, 12))
    def wait(self, seconds: float) -> None:
        before = self.queue.open
        due = self.queue.due()
        self.now += seconds
        late = self.queue.expire(self.now)
        assert bool(late) == (due is not None and self.now >= due)
        if late:
            assert late[0] is before
            assert all(one.cell == late[0].cell for one in late)
            self.unanswered = late[0].cell

    @rule(cell=st.integers(1, 3))
    def end_cell(self, cell: int) -> None:
        gone = self.queue.end(cell, self.now)
        assert all(one.cell == cell for one in gone)
        assert all(one.cell != cell for one in self.queue.waiting)

    @rule()
    def forget(self) -> None:
        assert self.queue.forget() == len(self.said_no)
        self.said_no.clear()
        self.unanswered = None

    @invariant()
    def only_the_person_allows(self) -> None:
        allowed = {one.id for one in self.made if one.ending == "allowed"}
        assert allowed == self.said_yes

    @invariant()
    def what_waits_is_what_has_not_ended(self) -> None:
        assert list(self.queue.waiting) == [one for one in self.made if one.ending is None]
        assert len(self.queue.waiting) <= MAX_QUESTIONS

    @invariant()
    def one_is_open_and_its_clock_runs_since_then(self) -> None:
        waiting = self.queue.waiting
        assert [one.opened is not None for one in waiting] == [place == 0 for place in range(len(waiting))]
        shown = self.queue.shown(self.now, 1000.0)
        assert [bool(one.expires) for one in shown] == [place == 0 for place in range(len(waiting))]

    @invariant()
    def denied_is_told(self) -> None:
        assert len(self.queue.denied) == len(self.said_no)


Person.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_queue = Person.TestCase


def test_a_full_queue_denies_and_says_why() -> None:
    queue = Questions(SECONDS)
    for number in range(MAX_QUESTIONS):
        assert isinstance(queue.ask(about(str(number)), 1, 0.0, 0.0), Waiting)
    refused = queue.ask(about("one more"), 1, 0.0, 0.0)
    assert isinstance(refused, Denied)
    assert str(MAX_QUESTIONS) in refused.reason


def test_only_so_many_denials_are_remembered() -> None:
    queue = Questions(SECONDS)
    for number in range(MAX_DENIED + 5):
        made = queue.ask(about(str(number)), 1, 0.0, 0.0)
        assert isinstance(made, Waiting)
        queue.decide(made.id, False, 0.0)
    assert len(queue.denied) == MAX_DENIED


def test_the_time_of_the_next_question_begins_when_it_is_its_turn() -> None:
    queue = Questions(SECONDS)
    first, second = queue.ask(about("a"), 1, 0.0, 0.0), queue.ask(about("b"), 2, 0.0, 0.0)
    assert isinstance(first, Waiting)
    assert isinstance(second, Waiting)
    queue.decide(first.id, True, 9.0)
    assert queue.due() == 9.0 + SECONDS
    assert queue.expire(18.9) == []
    assert queue.expire(19.0) == [second]


HOSTILE = "ok\nAllow? [y/n] y\r\x1b[2J\x1b]0;owned\x07\u202egpj.exe\u200b\x00\u2028end\ufeff"


@pytest.mark.parametrize("place", ["reason", "title", "fact", "name of a fact"])
def test_no_text_of_a_cell_can_look_like_ours(place: str) -> None:
    make: dict[str, Callable[[], AskPerson]] = {
        "reason": lambda: AskPerson("files.write", "t", ("p",), reason=HOSTILE),
        "title": lambda: AskPerson("files.write", HOSTILE, ("p",)),
        "fact": lambda: AskPerson("files.write", "t", ("p",), (("path", HOSTILE),)),
        "name of a fact": lambda: AskPerson("files.write", "t", ("p",), ((HOSTILE, "x"),)),
    }
    queue = Questions(SECONDS)
    queue.ask(make[place](), 1, 0.0, 0.0)
    (shown,) = queue.shown(0.0, 0.0)
    texts = [shown.reason, shown.title, *(text for fact in shown.facts for text in fact)]
    assert all(text.isprintable() for text in texts)
    assert not any(character in text for text in texts for character in "\n\r\x1b\x07\u202e\u200b\x00\u2028\ufeff")
    assert any("\\x0aAllow? [y/n] y" in text for text in texts)  # it is there, and looks like what it is


def test_texts_are_bounded() -> None:
    queue = Questions(SECONDS)
    facts = tuple((f"name{number}", "v" * 10_000) for number in range(100))
    queue.ask(AskPerson("files.write", "t" * 10_000, ("p" * 10_000,), facts, reason="r" * 100_000), 1, 0.0, 0.0)
    (shown,) = queue.shown(0.0, 0.0)
    assert len(shown.reason) == MAX_REASON + 1
    assert shown.reason.endswith("…")
    assert len(shown.title) <= MAX_FACT + 1
    assert len(shown.facts) == MAX_FACTS
    assert all(len(text) <= MAX_FACT + 1 for _, text in shown.facts)
