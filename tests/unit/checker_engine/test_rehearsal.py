"""What the checker does while nobody waits: cells of its own, which leave nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from capkernel.checker.cache import build_cache
from capkernel.checker.captures import CaptureSession
from capkernel.checker.engine import Engine
from capkernel.checker.profiles import STANDARD
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.rehearsal import AT_ONCE, BRIEFLY_IDLE, IDLE, LIBRARIES, PLAIN, Rehearsal
from capkernel.checker.session import CheckerSession
from capkernel.checker.subset import check_subset

TEXTS = [*PLAIN, *(text for texts in LIBRARIES.values() for text in texts)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(build_cache(lambda _: None), STANDARD)


class Recorder:
    def __init__(self) -> None:
        self.said: list[str] = []

    def check(self, cell: int, text: str, /) -> None:
        assert cell == 0
        self.said.append(text)

    def discard(self, cell: int, /) -> None:
        self.said.append(f"discard {cell}")


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_is_judged_to_its_end(engine: Engine, text: str) -> None:
    """A text that is refused early, or warns, would rehearse less than it is there for."""
    engine.reset()
    verdict = CheckerSession(engine, STANDARD, check_subset, CaptureSession()).check(0, text)
    if text == "print(never_bound)":
        assert isinstance(verdict, Rejected)
        assert [found.code for found in verdict.diagnostics] == ["unbound-name"]
    else:
        assert isinstance(verdict, Accepted), verdict.diagnostics
        assert verdict.warnings == ()


def test_it_leaves_nothing_that_a_cell_could_see(engine: Engine) -> None:
    engine.reset()
    session = CheckerSession(engine, STANDARD, check_subset, CaptureSession())
    rehearsal = Rehearsal(session, lambda: "")
    while rehearsal.patience is not None:
        rehearsal.step()
    assert not engine.table
    assert not engine.globals_set
    for name in ("groups", "Record", "json", "secret"):
        verdict = session.check(1, name)
        assert isinstance(verdict, Rejected)
        assert verdict.diagnostics[0].message == f"`{name}` is not bound"


def test_one_thing_at_a_time_the_shortest_first() -> None:
    libraries: Iterator[str] = iter(["numpy", "unknown", "pandas"])
    recorder = Recorder()
    rehearsal = Rehearsal(recorder, lambda: next(libraries, ""))
    waits = []
    while rehearsal.patience is not None:
        waits.append(rehearsal.patience)
        before = len(recorder.said)
        rehearsal.step()
        assert len(recorder.said) - before in (0, 2)
    assert waits[:AT_ONCE] == [0.0] * AT_ONCE
    assert waits[AT_ONCE : len(PLAIN)] == [BRIEFLY_IDLE] * (len(PLAIN) - AT_ONCE)
    assert set(waits[len(PLAIN) :]) == {IDLE}
    judged = [said for said in recorder.said if said != "discard 0"]
    assert judged == [*PLAIN, *LIBRARIES["numpy"], *LIBRARIES["pandas"]]
    assert recorder.said[1::2] == ["discard 0"] * len(judged)
    rehearsal.step()
    assert rehearsal.patience is None
