"""Text on its way to the page: valid, and with no terminal command in it but colour.

Rule 1: of escape sequences only SGR (colour and weight) passes. Titles, links, clipboard and cursor commands do not.
Rule 2: what a person sees is what a program reads. Characters that reorder the text around them (embeddings, overrides,
isolates) or that nobody sees (tags) are shown by their number. Text written from right to left needs none of them.
"""

from __future__ import annotations

import re

_HIDDEN = "\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f"
_IS_HIDDEN = re.compile(f"[{_HIDDEN}]")
_SUSPECT = re.compile(f"[\x00-\x07\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff{_HIDDEN}]")
_SGR = r"\x1b\[[0-9;]{0,64}m"
_TOKEN = re.compile(
    rf"(?P<keep>{_SGR})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # other control sequences
    r"|[\x1b](?:[\]PX^_]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes, and a lone one
    r"|\x9b[0-?]*[ -/]*[@-~]?|[\x90\x98\x9d-\x9f][^\x07\x1b\x9c]*(?:\x07|\x9c)?"  # the same, in their 8-bit forms
    r"|[\x00-\x07\x0b\x0e-\x1f\x7f-\x9f]"
    "|(?P<surrogate>[\ud800-\udfff])"
    f"|(?P<hidden>[{_HIDDEN}])"
)


def clean_text(text: str) -> str:
    """`text` with lone surrogates replaced, hidden characters shown, and of controls only tab, line ends, backspace and
    SGR left."""
    if _SUSPECT.search(text) is None:
        return text
    return _TOKEN.sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    if found["surrogate"]:
        return "\ufffd"
    if found["hidden"]:
        return _number(found)
    return found["keep"] or ""


def show_hidden(text: str, escape: str = "\\") -> str:
    """`text` with the characters that reorder text, and those that nobody sees, as `\\u202e` behind `escape`."""
    return text if text.isascii() else _IS_HIDDEN.sub(lambda found: _number(found, escape), text)


def _number(found: re.Match[str], escape: str = "\\") -> str:
    point = ord(found[0])
    return f"{escape}u{point:04x}" if point < 0x10000 else f"{escape}U{point:08x}"


def size_of(text: str) -> int:
    """Bytes of `text` in UTF-8; lone surrogates count three, as their replacement does."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
