"""mypy's messages in the words of this project: no literal values, names in backticks, cells instead of modules.

Rule 1: a message never prints the value of a literal. A type `Literal['sk-...']` is shown as `str`: the value may come
from another cell, and a diagnostic goes to the agent, the notebook and to models.
"""

from __future__ import annotations

import re

from capkernel.wire.local_names import without_prefixes

_CELL_NAME = re.compile(r"\bcell_(\d+)(?:_\d+)?\.([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_HIDDEN = re.compile(r"(?<!\w)·")  # inside a name it is a letter like any other


def widen(text: str) -> str:
    """`text` with every `Literal[...]` replaced by the type of its values."""
    out: list[str] = []
    at = 0
    while True:
        start = text.find("Literal[", at)
        if start < 0:
            out.append(text[at:])
            return "".join(out)
        out.append(text[at:start])
        items, at = _literal_items(text, start + len("Literal["))
        if at < len(text) and text[at] == "?":
            at += 1
        out.append(" | ".join(dict.fromkeys(items)) or "object")


def _literal_items(text: str, at: int) -> tuple[list[str], int]:
    """The types of the values from `at` to the closing bracket, and the place behind it."""
    items: list[str] = []
    while at < len(text) and text[at] != "]":
        if text[at] in ", ":
            at += 1
            continue
        start = at
        prefix = text[at] == "b" and text[at + 1 : at + 2] in ("'", '"')
        if prefix:
            at += 1
        if text[at] in "'\"":
            at = _string_end(text, at)
            items.append("bytes" if prefix else "str")
            continue
        while at < len(text) and text[at] not in ",]":
            at += 1
        items.append(_type_of_word(text[start:at].strip()))
    return items, at + 1


def _string_end(text: str, at: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _type_of_word(word: str) -> str:
    if word in ("True", "False"):
        return "bool"
    if word == "None":
        return "None"
    if word.lstrip("-").isdigit():
        return "int"
    return word.rpartition(".")[0] or "object"  # a member of an enum


def plain(message: str) -> str:
    """One line of mypy's as one of ours."""
    text = widen(_HIDDEN.sub("", message)).replace("\n", " ").strip().removesuffix(".")
    text = without_prefixes(_CELL_NAME.sub(r"\2 (cell \1)", text))
    return text.replace('"', "`")
