"""The lines of a text as Python counts them, which is how every position in a cell is meant."""

from __future__ import annotations


def source_lines(text: str) -> list[str]:
    """Lines without their ends. Not `str.splitlines`: that also breaks at form feeds and other characters that are no
    line end to Python (Language Reference, "Physical lines")."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
