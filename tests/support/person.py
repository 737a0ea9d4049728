"""The person, for tests: answers what a session asks, over the viewer's own link, while a cell waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from capkernel.viewer import sessions
from capkernel.viewer.approvals import opened_release, sealed_secret
from capkernel.viewer.link import Link
from capkernel.wire.shown import Release
from capkernel.wire.view import Question

SECONDS = 180.0

Answer = Callable[[Link, Question], object]


def the_link() -> Link:
    (session,) = sessions.running("test")
    return Link.open(session.runtime, "test")


def wait_for_question(link: Link, seconds: float = SECONDS) -> Question:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = link.questions().questions
        if found:
            return found[0]
        time.sleep(0.05)
    raise TimeoutError("nothing was asked")


@contextmanager
def answering(*answers: Answer) -> Iterator[list[Question]]:
    """Give these answers, one to each question that comes, in a thread. What was asked is in the list."""
    asked: list[Question] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for answer in answers:
                with the_link() as link:
                    question = wait_for_question(link)
                    asked.append(question)
                    answer(link, question)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        thread.join(SECONDS)
    if problems:
        raise problems[0]
    assert not thread.is_alive()


def allow(link: Link, question: Question) -> None:
    assert link.decide(question.id, True)


def deny(link: Link, question: Question) -> None:
    assert not link.decide(question.id, False)


def look(link: Link, question: Question) -> Release:
    """The exact value, as the person sees it."""
    return opened_release(link, question)


def release(link: Link, question: Question) -> None:
    """Look, once the value is there, and allow."""
    end = time.monotonic() + SECONDS
    while "computing" in (shown := look(link, question)).problem:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not shown.problem, shown.problem
    assert link.decide(question.id, True, shown.seen)


def types(secret: str) -> Answer:
    """Type this."""

    def give(link: Link, question: Question) -> None:
        assert link.give_secret(question.id, sealed_secret(question, secret))

    return give


__all__ = ["allow", "answering", "deny", "look", "release", "the_link", "types", "wait_for_question"]
