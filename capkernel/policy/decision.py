"""What a policy answers. Three cases, all values: a decision is never an exception and never a truth value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Never


@dataclass(frozen=True)
class Allowed:
    """The effect may happen."""

    def __bool__(self) -> Never:
        raise TypeError("a decision has no truth value: match it against Allowed and Denied")


@dataclass(frozen=True)
class Denied:
    """The effect must not happen. `reason` says why and what to do; it goes to the cell and to the audit."""

    reason: str

    def __bool__(self) -> Never:
        raise TypeError("a decision has no truth value: match it against Allowed and Denied")


@dataclass(frozen=True)
class AskPerson:
    """The effect may happen when the person says so, and not before.

    kind: the name of the effect, as in the audit. title: what is asked, in our words. subject: what a denial is
    remembered by. facts: names and what we know, for the person. reason: the cell's claim. needs, handle, key: see
    `wire.view.Question`. about: what it is about, in words that the cell knows already: for the notebook.
    """

    kind: str
    title: str
    subject: tuple[str, ...]
    facts: tuple[tuple[str, str], ...] = ()
    needs: Literal["decision", "release", "secret"] = "decision"
    reason: str = ""
    handle: str = ""
    key: bytes = b""
    about: str = ""

    def __bool__(self) -> Never:
        raise TypeError("a decision has no truth value: match it against Allowed, Denied and AskPerson")


Decision = Allowed | Denied | AskPerson

ALLOWED = Allowed()
