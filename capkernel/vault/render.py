"""A value as text for the person's eyes: `rendered` runs in a job's own process, like a function given to `map`.

Rule 1: a closed set. Types of `wire.values` have a rendering each; anything else is named, never asked to show itself.
Rule 2: bounded before it is built: characters, parts, depth, rows, columns, pictures.
Rule 3: no markup: what comes out is text, and pictures made anew from pixels (`wire.shown`).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from re import Pattern
from typing import Any
from uuid import UUID

from capkernel.vault import json_tree, pictures
from capkernel.wire.shown import (
    MAX_JSON_BYTES,
    Atom,
    Bool,
    Bytes,
    Cut,
    Image,
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
MAX_TEXT_BYTES = 16 * 1024**2  # of bytes that are shown as text as well: how many characters they are is counted
MAX_PICTURES = 8
PICTURE_BYTES = 1_400_000  # of all pictures together

_NUMBERS = (int, float, complex, Decimal, Fraction)
_ATOMS = (date, time, datetime, timedelta, UUID, range, Pattern)
_CELL_COSTS = 3  # characters of a cell beside its text


def rendered(value: object) -> str:
    """The rendering as JSON, for a viewer that draws pictures."""
    whole = to_json(render(value))
    return (whole if len(whole) <= MAX_JSON_BYTES else to_json(render(value, more=False))).decode("utf-8")


def rendered_plain(value: object) -> str:
    """The rendering as JSON, without the ways to see a value that only a page has."""
    return to_json(render(value, more=False)).decode("utf-8")


def render(value: object, *, more: bool = True) -> Shown:
    """A bounded tree of texts. more: with the other ways to see a value: pictures, text of bytes, JSON as a tree."""
    return _Renderer(more).node(value, 0)


class _Renderer:
    def __init__(self, more: bool) -> None:
        self._more = more
        self._characters = MAX_CHARACTERS
        self._parts = MAX_PARTS
        self._pictures = MAX_PICTURES
        self._picture_bytes = PICTURE_BYTES

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
            return self._string(value, depth)
        if kind in _NUMBERS:
            return Number(kind.__name__, self._text(_number_text(value)))
        if kind in (bytes, bytearray):
            return self._bytes(value, depth)
        if kind in _ATOMS:
            return Atom(kind.__name__, self._text(_atom_text(value)))
        if kind in (list, tuple, set, frozenset):
            return Items(kind.__name__, self._nodes(value, depth), len(value))
        if kind is dict:
            return Pairs(self._nodes(value.keys(), depth), self._nodes(value.values(), depth), len(value))
        if kind is json_tree.Literal:
            return Number(value.type, self._text(value.text))
        if kind is json_tree.Object:
            keys = self._nodes((key for key, _ in value.pairs), depth)
            return Pairs(keys, self._nodes((item for _, item in value.pairs), depth), len(value.pairs))
        return self._of_library(value)

    def _nodes(self, items: Iterable[Any], depth: int) -> tuple[Shown, ...]:
        return tuple(self.node(item, depth + 1) for item in itertools.islice(items, MAX_ITEMS))

    def _string(self, value: str, depth: int) -> Text:
        shown = self._text(value)
        if depth or not self._more or len(shown) < len(value) or len(value) > MAX_CHARACTERS // 2:
            return Text(shown, len(value))
        tree = json_tree.parsed(value)
        return Text(shown, len(value), None if tree is None else self.node(tree, 1))

    def _bytes(self, value: bytes | bytearray, depth: int) -> Bytes:
        shown = bytes(value[: min(MAX_BYTES_SHOWN, self._characters // 2)])
        self._characters -= 2 * len(shown)
        picture = self._picture(pictures.of_bytes, value) if self._more else None
        text = self._utf8(value) if self._more and depth == 0 and picture is None else None
        return Bytes(type(value).__name__, shown.hex(), len(value), text, picture)

    def _utf8(self, value: bytes | bytearray) -> Text | None:
        """The same as text, when it is."""
        if len(value) > MAX_TEXT_BYTES:
            return None
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            return None
        return self._string(text, 0) if text and "\0" not in text else None

    def _picture(self, make: Any, value: Any) -> Image | None:
        if self._pictures <= 0:
            return None
        made: Image | None = make(value, self._picture_bytes)
        if made is not None:
            self._pictures -= 1
            self._picture_bytes -= len(made.png) * 3 // 4
        return made

    # ── numpy and pandas ─────────────────────────────────────────────────────────────────────────────────────────────

    def _of_library(self, value: Any) -> Shown:
        numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
        if numpy is not None:
            if type(value) is numpy.ndarray:
                return self._array(value)
            if isinstance(value, numpy.generic) and type(value) is value.dtype.type:
                if isinstance(value, numpy.str_):
                    return self.node(str(value), 1)
                if isinstance(value, numpy.bytes_):
                    return self.node(bytes(value), 1)
                return Number(value.dtype.name, self._cell(value))
        if pandas is not None:
            if type(value) is pandas.DataFrame:
                return self._frame(value)
            if type(value) is pandas.Series:
                name = "" if value.name is None else self._cell(value.name)
                index, rows = self._rows([value.iloc[:MAX_ROWS].tolist()], value.index[:MAX_ROWS])
                return Table("Series", (len(value),), (name,), index, rows, value.dtype.name[:MAX_CELL])
            if isinstance(value, pandas.Index):
                _, rows = self._rows([value[:MAX_ROWS].tolist()], None)
                return Table(type(value).__name__, (len(value),), ("",), (), rows)
            if value is pandas.NaT or value is pandas.NA or type(value) in (pandas.Timestamp, pandas.Timedelta):
                return Atom(type(value).__name__, self._cell(value))
        return Poison(f"a value of type {type(value).__name__[:100]}, which has no rendering")

    def _array(self, array: Any) -> Shown:
        shape = tuple(int(length) for length in array.shape)
        if array.ndim == 0:
            return Number(array.dtype.name, self._cell(_moments_as_text(array)[()]))
        plane = array.reshape(-1, 1) if array.ndim == 1 else array
        while plane.ndim > 2:
            if not len(plane):
                return Table("ndarray", shape, (), (), (), array.dtype.name)
            plane = plane[0]
        shown = _moments_as_text(plane[:MAX_ROWS, :MAX_COLUMNS])
        names = tuple(str(number) for number in range(shown.shape[1]))
        index, rows = self._rows([shown[:, at].tolist() for at in range(shown.shape[1])], range(len(shown)))
        note = array.dtype.name + ("; the first plane" if array.ndim > 2 else "")
        picture = self._picture(pictures.of_array, array) if self._more else None
        return Table("ndarray", shape, names, index, rows, note, picture)

    def _frame(self, frame: Any) -> Shown:
        head = frame.iloc[:MAX_ROWS, :MAX_COLUMNS]
        names = tuple(self._cell(label) for label in head.columns)
        # Column by column: a common dtype for a whole row would change how its numbers look.
        rows = self._rows([head.iloc[:, at].tolist() for at in range(head.shape[1])], head.index)
        return Table("DataFrame", tuple(frame.shape), names, *rows)

    def _rows(
        self, columns: list[list[Any]], labels: Iterable[Any] | None
    ) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """Labels and rows, as many as there is room for: a row is whole or not there. Without columns: labels alone."""
        index: list[str] = []
        rows: list[tuple[str, ...]] = []
        texts: Iterable[tuple[Any, ...]] = zip(*columns, strict=True) if columns else itertools.repeat(())
        for items, label in zip(texts, itertools.repeat(None) if labels is None else labels, strict=False):
            if self._characters <= 0:
                break
            if labels is not None:
                index.append(self._cell(label, whole=True))
            rows.append(tuple(self._cell(item, whole=True) for item in items))
        return tuple(index), tuple(rows)

    # ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _cell(self, item: Any, *, whole: bool = False) -> str:
        """One cell of a table. Its type is one that the codec made, so `str` is that of a known library. whole: take
        the room for it even where little is left, so that a row is never half there."""
        text = item if type(item) is str else _atom_text(item) if type(item) is range else _number_text(item)
        text = text if len(text) <= MAX_CELL else text[:MAX_CELL] + "…"
        self._characters -= _CELL_COSTS
        if whole:
            self._characters -= len(text)
            return _without_surrogates(text)
        return self._text(text)

    def _text(self, text: str) -> str:
        shown = text[: max(0, self._characters)]
        self._characters -= len(shown)
        return _without_surrogates(shown)


def _without_surrogates(text: str) -> str:
    """A lone surrogate has no UTF-8, and so no JSON: the character that stands for what cannot be shown."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _moments_as_text(array: Any) -> Any:
    """`tolist` makes integers of times in nanoseconds."""
    return array.astype(str) if array.dtype.kind in "mM" else array


def _number_text(value: Any) -> str:
    if type(value) is int and value.bit_length() > 10_000:
        return f"{value:#x}"[:MAX_CELL] + f"… ({value.bit_length()} bits)"  # str() of it is slow, and refused by Python
    if type(value) is Fraction:
        return f"{_number_text(value.numerator)}/{_number_text(value.denominator)}"
    if type(value) is tuple:  # a label of several levels
        return f"({', '.join(_number_text(part)[:MAX_CELL] for part in value[:MAX_COLUMNS])})"
    return str(value)


def _atom_text(value: Any) -> str:
    if type(value) is range:
        ends = [value.start, value.stop] if value.step == 1 else [value.start, value.stop, value.step]
        return f"range({', '.join(map(_number_text, ends))})"
    if isinstance(value, Pattern):
        return f"re.compile({value.pattern[:MAX_CHARACTERS]!r}) with flags {int(value.flags)}"
    return str(value)
