"""A person's answers, in a viewer: the exact value of a release opened, a typed secret sealed.

Rule 1: what is typed leaves this process sealed to the vault's key only; what is opened is for the screen.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capkernel.vault.seal import seal, unseal
from capkernel.viewer.link import Link
from capkernel.wire.shown import MAX_TYPED, Release, release_from_json, release_name, secret_name
from capkernel.wire.view import Question


def opened_release(link: Link, question: Question) -> Release:
    """What would be released, opened with a key made for this one time. Raises LinkRefused, ValueError."""
    key = X25519PrivateKey.generate()
    sealed = link.released(question.id, key.public_key().public_bytes_raw())
    return release_from_json(unseal(sealed, key, release_name(question.handle)))


def sealed_secret(question: Question, secret: str) -> bytes:
    """What the person typed, for the vault alone. Raises ValueError for what cannot be a secret."""
    try:
        data = secret.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("this is not text that can be sent") from None
    if not data or len(data) > MAX_TYPED:
        raise ValueError(f"a secret has 1 to {MAX_TYPED} bytes")
    return seal(data, question.key, secret_name(question.handle))
