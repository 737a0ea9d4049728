"""Text with what looks like a key masked: for records, which are kept for longer than a session.

Rule 1: a guess. It masks too much rather than too little, and it is no protection of a secret: those are in the vault,
and all that is ever here is their mask. docs/audit.md lists what counts: a kind is added here and there.
Rule 2: work is linear in the text: every repetition is bounded, or ends where the next match begins.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

MASK: Final = "***"
_LEAST_ENTROPY: Final = 3.5  # bits for each character, of what has letters of both cases and digits
_LEAST_HEX_ENTROPY: Final = 3.0

_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,60}-----.*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)", re.DOTALL
)  # without its end: up to the end of the text
_URL = re.compile(
    r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://)"
    r"(?P<user>[^\s/?#\"'<>@]{1,400}@)?"
    r"(?P<place>[^\s?#\"'<>]{0,2000})"
    r"(?P<query>[?#][^\s\"'<>]*)?"
)
_BEARER = re.compile(r"(?i)\b(?P<word>bearer|basic|digest)(?P<gap>[ \t]{1,4})(?P<value>[A-Za-z0-9._~+/=-]{8,})")
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk[-_][A-Za-z0-9_-]{12,}|[rp]k_(?:live|test)_[A-Za-z0-9]{8,}"  # OpenAI, Anthropic, Stripe
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{12,}"
    r"|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}"  # AWS
    r"|AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{10,}"  # Google
    r"|xox[abeprs]-[A-Za-z0-9-]{8,}"  # Slack
    r"|hf_[A-Za-z0-9]{12,}|npm_[A-Za-z0-9]{12,}|pypi-[A-Za-z0-9_-]{12,}|dop_v1_[a-f0-9]{12,}"
    r"|SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"  # a JSON web token
    r")"
)
_TEXT = r"[A-Za-z]{0,2}(?:\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|\"(?:\\.|[^\"\\\n])*\"?|'(?:\\.|[^'\\\n])*'?)"
_ASSIGNED = re.compile(
    r"(?P<name>passwords?|passwd|passphrase|pwd|secrets?|tokens?|api[_-]?keys?|access[_-]?keys?|private[_-]?keys?"
    r"|signing[_-]?keys?|credentials?|authorization)"
    r"(?P<rest>[\w-]{0,40}[\"']?\]?)"
    r"(?P<sign>[ \t]{0,20}:[ \t]{0,20}[A-Za-z_][\w.\[\], |]{0,80}?[ \t]{0,20}=(?!=)"  # name: type =
    r"|[ \t]{0,20}(?::=|==|!=|=|:)(?!=)|[ \t]{0,4},(?=[ \t]*[\"']))"
    r"(?P<gap>[\s(\[{\\]{0,40})"
    rf"(?P<value>{_TEXT}(?:[\s\\+]{{0,40}}{_TEXT})*|[^\s\"',;)\]}}#]+)",
    re.IGNORECASE | re.DOTALL,
)
_EXPRESSION = re.compile(r"[A-Za-z_][\w.]*[(\[]|(?:None|True|False|str|bytes|int)\b")
_RUN = re.compile(r"[A-Za-z0-9+/_=-]{20,}")
_HEX = re.compile(r"[0-9a-fA-F]{32,}")


def redacted(text: str) -> str:
    """`text` with keys, passwords, tokens, PEM blocks, and the user and query parts of addresses masked."""
    text = _PEM.sub(MASK, text)
    text = _URL.sub(_address, text)
    text = _BEARER.sub(lambda found: f"{found['word']}{found['gap']}{MASK}", text)
    text = _SHAPES.sub(MASK, text)
    text = _ASSIGNED.sub(_assignment, text)
    return _RUN.sub(_run, text)


def _address(found: re.Match[str]) -> str:
    user = f"{MASK}@" if found["user"] else ""
    query = f"{found['query'][0]}{MASK}" if found["query"] and len(found["query"]) > 1 else found["query"] or ""
    return f"{found['scheme']}{user}{found['place']}{query}"


def _assignment(found: re.Match[str]) -> str:
    value = found["value"]
    if value == MASK or _EXPRESSION.match(value):
        return found[0]  # masked already, or a call, an item or a type: no literal stands here
    quote = f'"{MASK}"' if value.lstrip("rbfuRBFU")[:1] in ("'", '"') else MASK
    return f"{found['name']}{found['rest']}{found['sign']}{found['gap']}{quote}"


def _run(found: re.Match[str]) -> str:
    word = found[0]
    if _HEX.fullmatch(word):
        return MASK if not word.isdigit() and _entropy(word) >= _LEAST_HEX_ENTROPY else word  # a number is a number
    mixed = any(c.islower() for c in word) and any(c.isupper() for c in word) and any(c.isdigit() for c in word)
    return MASK if mixed and _entropy(word) >= _LEAST_ENTROPY else _HEX.sub(_run, word) if _HEX.search(word) else word


def _entropy(word: str) -> float:
    return -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())
