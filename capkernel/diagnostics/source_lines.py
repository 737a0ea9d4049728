"""The lines of a text as Python counts them, which is how every position in a cell is meant."""

from __future__ import annotations

from functools import lru_cache


def source_lines(text: str) -> list[str]:
    """Lines without their ends. Not `str.splitlines`: that also breaks at form feeds and other characters that are no
    line end to Python (Language Reference, "Physical lines")."""
    return list(lines_of(text))


@lru_cache(maxsize=4)  # every function of a cell asks for the lines of the same text
def lines_of(text: str) -> tuple[str, ...]:
    """The same, not to be changed."""
    return tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
