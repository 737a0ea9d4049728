"""pandas objects in the encoding of `wire.values`: every column as an array of a closed set of kinds.

Rule 1: a column of objects is sent only when it holds nothing but str, None and NaN; anything else is refused at the
call, naming the column.
Rule 2: columns go one by one through public pandas calls; nothing of pandas' own serialisation is used.

A DataFrame is its index, its column labels, its columns in order and its `attrs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from capkernel.wire._arrays import get_array, put_array
from capkernel.wire._clock import get_zone, put_zone
from capkernel.wire._codec import BadValue, EncodeValue, Reader, Unsendable, Writer, type_text

Decode = Callable[[Reader, int], Any]

_FRAME, _SERIES, _INDEX, _RANGE, _MULTI, _STAMP, _DELTA, _NAT, _NA = range(9)
_PLAIN, _ZONED, _TEXT, _TEXT_NA, _OBJECTS, _CATEGORIES, _MASKED, _VALUES = range(8)

_KINDS: dict[type, int] = {
    pd.DataFrame: _FRAME,
    pd.Series: _SERIES,
    pd.Index: _INDEX,
    pd.DatetimeIndex: _INDEX,
    pd.TimedeltaIndex: _INDEX,
    pd.CategoricalIndex: _INDEX,
    pd.RangeIndex: _RANGE,
    pd.MultiIndex: _MULTI,
    pd.Timestamp: _STAMP,
    pd.Timedelta: _DELTA,
    type(pd.NaT): _NAT,
    type(pd.NA): _NA,
}
_MASKED_ARRAYS: dict[str, Any] = {
    "b": pd.arrays.BooleanArray,
    "i": pd.arrays.IntegerArray,
    "u": pd.arrays.IntegerArray,
    "f": pd.arrays.FloatingArray,
}
_MAX_INNER_RANGE = 1_000_000  # a few bytes must not make pandas allocate gigabytes
_UNITS = ("s", "ms", "us", "ns")


def kind_of(value: object) -> int | None:
    """Which of the pandas kinds that are sent this is, by exact type; None for anything else."""
    return _KINDS.get(type(value))


def put(out: Writer, value: Any, kind: int, depth: int, put_value: EncodeValue) -> None:
    out.u8(kind)
    if kind == _FRAME:
        _put_index(out, value.index, depth, put_value, ".index")
        _put_index(out, value.columns, depth, put_value, ".columns")
        for position in range(value.shape[1]):
            column = value.iloc[:, position]
            label = value.columns[position]
            where = f"column {label!r}" if type(label) is str else f"column number {position}"
            try:
                _put_array(out, column, depth, put_value, generic=False)
            except Unsendable as problem:
                raise Unsendable(f"{where}: {problem.problem}", problem.path) from None
        put_value(out, value.attrs, depth + 1)
    elif kind == _SERIES:
        _put_index(out, value.index, depth, put_value, ".index")
        put_value(out, value.name, depth + 1)
        _put_array(out, value, depth, put_value, generic=False)
        put_value(out, value.attrs, depth + 1)
    elif kind in (_INDEX, _RANGE, _MULTI):
        _put_index_body(out, value, kind, depth, put_value)
    elif kind in (_STAMP, _DELTA):
        out.text(value.unit)
        out.i64(value.asm8.view("i8").item())
        if kind == _STAMP:
            put_zone(out, value.tzinfo)
            out.u8(value.fold)


def get(source: Reader, depth: int, get_value: Decode) -> Any:
    kind = source.u8()
    if kind == _FRAME:
        index = _get_index(source, depth, get_value)
        columns = _get_index(source, depth, get_value)
        if len(columns) > source.left():
            raise BadValue("more columns are announced than bytes are there")
        arrays = [_get_array(source, depth, get_value) for _ in range(len(columns))]
        if any(len(array) != len(index) for array in arrays):
            raise BadValue("columns of different lengths")
        # As Series with their dtype: pandas would turn a bare object array of str into its str dtype.
        frame = pd.DataFrame({number: _series(array) for number, array in enumerate(arrays)}, copy=False)
        if arrays:
            frame.index = index
            frame.columns = columns
        else:
            frame = pd.DataFrame(index=index, columns=columns)
        frame.attrs = _attributes(get_value(source, depth + 1))
        return frame
    if kind == _SERIES:
        index = _get_index(source, depth, get_value)
        name = get_value(source, depth + 1)
        series = _series(_get_array(source, depth, get_value))
        series.index = index
        series.name = name
        series.attrs = _attributes(get_value(source, depth + 1))
        return series
    if kind in (_INDEX, _RANGE, _MULTI):
        return _get_index_body(source, kind, depth, get_value)
    if kind in (_STAMP, _DELTA):
        unit = source.text()
        if unit not in _UNITS:
            raise BadValue("an unknown unit of time")
        number = source.i64()
        if kind == _DELTA:
            return pd.Timedelta(_moment("m8", unit, number))
        zone = get_zone(source)
        fold = source.u8()
        stamp = pd.Timestamp(_moment("M8", unit, number))
        if zone is not None:
            stamp = stamp.tz_localize("UTC").tz_convert(zone)
        return stamp.replace(fold=1) if fold and stamp.fold != 1 else stamp
    if kind == _NAT:
        return pd.NaT
    if kind == _NA:
        return pd.NA
    raise BadValue("an unknown kind of pandas object")


def _moment(kind: str, unit: str, number: int) -> Any:
    return np.array([number], dtype=np.int64).view(f"{kind}[{unit}]")[0]


def _series(array: Any) -> Any:
    return pd.Series(array, dtype=array.dtype, copy=False)


def _attributes(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise BadValue("attributes that are no dict")
    return value


# ── indexes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _put_index(out: Writer, index: Any, depth: int, put_value: EncodeValue, step: str, *, inner: bool = False) -> None:
    """`inner`: the index is a level or the categories of another object, which pandas lays out in memory."""
    kind = _KINDS.get(type(index))
    if inner and kind == _RANGE and len(index) > _MAX_INNER_RANGE:
        raise Unsendable("a level that is a range of more than a million numbers", step)
    if kind not in (_INDEX, _RANGE, _MULTI):
        raise Unsendable(f"an index of type {type_text(index)}", step)
    out.u8(kind)
    try:
        _put_index_body(out, index, kind, depth, put_value)
    except Unsendable as problem:
        raise problem.within(step) from None


def _put_index_body(out: Writer, index: Any, kind: int, depth: int, put_value: EncodeValue) -> None:
    if kind == _RANGE:
        for number in (index.start, index.stop, index.step):
            out.integer(int(number))
        put_value(out, index.name, depth + 1)
    elif kind == _MULTI:
        out.u8(index.nlevels)
        for level, codes, name in zip(index.levels, index.codes, index.names, strict=True):
            _put_index(out, level, depth + 1, put_value, ".levels", inner=True)
            put_array(out, np.asarray(codes))
            put_value(out, name, depth + 1)
    else:
        _put_array(out, index, depth, put_value, generic=True)
        put_value(out, index.name, depth + 1)
        out.text(getattr(index, "freqstr", None) or "")


def _get_inner(source: Reader, depth: int, get_value: Decode) -> Any:
    index = _get_index(source, depth, get_value)
    if isinstance(index, pd.RangeIndex) and len(index) > _MAX_INNER_RANGE:
        raise BadValue("a level that is too long a range")
    return index


def _get_index(source: Reader, depth: int, get_value: Decode) -> Any:
    kind = source.u8()
    if kind not in (_INDEX, _RANGE, _MULTI):
        raise BadValue("an unknown kind of index")
    if depth > 64:
        raise BadValue("nested too deep")
    return _get_index_body(source, kind, depth, get_value)


def _get_index_body(source: Reader, kind: int, depth: int, get_value: Decode) -> Any:
    if kind == _RANGE:
        start, stop, step = source.integer(), source.integer(), source.integer()
        if max(abs(start), abs(stop), abs(step)) >= 1 << 63:
            raise BadValue("a range beyond 64 bits")
        return pd.RangeIndex(start, stop, step, name=get_value(source, depth + 1))
    if kind == _MULTI:
        levels, codes, names = [], [], []
        for _ in range(source.u8()):
            levels.append(_get_inner(source, depth + 1, get_value))
            codes.append(_integers(get_array(source)))
            names.append(get_value(source, depth + 1))
        return pd.MultiIndex(levels=levels, codes=codes, names=names, verify_integrity=True)
    array = _get_array(source, depth, get_value)
    name = get_value(source, depth + 1)
    frequency = source.text()
    dtype = object if isinstance(array, np.ndarray) and array.dtype.kind == "O" else None
    index: Any = pd.Index(array, dtype=dtype, name=name, copy=False)
    if frequency:
        if not isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex) or len(frequency) > 40:
            raise BadValue("a frequency where none can be")
        setattr(index, "freq", pd.tseries.frequencies.to_offset(frequency))  # a property that stubs call read-only
    return index


def _integers(array: Any) -> Any:
    if array.dtype.kind != "i" or array.ndim != 1:
        raise BadValue("codes that are no integers")
    return array


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _put_array(out: Writer, column: Any, depth: int, put_value: EncodeValue, *, generic: bool) -> None:
    """`generic`: an index, whose object items may be any values; a column's may only be str, None and NaN."""
    dtype = column.dtype
    array = column.array
    if isinstance(dtype, pd.DatetimeTZDtype):
        out.u8(_ZONED)
        put_zone(out, dtype.tz)
        put_array(out, array.tz_convert("UTC").tz_localize(None).to_numpy())
    elif isinstance(dtype, pd.CategoricalDtype):
        out.u8(_CATEGORIES)
        out.u8(bool(dtype.ordered))
        put_array(out, np.asarray(array.codes))
        _put_index(out, dtype.categories, depth + 1, put_value, ".categories", inner=True)
    elif isinstance(dtype, pd.StringDtype):
        out.u8(_TEXT_NA if dtype.na_value is pd.NA else _TEXT)
        missing = array.isna()
        items = [None if gone else item for gone, item in zip(missing, array.tolist(), strict=True)]
        _put_texts(out, items)
    elif isinstance(array, pd.arrays.BooleanArray | pd.arrays.IntegerArray | pd.arrays.FloatingArray):
        out.u8(_MASKED)
        missing = np.asarray(array.isna())
        put_array(out, missing)
        put_array(out, array.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0)))
    elif isinstance(dtype, np.dtype) and dtype.kind in "biufcmM":
        out.u8(_PLAIN)
        put_array(out, np.asarray(array))
    elif isinstance(dtype, np.dtype) and dtype.kind == "O":
        _put_objects(out, list(array), depth, put_value, generic=generic)
    else:
        raise Unsendable(f"a pandas dtype that is not sent ({type(dtype).__name__}); convert it with .astype(...)")


