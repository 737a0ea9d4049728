"""What the page is told: every text that comes from a cell made visible, and ciphertext passed through."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking_session import AskingSession, asking_session
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capkernel.broker.approvals import Granted
from capkernel.broker.ledger import Origin
from capkernel.policy.decision import AskPerson, Denied
from capkernel.vault.seal import seal, unseal
from capkernel.viewer import answers
from capkernel.viewer.answers import Asked, Unasked
from capkernel.viewer.link import Link, LinkRefused
from capkernel.wire.shown import release_name, secret_name
from capkernel.wire.view import UsedFunction

ONE, TWO = "a1" * 16, "b2" * 16
HOSTILE = "x\u202e\x1b[2J\u2066y"
WAIT = 30.0


@pytest.fixture
def session(tmp_path: Path) -> Iterator[AskingSession]:
    with asking_session(tmp_path) as made:
        made.classified(ONE, "canary", HOSTILE)
        entry = Origin(TWO, 2, "map", HOSTILE, label=HOSTILE, code=f"a\n{HOSTILE}", code_cell=2, parents=(ONE,),
                       name=HOSTILE, functions=(UsedFunction(HOSTILE, 2, f"a\n{HOSTILE}"),))  # fmt: skip
        made.do(lambda: made.broker.ledger.add(entry))
        yield made


def told(session: AskingSession, path: str, **asked: Any) -> Any:
    with Link.open(session.found.runtime, "test") as link:
        return answers.answer(path, Asked(**asked), link)


def waiting(session: AskingSession) -> Any:
    """The open question, once it is there."""
    for _ in range(3000):
        found = told(session, "/api/state")["questions"]
        if found:
            return found[0]
    raise AssertionError("never asked")


def test_every_text_of_a_cell_is_visible(session: AskingSession) -> None:
    session.audit.record("files.write", "denied", cell=1, path=HOSTILE, reason=HOSTILE)
    question = AskPerson("files.write", HOSTILE, ("x",), ((HOSTILE, HOSTILE),), reason=HOSTILE)
    session.ask(question)
    waiting(session)
    said = [
        told(session, "/api/state"),
        told(session, "/api/lineage", handle=TWO),
        told(session, "/api/audit"),
        answers.session(session.found, 1),
    ]
    text = json.dumps(said, ensure_ascii=False)
    assert r"x\\u202e\\x1b[2J\\u2066y" in text
    assert text.isprintable()
    assert said[1]["steps"][0]["functions"][0]["source"] == "a\n" + r"x\u202e\x1b[2J\u2066y", "code keeps its lines"


def test_the_values_are_sent_when_there_are_others(session: AskingSession) -> None:
    first = told(session, "/api/state")
    assert [value["handle"] for value in first["values"]] == [TWO, ONE]
    again = told(session, "/api/state", made=first["made"])
    assert again["values"] is None
    assert again["total"] == 2
    session.classified("c3" * 16, 1)
    assert len(told(session, "/api/state", made=first["made"])["values"]) == 3


def test_a_search_and_a_filter(session: AskingSession) -> None:
    assert [value["handle"] for value in told(session, "/api/state", words="cell 2 map")["values"]] == [TWO]
    assert told(session, "/api/state", words="no such")["values"] == []
    for number in range(400):
        session.audit.record("files.read", "allowed", cell=number, path="a")
    session.audit.record("files.write", "denied", cell=7, path="b")
    assert len(told(session, "/api/audit")["lines"]) == answers.AUDIT_LINES
    assert [line["path"] for line in told(session, "/api/audit", words="WRITE denied")["lines"]] == ["b"]
    with pytest.raises(LinkRefused, match="at most 200"):
        told(session, "/api/audit", words="x" * 201)


def test_the_persons_own_lines_outlive_the_others(session: AskingSession) -> None:
    key = base64.b64encode(X25519PrivateKey.generate().public_key().public_bytes_raw()).decode()
    told(session, "/api/reveal", handle=ONE, key=key)
    for number in range(1100):
        session.audit.record("files.read", "allowed", cell=number, path="a")
    assert [line["what"] for line in told(session, "/api/audit", who="person")["lines"]] == ["classified.reveal"]
    assert not told(session, "/api/audit", words="classified.reveal")["lines"]


def test_a_lineage_leads_both_ways(session: AskingSession) -> None:
    up = told(session, "/api/lineage", handle=TWO)
    assert [step["handle"] for step in up["steps"]] == [TWO, ONE]
    assert up["children"] == []
    down = told(session, "/api/lineage", handle=ONE)
    assert [value["handle"] for value in down["children"]] == [TWO]
    for handle in ("d4" * 16, "nonsense", ""):
        with pytest.raises(LinkRefused, match="no such value"):
            told(session, "/api/lineage", handle=handle)


def test_a_release_is_decided_by_who_has_seen_it(session: AskingSession) -> None:
    answer = session.ask(AskPerson("secret.declassify", "t", ("d",), (), "release", "", ONE))
    question = waiting(session)["id"]
    with pytest.raises(LinkRefused, match="look at the exact value first"):
        told(session, "/api/decide", question=question, allow=True)
    mine = X25519PrivateKey.generate()
    key = base64.b64encode(mine.public_key().public_bytes_raw()).decode()
    sealed = base64.b64decode(told(session, "/api/released", question=question, key=key)["sealed"])
    seen = json.loads(unseal(sealed, mine, release_name(ONE)))
    assert seen["text"] == "'canary'"
    assert told(session, "/api/decide", question=question, allow=True, seen=seen["seen"]) == {"allowed": True}
    assert isinstance(answer.result(WAIT), Granted)


def test_a_secret_is_passed_on_sealed(session: AskingSession) -> None:
    handle = "e5" * 16
    answer = session.ask(
        AskPerson("secret.request", "t", ("s",), (), "secret", handle=handle, key=session.expect(handle))
    )
    question = waiting(session)
    sealed = seal(b"typed", base64.b64decode(question["key"]), secret_name(handle))
    said = told(session, "/api/secret", question=question["id"], sealed=base64.b64encode(sealed).decode())
    assert said == {"allowed": True}
    assert isinstance(answer.result(WAIT), Granted)
    assert session.vault.received == {handle: "typed"}


def test_denied_and_asked_again(session: AskingSession) -> None:
    answer = session.ask(AskPerson("files.write", "write a", ("a",)))
    question = waiting(session)["id"]
    assert told(session, "/api/decide", question=question) == {"allowed": False}, "to deny is what a request means"
    assert isinstance(answer.result(WAIT), Denied)
    assert told(session, "/api/state")["denied"] == ["write a"]
    assert told(session, "/api/forget") == {"count": 1}
    assert told(session, "/api/state")["denied"] == []


@pytest.mark.parametrize(("path", "asked"), [
    ("/api/nothing", {}), ("/api/open", {}), ("/api/reveal", {"handle": ONE, "key": "é"}),
    ("/api/secret", {"question": ONE, "sealed": "?"}),
])  # fmt: skip
def test_what_is_no_request_is_refused(session: AskingSession, path: str, asked: dict[str, str]) -> None:
    with pytest.raises(Unasked):
        told(session, path, **asked)
