"""The state table of the checker's link, for the kernel's end: who may say what when. No I/O.

state    | the checker may send                              | the kernel may send
---------|---------------------------------------------------|--------------------
starting | Progress; Started, once                           | nothing
idle     | nothing                                           | one question
asked    | the answer to it, with the same number             | nothing

Rule 1: a message out of turn is an error (see `wire.errors`), so no answer is ever taken for that to another question.
"""

from __future__ import annotations

from capkernel.checker.protocol import (
    Accepted,
    Check,
    Commit,
    Committed,
    Complete,
    Completed,
    Describe,
    Described,
    Discard,
    FromChecker,
    KnownNames,
    ListNames,
    Progress,
    Rejected,
    Started,
    ToChecker,
)
from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError

_ANSWERS: dict[type, tuple[type, ...]] = {
    Check: (Accepted, Rejected),
    Commit: (Committed,),
    Discard: (Committed,),
    Complete: (Completed,),
    Describe: (Described,),
    ListNames: (KnownNames,),
}


class Turns:
    """One link's state."""

    def __init__(self) -> None:
        self._started = False
        self._question: ToChecker | None = None

    def sending(self, message: ToChecker) -> None:
        if not self._started:
            raise LocalProtocolError("a question before the checker has started")
        if self._question is not None:
            raise LocalProtocolError("a question before the last one was answered")
        self._question = message

    def received(self, message: FromChecker) -> None:
        if isinstance(message, Progress | Started):
            if self._started:
                raise RemoteProtocolError("the checker has started already")
            self._started = isinstance(message, Started)
            return
        question, self._question = self._question, None
        if question is None or not isinstance(message, _ANSWERS[type(question)]):
            raise RemoteProtocolError(f"{type(message).__name__} is no answer to what was asked")
        if message.cell != question.cell:
            raise RemoteProtocolError("the checker answered another question")
