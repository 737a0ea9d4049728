"""Text on its way to the page: valid, and with no terminal command in it but colour.

Rule 1: of escape sequences only SGR (colour and weight) passes. Titles, links, clipboard and cursor commands do not.
"""

from __future__ import annotations

import re

_SUSPECT = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SGR = r"\x1b\[[0-9;]{0,64}m"
_TOKEN = re.compile(
    rf"(?P<keep>{_SGR})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # other control sequences
    r"|[\x1b](?:[\]PX^_]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]?"  # two-character escapes, and a lone one
    r"|\x9b[0-?]*[ -/]*[@-~]?|[\x90\x98\x9d-\x9f][^\x07\x1b\x9c]*(?:\x07|\x9c)?"  # the same, in their 8-bit forms
    r"|[\x00-\x07\x0b\x0e-\x1f\x7f-\x9f]"
    "|(?P<surrogate>[\ud800-\udfff])"
)


def clean_text(text: str) -> str:
    """`text` with lone surrogates replaced and every control but tab, line ends, backspace and SGR taken out."""
    if _SUSPECT.search(text) is None:
        return text
    return _TOKEN.sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    if found["surrogate"]:
        return "\ufffd"
    return found["keep"] or ""


def size_of(text: str) -> int:
    """Bytes of `text` in UTF-8; lone surrogates count three, as their replacement does."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
