"""The closed codec: what goes through unchanged, what is refused and how the refusal reads."""

from __future__ import annotations

import enum
import math
import re
import subprocess
import sys
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from capkernel.wire import _codec
from capkernel.wire.values import BadValue, Unsendable, decode, encode, handles, libraries, pair, text_of, type_name


def again(value: object) -> object:
    return decode(encode(value))


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400, 1.5, -0.0, math.inf, 1 + 2j,
        "", "é", "\ud800x\udfff", "a\0b", b"", b"\0\xff", bytearray(b"x"), [], [1, [2, [3]]], (), (1, "a", None),
        list(range(100)), [2**70] * 20, [0.5] * 20, ["\ud800", "\udc00"] * 10, [True] * 20, {1, "a"}, frozenset({1}),
        {}, {"a": [1, {"b": (2,)}], (1, 2): {3}, None: 1.5}, {str(i): i for i in range(50)}, range(0), range(3, 90, 4),
        range(0, -(2**80), -7), date(2024, 2, 29), time(1, 2, 3, 4), time(1, 2, fold=1), time(1, tzinfo=UTC),
        datetime(2024, 1, 1, 1, 2, 3, 4), datetime(2024, 1, 1, tzinfo=UTC), datetime.max, timedelta(-3, 5, 7),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(seconds=-61), "odd")),
        datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        Decimal("1.50"), Decimal("-Infinity"), Fraction(-1, 3), UUID(int=5),
        re.compile("a+\\d", re.I), re.compile("(?x) a # b"), re.compile(b"\\xff"), re.compile("é", re.M | re.S | re.A),
        np.float32(1.5), np.int8(-3), np.bool_(True), np.str_(""), np.bytes_(b"a\0"), np.datetime64("2024-01-01"),
        np.timedelta64(3, "ms"), np.complex128(1j), pd.Timestamp("2024-01-01"), pd.Timedelta("3s"),
        pd.Timestamp("2024-10-27 01:30", tz="UTC").tz_convert("Europe/Berlin"), pd.Timestamp.max,
    ],
)  # fmt: skip
def test_round_trip(value: object) -> None:
    made = again(value)
    assert type(made) is type(value)
    assert made == value
    assert repr(made) == repr(value)  # fold, time zone names, signs of zero


def test_the_order_of_a_dict_is_kept() -> None:
    assert list(again({"b": 1, "a": 2})) == ["b", "a"]


def test_not_a_number_and_signalling_decimal() -> None:
    assert math.isnan(again(math.nan))
    assert again(Decimal("sNaN")).is_snan()
    assert again(pd.NaT) is pd.NaT
    assert again(pd.NA) is pd.NA


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4), np.arange(12.0).reshape(3, 4).T, np.zeros((0, 5)), np.array(7), np.array([True]),
        np.array([1], ">i4"), np.array([1.5], "f2"), np.array([1j]), np.array(["ab", "é"]), np.array([b"x", b""]),
        np.array(["2024-01-01"], "M8[D]"), np.array([1, 2], "m8[25us]"), np.arange(20)[::-3],
    ],
)  # fmt: skip
def test_arrays(array: np.ndarray) -> None:
    made = again(array)
    assert type(made) is np.ndarray
    assert made.dtype == array.dtype
    assert made.shape == array.shape
    assert (made == array).all()
    assert made.flags.writeable
    assert made.flags.c_contiguous


