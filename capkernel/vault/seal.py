"""Sealing a rendering to a key of the person's viewer, so that all who pass it on hold ciphertext only."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from capkernel.wire.shown import seal_info

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def seal(plain: bytes, key: bytes, handle: str) -> bytes:
    """`plain` for the holder of the X25519 public key `key` (32 bytes). Raises ValueError for a key that is none."""
    try:
        return _SUITE.encrypt(plain, X25519PublicKey.from_public_bytes(key), seal_info(handle))
    except Exception as problem:
        raise ValueError(f"cannot be sealed ({type(problem).__name__})") from None


def unseal(sealed: bytes, key: X25519PrivateKey, handle: str) -> bytes:
    """The other direction, in a viewer. Raises ValueError when it was sealed to another key or for another handle."""
    try:
        return _SUITE.decrypt(sealed, key, seal_info(handle))
    except Exception:
        raise ValueError("not sealed to this viewer's key for this value") from None
