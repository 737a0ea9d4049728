"""Values that no cell can reach any more: which are kept for the person, and that nothing else is lost with them."""

from __future__ import annotations

import os
from pathlib import Path

from played_keeper import KEY, PUBLIC, PlayedKeeper

from capkernel.vault.lineage import MAX_DROPPED, Lineage
from capkernel.vault.retained import Retained
from capkernel.vault.seal import unseal
from capkernel.wire.shown import Release as ShownRelease
from capkernel.wire.shown import Unknown, release_from_json, release_name
from capkernel.wire.values import decode, encode
from capkernel.wire.vault import (
    Limits,
    Release,
    ReleaseShown,
    ShowRelease,
    Write,
    Written,
)


class Played(PlayedKeeper):
    def __init__(self, kept: int, kept_bytes: int = 1 << 20) -> None:
        super().__init__(Limits(kept_values=kept, kept_bytes=kept_bytes))

    def hold(self, *handles: str) -> None:
        for handle in handles:
            self.put(handle, f"the value of {handle}")

    def release(self, *handles: str, shown: bool = False) -> None:
        self.send(Release(handles, (shown,) * len(handles)))

    def there(self, *handles: str) -> list[str]:
        """Which of them the keeper still knows."""
        return [handle for handle in handles if self.described(handle).state != "unknown"]


def test_the_newest_are_kept_and_those_that_were_shown_before_the_others() -> None:
    played = Played(kept=3)
    played.hold("a", "b", "c", "d", "e", "held")
    played.release("a", shown=True)
    played.release("b", "c")
    assert played.there("a", "b", "c") == ["a", "b", "c"]
    played.release("d", "e")
    assert played.there("a", "b", "c", "d", "e", "held") == ["a", "d", "e", "held"]
    played.release("held", shown=True)
    assert played.there("a", "d", "e", "held") == ["a", "e", "held"]


def test_bytes_are_bounded_as_well_and_given_back() -> None:
    played = Played(kept=100, kept_bytes=len(encode("the value of a")) * 2)
    played.hold("a", "b", "c", "d")
    before = played.status()
    played.release("a", "b", "c")
    after = played.status()
    assert played.there("a", "b", "c", "d") == ["b", "c", "d"]
    assert (before.values, after.values) == (4, 3)
    assert after.held_bytes == before.held_bytes * 3 // 4


def test_with_nothing_kept_all_goes_and_a_release_said_twice_changes_nothing() -> None:
    played = Played(kept=0)
    played.hold("a", "b")
    played.release("a", "nobody")
    played.release("a", "a")
    assert played.there("a", "b") == ["b"]


def test_what_was_posted_before_is_done_first() -> None:
    played = Played(kept=0)
    played.hold("a")
    played.map("m", "a")
    played.map("n", "m")
    played.release("a", "m")
    played.keeper.job_done(encode("half"))
    assert played.there("a", "m", "n") == ["a", "m", "n"]
    assert decode(played.jobs[1][1][0][1]) == "half"
    played.keeper.job_done(encode("whole"))
    assert played.there("a", "m", "n") == ["n"]


def test_a_write_that_waits_is_written(tmp_path: Path) -> None:
    played = Played(kept=0)
    played.hold("a")
    played.map("m", "a")
    played.send(Write(9, "m", 100), b"", os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT))
    played.release("a", "m")
    played.keeper.job_done(encode("written"))
    assert Written(9, "written", 7) in played.told
    assert (tmp_path / "out").read_text() == "written"
    assert played.there("a", "m") == []


def test_poison_is_released_too() -> None:
    played = Played(kept=1)
    played.hold("a")
    played.map("m", "a")
    played.keeper.job_done(None, "ValueError")
    played.release("m", "a")
    assert played.there("m", "a") == ["a"]


def test_a_value_that_goes_while_the_person_looks_is_told_to_be_gone() -> None:
    played = Played(kept=0)
    played.hold("a", "b", "c")
    played.map("m", "a")
    played.reveal("b")  # waits for the job
    played.send(ShowRelease(6, "c", PUBLIC))
    # The queue is behind the person's: what is looked at is rendered before the release. So take it away by hand.
    played.keeper._entries._known.pop("b")
    played.keeper._entries._known.pop("c")
    played.keeper.job_done(encode(1))
    answer = played.told.pop()
    assert isinstance(answer, ReleaseShown)
    shown = release_from_json(unseal(answer.sealed, KEY, release_name("c")))
    assert shown == ShownRelease(problem="the vault has no such value any more")
    assert played.shown("b") == Unknown()


def test_a_value_that_goes_while_it_is_rendered_for_a_release_is_not_released() -> None:
    played = Played(kept=0)
    played.hold("c")
    played.send(ShowRelease(6, "c", PUBLIC))
    played.keeper._entries._known.pop("c")
    played.keeper.job_done(encode("'the value of c'"))
    answer = played.told.pop()
    assert isinstance(answer, ReleaseShown)
    assert release_from_json(unseal(answer.sealed, KEY, release_name("c"))).problem


def test_retained_is_bounded_by_both() -> None:
    retained = Retained(2, 10)
    assert retained.add("a", 4, shown=False) == []
    assert retained.add("a", 4, shown=True) == []
    assert retained.add("b", 4, shown=True) == []
    assert retained.add("c", 4, shown=True) == ["a"]
    assert retained.add("d", 11, shown=False) == ["d"]
    assert retained.add("e", 1, shown=True) == ["b"]


def test_lineage_forgets_all_of_a_dropped_value_but_its_number() -> None:
    lineage = Lineage()
    lineage.begin("first", "file:a", text=True)
    lineage.begin("other", "file:b", text=True)
    lineage.drop("first")
    assert lineage.origins("first") == {"file:a"}
    for number in range(MAX_DROPPED):
        lineage.begin(f"h{number}", "", text=False)
        lineage.drop(f"h{number}")
    assert "first" in lineage
    assert lineage.origins("first") is None
    assert not lineage.format_kept("first")
    assert lineage.origins("other") == {"file:b"}
