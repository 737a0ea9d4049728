"""A value as text for the person's eyes: `rendered` runs in a job's own process, like a function given to `map`.

Rule 1: a closed set. Types of `wire.values` have a rendering each; anything else is named, never asked to show itself.
Rule 2: bounded before it is built: characters, parts, depth, rows, columns.
Rule 3: no markup: what comes out is text (`wire.shown`).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

from capkernel.wire.shown import (
    Atom,
    Bool,
    Bytes,
    Cut,
    Items,
    Nothing,
    Number,
    Pairs,
    Poison,
    Shown,
    Table,
    Text,
    to_json,
)

MAX_CHARACTERS = 100_000  # of all texts together
MAX_PARTS = 3_000
MAX_ITEMS = 500  # of one container
MAX_DEPTH = 12
MAX_ROWS, MAX_COLUMNS, MAX_CELL = 200, 40, 200
MAX_BYTES_SHOWN = 4_096

_NUMBERS = (int, float, complex, Decimal, Fraction)
_ATOMS = (date, time, datetime, timedelta, UUID, range)


def rendered(value: object) -> str:
    """The rendering as JSON (ASCII: no lone surrogate can break it)."""
    return to_json(render(value)).decode("utf-8")


def render(value: object) -> Shown:
    """A bounded tree of texts."""
    return _Renderer().node(value, 0)


class _Renderer:
    def __init__(self) -> None:
        self._characters = MAX_CHARACTERS
        self._parts = MAX_PARTS

    def node(self, value: Any, depth: int) -> Shown:
        self._parts -= 1
        if self._parts < 0 or self._characters <= 0 or depth > MAX_DEPTH:
            return Cut()
        kind = type(value)
        if value is None:
            return Nothing()
        if kind is bool:
            return Bool(value)
        if kind is str:
            return Text(self._text(value), len(value))
        if kind in _NUMBERS:
            return Number(kind.__name__, self._text(_number_text(value)))
        if kind in (bytes, bytearray):
            shown = bytes(value[: min(MAX_BYTES_SHOWN, self._characters // 2)])
            self._characters -= 2 * len(shown)
            return Bytes(kind.__name__, shown.hex(), len(value))
        if kind in _ATOMS:
            return Atom(kind.__name__, self._text(str(value)))
        if kind in (list, tuple, set, frozenset):
            return Items(kind.__name__, self._nodes(value, depth), len(value))
        if kind is dict:
            return Pairs(self._nodes(value.keys(), depth), self._nodes(value.values(), depth), len(value))
        return self._of_library(value)

    def _nodes(self, items: Iterable[Any], depth: int) -> tuple[Shown, ...]:
        return tuple(self.node(item, depth + 1) for item in itertools.islice(items, MAX_ITEMS))

    def _of_library(self, value: Any) -> Shown:
        numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
        if numpy is not None:
            if type(value) is numpy.ndarray:
                return self._array(value)
            if isinstance(value, numpy.generic) and type(value) is value.dtype.type:
                if isinstance(value, numpy.str_):
                    return self.node(str(value), 0)
                if isinstance(value, numpy.bytes_):
                    return self.node(bytes(value), 0)
                return Number(value.dtype.name, self._cell(value))
        if pandas is not None:
            if type(value) is pandas.DataFrame:
                return self._frame(value)
            if type(value) is pandas.Series:
                name = "" if value.name is None else self._cell(value.name)
                index = tuple(self._cell(label) for label in value.index[:MAX_ROWS])
                rows = tuple((self._cell(item),) for item in value.iloc[:MAX_ROWS].tolist())
                return Table("Series", (len(value),), (name,), index, rows, value.dtype.name[:MAX_CELL])
            if isinstance(value, pandas.Index):
                rows = tuple((self._cell(item),) for item in value[:MAX_ROWS].tolist())
                return Table(type(value).__name__, (len(value),), ("",), (), rows)
            if value is pandas.NaT or value is pandas.NA or type(value) in (pandas.Timestamp, pandas.Timedelta):
                return Atom(type(value).__name__, self._cell(value))
        return Poison(f"a value of type {type(value).__name__[:100]}, which has no rendering")

    def _array(self, array: Any) -> Shown:
        shape = tuple(int(length) for length in array.shape)
        if array.ndim == 0:
            return Number(array.dtype.name, self._cell(array[()]))
        plane = array.reshape(-1, 1) if array.ndim == 1 else array
        while plane.ndim > 2:
            if not len(plane):
                return Table("ndarray", shape, (), (), (), array.dtype.name)
            plane = plane[0]
        rows = self._rows(plane[:MAX_ROWS, :MAX_COLUMNS].tolist())
        columns = tuple(str(number) for number in range(min(plane.shape[1], MAX_COLUMNS)))
        note = array.dtype.name + ("; the first plane" if array.ndim > 2 else "")
        return Table("ndarray", shape, columns, tuple(str(number) for number in range(len(rows))), rows, note)

    def _frame(self, frame: Any) -> Shown:
        head = frame.iloc[:MAX_ROWS, :MAX_COLUMNS]
        columns = tuple(self._cell(label) for label in head.columns)
        index = tuple(self._cell(label) for label in head.index)
        # Column by column: a common dtype for a whole row would change how its numbers look.
        texts = [[self._cell(item) for item in head.iloc[:, at].tolist()] for at in range(head.shape[1])]
        rows = tuple(tuple(row) for row in zip(*texts, strict=True)) if texts else ((),) * len(index)
        return Table("DataFrame", tuple(frame.shape), columns, index, rows)

    def _rows(self, rows: list[list[Any]]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self._cell(item) for item in row) for row in rows)

    def _cell(self, item: Any) -> str:
        """One cell of a table. Its type is one that the codec made, so `str` is that of a known library."""
        text = item if type(item) is str else _number_text(item) if type(item) is int else str(item)
        return self._text(text if len(text) <= MAX_CELL else text[:MAX_CELL] + "…")

    def _text(self, text: str) -> str:
        shown = text[: max(0, self._characters)]
        self._characters -= len(shown)
        # A lone surrogate has no UTF-8, and so no JSON.
        return shown.encode("utf-8", "replace").decode("utf-8")


def _number_text(value: Any) -> str:
    if type(value) is int and value.bit_length() > 10_000:
        return f"{value:#x}"[:MAX_CELL] + f"… ({value.bit_length()} bits)"  # str() of it is slow, and refused by Python
    return str(value)
