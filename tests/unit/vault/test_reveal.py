"""A value for the person: rendered within bounds, sealed to one key, and nothing else leaves the keeper."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from played_keeper import KEY, PUBLIC, PlayedKeeper

from capkernel.vault import render as rendering
from capkernel.vault.render import render, rendered
from capkernel.vault.seal import seal, unseal
from capkernel.wire import shown as wire
from capkernel.wire.shown import MAX_JSON_BYTES, Poison, Shown, from_json
from capkernel.wire.shown_text import what
from capkernel.wire.values import encode
from capkernel.wire.vault import FunctionBundle, Revealed

CANARY = "canary-" + uuid.uuid4().hex


# ── rendering ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("héllo", wire.Text("héllo", 5)),
        (True, wire.Bool(True)),
        (None, wire.Nothing()),
        (12, wire.Number("int", "12")),
        (0.1, wire.Number("float", "0.1")),
        (Decimal("1.10"), wire.Number("Decimal", "1.10")),
        (b"\x00\xff", wire.Bytes("bytes", "00ff", 2)),
        (date(2024, 2, 29), wire.Atom("date", "2024-02-29")),
        (datetime(2024, 1, 1, tzinfo=UTC), wire.Atom("datetime", "2024-01-01 00:00:00+00:00")),
        ([1, "a"], wire.Items("list", (wire.Number("int", "1"), wire.Text("a", 1)), 2)),
        ({"k": None}, wire.Pairs((wire.Text("k", 1),), (wire.Nothing(),), 1)),
        (np.float32(0.5), wire.Number("float32", "0.5")),
        (
            np.arange(4).reshape(2, 2),
            wire.Table("ndarray", (2, 2), ("0", "1"), ("0", "1"), (("0", "1"), ("2", "3")), "int64"),
        ),
        (
            pd.DataFrame({"a": [1, 2], "b": ["<b>", None]}, index=["x", "y"]),
            wire.Table("DataFrame", (2, 2), ("a", "b"), ("x", "y"), (("1", "<b>"), ("2", "None"))),
        ),
        (pd.Series([1.5], name="s"), wire.Table("Series", (1,), ("s",), ("0",), (("1.5",),), "float64")),
        (pd.Timestamp("2024-01-01"), wire.Atom("Timestamp", "2024-01-01 00:00:00")),
    ],
)
def test_each_kind_has_its_rendering(value: object, expected: Shown) -> None:
    if isinstance(value, pd.DataFrame):
        value["b"] = value["b"].astype(object).where(value["b"].notna(), None)
    assert render(value) == expected
    assert from_json(rendered(value).encode()) == expected


def _deep() -> Any:
    value: Any = 1
    for _ in range(60):
        value = [value]
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda: "x" * 5_000_000,
        lambda: "\x00" * 5_000_000,
        lambda: ["\x01" * 1000] * 10_000,
        lambda: b"x" * 5_000_000,
        lambda: list(range(1_000_000)),
        lambda: {str(number): [number] * 50 for number in range(10_000)},
        lambda: [[[0] * 500] * 500] * 500,
        lambda: 10**1_000_000,
        lambda: np.zeros((3000, 3000)),
        lambda: np.zeros((3, 0, 5)),
        lambda: pd.DataFrame({f"c{number}": ["y" * 5000] * 1000 for number in range(100)}),
        lambda: [pd.DataFrame({f"c{number}": [""] * 200 for number in range(40)})] * 500,
        lambda: pd.DataFrame({"\x01" * 10_000: ["\x01" * 10_000] * 100}),
        lambda: pd.DataFrame(index=["\x01" * 300] * 100_000),
        lambda: pd.DataFrame({"a": range(100_000)}, index=pd.MultiIndex.from_product([["k" * 9_999], range(100_000)])),
        lambda: "[" * 40_000,
        lambda: "[" * 900 + "]" * 900,
        lambda: '["' + "\x7f" * 40_000 + '"]',
        lambda: "[" + "1," * 20_000 + "1]",
        lambda: ("é" * 60_000).encode(),
        lambda: Fraction(10**50_000, 7),
        lambda: range(10**50_000),
        lambda: re.compile("x" * 200_000),
        _deep,
    ],
)
def test_every_rendering_is_bounded(make: Callable[[], object]) -> None:
    text = rendered(make())
    assert len(text.encode()) <= MAX_JSON_BYTES
    from_json(text.encode())


def test_what_is_cut_says_how_much_there_is() -> None:
    shown = render("x" * 200_000)
    assert isinstance(shown, wire.Text)
    assert (len(shown.text), shown.length) == (rendering.MAX_CHARACTERS, 200_000)
    assert render([0] * 1000).count == 1000  # type: ignore[union-attr]


def test_lone_surrogates_do_not_break_the_rendering() -> None:
    assert from_json(rendered(["\ud800", {"\udfff": 1}]).encode())
    assert render("a\ud800b\udfff\U0001f600") == wire.Text("a\ufffdb\ufffd\U0001f600", 5)
    table = render(pd.DataFrame({"\udc80": ["\ud800<b>"]}, index=["\udfff"]))
    assert table == wire.Table("DataFrame", (1, 1), ("\ufffd",), ("\ufffd",), (("\ufffd<b>",),))


def test_a_row_of_a_table_is_whole_or_not_there() -> None:
    wide = pd.DataFrame({f"c{number}": ["x" * 190] * 200 for number in range(30)})
    shown = render(wide)
    assert isinstance(shown, wire.Table)
    assert 0 < len(shown.rows) < 200
    assert {len(row) for row in shown.rows} == {30}
    assert all(len(cell) == 190 for row in shown.rows for cell in row)
    assert len(shown.index) == len(shown.rows)
    assert f"the first {len(shown.rows)} rows are shown" in what(shown)
    columns = render(pd.DataFrame(np.zeros((3, 100))))
    assert "(the first 40 columns are shown)" in what(columns)


def test_times_in_an_array_are_times() -> None:
    moments = np.array(["2024-02-29T12:00:00", "NaT"], dtype="M8[ns]")
    shown = render(moments)
    assert isinstance(shown, wire.Table)
    assert shown.rows == (("2024-02-29T12:00:00.000000000",), ("NaT",))


def test_json_is_a_tree_as_well_that_keeps_every_digit_and_key() -> None:
    text = ' {"a": 1.10, "a": 12345678901234567890123, "b": [null, true, "<b>"]}'
    shown = render(text)
    assert isinstance(shown, wire.Text)
    assert shown.text == text
    assert shown.json == wire.Pairs(
        (wire.Text("a", 1), wire.Text("a", 1), wire.Text("b", 1)),
        (
            wire.Number("float", "1.10"),
            wire.Number("int", "12345678901234567890123"),
            wire.Items("list", (wire.Nothing(), wire.Bool(True), wire.Text("<b>", 3)), 3),
        ),
        3,
    )
    assert from_json(rendered(text).encode()) == shown


@pytest.mark.parametrize("text", ["", "1", '"a"', "{", "[NaN]", "{'a': 1}", "[" * 100_000, "[1] x", "null"])
def test_what_is_no_json_object_or_list_has_no_tree(text: str) -> None:
    shown = render(text)
    assert isinstance(shown, wire.Text)
    assert shown.json is None


def test_a_tree_is_offered_for_a_whole_text_only_and_only_at_the_top() -> None:
    shown = render("[" + "1," * 60_000 + "1]")
    assert isinstance(shown, wire.Text)
    assert shown.json is None
    assert render(["[1]"]) == wire.Items("list", (wire.Text("[1]", 3),), 1)


def test_a_type_outside_the_set_is_named_and_never_asked_to_show_itself() -> None:
    class Spy(str):
        def __str__(self) -> str:
            raise AssertionError("was asked")

        __repr__ = __format__ = __str__  # type: ignore[assignment]

    assert render(Spy("x")) == Poison("a value of type Spy, which has no rendering")


# ── sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_key_and_the_handle_it_was_sealed_for_open_it() -> None:
    sealed = seal(CANARY.encode(), PUBLIC, "h1")
    assert unseal(sealed, KEY, "h1") == CANARY.encode()
    assert CANARY.encode() not in sealed
    for key, handle, blob in (
        (X25519PrivateKey.generate(), "h1", sealed),
        (KEY, "h2", sealed),
        (KEY, "h1", sealed[:-1] + bytes((sealed[-1] ^ 1,))),
        (KEY, "h1", sealed[:20]),
    ):
        with pytest.raises(ValueError, match="not sealed to this viewer's key"):
            unseal(blob, key, handle)


@pytest.mark.parametrize("key", [b"", b"x" * 31, b"x" * 33, bytes(32)])
def test_a_key_that_is_none_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be sealed"):
        seal(b"x", key, "h")


# ── the keeper ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_is_rendered_by_a_job_and_leaves_sealed() -> None:
    played = PlayedKeeper()
    played.put("a", CANARY)
    played.reveal("a")
    (job, pieces) = played.jobs[0]
    assert job.bundle == FunctionBundle(table="capkernel.vault.render.rendered")
    assert pieces[0][1] == encode(CANARY)
    played.keeper.job_done(encode(rendered(CANARY)))
    assert CANARY.encode() not in played.told[0].sealed  # type: ignore[attr-defined]
    assert CANARY not in repr(played.told)
    assert played.shown("a") == wire.Text(CANARY, len(CANARY))


def test_unknown_pending_and_poison_are_answered_at_once_and_look_alike_from_outside() -> None:
    played = PlayedKeeper()
    played.put("a", 1)
    played.map("m", "a")
    for handle, expected in (("nobody", wire.Unknown()), ("m", wire.Pending())):
        played.reveal(handle)
        assert played.shown(handle) == expected
    played.keeper.job_done(None, "ZeroDivisionError", "cell 1, line 1")
    played.reveal("m")
    assert "ZeroDivisionError" not in repr(played.told)
    assert played.shown("m") == Poison("ZeroDivisionError", "cell 1, line 1")


def test_a_person_does_not_wait_for_the_queue_but_for_the_running_job() -> None:
    played = PlayedKeeper()
    played.put("a", 1)
    played.map("m1", "a")
    played.map("m2", "a")
    played.reveal("a")
    assert len(played.jobs) == 1
    played.keeper.job_done(encode(2))
    assert played.jobs[1][0].bundle.table == "capkernel.vault.render.rendered"
    played.keeper.job_done(encode(rendered(1)))
    assert played.shown("a") == wire.Number("int", "1")
    assert len(played.jobs) == 3  # m2 goes on


def test_a_reveal_makes_no_value_and_no_lineage() -> None:
    played = PlayedKeeper()
    played.put("a", 1)
    before = played.keeper._status(0)
    played.reveal("a")
    played.keeper.job_done(encode(rendered(1)))
    assert played.keeper._status(0) == before


@pytest.mark.parametrize("result", [None, b"nonsense", encode(3), encode(b"x")])
def test_a_rendering_that_fails_says_so_and_the_value_stays(result: bytes | None) -> None:
    played = PlayedKeeper()
    played.put("a", 1)
    played.reveal("a")
    played.keeper.job_done(result, "MemoryError")
    shown = played.shown("a")
    assert isinstance(shown, Poison)
    assert "cannot be shown" in shown.reason
    played.map("m", "a")
    assert len(played.jobs) == 2


def test_a_bad_key_gets_nothing() -> None:
    played = PlayedKeeper()
    played.put("a", CANARY)
    played.reveal("a", b"short")
    played.keeper.job_done(encode(rendered(CANARY)))
    assert played.told == [Revealed(5, b"")]


def test_without_a_runner_a_reveal_waits_for_one() -> None:
    played = PlayedKeeper(runner=False)
    played.put("a", 1)
    played.reveal("a")
    assert played.told == []
    played.runner = True
    played.keeper.advance()
    assert len(played.jobs) == 1
