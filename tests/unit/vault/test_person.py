"""Releases and typed secrets in the keeper: exactly the value that was shown, once, and only to one who saw it."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from capkernel.vault.apply import run
from capkernel.vault.keeper import Keeper
from capkernel.vault.person import MAX_EXACT, exact
from capkernel.vault.seal import seal, unseal
from capkernel.wire.shown import MAX_RELEASED, MAX_TYPED, Release, release_from_json, release_name, secret_name
from capkernel.wire.values import decode, encode
from capkernel.wire.vault import (
    Begin,
    Expect,
    Expected,
    FunctionBundle,
    GivenOut,
    GiveOut,
    Job,
    Kept,
    Limits,
    Map,
    Piece,
    Put,
    ReleaseShown,
    Reveal,
    Revealed,
    ShowRelease,
    Spoil,
    Typed,
)

KEY = X25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
CANARY = "canary-" + uuid.uuid4().hex


class Played:
    """A keeper whose jobs run here, at once unless `paused`."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.paused = False
        self.keeper = Keeper(tell=self.told.append, start=self._start)
        self.keeper.accept(Begin(Limits()), b"", None)
        self._job: tuple[Job, list[tuple[Piece, bytes]]] | None = None

    def _start(self, job: Job, pieces: list[tuple[Piece, bytes]]) -> bool:
        self._job = (job, pieces)
        return True

    def work(self) -> None:
        while self._job is not None and not self.paused:
            (job, pieces), self._job = self._job, None
            try:
                result = run(job.bundle, pieces[0][1], pieces[1][1], {}, flat=job.flat)
            except Exception as problem:
                self.keeper.job_done(None, type(problem).__name__)
                continue
            if len(result) > job.result_bytes:
                self.keeper.job_done(None, "result too large")
            else:
                self.keeper.job_done(result)

    def put(self, handle: str, value: object) -> None:
        self.keeper.accept(Put(handle, "file:.env"), encode(value), None)

    def ask(self, message: object) -> object:
        self.told.clear()
        self.keeper.accept(message, b"", None)  # type: ignore[arg-type]
        self.work()
        (answer,) = self.told
        return answer

    def shown(self, handle: str) -> Release:
        answer = self.ask(ShowRelease(1, handle, PUBLIC))
        assert isinstance(answer, ReleaseShown)
        return release_from_json(unseal(answer.sealed, KEY, release_name(handle)))

    def out(self, handle: str, seen: str) -> bytes:
        answer = self.ask(GiveOut(2, handle, seen))
        assert isinstance(answer, GivenOut)
        return answer.value


# ── the exact text ───────────────────────────────────────────────────────────────────────────────────────────────────

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(-1e300, 1e300),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(plain)
def test_the_text_is_the_value_whole_and_in_printable_ascii(value: object) -> None:
    text = exact(value)
    assert text.isascii()
    assert text.isprintable()
    read = ast.literal_eval(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb\u202e\u200b\x1b[2J é", r"'a\nb\u202e\u200b\x1b[2J \xe9'"),
        (Decimal("1.10"), "Decimal('1.10')"),
        (date(2024, 2, 29), "datetime.date(2024, 2, 29)"),
        (datetime(2024, 1, 1, tzinfo=UTC), "datetime.datetime(2024, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)"),
        (timedelta(1), "datetime.timedelta(days=1)"),
        (Fraction(1, 3), "Fraction(1, 3)"),
        (-0.0, "-0.0"),
        (0.1 + 0.2, "0.30000000000000004"),
    ],
)
def test_other_types_as_well(value: object, text: str) -> None:
    played = Played()
    played.put("h", value)
    shown = played.shown("h")
    assert (shown.text, shown.problem) == (text, "")
    assert shown.length == len(encode(value))


# ── releases ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_goes_out_once_for_who_has_seen_it() -> None:
    played = Played()
    played.put("h", {"rows": 12, "key": CANARY})
    for guess in ("", "h", "0" * 32):
        assert played.out("h", guess) == b""
    shown = played.shown("h")
    assert ast.literal_eval(shown.text) == {"rows": 12, "key": CANARY}
    assert shown.type == "dict"
    assert decode(played.out("h", shown.seen)) == {"rows": 12, "key": CANARY}
    assert played.out("h", shown.seen) == b"", "released twice"


def test_the_number_of_one_value_releases_no_other() -> None:
    played = Played()
    played.put("a", "harmless")
    played.put("b", CANARY)
    seen = played.shown("a").seen
    assert played.out("b", seen) == b""
    assert decode(played.out("a", seen)) == "harmless"


