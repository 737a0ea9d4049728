"""`capkernel approve`: a whole word decides, everything else decides nothing; what is shown is whole and harmless."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking_session import WAIT, AskingSession, asking_session
from terminal_screen import TypedTerminal

from capkernel.broker.approvals import Granted
from capkernel.policy.decision import AskPerson, Denied
from capkernel.viewer import approve_terminal
from capkernel.viewer.approve_terminal import _Terminal, deny_all, waiting

HANDLE = "a1" * 16
WRITE = AskPerson("files.write", "write the file a", ("a",), (("path", "a"),), reason='x"\nAllow? yes')


class Terminal(TypedTerminal):
    def __init__(self, *sessions: AskingSession) -> None:
        self.secret = ""
        super().__init__(
            lambda typed, screen: (
                _Terminal(lambda: [one.found for one in sessions], typed, screen, lambda _: self.secret).serve
            )
        )


@pytest.fixture
def session(tmp_path: Path) -> Iterator[AskingSession]:
    with asking_session(tmp_path) as made:
        yield made


@pytest.fixture
def terminal(session: AskingSession) -> Iterator[Terminal]:
    made = Terminal(session)
    yield made
    made.close()


def test_a_question_appears_by_itself(session: AskingSession, terminal: Terminal) -> None:
    assert "nothing waits" in terminal.screen.until("q: leave")
    session.ask(WRITE)
    listed = terminal.screen.until("write the file a")
    assert "   1  /notes" in listed


@pytest.mark.parametrize("word", ["", "a", "y", "yes", "allo", "allow it", "release", "q"])
def test_no_other_word_decides(session: AskingSession, terminal: Terminal, word: str) -> None:
    answer = session.ask(WRITE)
    terminal.screen.until("write the file a")
    shown = terminal.type("1", "type 'allow' or 'deny'")
    assert r'"x"\x0aAllow? yes"' in shown
    assert "The cell says, and nobody checked it" in shown
    assert "write the file a" in terminal.type(word, "q: leave")
    assert not answer.done()


@pytest.mark.parametrize(("word", "kind"), [("allow", Granted), ("ALLOW", Granted), ("deny", Denied)])
def test_a_word_decides(session: AskingSession, terminal: Terminal, word: str, kind: type) -> None:
    answer = session.ask(WRITE)
    terminal.screen.until("write the file a")
    terminal.type("1", "type 'allow' or 'deny'")
    terminal.type(word, "q: leave")
    assert isinstance(answer.result(WAIT), kind)


def test_what_was_denied_is_asked_again_by_a_key(session: AskingSession, terminal: Terminal) -> None:
    answer = session.ask(WRITE)
    terminal.screen.until("write the file a")
    terminal.type("1", "type 'allow'")
    assert "denied without asking: write the file a" in terminal.type("deny", "q: leave")
    answer.result(WAIT)
    assert "asked again" in terminal.type("f", "q: leave")
    assert waiting([session.found])[0][1].denied == ()


def test_a_value_is_released_after_its_last_page(
    session: AskingSession, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approve_terminal.shutil, "get_terminal_size", lambda: os.terminal_size((90, 12)))
    session.classified(HANDLE, "start" + "\u202e" * 200 + "end")
    answer = session.ask(AskPerson("secret.declassify", "release it", ("x",), (), "release", "", HANDLE))
    terminal.screen.until("release it")
    first = terminal.type("1", "Enter: next page")
    assert "\u202e" not in first
    # The word on an earlier page is none.
    assert "release it" in terminal.type("release", "q: leave")
    assert not answer.done()
    terminal.type("1", "Enter: next page")
    pages = ""
    while "type 'release'" not in pages:
        pages += terminal.type("", "> ")
    assert pages.replace("\n", "").count(r"\u202e") >= 150
    terminal.type("release", "q: leave")
    assert isinstance(answer.result(WAIT), Granted)


def test_what_cannot_be_released_can_only_be_denied(session: AskingSession, terminal: Terminal) -> None:
    session.classified(HANDLE, "x" * 5000)
    answer = session.ask(AskPerson("secret.declassify", "release it", ("x",), (), "release", "", HANDLE))
    terminal.screen.until("release it")
    shown = terminal.type("1", "type 'deny'")
    assert "Nothing can be released" in shown
    assert "type 'release'" not in shown
    terminal.type("release", "q: leave")
    assert not answer.done()
    terminal.type("1", "type 'deny'")
    terminal.type("deny", "q: leave")
    assert isinstance(answer.result(WAIT), Denied)


def test_what_is_shown_goes_by_itself(
    session: AskingSession, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approve_terminal, "HIDE_SECONDS", 0.1)
    session.classified(HANDLE, "canary")
    answer = session.ask(AskPerson("secret.declassify", "release it", ("x",), (), "release", "", HANDLE))
    terminal.screen.until("release it")
    after = terminal.type("1", "q: leave")
    assert after.index("canary") < after.rindex("\x1b[2J")
    assert not answer.done()


def test_a_secret_is_taken_and_an_empty_one_is_none(session: AskingSession, terminal: Terminal) -> None:
    key = session.expect(HANDLE)
    answer = session.ask(AskPerson("secret.request", "type it", ("KEY",), (), "secret", "", HANDLE, key))
    terminal.screen.until("type it")
    terminal.type("1", "type 'give'")
    assert "nothing was typed" in terminal.type("give", "q: leave")
    assert not answer.done()
    terminal.secret = "pässwörd"
    terminal.type("1", "type 'give'")
    assert "pässwörd" not in terminal.type("give", "q: leave")
    assert isinstance(answer.result(WAIT), Granted)
    assert session.vault.received == {HANDLE: "pässwörd"}


def test_everything_can_be_denied_at_once(session: AskingSession) -> None:
    answers = [session.ask(AskPerson("files.write", f"write {name}", (name,))) for name in "abc"]
    while len(waiting([session.found])[0][1].questions) < 3:
        time.sleep(0.01)
    assert deny_all([session.found]) == 3
    assert all(isinstance(answer.result(WAIT), Denied) for answer in answers)
