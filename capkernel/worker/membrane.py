"""The membrane in the worker: what `capkernel.api` uses to reach the kernel. It carries no authority."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from capkernel.wire.codekey import cell_of
from capkernel.wire.errors import LocalProtocolError
from capkernel.wire.plan import MaskSite, Span
from capkernel.wire.worker import (
    Classify,
    Effect,
    FunctionRef,
    MapClassified,
    MaskShown,
    ZipClassified,
)
from capkernel.worker.channel import Channel
from capkernel.worker.functions import Functions

UNKNOWN = "?"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")  # as the tokenizer counts lines; `splitlines` knows more of them


class WorkerMembrane:
    """Implements `api.membrane.Membrane` over the channel."""

    def __init__(self, channel: Channel, functions: Functions) -> None:
        self._channel = channel
        self._functions = functions
        self._masks: dict[int, tuple[tuple[MaskSite, ...], str]] = {}

    def know_cell(self, cell: int, masks: tuple[MaskSite, ...], text: str) -> None:
        """Remember the masks of a cell: its functions may run in later cells."""
        if masks:
            self._masks[cell] = (masks, text)

    def call(self, effect: Effect, blob: bytes = b"") -> tuple[Any, bytes]:
        with _as_python_says():
            return self._channel.call(effect, blob)

    def post(self, operation: Classify | MapClassified | ZipClassified | MaskShown, blob: bytes = b"") -> None:
        with _as_python_says():
            self._channel.send(operation, blob)

    def describe(self, function: Callable[..., Any]) -> tuple[FunctionRef, bytes]:
        return self._functions.describe(function)

    def mask_type(self) -> str:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            cell = cell_of(frame.f_code.co_filename)
            if cell is not None:
                known = self._masks.get(cell)
                return UNKNOWN if known is None else mask_at(frame, *known)
            frame = frame.f_back
        return UNKNOWN


@contextmanager
def _as_python_says() -> Iterator[None]:
    try:
        yield
    except LocalProtocolError as problem:
        half = "surrogates not allowed" in str(problem)
        why = "a text in it holds half a surrogate pair, which is no character" if half else str(problem)
        raise ValueError(f"this cannot be sent to the kernel: {why}") from None


def mask_at(frame: FrameType, masks: tuple[MaskSite, ...], text: str) -> str:
    """The type the checker gave to the call that `frame` is in the middle of."""
    place = _place(frame, text)
    if place is None:
        return UNKNOWN
    for site in masks:
        if site.span == place:
            return site.type
    # A chain of calls over several lines: the interpreter lets the call begin at its attribute, the end is the same.
    ends = [site for site in masks if (site.span.end_line, site.span.end_column) == (place.end_line, place.end_column)]
    return ends[0].type if len(ends) == 1 else UNKNOWN


def _place(frame: FrameType, text: str) -> Span | None:
    wanted = frame.f_lasti // 2
    for index, (line, end_line, column, end_column) in enumerate(frame.f_code.co_positions()):
        if index == wanted:
            if line is None or end_line is None or column is None or end_column is None:
                return None
            lines = _LINE_ENDS.split(text)
            return Span(line, _characters(lines, line, column), end_line, _characters(lines, end_line, end_column))
    return None


def _characters(lines: list[str], line: int, column: int) -> int:
    """A column in characters, for one in UTF-8 bytes."""
    if not 1 <= line <= len(lines) or lines[line - 1].isascii():
        return column
    return len(lines[line - 1].encode("utf-8")[:column].decode("utf-8", "replace"))
