"""Looking for a secret in a text, in every spelling an attacker would choose; comparing what two sessions say."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

WINDOW = 10  # characters: a piece this long of a random text is no accident


def spellings(secret: str) -> set[str]:
    """The ways a text can be written that are searched for."""
    raw = secret.encode()
    found = {
        secret, secret.upper(), secret.lower(), secret.swapcase(), secret[::-1], raw.hex(), raw[::-1].hex(),
        ", ".join(str(byte) for byte in raw), " ".join(str(byte) for byte in raw),
    }  # fmt: skip
    for lead in (b"", b"x", b"xx"):  # base64 has three alignments
        text = base64.b64encode(lead + raw).decode().rstrip("=")
        found.add(text[len(lead) + 1 : -1])
    # One character after the other, as a loop or the repr of a list writes them.
    found |= {
        "".join(f"{letter}{between}" for letter in secret[:-1]) + secret[-1]
        for between in ("\n", "\\n", "\\\\n", " ", ",", ", ")
    }
    found |= {", ".join(f"{quote}{letter}{quote}" for letter in secret[1:]) for quote in ("'", '"')}
    return found


def leaked(secret: str, text: str) -> list[str]:
    """Which spellings, or pieces of the secret, are in `text`."""
    found = [form for form in spellings(secret) if form in text]
    for form in (secret, secret[::-1], secret.upper()):
        pieces = {form[start : start + WINDOW] for start in range(len(form) - WINDOW + 1)}
        found += [piece for piece in pieces if piece in text]
    return found


def normal(message: dict[str, Any]) -> str:
    """As text, without ids, dates and addresses."""
    text = json.dumps(message, sort_keys=True, default=str)
    text = re.sub(r"[0-9a-f]{8}-?[0-9a-f]{4,}[-_0-9a-f]*", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)?", "DATE", text)
    return re.sub(r"0x[0-9a-f]+", "ADDRESS", text)
