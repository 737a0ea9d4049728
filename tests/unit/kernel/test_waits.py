"""The time that a cell waits for the person is counted once, whatever it waits for."""

from __future__ import annotations

from capkernel.kernel.waits import Waits


def test_waits_that_overlap_count_once() -> None:
    now = [0.0]
    waits = Waits(lambda: now[0])
    for at, act in (
        (1.0, lambda: waits.begin("input")),
        (2.0, lambda: waits.begin("question")),
        (3.0, lambda: waits.begin("input")),  # again: no second one
        (5.0, lambda: waits.end("input")),
        (7.0, lambda: waits.end("question")),
        (9.0, lambda: waits.end("question")),  # twice is fine
        (9.0, lambda: waits.end("never began")),
        (20.0, lambda: waits.begin("other")),
    ):
        now[0] = at
        act()
    assert waits.seconds() == 6.0
    now[0] = 21.5
    assert waits.seconds() == 7.5
