"""Which Classified handles exist in this session: numbers only, no values.

Rule 1: a handle is 32 lower-case hexadecimal digits and is accepted once, so a worker cannot put another value under a
handle that is known, or was.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Final

from capkernel.broker.failures import EffectError, denied

MAX_HANDLES: Final = 1_000_000
_HANDLE: Final = re.compile(r"[0-9a-f]{32}")


class ClassifiedHandles:
    """Handles the broker minted or accepted."""

    def __init__(self, limit: int = MAX_HANDLES) -> None:
        self._known: set[str] = set()
        self._shown: set[str] = set()  # of the known
        self._pinned: set[str] = set()  # of the known
        self._gone: set[bytes] = set()
        self._limit = limit

    def mint(self, *, pinned: bool = False) -> str:
        """A new handle. pinned: it stays when the worker drops it. Raises CapabilityDenied when the session holds too
        many."""
        if len(self._known) + len(self._gone) >= self._limit:
            raise denied(f"a session makes at most {self._limit} classified values: restart it")
        handle = secrets.token_hex(16)
        self._known.add(handle)
        if pinned:
            self._pinned.add(handle)
        return handle

    def accept(self, handle: str) -> bool:
        """Take a handle that the worker made; False when it is malformed, known already, or one too many."""
        if not _HANDLE.fullmatch(handle) or handle in self._known or bytes.fromhex(handle) in self._gone:
            return False
        if len(self._known) + len(self._gone) >= self._limit:
            return False
        self._known.add(handle)
        return True

    def knows(self, handle: str) -> bool:
        return handle in self._known

    def known(self) -> list[str]:
        return list(self._known)

    def show(self, handle: str) -> None:
        """The mask of this value became text, so the person may ask for it later."""
        if handle in self._known:
            self._shown.add(handle)

    def drop(self, handles: Sequence[str]) -> list[tuple[str, bool]]:
        """The worker says that it holds these no more. Those that are gone now, and whether each was shown. A worker
        that lies loses what is its own: the handle designates nothing from now on."""
        gone = []
        for handle in handles:
            if handle in self._known and handle not in self._pinned:
                self._known.remove(handle)
                self._gone.add(bytes.fromhex(handle))
                gone.append((handle, handle in self._shown))
                self._shown.discard(handle)
        return gone

    def require(self, handle: str) -> None:
        """Raise unless this is a handle of the session. Says nothing about its value."""
        if not self.knows(handle):
            raise EffectError("ValueError", "this is no Classified value of this session")
