"""What a person decides about values: the exact text of one before it leaves the vault, and secrets they type.

Rule 1: a value is given out once, for a number that stands only in the sealed rendering of that very value: who did not
open the rendering cannot have it released.
Rule 2: the rendering is exact and whole: a Python expression in printable ASCII, or nothing. What it cannot say is not
released: more than MAX_RELEASED bytes of encoding, arrays and frames.
Rule 3: a typed secret is sealed to a key of this process that is made for it and gone with it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from capkernel.vault.entries import Entry
from capkernel.wire import values
from capkernel.wire.shown import MAX_RELEASED, MAX_TYPED, Release, secret_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

MAX_SHOWN: Final = 64  # numbers that are good at one time
MAX_KEYS: Final = 64
MAX_EXACT: Final = 65_536  # characters: the escapes of MAX_RELEASED bytes take less


def exact(value: object) -> str:
    """The value as a Python expression in printable ASCII. Runs in a job's process, like `render.rendered`."""
    return ascii(value)


def why_not(entry: Entry | None) -> str:
    """Why nothing of this can be released, for the person; "" when it can."""
    if entry is None:
        return "the vault has no such value any more"
    if entry.state == "pending":
        return "the vault is still computing it: look again in a moment"
    if entry.state == "poison":
        return f"there is no value: {entry.reason}" + (f" in {entry.place}" if entry.place else "")
    if len(entry.blob) > MAX_RELEASED:
        return f"its encoding has {len(entry.blob)} bytes, and at most {MAX_RELEASED} are released"
    if values.libraries(entry.blob):
        return "arrays and frames are not released as they are: map it to lists or text first"
    return ""


class Releases:
    """The numbers that were shown with a value."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, str] = OrderedDict()  # number → handle

    def shown(self, handle: str, entry: Entry, text: str | None) -> Release:
        """What the person sees of a value that `why_not` has nothing against. text: of `exact`, None when it failed."""
        if text is None or len(text) > MAX_EXACT or not text.isascii() or not text.isprintable():
            return Release(problem="the value is there, but cannot be shown exactly")
        number = secrets.token_hex(16)
        self._seen[number] = handle
        while len(self._seen) > MAX_SHOWN:
            self._seen.popitem(last=False)
        return Release(text, entry.type, len(entry.blob), number)

    def take(self, handle: str, seen: str) -> bool:
        """Whether the number was shown with this value. It, and all others of the value, are used up then."""
        if self._seen.get(seen) != handle:
            return False
        for number in [number for number, of in self._seen.items() if of == handle]:
            del self._seen[number]
        return True


class TypedSecrets:
    """The keys for secrets that a person is asked to type."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, X25519PrivateKey] = OrderedDict()

    def expect(self, handle: str) -> bytes:
        """A fresh public key (32 bytes) for what is typed for this handle."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        key = X25519PrivateKey.generate()
        self._keys[handle] = key
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        return key.public_key().public_bytes_raw()

    def open(self, handle: str, sealed: bytes) -> str | None:
        """What was typed; the key is gone then. None when it cannot be opened, is no text or is too long."""
        from capkernel.vault.seal import unseal

        key = self._keys.get(handle)
        if key is None:
            return None
        try:
            plain = unseal(sealed, key, secret_name(handle))
            text = plain.decode("utf-8") if len(plain) <= MAX_TYPED else None
        except ValueError:  # UnicodeDecodeError is one
            return None
        if text is not None:
            del self._keys[handle]
        return text
