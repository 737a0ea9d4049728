"""`capkernel approve`: what sessions wait for, and the person's decision, in a terminal's alternate screen.

Rule 1: input and output are a terminal, and a decision is a whole word, typed: nothing is decided by a key that was
pressed for something else.
Rule 2: facts are the kernel's; what the cell claims stands in quotes, in a line that says so. All of it went through
`visible`.
Rule 3: a value is allowed to leave only after its last page was on the screen; what is on the screen is taken off.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import sys
import time
from collections.abc import Callable
from getpass import getpass
from typing import TextIO

from capkernel.viewer.approvals import opened_release, sealed_secret
from capkernel.viewer.link import Link, LinkRefused
from capkernel.viewer.sessions import Session
from capkernel.viewer.terminal import CLEAR, HIDE_SECONDS, alternate_screen, protect, wrapped
from capkernel.wire.shown_text import visible
from capkernel.wire.view import Question, Questions

LOOK_SECONDS = 2.0
_VIEWER = "approve"
_WORDS = {"decision": "allow", "release": "release", "secret": "give"}
_FRAME_LINES = 4


def run(find: Callable[[], list[Session]]) -> None:
    """Until the person leaves. `find` gives the sessions that may ask."""
    protect()
    with alternate_screen(sys.stdout):
        _Terminal(find, sys.stdin, sys.stdout, getpass).serve()


def summary(question: Question) -> str:
    """One line."""
    where = f"cell {question.cell} · " if question.cell else ""
    return visible(f"{where}{question.kind} · {question.title}")


def details(question: Question, session: Session) -> list[str]:
    """What is known of a question, as lines; the cell's own words last and marked."""
    asked = time.strftime("%H:%M:%S", time.localtime(question.asked))
    width = max((len(name) for name, _ in question.facts), default=0)
    found = [
        visible(question.title),
        "",
        *(f"{visible(name):<{width}}  {visible(text)}" for name, text in question.facts),
        f"{'asked':<{width}}  {asked}, in {visible(session.directory)}",
    ]
    if question.reason:
        found += ["", "The cell says, and nobody checked it:", f'    "{visible(question.reason)}"']
    return found


class _Terminal:
    def __init__(
        self,
        find: Callable[[], list[Session]],
        source: TextIO,
        out: TextIO,
        typed: Callable[[str], str],
    ) -> None:
        self._find = find
        self._source = source
        self._out = out
        self._typed = typed
        self._said = ""  # what became of the last decision

    def serve(self) -> None:
        shown: list[tuple[Session, Questions]] | None = None
        while True:
            found = waiting(self._find())
            if shown is None or _ids(found) != _ids(shown):
                shown = found
                self._list(found)
            if not self._comes(LOOK_SECONDS):
                continue
            said = self._source.readline()
            word = said.strip().lower()
            if not said or word == "q":
                return
            shown = None
            if word == "f":
                self._forget(found)
            elif word.isdigit() and 1 <= int(word) <= len(found):
                session, questions = found[int(word) - 1]
                if questions.questions:
                    self._ask(session, questions.questions[0])

    def _list(self, found: list[tuple[Session, Questions]]) -> None:
        lines = []
        for number, (session, questions) in enumerate(found, 1):
            name = visible(f"{session.directory} · session {session.name[:8]}")
            if not questions.questions:
                lines.append(f"   -  {name}: nothing waits")
            for place, question in enumerate(questions.questions):
                lines.append(f"{number if place == 0 else '':>4}  {name}: {summary(question)}")
            lines += [f"      denied without asking: {visible(text)}" for text in questions.denied]
        size = shutil.get_terminal_size()
        shown = [line[: size.columns - 1] for line in lines[: max(1, size.lines - 6)]]
        head = f"capkernel · decisions{f' · {self._said}' if self._said else ''}"
        keys = "number: look and decide · f: ask again what was denied · q: leave > "
        self._write(CLEAR + "\n".join([head, "", *(shown or ["no session runs"]), "", keys]))

    def _ask(self, session: Session, question: Question) -> None:
        self._said = ""
        try:
            text, seen = details(question, session), ""
            if question.needs == "release":
                with _open(session) as link:
                    release = opened_release(link, question)
                seen = release.seen
                text += ["", *_exact(release.problem, release.type, release.length, release.text)]
            word = _WORDS[question.needs]
            possible = question.needs != "release" or bool(seen)
            answer = self._decided(text, word if possible else "")
            if answer == "":
                return
            with _open(session) as link:
                if answer == "deny":
                    link.decide(question.id, False)
                    self._said = "denied"
                elif question.needs == "secret":
                    self._said = "given" if self._give(link, question) else "nothing was typed"
                else:
                    self._said = "allowed" if link.decide(question.id, True, seen) else "not allowed"
        except (LinkRefused, ValueError, OSError) as problem:
            self._said = visible(str(problem))

    def _give(self, link: Link, question: Question) -> bool:
        secret = self._typed("the secret (it is not shown): ")
        return bool(secret) and link.give_secret(question.id, sealed_secret(question, secret))

    def _decided(self, text: list[str], word: str) -> str:
        """The word that was typed below the last page: `word`, "deny" or ""."""
        size = shutil.get_terminal_size()
        height = max(1, size.lines - _FRAME_LINES)
        parts = [part for line in text for part in wrapped(line, max(20, size.columns - 1))]
        for start in range(0, len(parts), height):
            last = start + height >= len(parts)
            ask = f"type {word!r} or 'deny'" if word else "type 'deny'"
            keys = f"{ask}; Enter: back > " if last else "Enter: next page > "
            self._write(CLEAR + "\n".join(parts[start : start + height]) + f"\n\n{keys}")
            said = self._source.readline() if self._comes(HIDE_SECONDS) else ""
            self._write(CLEAR)
            typed = said.strip().lower()
            if not said or typed == "q":
                return ""
            if last:
                return typed if typed == "deny" or (word and typed == word) else ""
            if typed:
                return ""
        return ""

    def _forget(self, found: list[tuple[Session, Questions]]) -> None:
        for session, questions in found:
            if questions.denied:
                with _open(session) as link:
                    link.forget_denied()
        self._said = "what was denied is asked again"

    def _comes(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._source], [], [], seconds)
        return bool(ready)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def waiting(sessions: list[Session]) -> list[tuple[Session, Questions]]:
    """What each session waits for; sessions that end meanwhile are left out."""
    found = []
    for session in sessions:
        try:
            with _open(session) as link:
                found.append((session, link.questions()))
        except (LinkRefused, OSError):
            continue
    return found


def deny_all(sessions: list[Session]) -> int:
    """Deny what waits now: how much that was."""
    count = 0
    for session, questions in waiting(sessions):
        with _open(session) as link:
            for question in questions.questions:
                with contextlib.suppress(LinkRefused):  # it is decided or gone by now
                    link.decide(question.id, False)
                    count += 1
    return count


def _open(session: Session) -> Link:
    return Link.open(session.runtime, _VIEWER)


def _exact(problem: str, kind: str, length: int, text: str) -> list[str]:
    if problem:
        return [f"Nothing can be released: {visible(problem)}."]
    return [
        f"This exact value would be given to the cell in clear text ({visible(kind)}, {length} bytes encoded):",
        "",
        visible(text),
    ]


def _ids(found: list[tuple[Session, Questions]]) -> list[tuple[str, tuple[str, ...], int]]:
    return [(session.name, tuple(one.id for one in said.questions), len(said.denied)) for session, said in found]
