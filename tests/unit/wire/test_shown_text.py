"""Texts in a terminal: no character of a value acts on it."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from capkernel.wire.shown import (
    Atom,
    Bool,
    Bytes,
    Cut,
    Items,
    Nothing,
    Number,
    Pairs,
    Pending,
    Poison,
    Shown,
    Table,
    Text,
    Unknown,
)
from capkernel.wire.shown_text import lines, visible, what

HOSTILE = "\x1b]0;title\x07\x1b[2J\r\b\x7f\x9b31m\u202eabc\u2066\u200b\u2028\ufeff\U000e0041\ud800\ue000"


def test_controls_and_what_reorders_or_hides_text_are_made_visible() -> None:
    shown = visible(HOSTILE)
    assert shown == (
        r"\x1b]0;title\x07\x1b[2J\x0d\x08\x7f\x9b31m\u202eabc\u2066\u200b\u2028\ufeff\U000e0041\ud800\ue000"
    )
    assert shown.isascii()


def test_every_character_is_either_itself_or_plain_ascii() -> None:
    for code in (
        *range(0x3400),
        *range(0xD700, 0x10800),
        *range(0x1F000, 0x20000),
        *range(0xE0000, 0xE0200),
        sys.maxunicode,
    ):
        shown = visible(chr(code))
        itself = shown == chr(code) and (chr(code).isprintable() or unicodedata.category(chr(code)) == "Zs")
        assert itself or (shown.isascii() and shown.isprintable()), hex(code)


def test_ordinary_text_stays() -> None:
    assert visible("héllo 世界 😀 a\u0301") == "héllo 世界 😀 a\u0301"


@pytest.mark.parametrize(
    "shown",
    [
        Text(HOSTILE + "\n" + HOSTILE, 500),
        Number("int", "1\x1b"),
        Atom("date\x1b", "2024\x1b"),
        Items("list", (Text(HOSTILE, 9), Bytes("bytes", "1b", 1), Items("set", (), 0)), 500),
        Pairs((Text("k\x1b", 2),), (Table("ndarray", (1,), ("\x1b",), ("\x1b",), (("\x1b",),)),), 1),
        Table("DataFrame\x1b", (1, 1), ("c\x1b",), ("i\x1b",), (("v\x1b",),), "n\x1b"),
        Poison("why\x1b", "cell\x1b 1"),
        Bool(True),
        Nothing(),
        Cut(),
        Pending(),
        Unknown(),
        Bytes("bytes", "00" * 20, 99),
    ],
)
def test_no_rendering_puts_a_control_on_the_screen(shown: Shown) -> None:
    for line in (*lines(shown), what(shown)):
        assert "\x1b" not in line
        assert line.isprintable()


def test_a_tree_and_a_table_read_well() -> None:
    tree = Pairs((Text("a", 1),), (Items("list", (Number("int", "1"), Text("x", 1)), 5),), 1)
    assert lines(tree) == ['"a": list, 5 items (the first 2 are shown)', "    0: 1", '    1: "x"', "    … 3 more"]
    table = Table("DataFrame", (2, 2), ("name", "pay"), ("0", "1"), (("ann", "3"), ("bob", "10")))
    assert lines(table) == ["   name  pay", "0   ann    3", "1   bob   10"]
    assert lines(Bytes("bytes", "004161", 3)) == ["00000000  00 41 61" + " " * 41 + ".Aa"]
