"""Pairing: the person proves that a page is theirs by typing a code that the server printed where it was started.

Rule 1: a code is for one identity, lives CODE_SECONDS, takes TRIES tries, and works once. A server has one at a time,
and no other while it could live, also when its tries are used up: nobody guesses faster by asking for more, or by
logging in as more. (Whoever may log in can keep others from pairing so, and nothing else.)
Rule 2: what a right code buys is bound to the identity and signed with a key that exists in this process only: it ends
with the server, and after PAIRED_SECONDS.
Rule 3: comparisons take the same time whatever was given.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from capkernel.wire.shown_text import visible

DIGITS: Final = 8
TRIES: Final = 3
CODE_SECONDS: Final = 120.0
PAIRED_SECONDS: Final = 12 * 3600


class NotPaired(Exception):
    """The code does not pair. The text says what to do."""


@dataclass
class _Code:
    identity: str
    digits: str
    ends: float
    tries: int = TRIES


class Pairing:
    """The codes and the pairings of one server. Belongs to its event loop.

    show: prints an identity and a code for the person. clock: seconds that never go back. now: Unix time.
    """

    def __init__(
        self,
        show: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._show = show
        self._clock = clock
        self._now = now
        self._key = secrets.token_bytes(32)
        self._code: _Code | None = None

    def begin(self, identity: str) -> None:
        """Print a code for this identity, unless its last one lives. Raises NotPaired while there can be none."""
        code = self._live()
        if code is not None:
            if code.identity == identity and code.tries > 0:
                return
            raise NotPaired("A code was printed a moment ago and cannot be used here: reload this page in two minutes.")
        digits = "".join(secrets.choice("0123456789") for _ in range(DIGITS))
        self._code = _Code(identity, digits, self._clock() + CODE_SECONDS)
        self._show(identity, digits)

    def finish(self, identity: str, digits: str) -> str:
        """A right code for a cookie's value. Raises NotPaired."""
        code = self._live()
        if code is None or code.identity != identity:
            raise NotPaired("There is no code, or it has expired: reload this page for a new one.")
        if code.tries <= 0:
            raise NotPaired("Three codes were wrong: reload this page in two minutes for a new one.")
        code.tries -= 1
        if not hmac.compare_digest(digits.encode("utf-8", "replace"), code.digits.encode("ascii")):
            left = {0: "no try is", 1: "one try is"}.get(code.tries, f"{code.tries} tries are")
            raise NotPaired(f"This is not the code that the server printed: {left} left.")
        self._code = None
        ends, nonce = int(self._now()) + PAIRED_SECONDS, secrets.token_hex(16)
        return f"{ends}.{nonce}.{self._signature(identity, ends, nonce)}"

    def holds(self, identity: str, cookie: str) -> bool:
        """Whether `cookie` is one that `finish` gave this identity, and still counts."""
        parts = cookie.split(".")
        if len(parts) != 3 or not (parts[0].isascii() and parts[0].isdigit()) or len(parts[0]) > 12:
            return False
        ends, nonce, given = int(parts[0]), parts[1], parts[2]
        right = hmac.compare_digest(
            given.encode("utf-8", "replace"), self._signature(identity, ends, nonce).encode("ascii")
        )
        return right and self._now() < ends

    def _live(self) -> _Code | None:
        if self._code is not None and self._clock() >= self._code.ends:
            self._code = None
        return self._code

    def _signature(self, identity: str, ends: int, nonce: str) -> str:
        said = f"{ends}.{nonce}.{identity}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()


def on_terminal(identity: str, digits: str) -> None:
    """Print a code where the server was started; in no log of Jupyter's."""
    code = f"{digits[:4]} {digits[4:]}"
    who = visible(identity)[:100]
    print(  # noqa: T201  # this is the person's terminal
        f"\n[capkernel] pairing code: {code}\n[capkernel] for {who}, two minutes, typed only on the page "
        "…/capkernel/pair. If you did not open that page, do nothing.\n",
        file=sys.stderr,
        flush=True,
    )
