"""Dates, times and time zones in the encoding of `wire.values`."""

from __future__ import annotations

import re
import struct
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from capkernel.wire._codec import BadValue, Reader, Unsendable, Writer, type_text

_DATE = struct.Struct("<HBB")
_TIME = struct.Struct("<BBBIB")
_DELTA = struct.Struct("<iiI")

_ZONE_KEY = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,3}")

_NAIVE, _UTC, _OFFSET, _NAMED_OFFSET, _ZONE = range(5)


def put_date(out: Writer, value: date) -> None:
    out.raw(_DATE.pack(value.year, value.month, value.day))


def get_date(source: Reader) -> date:
    return date(*_DATE.unpack(source.take(_DATE.size)))


def skip_date(source: Reader) -> None:
    source.take(_DATE.size)


def skip_time(source: Reader) -> None:
    source.take(_TIME.size)
    _skip_zone(source)


def skip_datetime(source: Reader) -> None:
    skip_date(source)
    skip_time(source)


def skip_delta(source: Reader) -> None:
    source.take(_DELTA.size)


def _skip_zone(source: Reader) -> None:
    kind = source.u8()
    if kind in (_OFFSET, _NAMED_OFFSET):
        skip_delta(source)
    if kind in (_NAMED_OFFSET, _ZONE):
        source.sized()


def put_time(out: Writer, value: time) -> None:
    out.raw(_TIME.pack(value.hour, value.minute, value.second, value.microsecond, value.fold))
    put_zone(out, value.tzinfo)


def get_time(source: Reader) -> time:
    hour, minute, second, microsecond, fold = _TIME.unpack(source.take(_TIME.size))
    return time(hour, minute, second, microsecond, get_zone(source), fold=fold)


def put_datetime(out: Writer, value: datetime) -> None:
    put_date(out, value)
    put_time(out, value.timetz())


def get_datetime(source: Reader) -> datetime:
    day = get_date(source)
    return datetime.combine(day, get_time(source))


def put_delta(out: Writer, value: timedelta) -> None:
    out.raw(_DELTA.pack(value.days, value.seconds, value.microseconds))


def get_delta(source: Reader) -> timedelta:
    days, seconds, microseconds = _DELTA.unpack(source.take(_DELTA.size))
    return timedelta(days, seconds, microseconds)


def put_zone(out: Writer, zone: tzinfo | None) -> None:
    """None, UTC, a fixed offset (with its name when it has its own), or a zone by key."""
    if zone is None:
        out.u8(_NAIVE)
    elif zone is UTC:
        out.u8(_UTC)
    elif type(zone) is timezone:
        offset = zone.utcoffset(None)
        name = zone.tzname(None)
        plain = name == timezone(offset).tzname(None)
        out.u8(_OFFSET if plain else _NAMED_OFFSET)
        put_delta(out, offset)
        if not plain:
            out.text(name)
    elif type(zone) is ZoneInfo and zone.key is not None and _ZONE_KEY.fullmatch(zone.key):
        out.u8(_ZONE)
        out.text(zone.key)
    else:
        raise Unsendable(f"a time zone of type {type_text(zone)}; use zoneinfo.ZoneInfo(key) or datetime.timezone")


def get_zone(source: Reader) -> tzinfo | None:
    kind = source.u8()
    if kind == _NAIVE:
        return None
    if kind == _UTC:
        return UTC
    if kind == _OFFSET:
        return timezone(get_delta(source))
    if kind == _NAMED_OFFSET:
        offset = get_delta(source)
        return timezone(offset, source.text())
    if kind == _ZONE:
        key = source.text()
        if not _ZONE_KEY.fullmatch(key):
            raise BadValue("a time zone key that is none")
        return ZoneInfo(key)
    raise BadValue("an unknown kind of time zone")
