"""Values without parts in the encoding of `wire.values`: one tag each, with how it is written and read."""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from capkernel.wire import _clock
from capkernel.wire._codec import BadValue, Reader, Unsendable, Writer

_COMPLEX = struct.Struct("<dd")
_DOUBLE = struct.Struct("<d")


def _put_none(out: Writer, _: None) -> None:
    out.raw(b"N")


def _put_bool(out: Writer, value: bool) -> None:
    out.raw(b"Y" if value else b"?")


def _put_int(out: Writer, value: int) -> None:
    if -(1 << 63) <= value < 1 << 63:
        out.raw(b"i")
        out.i64(value)
    else:
        out.raw(b"I")
        out.integer(value)


def _put_float(out: Writer, value: float) -> None:
    out.raw(b"f" + _DOUBLE.pack(value))


def _put_complex(out: Writer, value: complex) -> None:
    out.raw(b"c" + _COMPLEX.pack(value.real, value.imag))


def _put_str(out: Writer, value: str) -> None:
    out.raw(b"s")
    out.text(value)


def _put_bytes(out: Writer, value: bytes) -> None:
    out.raw(b"b")
    out.sized(value)


def _put_bytearray(out: Writer, value: bytearray) -> None:
    out.raw(b"B")
    out.sized(bytes(value))


def _put_range(out: Writer, value: range) -> None:
    out.raw(b"r")
    for number in (value.start, value.stop, value.step):
        out.integer(number)


def _get_range(source: Reader) -> range:
    start, stop, step = source.integer(), source.integer(), source.integer()
    return range(start, stop, step)


def _put_decimal(out: Writer, value: Decimal) -> None:
    out.raw(b"C")
    out.text(str(value))


def _put_fraction(out: Writer, value: Fraction) -> None:
    out.raw(b"R")
    out.integer(value.numerator)
    out.integer(value.denominator)


def _get_fraction(source: Reader) -> Fraction:
    numerator, denominator = source.integer(), source.integer()
    return Fraction(numerator, denominator)


def _put_uuid(out: Writer, value: UUID) -> None:
    out.raw(b"U" + value.bytes)


# `re.DEBUG` would print where the pattern is made anew.
_PATTERN_FLAGS = int(re.A | re.I | re.L | re.M | re.S | re.U | re.X)


def _put_pattern(out: Writer, value: re.Pattern[Any]) -> None:
    if value.flags & ~_PATTERN_FLAGS:
        raise Unsendable("a pattern that prints while it is compiled")
    out.raw(b"x" if isinstance(value.pattern, str) else b"X")
    out.integer(value.flags)
    if isinstance(value.pattern, str):
        out.text(value.pattern)
    else:
        out.sized(bytes(value.pattern))


def _get_pattern(source: Reader, *, is_text: bool) -> re.Pattern[Any]:
    flags = source.integer()
    pattern: Any = source.text() if is_text else bytes(source.sized())
    if flags & ~_PATTERN_FLAGS:
        raise BadValue("a pattern with unknown flags")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning would show a part of the pattern
            return re.compile(pattern, flags)
    except (re.error, ValueError, OverflowError, RecursionError):
        raise BadValue("a pattern that cannot be compiled") from None


def _tagged(tag: bytes, put: Callable[[Writer, Any], None]) -> Callable[[Writer, Any], None]:
    def tagged(out: Writer, value: Any) -> None:
        out.raw(tag)
        put(out, value)

    return tagged


PUT: dict[type, Callable[[Writer, Any], None]] = {
    type(None): _put_none,
    bool: _put_bool,
    int: _put_int,
    float: _put_float,
    complex: _put_complex,
    str: _put_str,
    bytes: _put_bytes,
    bytearray: _put_bytearray,
    range: _put_range,
    date: _tagged(b"D", _clock.put_date),
    time: _tagged(b"T", _clock.put_time),
    datetime: _tagged(b"A", _clock.put_datetime),
    timedelta: _tagged(b"E", _clock.put_delta),
    Decimal: _put_decimal,
    Fraction: _put_fraction,
    UUID: _put_uuid,
    re.Pattern: _put_pattern,
}


def _skip(fixed: int = 0, sized: int = 0) -> Callable[[Reader], None]:
    def skip(source: Reader) -> None:
        source.take(fixed)
        for _ in range(sized):
            source.sized()

    return skip


SKIP: dict[bytes, Callable[[Reader], None]] = {
    **dict.fromkeys((b"N", b"Y", b"?"), _skip()),
    **dict.fromkeys((b"i", b"f"), _skip(8)),
    **dict.fromkeys((b"c", b"U"), _skip(16)),
    **dict.fromkeys((b"I", b"s", b"b", b"B", b"C"), _skip(sized=1)),
    **dict.fromkeys((b"R", b"x", b"X"), _skip(sized=2)),
    b"r": _skip(sized=3),
    b"D": _clock.skip_date,
    b"T": _clock.skip_time,
    b"A": _clock.skip_datetime,
    b"E": _clock.skip_delta,
}
"""How a scalar is passed over without being made. Raises BadValue when bytes are missing."""

GET: dict[bytes, tuple[str, Callable[[Reader], Any]]] = {
    b"N": ("None", lambda _: None),
    b"Y": ("bool", lambda _: True),
    b"?": ("bool", lambda _: False),
    b"i": ("int", Reader.i64),
    b"I": ("int", Reader.integer),
    b"f": ("float", lambda source: _DOUBLE.unpack(source.take(8))[0]),
    b"c": ("complex", lambda source: complex(*_COMPLEX.unpack(source.take(16)))),
    b"s": ("str", Reader.text),
    b"b": ("bytes", lambda source: bytes(source.sized())),
    b"B": ("bytearray", lambda source: bytearray(source.sized())),
    b"r": ("range", _get_range),
    b"D": ("date", _clock.get_date),
    b"T": ("time", _clock.get_time),
    b"A": ("datetime", _clock.get_datetime),
    b"E": ("timedelta", _clock.get_delta),
    b"C": ("Decimal", lambda source: Decimal(source.text())),
    b"R": ("Fraction", _get_fraction),
    b"U": ("UUID", lambda source: UUID(bytes=bytes(source.take(16)))),
    b"x": ("Pattern", lambda source: _get_pattern(source, is_text=True)),
    b"X": ("Pattern", lambda source: _get_pattern(source, is_text=False)),
}
