"""Static types of captured values against their encoding: what agrees, what does not, and that nothing is decoded."""

from __future__ import annotations

import datetime
import re
import struct
import time
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from capkernel.wire import values
from capkernel.wire.types import ANY, MAX_LOOKED_AT, Mismatch, TypeNode, check_captured, shown, union
from capkernel.wire.values import BadValue, decode, encode

INT, STR, FLOAT, NONE = (TypeNode(name) for name in ("int", "str", "float", "None"))


def of(name: str, *args: TypeNode) -> TypeNode:
    return TypeNode(name, args)


def check(value: Any, node: TypeNode, **others: Any) -> None:
    """`value` stands between other values, so that passing over is tested as well."""
    data = {"globals": {"before": list(others.values()), "x": value, "after": {"k": [value]}}, "closure": {}}
    check_captured(encode(data), {("globals", "x"): node, ("globals", "after"): of("dict")})


AGREE = [
    (1, INT), (True, INT), (10**30, INT), (1, FLOAT), (1.5, FLOAT), (1.5, TypeNode("complex")), ("a", STR),
    (None, NONE), (None, union([INT, NONE])), (b"a", TypeNode("bytes")), (True, TypeNode("bool")),
    ([1, 2], of("list", INT)), (list(range(100)), of("list", INT)), ([], of("list", STR)), ([1, "a"], of("list")),
    ([1.0] * 20, of("list", FLOAT)), (["a"] * 20, of("list", union([STR, NONE]))), ([1] * 20, of("list", FLOAT)),
    ((1, "a"), of("tuple", INT, STR)), ((1, 2, 3), of("tuple", of("items", INT))), ((), of("tuple", of("items", INT))),
    ({"a": [1]}, of("dict", STR, of("list", INT))), ({1, 2}, of("set", INT)), (frozenset("ab"), of("frozenset", STR)),
    (dict.fromkeys("abcdefghij", 1), of("dict", STR, INT)), (3, ANY), ("a", ANY),
    (np.arange(3), TypeNode("ndarray")), (np.float64(2), FLOAT), (np.int64(2), INT), (np.str_("a"), STR),
    (np.bool_(True), TypeNode("bool")), (np.float64(2), TypeNode("ndarray")),
    (pd.DataFrame({"a": [1], "b": ["x"]}), TypeNode("DataFrame")), (pd.Series([1, 2]), TypeNode("Series")),
    ([pd.Series([1])], of("list", TypeNode("Series"))),
]  # fmt: skip
DISAGREE = [
    ("a", INT), (1.5, INT), (None, INT), (1, STR), (b"a", STR), (1, NONE), (2, TypeNode("bool")), (1j, FLOAT),
    ([1, "a"], of("list", INT)), (["a"] * 20, of("list", INT)), ([1.5] * 20, of("list", INT)), ((1,), of("list", INT)),
    ((1, 2), of("tuple", INT)), ((1, 2), of("tuple", INT, STR)), (("a",) * 9, of("tuple", of("items", INT))),
    ({"a": 1}, of("dict", STR, STR)), ({1: 1}, of("dict", STR, INT)), ({1}, of("frozenset", INT)),
    ({"a": ["b"]}, of("dict", STR, of("list", INT))), (np.arange(3), of("list", INT)), ([1], TypeNode("ndarray")),
    (np.float64(2), INT), (pd.Series([1]), TypeNode("DataFrame")), (pd.DataFrame({"a": [1]}), TypeNode("Series")),
    (1, union([STR, NONE])), (pd.Series([1]), STR),
]  # fmt: skip


@pytest.mark.parametrize(("value", "node"), AGREE, ids=str)
def test_agrees(value: Any, node: TypeNode) -> None:
    check(value, node)


@pytest.mark.parametrize(("value", "node"), DISAGREE, ids=str)
def test_does_not_agree(value: Any, node: TypeNode) -> None:
    with pytest.raises(Mismatch) as caught:
        check(value, node)
    assert str(caught.value) == f"`x` is not {shown(node)}"