FRAME = pd.DataFrame(
    {
        "i": [1, 2, 3],
        "f": [1.0, math.nan, 3.0],
        "s": ["a", None, "ü"],
        "o": pd.Series(["q", None, math.nan], dtype=object),
        "t": pd.date_range("2020", periods=3),
        "z": pd.date_range("2020", periods=3, tz="Europe/Berlin"),
        "d": pd.to_timedelta([1, 2, 3], unit="s"),
        "c": pd.Categorical(["x", "y", "x"], ordered=True),
        "n": pd.array([1, None, 3], dtype="Int64"),
        "b": pd.array([True, None, False], dtype="boolean"),
        "g": pd.array([1.5, None, 2], dtype="Float64"),
        "S": pd.array(["a", None, "b"], dtype="string"),
    }
)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME, FRAME.set_index("s"), FRAME.set_index(["s", "i"]), FRAME.set_index("z"), FRAME.set_index("c"),
        pd.DataFrame(), pd.DataFrame(index=[1, 2]), pd.DataFrame({"a": []}), pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame([[1, 2]], columns=["a", 1]), pd.DataFrame(np.ones((2, 3))), FRAME[["i", "f"]].describe(),
        pd.DataFrame(np.ones((1, 2)), columns=pd.MultiIndex.from_product([["a"], ["b", "c"]], names=["k", None])),
        FRAME.groupby("c", observed=True).i.agg(["sum", "mean"]),
        pd.DataFrame({"a": [1]}, index=pd.date_range("2024", periods=1, freq="h", name="when")),
    ],
)  # fmt: skip
def test_frames(frame: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(again(frame), frame, check_freq=True)


def test_series_and_indexes() -> None:
    for column in FRAME:
        pd.testing.assert_series_equal(again(FRAME[column]), FRAME[column])
    for index in (FRAME.index, pd.Index(["a", None]), pd.Index([1, "a", (2, 3)], dtype=object), pd.RangeIndex(2, 9, 3),
                  pd.date_range("2024", periods=3, freq="D"), pd.timedelta_range("1s", periods=2)):  # fmt: skip
        pd.testing.assert_index_equal(again(index), index, exact=True)


def test_attributes_of_a_frame_are_kept() -> None:
    frame = pd.DataFrame({"a": [1]})
    frame.attrs["unit"] = "kg"
    assert again(frame).attrs == {"unit": "kg"}


class Text(str):
    __slots__ = ()


class Colour(enum.Enum):
    RED = "canary-red"


@dataclass
class Point:
    x: str


class NamelessZone(tzinfo):
    pass


def loop() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        (object(), "the value cannot", "type object"),
        ([1, {"canary": [print]}], "at [1]{0}[0]", "functions are sent only"),
        ({"canary": 1, ("canary", Text("canary")): 2}, "at {key 1}[1]", "convert it with str(...)"),
        (Point("canary"), "the value", "dataclass"),
        ([Colour.RED], "at [0]", "enum member"),
        ([Point], "at [0]", "a class"),
        (loop(), "[0]", "nested deeper than 64"),
        (np.array([None]), "the value", "array of objects"),
        (np.zeros(1, "i4,i4"), "the value", "structured"),
        (np.ma.array([1]), "the value", "MaskedArray"),
        (pd.DataFrame({"q": [["canary"]]}), "the value", "column 'q'"),
        (pd.DataFrame({"q": [1], 5: [{"canary": 1}]}), "the value", "column number 1"),
        (pd.Series(pd.period_range("2020", periods=1)), "the value", "PeriodDtype"),
        (datetime(2024, 1, 1, tzinfo=NamelessZone()), "the value", "NamelessZone"),
    ],
)  # fmt: skip
def test_refusals_name_place_and_type_and_no_value(value: object, place: str, words: str) -> None:
    with pytest.raises(Unsendable) as refusal:
        encode(value)
    text = str(refusal.value)
    assert place in text
    assert words in text
    assert "canary" not in text


def test_too_many_bytes_are_refused_before_they_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_codec, "MAX_BYTES", 1000)
    with pytest.raises(Unsendable, match="more than 1000 bytes"):
        encode(np.zeros(2000))
    with pytest.raises(Unsendable, match="more than 1000 bytes"):
        encode(["x" * 600, "y" * 600])


class Secret:
    def __init__(self, handle: str) -> None:
        self.handle = handle


def handle_of(value: object) -> str | None:
    return value.handle if type(value) is Secret else None


def test_classified_travel_as_handles() -> None:
    data = encode({"a": Secret("aa"), "b": [Secret("bb"), Secret("aa")]}, handle_of=handle_of)
    assert handles(data) == ("aa", "bb")
    assert decode(data, classified=lambda handle: f"<{handle}>") == {"a": "<aa>", "b": ["<bb>", "<aa>"]}
    with pytest.raises(BadValue):
        decode(data)
    with pytest.raises(Unsendable):
        encode(Secret("aa"))


def test_a_handle_outside_the_table_is_a_bad_value() -> None:
    data = bytearray(encode(Secret("aa"), handle_of=handle_of))
    data[-4] = 1
    with pytest.raises(BadValue):
        decode(data, classified=lambda handle: handle)


