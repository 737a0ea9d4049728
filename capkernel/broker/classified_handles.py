"""Which Classified handles exist in this session: numbers only, no values.

Rule 1: a handle is 32 lower-case hexadecimal digits and is accepted once, so a worker cannot put another value under a
handle that is known.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from capkernel.broker.failures import EffectError, denied

MAX_HANDLES: Final = 1_000_000
_HANDLE: Final = re.compile(r"[0-9a-f]{32}")


class ClassifiedHandles:
    """Handles the broker minted or accepted."""

    def __init__(self, limit: int = MAX_HANDLES) -> None:
        self._known: set[str] = set()
        self._limit = limit

    def mint(self) -> str:
        """A new handle. Raises CapabilityDenied when the session holds too many."""
        if len(self._known) >= self._limit:
            raise denied(f"a session makes at most {self._limit} classified values: restart it")
        handle = secrets.token_hex(16)
        self._known.add(handle)
        return handle

    def accept(self, handle: str) -> bool:
        """Take a handle that the worker made; False when it is malformed, known already, or one too many."""
        if not _HANDLE.fullmatch(handle) or handle in self._known or len(self._known) >= self._limit:
            return False
        self._known.add(handle)
        return True

    def knows(self, handle: str) -> bool:
        return handle in self._known

    def require(self, handle: str) -> None:
        """Raise unless this is a handle of the session. Says nothing about its value."""
        if not self.knows(handle):
            raise EffectError("ValueError", "this is no Classified value of this session")
