"""A worker says which Classified values it holds no more. When it lies, it loses its own values, and nothing else."""

from __future__ import annotations

import asyncio
import secrets

import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.broker.classified_handles import ClassifiedHandles
from capkernel.wire import values
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.worker import MAX_DROPPED, Classify, Dropped, MaskShown, ZipClassified

from .conftest import Session, Start


@pytest.fixture
def session(start: Start) -> Session:
    made = start()
    made.cell()
    return made


def classify(session: Session) -> str:
    handle = secrets.token_hex(16)
    session.broker.post(Classify(handle), values.encode("value"))
    return handle


def drop(session: Session, *handles: str) -> None:
    session.broker.post(Dropped(handles), b"")


def test_the_vault_is_told_once_and_whether_the_mask_was_shown(session: Session) -> None:
    seen, unseen = classify(session), classify(session)
    session.broker.post(MaskShown(seen), b"")
    drop(session, seen, unseen, seen, "f" * 32, "nonsense")
    drop(session, seen)
    assert session.vault.drops == [(seen, True), (unseen, False)]


def test_a_dropped_handle_designates_nothing_and_is_never_accepted_again(session: Session) -> None:
    handle, other = classify(session), classify(session)
    drop(session, handle)
    pair = secrets.token_hex(16)
    session.broker.post(ZipClassified(pair, handle, other), b"")
    assert session.vault.zips == []
    assert session.vault.spoils[-1][0] == pair
    puts = len(session.vault.puts)
    session.broker.post(Classify(handle), values.encode("another"))
    assert len(session.vault.puts) == puts
    with pytest.raises(ValueError, match="no Classified value"):
        session.do(session.open(), "secrets/new.txt", "write_classified", secret=handle)


def test_between_cells_it_is_heard_as_well(session: Session) -> None:
    handle = classify(session)
    session.end()
    drop(session, handle)
    assert session.vault.drops == [(handle, False)]


def test_a_write_that_is_under_way_keeps_its_value_until_it_is_done(session: Session) -> None:
    handle = classify(session)
    session.vault.content[handle] = b"text"
    session.vault.gate = asyncio.Event()
    session.do(session.open(), "secrets/new.txt", "write_classified", secret=handle)
    drop(session, handle)
    assert session.vault.drops == []
    session.vault.gate.set()
    session.settle()
    drop(session)
    assert session.vault.drops == [(handle, False)]


def test_when_the_worker_is_lost_so_is_all_it_held(session: Session) -> None:
    handles = {classify(session) for _ in range(3)}
    pinned = session.broker.posts._handles.mint(pinned=True)
    session.broker.worker_lost()
    assert {handle for handle, _ in session.vault.drops} == handles
    assert session.broker.posts._handles.knows(pinned)


def test_too_many_at_once_end_the_worker(session: Session) -> None:
    with pytest.raises(RemoteProtocolError):
        drop(session, *("f" * 32 for _ in range(MAX_DROPPED + 1)))


def test_dropping_makes_no_room_for_more_than_a_session_may_make() -> None:
    handles = ClassifiedHandles(limit=2)
    first = handles.mint()
    assert handles.accept("a" * 32)
    assert [name for name, _ in handles.drop([first, "a" * 32])] == [first, "a" * 32]
    assert not handles.accept("b" * 32)
    with pytest.raises(Exception, match="at most 2") as caught:
        handles.mint()
    assert caught.value.failure().kind == CapabilityDenied.__name__  # type: ignore[attr-defined]


def test_a_secret_that_can_be_asked_for_again_stays() -> None:
    handles = ClassifiedHandles()
    handle = handles.mint(pinned=True)
    assert handles.drop([handle]) == []
    assert handles.knows(handle)
