"""Properties of the value codec: every value of the closed set comes back, and no bytes do anything but BadValue."""

from __future__ import annotations

import tracemalloc
import zoneinfo
from datetime import UTC, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from capkernel.wire.values import BadValue, Unsendable, decode, encode, handles, libraries, pair, text_of, type_name

zones = st.one_of(
    st.none(),
    st.just(UTC),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Etc/GMT+3"]).map(zoneinfo.ZoneInfo),
)
texts = st.text(st.characters())  # lone surrogates included
hashables = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.complex_numbers(allow_nan=False), texts,
    st.binary(), st.dates(), st.times(timezones=st.none()), st.datetimes(timezones=zones), st.timedeltas(),
    st.decimals(allow_nan=False), st.fractions(), st.uuids(),
)  # fmt: skip
values = st.recursive(
    st.one_of(hashables, st.binary().map(bytearray), st.builds(range, st.integers(), st.integers())),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(st.integers(), min_size=8),
        st.lists(texts, min_size=8),
        st.lists(st.floats(allow_nan=False), min_size=8),
        st.lists(inner).map(tuple),
        st.sets(hashables),
        st.frozensets(hashables),
        st.dictionaries(hashables, inner),
    ),
    max_leaves=20,
)
calm = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(same, left.values(), right.values()))
    return bool(left == right)


@calm
@given(values)
def test_round_trip(value: object) -> None:
    assert same(decode(encode(value)), value)


@calm
@given(values, values)
def test_a_pair_is_the_tuple(left: object, right: object) -> None:
    assert same(decode(pair(encode(left), encode(right))), (left, right))


@calm
@given(
    hnp.arrays(
        st.one_of(
            hnp.boolean_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(),
            hnp.complex_number_dtypes(), hnp.datetime64_dtypes(), hnp.timedelta64_dtypes(),
            hnp.unicode_string_dtypes(max_len=5), hnp.byte_string_dtypes(max_len=5),
        ),
        hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
    )
)  # fmt: skip
def test_arrays_round_trip(array: np.ndarray) -> None:
    made: Any = decode(encode(array))
    assert made.dtype == array.dtype
    assert made.shape == array.shape
    assert made.tobytes() == array.tobytes()


@calm
@given(
    st.integers(0, 5).flatmap(
        lambda rows: st.dictionaries(
            st.text(max_size=3),
            st.one_of(
                st.lists(st.integers(-(2**63), 2**63 - 1), min_size=rows, max_size=rows),
                st.lists(st.floats(), min_size=rows, max_size=rows),
                st.lists(st.booleans(), min_size=rows, max_size=rows),
                st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=rows, max_size=rows).map(
                    lambda items: pd.Series(items, dtype="str")
                ),
            ),
            max_size=4,
        )
    )
)
def test_frames_round_trip(columns: dict[str, Any]) -> None:
    frame = pd.DataFrame(columns)
    pd.testing.assert_frame_equal(decode(encode(frame)), frame)


def attempt(data: bytes) -> None:
    for read in (decode, handles, libraries, type_name, text_of, lambda it: decode(it, classified=str)):
        try:
            read(data)
        except BadValue:
            pass


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 3))
def test_arbitrary_bytes_are_values_or_bad_values(tail: bytes, flags: int) -> None:
    attempt(tail)
    attempt(b"CKV1" + bytes((flags,)) + b"\0\0" + tail)


FRAME = pd.DataFrame(
    {
        "i": [1, 2],
        "s": ["a", None],
        "z": pd.date_range("2020", periods=2, tz="UTC", freq="h"),
        "c": pd.Categorical(["x", "y"]),
    }
).set_index(["i", "s"])
SEEDS = [
    encode(value)
    for value in (
        FRAME, FRAME.reset_index(), pd.date_range("2020", periods=2, freq="h"), pd.Series([1, None], dtype="Int64"),
        pd.Series(["a", None, float("nan")], dtype=object), np.arange(6).reshape(2, 3), np.array(["a", "b"]),
        np.float32(1), pd.Timestamp("2020", tz="Europe/Berlin"), {"a": [1, (2.5, {3})]}, list(range(20)), ["x"] * 20,
    )
]  # fmt: skip


@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(7, 2000), st.integers(0, 255)), max_size=4),
    st.integers(0, 3000),
)
def test_damaged_values_are_values_or_bad_values(seed: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(seed)
    for at, byte in changes:
        data[at % len(data)] = byte
    attempt(bytes(data))
    attempt(bytes(data[:cut]))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([b"s", b"b", b"B", b"I", b"C", b"l", b"t", b"e", b"d"]),
    st.binary(min_size=4, max_size=4),
    st.integers(0, 4),
)
def test_announced_sizes_allocate_nothing(tag: bytes, length: bytes, packing: int) -> None:
    data = b"CKV1\0\0\0" + tag + length + bytes((packing,)) + b"\0" * 8
    tracemalloc.start()
    try:
        attempt(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@calm
@given(st.recursive(st.just(object()), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=10))
def test_what_is_not_in_the_set_is_refused_wherever_it_is(value: object) -> None:
    with pytest.raises(Unsendable, match="object"):
        encode(value)