def test_everything_can_be_passed_over() -> None:
    zone = ZoneInfo("Europe/Paris")
    every = [
        None, True, 1, 10**40, 1.5, 2j, "ä", b"b", bytearray(b"c"), range(4), datetime.date(2020, 1, 2),
        datetime.time(1, 2), datetime.datetime(2020, 1, 2, tzinfo=zone), datetime.time(1, tzinfo=datetime.UTC),
        datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "here")),
        datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        datetime.timedelta(1), Decimal("1.5"), Fraction(1, 3), uuid.uuid4(), re.compile("a", re.I), re.compile(b"b"),
         [1, [2]], {"a": {1, 2}}, np.zeros((2, 3)),
        np.float32(1), np.datetime64("2020-01-01", "D"), np.bytes_(b"x"), np.complex128(1j),
        pd.DataFrame({"a": [1.5], "b": ["x"]}), pd.Timestamp("2020-01-01", tz="Europe/Paris"), pd.NA,
    ]  # fmt: skip
    for value in every:
        with pytest.raises(Mismatch):
            check(1, STR, first=value, second=value)
        check(1, INT, first=value, second=value)


def test_by_group() -> None:
    data = encode({"globals": {"x": 1}, "closure": {"x": "a"}, "closures": {"1:2:f:0.0.0.0": {"x": 1.5}}})
    check_captured(data, {("globals", "x"): INT, ("closure", "x"): STR, ("1:2:f:0.0.0.0", "x"): FLOAT})
    for group in ("closure", "1:2:f:0.0.0.0"):
        with pytest.raises(Mismatch):
            check_captured(data, {(group, "x"): INT})


def test_many_packed_names() -> None:
    data = encode({"globals": {f"n{number}": number for number in range(50)}, "closure": {"y": 1}})
    check_captured(data, {("globals", "n7"): INT, ("closure", "y"): INT})
    with pytest.raises(Mismatch):
        check_captured(data, {("globals", "n7"): STR})
    with pytest.raises(Mismatch):
        check_captured(data, {("closure", "y"): STR})


@pytest.mark.parametrize("data", [1, [], {"other": {}}, {"globals": 1}, {"globals": {1: 1}}, {"closures": {"f": 1}}])
def test_another_shape(data: Any) -> None:
    with pytest.raises(BadValue):
        check_captured(encode(data), {})


def test_cut_or_stretched() -> None:
    data = encode({"globals": {"x": [1, "a", [2.5]]}, "closure": {}})
    for end in range(len(data)):
        with pytest.raises(BadValue):
            check_captured(data[:end], {("globals", "x"): of("list")})
    with pytest.raises(BadValue):
        check_captured(data + b"N", {})


def test_a_size_that_lies_is_no_value() -> None:
    """What is passed over by its size here must be exactly what is decoded later."""
    data = encode([1, "a"])
    at = data.index(bytes((values.EACH,)), 7) + 1
    size = struct.unpack_from("<q", data, at)[0]
    assert decode(data) == [1, "a"]
    for wrong in (size - 1, size + 1, -1, 0):
        with pytest.raises(BadValue):
            decode(data[:at] + struct.pack("<q", wrong) + data[at + 8 :])


def test_the_work_is_bounded() -> None:
    long = [[number, "a"] for number in range(300_000)]
    data = encode({"globals": {"x": long, "big": b"x" * 50_000_000}, "closure": {}})
    began = time.monotonic()
    check_captured(data, {("globals", "x"): of("list", of("list"))})
    assert time.monotonic() - began < 1
    long[MAX_LOOKED_AT // 100] = 5  # type: ignore[call-overload]
    with pytest.raises(Mismatch):
        check_captured(encode({"globals": {"x": long}}), {("globals", "x"): of("list", of("list"))})


def test_union_is_small() -> None:
    assert union([INT, INT]) == INT
    assert union([INT, ANY]) == ANY
    assert shown(union([INT, of("dict", STR, of("list", INT)), NONE])) == "int | dict[str, list[int]] | None"
    assert shown(of("tuple", of("items", INT))) == "tuple[int, ...]"
