"""Questions over the viewer's socket: who gets them, who may decide, and what is refused and why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking_session import WAIT, AskingSession, asking_session

from capkernel.broker.approvals import NOT_RELEASED, Granted
from capkernel.broker.audit import AuditUnavailable
from capkernel.policy.decision import AskPerson, Denied
from capkernel.viewer.approvals import opened_release, sealed_secret
from capkernel.viewer.link import Link, LinkRefused
from capkernel.wire.shown import MAX_TYPED
from capkernel.wire.values import decode

WRITE = AskPerson("files.write", "write the file a", ("a",), (("path", "a"),), reason="because")
HANDLE = "a1" * 16


@pytest.fixture
def session(tmp_path: Path) -> Iterator[AskingSession]:
    with asking_session(tmp_path) as made:
        yield made


@pytest.fixture
def link(session: AskingSession) -> Iterator[Link]:
    with Link.open(str(session.runtime), "test") as made:
        yield made


def asked(session: AskingSession, link: Link, question: AskPerson) -> tuple[object, str]:
    """What comes of it, and its number once it is there."""
    answer = session.ask(question)
    while not (found := link.questions().questions):
        time.sleep(0.01)
    return answer, found[-1].id


def test_a_decision(session: AskingSession, link: Link) -> None:
    for allow in (True, False):
        answer, number = asked(session, link, WRITE)
        (question,) = link.questions().questions
        assert (question.kind, question.reason, question.facts) == ("files.write", "because", (("path", "a"),))
        assert link.decide(number, allow) is allow
        assert isinstance(answer.result(WAIT), Granted if allow else Denied)  # type: ignore[attr-defined]
    said = link.questions()
    assert (said.questions, said.denied) == ((), ("write the file a",))
    assert link.forget_denied() == 1
    assert link.questions().denied == ()


def test_a_release(session: AskingSession, link: Link) -> None:
    session.classified(HANDLE, {"rows": 12})
    question = AskPerson("secret.declassify", "release", ("x",), (), "release", "please", HANDLE)
    answer, number = asked(session, link, question)
    with pytest.raises(LinkRefused, match="look at the exact value first"):
        link.decide(number, True)
    shown = opened_release(link, link.questions().questions[0])
    assert (shown.text, shown.type) == ("{'rows': 12}", "dict")
    with pytest.raises(LinkRefused, match="look at the exact value first"):
        link.decide(number, True, "0" * 32)
    assert link.decide(number, True, shown.seen)
    granted = answer.result(WAIT)  # type: ignore[attr-defined]
    assert decode(granted.blob) == {"rows": 12}


def test_a_release_of_what_is_too_large_can_only_be_denied(session: AskingSession, link: Link) -> None:
    session.classified(HANDLE, "x" * 5000)
    answer, number = asked(session, link, AskPerson("secret.declassify", "r", ("x",), (), "release", "", HANDLE))
    assert "at most 4096" in opened_release(link, link.questions().questions[0]).problem
    with pytest.raises(LinkRefused):
        link.decide(number, True)
    assert not link.decide(number, False)
    assert answer.result(WAIT) == Denied(NOT_RELEASED)  # type: ignore[attr-defined]


def test_a_typed_secret(session: AskingSession, link: Link) -> None:
    key = session.expect(HANDLE)
    question = AskPerson("secret.request", "type", ("KEY",), (), "secret", "", HANDLE, key)
    answer, number = asked(session, link, question)
    (shown,) = link.questions().questions
    with pytest.raises(LinkRefused, match="answered with a secret"):
        link.decide(number, True)
    with pytest.raises(LinkRefused, match="cannot open this"):
        link.give_secret(number, b"x" * 80)
    with pytest.raises(LinkRefused, match=f"at most {MAX_TYPED} bytes"):
        link.give_secret(number, b"x" * (MAX_TYPED + 100))
    for typed in ("", "x" * (MAX_TYPED + 1), "\ud800"):
        with pytest.raises(ValueError, match=r"a secret has|not text"):
            sealed_secret(shown, typed)
    assert link.give_secret(number, sealed_secret(shown, "pässwörd"))
    assert isinstance(answer.result(WAIT), Granted)  # type: ignore[attr-defined]
    assert session.vault.received == {HANDLE: "pässwörd"}


def test_two_viewers_see_one_question_and_the_first_decides(session: AskingSession, link: Link) -> None:
    answer, number = asked(session, link, WRITE)
    with Link.open(str(session.runtime), "other") as other:
        assert other.questions().questions[0].id == number
        assert other.decide(number, True)
        with pytest.raises(LinkRefused, match="not waiting any more"):
            link.decide(number, False)
    assert isinstance(answer.result(WAIT), Granted)  # type: ignore[attr-defined]
    assert any('"reason":"other, process' in line for line in session.decisions())


def test_without_an_audit_nothing_is_shown_or_allowed(
    session: AskingSession, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.classified(HANDLE, "x")
    answer, number = asked(session, link, AskPerson("secret.declassify", "r", ("x",), (), "release", "", HANDLE))
    shown = opened_release(link, link.questions().questions[0])

    def full(*_: object, **__: object) -> None:
        raise AuditUnavailable("the audit is full")

    monkeypatch.setattr(session.audit, "record", full)
    with pytest.raises(LinkRefused, match="nothing is shown or decided: the audit is full"):
        opened_release(link, link.questions().questions[0])
    assert link.decide(number, True, shown.seen) is False
    assert answer.result(WAIT) == Denied("the audit is full")  # type: ignore[attr-defined]
