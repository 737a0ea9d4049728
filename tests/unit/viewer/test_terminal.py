"""The terminal's screens: what is listed, searched and shown, each made visible, and gone after a key."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking_session import AskingSession, asking_session
from terminal_screen import TypedTerminal

from capkernel.policy.decision import AskPerson
from capkernel.viewer import terminal
from capkernel.viewer.terminal import _Terminal

ONE, TWO = "a1" * 16, "b2" * 16


class Terminal(TypedTerminal):
    def __init__(self, session: AskingSession) -> None:
        super().__init__(lambda typed, screen: _Terminal(session.found, typed, screen).serve)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskingSession]:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "60")
    with asking_session(tmp_path) as made:
        made.classified(ONE, '{"key": "canary-one"}', "first \x1b[2J")
        made.classified(TWO, b"canary-two", "second")
        yield made


@pytest.fixture
def shown(session: AskingSession) -> Iterator[Terminal]:
    made = Terminal(session)
    yield made
    made.close()


def test_listed_searched_and_left(shown: Terminal) -> None:
    first = shown.screen.until("leave > ")
    assert r'1  Classified[bytes](***) · cell 1 · classify · file:secrets/a.txt · the cell calls it "second"' in first
    assert r'"first \x1b[2J"' in first
    assert "canary" not in first
    found = shown.type("/first", "leave > ")
    assert "search: first" in found
    assert "second" not in found
    assert "none has all of these words" in shown.type("/first third", "leave > ")
    assert "second" in shown.type("/", "leave > ")


def test_revealed_in_each_way_and_hidden_by_a_key(shown: Terminal) -> None:
    shown.screen.until("leave > ")
    text = shown.type("1", "hides in")
    assert "canary-two" in text
    assert "as text" in text
    assert "63 61 6e 61" in shown.type("v", "hides in")
    hidden = shown.type("", "leave > ")
    assert hidden.startswith(terminal.CLEAR)
    assert "canary" not in hidden
    shown.type("2", "hides in")
    tree = shown.type("v", "hides in")
    assert "dict, 1 entries" in tree or '"key": "canary-one"' in tree
    shown.type("", "leave > ")


def test_a_value_is_taken_off_by_the_clock(session: AskingSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "HIDE_SECONDS", 0.2)
    made = Terminal(session)
    try:
        made.screen.until("leave > ")
        after = made.type("1", "leave > ")
        assert "canary-two" in after
        assert after.rindex(terminal.CLEAR) > after.index("canary-two")
    finally:
        made.close()


def test_lineage_history_and_audit(shown: Terminal) -> None:
    shown.screen.until("leave > ")
    assert "this: Classified[bytes](***)" in shown.type("l 1", "hides in")
    shown.type("", "leave > ")
    shown.type("1", "hides in")
    shown.type("", "leave > ")
    history = shown.type("h", "hides in")
    assert f"person  cell 1  classified.reveal  allowed  {TWO}  terminal, process {os.getpid()}" in history
    shown.type("", "leave > ")
    assert "classified.reveal" not in shown.type("a nothing-like-it", "hides in")
    shown.type("", "leave > ")
    assert "what you did" not in shown.type("l 99", "leave > ")


def test_what_waits_is_said_and_not_decided_here(session: AskingSession, shown: Terminal) -> None:
    shown.screen.until("leave > ")
    answer = session.ask(AskPerson("files.write", "write x", ("x",)))
    for _ in range(300):
        if "1 waiting for your decision: capkernel approve" in shown.type("", "leave > "):
            break
    else:
        raise AssertionError("never said")
    assert not answer.done()
