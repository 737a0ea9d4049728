"""The quick way to the broker decides as the other one does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from capkernel.broker.files import FileEffects
from capkernel.policy import default_policy
from capkernel.policy.model import Approvals
from capkernel.wire.plan import Plan, ScopeSite, Span, Use
from capkernel.wire.worker import QUICK_METHODS, Call, CallResult, Invoke

from .conftest import Session, Start

PATHS = ("data/a.txt", "data", "missing", "secrets/key.txt", "../out", "a\0b", ".venv/pyvenv.cfg")


@pytest.fixture
def session(start: Start, project: Path) -> Session:
    (project / "data").mkdir(exist_ok=True)
    (project / "data" / "a.txt").write_text("hello\n")
    (project / "secrets").mkdir(exist_ok=True)
    (project / "secrets" / "key.txt").write_text("hidden")
    (project / ".venv").mkdir(exist_ok=True)
    (project / ".venv" / "pyvenv.cfg").write_text("")
    made = start()
    made.cell()
    return made


def both(session: Session, effect: Invoke) -> tuple[tuple[CallResult, bytes], tuple[CallResult, bytes]]:
    slow = session.loop.run_until_complete(session.broker.call(Call(7, effect), b""))
    return session.broker.call_quickly(7, effect), slow


def test_both_ways_give_the_same_answers_and_write_the_same_down(session: Session) -> None:
    scope = session.open()
    seen = set()
    for path in PATHS:
        quick, slow = both(session, Invoke(scope, "access", path))
        assert quick == slow
        seen.add(slow[0].error.kind if slow[0].error else "ok")
        if slow[0].error is not None:
            continue
        for method in sorted(QUICK_METHODS - {"access"}):
            quick, slow = both(session, Invoke(slow_handle(session, scope, path), method))
            assert quick == slow, (path, method)
            seen.add(slow[0].error.kind if slow[0].error else "ok")
    assert seen >= {"ok", "CapabilityDenied", "ValueError", "FileNotFoundError", "IsADirectoryError"}
    lines = [json.loads(line) for line in session.audit_file.read_text().splitlines()]
    told = [(line["what"], line["decision"], line["path"]) for line in lines if line["what"].startswith("files.")]
    assert told[0][0] == "files.open_scope"
    assert {what for what, decision, _ in told if decision == "denied"} >= {"files.access", "files.read", "files.size"}


def slow_handle(session: Session, scope: str, path: str) -> str:
    """Its handle; asked for again it is the same, so this writes down an access and nothing else."""
    return session.access(scope, path)


def test_a_handle_is_dead_after_its_scope_and_its_cell(session: Session) -> None:
    scope = session.open()
    entry = session.access(scope, "data/a.txt")
    assert session.broker.call_quickly(1, Invoke(entry, "read_bytes"))[1] == b"hello\n"
    session.close_scope(scope)
    assert kind(session, entry) == "CapabilityRevoked"
    scope = session.open()
    entry = session.access(scope, "data/a.txt")
    session.end()
    assert kind(session, entry) == "CapabilityRevoked"
    session.cell()
    assert kind(session, entry) == "CapabilityRevoked"
    assert kind(session, "f" * 32) == "CapabilityRevoked"


def test_it_does_what_the_plan_lists_and_nothing_else(session: Session) -> None:
    span = Span(1, 0, 1, 1)
    session.cell(Plan(scopes=(ScopeSite("file_system", None, 1, span, (Use("list", None),)),)))
    entry = session.access(session.open(), "data/a.txt")
    assert kind(session, entry) == "CapabilityDenied"
    session.cell(Plan(scopes=(ScopeSite("file_system", None, 1, span, (Use("read", None),)),)))
    entry = session.access(session.open(), "data/a.txt")
    assert kind(session, entry) == "ok"


def test_without_an_audit_nothing_is_read(session: Session) -> None:
    entry = session.access(session.open(), "data/a.txt")
    session.audit.close()
    answer, content = session.broker.call_quickly(1, Invoke(entry, "read_bytes"))
    assert answer.error is not None
    assert answer.error.kind == "CapabilityDenied"
    assert content == b""


def test_a_bug_is_told_by_its_type_alone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = session.access(session.open(), "data/a.txt")

    def fails(*_: object) -> bytes:
        raise ZeroDivisionError("/home/somebody")

    monkeypatch.setattr(FileEffects, "read", fails)
    answer, _ = session.broker.call_quickly(1, Invoke(entry, "read_bytes"))
    assert answer.error is not None
    assert answer.error.kind == "RuntimeError"
    assert "somebody" not in answer.error.message


def kind(session: Session, entry: str) -> str:
    answer, _ = session.broker.call_quickly(1, Invoke(entry, "read_bytes"))
    return answer.error.kind if answer.error else "ok"


def test_what_the_person_decides_is_asked_on_the_other_link(start: Start, project: Path) -> None:
    (project / "a.txt").write_text("hello\n")
    policy = default_policy(project)
    made = start(replace(policy, approvals=Approvals(ask=("files.read",))))
    made.cell()
    handle = made.access(made.open(), "a.txt")
    before = made.audit_file.read_bytes()
    answer, content = made.broker.call_quickly(7, Invoke(handle, "read_bytes"))
    assert answer == CallResult(7, elsewhere=True)
    assert (content, made.audit_file.read_bytes()) == (b"", before)