def test_the_header_tells_what_decoding_needs() -> None:
    assert libraries(encode([1])) == ()
    assert libraries(encode([np.int8(1)])) == ("numpy",)
    assert libraries(encode({"a": FRAME})) == ("numpy", "pandas")


def test_pairs_and_texts_without_decoding() -> None:
    assert decode(pair(encode("a"), encode([1, 2]))) == ("a", [1, 2])
    assert libraries(pair(encode(1), encode(FRAME))) == ("numpy", "pandas")
    with pytest.raises(BadValue):
        pair(encode(1), encode(Secret("aa"), handle_of=handle_of))
    assert text_of(encode("ä")) == "ä"
    assert text_of(encode(b"\0")) == b"\0"
    assert text_of(encode(["a"])) is None
    assert type_name(encode(FRAME)) == "pandas object"
    assert type_name(encode(1.5)) == "float"


def crafted(tail: bytes, flags: int = 0) -> bytes:
    return b"CKV1" + bytes((flags,)) + b"\0\0" + tail


def array_bytes(dtype: bytes, shape: tuple[int, ...], data: bytes) -> bytes:
    head = b"a" + len(dtype).to_bytes(4, "little") + dtype + bytes((len(shape),))
    lengths = b"".join(length.to_bytes(8, "little", signed=True) for length in shape)
    return crafted(head + lengths + len(data).to_bytes(4, "little") + data, 1)


def test_the_crafting_helper_makes_good_arrays_too() -> None:
    assert decode(array_bytes(b"<i4", (2,), b"\1\0\0\0\2\0\0\0")).tolist() == [1, 2]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"CKV1", b"CKV2\0\0\0N", crafted(b""), crafted(b"N", 4), crafted(b"NN"), crafted(b"\xff"),
        crafted(b"s\xff\xff\xff\xff"), crafted(b"l\xff\xff\xff\xff\0"), crafted(b"l\xff\xff\xff\x7f\1"),
        crafted(b"l\x02\0\0\0\3" + b"\1\0\0\0" * 2 + b"\1\0\0\0a"), crafted(b"l\1\0\0\0\0" * 70 + b"N"),
        crafted(b"d\1\0\0\0\0l\0\0\0\0\0\1\0\0\0\0N"), crafted(b"d\2\0\0\0\0YY\2\0\0\0\0NN"), crafted(b"e\2\0\0\0\0YY"),
        crafted(b"D\0\0\0\0"), crafted(b"C\3\0\0\0abc"), crafted(b"R\1\0\0\0\1\1\0\0\0\0"), crafted(b"H\0\0\0\0"),
        crafted(b"T\0\0\0\0\0\0\0\0\4\6\0\0\0../etc"), crafted(b"T\0\0\0\0\0\0\0\0\4\3\0\0\0a.b"),
        array_bytes(b"|O", (1,), b"\0" * 8), array_bytes(b"|V8", (1,), b"\0" * 8),
        array_bytes(b"<i4,<i4", (1,), b"\0" * 8),
        array_bytes(b"<i4", (2**40, 2**40), b""), array_bytes(b"<i4", (-1,), b""), array_bytes(b"<i4", (3,), b"\0" * 8),
        array_bytes(b"|b1", (1,), b"\2"), array_bytes(b"<U1", (1,), b"\xff\xff\xff\xff"),
        array_bytes(b"<U0", (2**39,), b""),
    ],
)  # fmt: skip
def test_crafted_bytes_are_bad_values(data: bytes) -> None:
    with pytest.raises(BadValue):
        decode(data)


def test_a_range_cannot_make_pandas_allocate_what_was_not_sent() -> None:
    level = pd.MultiIndex(levels=[pd.RangeIndex(1000)], codes=[[0, 1]])
    data = encode(level)
    assert decode(data).equals(level)
    stop = b"\2\0\0\0\xe8\3"  # 1000, sized
    assert data.count(stop) == 1
    with pytest.raises(BadValue, match="too long a range"):
        decode(data.replace(stop, b"\6\0\0\0\0\0\0\0\0\1"))


def test_plain_values_load_neither_numpy_nor_pandas() -> None:
    program = (
        "import sys; from capkernel.wire.values import *; from datetime import datetime, UTC\n"
        "assert decode(encode({'a': [1, 'x', datetime.now(UTC)]}))['a'][1] == 'x'\n"
        "assert not {'numpy', 'pandas'} & set(sys.modules), 'loaded'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