def test_a_reveal_is_no_release() -> None:
    played = Played()
    played.put("h", CANARY)
    revealed = played.ask(Reveal(1, "h", PUBLIC))
    assert isinstance(revealed, Revealed)
    with pytest.raises(ValueError, match="not sealed"):
        unseal(revealed.sealed, KEY, release_name("h"))
    shown = played.ask(ShowRelease(1, "h", PUBLIC))
    assert isinstance(shown, ReleaseShown)
    with pytest.raises(ValueError, match="not sealed"):
        unseal(shown.sealed, KEY, "h")


def test_both_viewers_may_look_and_the_first_to_decide_ends_it() -> None:
    played = Played()
    played.put("h", "x")
    first, second = played.shown("h").seen, played.shown("h").seen
    assert first != second
    assert played.out("h", first)
    assert played.out("h", second) == b""


def _poison(played: Played) -> None:
    played.keeper.accept(Spoil("h", "ZeroDivisionError"), b"", None)


def _pending(played: Played) -> None:
    played.put("source", "x")
    played.paused = True
    bundle = FunctionBundle(table="builtins.len")
    played.keeper.accept(Map("h", "source", bundle), encode({}), None)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda played: played.put("h", "x" * MAX_RELEASED), "at most 4096 are released"),
        (lambda played: played.put("h", np.arange(3)), "map it to lists or text"),
        (lambda played: played.put("h", pd.DataFrame({"a": [1]})), "map it to lists or text"),
        (lambda played: played.put("h", 10**5_000), "cannot be shown exactly"),
        (_poison, "there is no value: ZeroDivisionError"),
        (_pending, "still computing"),
        (lambda _: None, "no such value"),
    ],
)
def test_what_cannot_be_shown_exactly_is_not_released(make: Callable[[Played], None], why: str) -> None:
    played = Played()
    make(played)
    shown = played.shown("h")
    assert why in shown.problem
    assert (shown.text, shown.seen) == ("", "")
    assert played.out("h", "") == b""


def test_the_largest_value_has_room_in_its_text() -> None:
    played = Played()
    value = "\U0001f600" * ((MAX_RELEASED - 40) // 4)
    played.put("h", value)
    shown = played.shown("h")
    assert ast.literal_eval(shown.text) == value
    assert len(shown.text) < MAX_EXACT


def test_nothing_is_sealed_to_a_key_that_is_none() -> None:
    played = Played()
    played.put("h", CANARY)
    answer = played.ask(ShowRelease(1, "h", b"short"))
    assert answer == ReleaseShown(1, b"")


# ── typed secrets ────────────────────────────────────────────────────────────────────────────────────────────────────


def expected(played: Played, handle: str = "s") -> bytes:
    answer = played.ask(Expect(3, handle, "secret:KEY", "mine"))
    assert isinstance(answer, Expected)
    return answer.key


def kept(played: Played, sealed: bytes, handle: str = "s") -> bool:
    answer = played.ask(Typed(4, handle, sealed))
    assert isinstance(answer, Kept)
    return answer.kept


def test_what_was_typed_is_held_once() -> None:
    played = Played()
    key = expected(played)
    assert len(key) == 32
    sealed = seal("pässwörd".encode(), key, secret_name("s"))
    assert kept(played, sealed)
    assert not kept(played, sealed), "replayed"
    shown = played.shown("s")
    assert ast.literal_eval(shown.text) == "pässwörd"
    described = played.keeper._entries["s"].described(1)
    assert (described.origins, described.labels, described.format_kept) == (("secret:KEY",), ("mine",), True)


@pytest.mark.parametrize(
    "make",
    [
        lambda key: b"",
        lambda key: b"x" * 80,
        lambda key: seal(b"a", PUBLIC, secret_name("s")),  # to another key
        lambda key: seal(b"a", key, secret_name("t")),  # for another question
        lambda key: seal(b"a", key, "s"),  # a rendering
        lambda key: seal(b"\xff\xfe", key, secret_name("s")),
        lambda key: seal(b"x" * (MAX_TYPED + 1), key, secret_name("s")),
    ],
)
def test_what_cannot_be_opened_is_not_held_and_may_be_typed_again(make: Callable[[bytes], bytes]) -> None:
    played = Played()
    key = expected(played)
    assert not kept(played, make(key))
    assert kept(played, seal(b"right", key, secret_name("s")))


def test_nothing_is_expected_under_a_handle_that_is_taken() -> None:
    played = Played()
    played.put("s", CANARY)
    answer = played.ask(Expect(3, "s", "secret:KEY"))
    assert answer == Expected(3, b"")
    assert not kept(played, seal(b"a", PUBLIC, secret_name("s")))
    assert ast.literal_eval(played.shown("s").text) == CANARY


def test_each_question_has_a_key_of_its_own() -> None:
    played = Played()
    one, other = expected(played, "s"), expected(played, "t")
    assert one != other
    assert not kept(played, seal(b"a", one, secret_name("t")), "t")