def _put_texts(out: Writer, items: list[str | None]) -> None:
    for item in items:
        if item is not None and type(item) is not str:
            raise Unsendable(f"a str column that holds a {type_text(item)}")
    out.u32(len(items))
    out.strings(items)


def _put_objects(out: Writer, items: list[Any], depth: int, put_value: EncodeValue, *, generic: bool) -> None:
    strings: list[str | None] = []
    holes = bytearray(len(items))  # 1: None, 2: NaN
    for position, item in enumerate(items):
        if type(item) is str:
            strings.append(item)
        elif item is None:
            holes[position] = 1
            strings.append(None)
        elif type(item) is float and math.isnan(item):
            holes[position] = 2
            strings.append(None)
        elif generic:
            out.u8(_VALUES)
            put_value(out, items, depth + 1)
            return
        else:
            raise Unsendable(
                f"a column of objects that holds a {type_text(item)}; only str, None and NaN are sent in one: "
                "convert it with .astype(...)"
            )
    out.u8(_OBJECTS)
    _put_texts(out, strings)
    out.raw(bytes(holes))


def _get_array(source: Reader, depth: int, get_value: Decode) -> Any:
    kind = source.u8()
    if kind == _PLAIN:
        return _column(get_array(source))
    if kind == _ZONED:
        zone = get_zone(source)
        stamps = _column(get_array(source))
        if zone is None or stamps.dtype.kind != "M":
            raise BadValue("zoned times without zone or times")
        return pd.DatetimeIndex(stamps).tz_localize("UTC").tz_convert(zone).array
    if kind in (_TEXT, _TEXT_NA):
        items = source.strings(source.u32())
        return pd.array(items, dtype=pd.StringDtype() if kind == _TEXT_NA else pd.StringDtype(na_value=np.nan))
    if kind == _OBJECTS:
        made = _objects(source.strings(source.u32()))
        for position, hole in enumerate(source.take(len(made))):
            if (made[position] is None) != (hole in (1, 2)) or hole > 2:
                raise BadValue("a hole where none is")
            if hole == 2:
                made[position] = math.nan
        return made
    if kind == _CATEGORIES:
        ordered = source.u8() != 0
        codes = _integers(get_array(source))
        return pd.Categorical.from_codes(codes, categories=_get_inner(source, depth + 1, get_value), ordered=ordered)
    if kind == _MASKED:
        mask, data = get_array(source), get_array(source)
        kind_of_data = data.dtype.kind
        if mask.dtype.kind != "b" or mask.shape != data.shape or data.ndim != 1 or kind_of_data not in _MASKED_ARRAYS:
            raise BadValue("a masked column that does not add up")
        return _MASKED_ARRAYS[kind_of_data](data, mask)
    if kind == _VALUES:
        items = get_value(source, depth + 1)
        if type(items) is not list:
            raise BadValue("index items that are no list")
        return _objects(items)
    raise BadValue("an unknown kind of column")


def _column(array: Any) -> Any:
    if array.ndim != 1 or array.dtype.kind not in "biufcmM":
        raise BadValue("a column that is none")
    return array


def _objects(items: list[Any]) -> Any:
    made = np.empty(len(items), dtype=object)
    for position, item in enumerate(items):  # item by item: numpy would unpack tuples
        made[position] = item
    return made
