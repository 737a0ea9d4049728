"""JSON in a text, as a tree that is faithful to it: every digit of a number, every key, also a repeated one.

Rule 1: never an exception: what is no JSON object or list, or is nested beyond what can be read, is None.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Literal:
    """A number as it is written. type: "int" or "float"."""

    type: str
    text: str


@dataclass(frozen=True)
class Object:
    pairs: tuple[tuple[str, Any], ...]


def parsed(text: str) -> Object | list[Any] | None:
    """The object or list that the text is. Strings, truth values and null are Python's; objects and numbers are those
    above."""
    if not text.lstrip(" \t\r\n").startswith(("{", "[")):
        return None
    try:
        made = json.loads(
            text,
            object_pairs_hook=lambda pairs: Object(tuple(pairs)),
            parse_int=lambda digits: Literal("int", digits),
            parse_float=lambda digits: Literal("float", digits),
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        return None
    return made if isinstance(made, Object | list) else None


def _no_constant(_: str) -> None:
    raise ValueError("JSON has no such number")
