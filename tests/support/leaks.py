"""Looking for a secret in a text, in every spelling that an attacker would choose."""

from __future__ import annotations

import base64

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
