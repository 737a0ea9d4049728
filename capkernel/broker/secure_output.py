"""The sink "secure output": what a cell shows of classified values, in clear text, in a file of the person's.

Rule 1: the worker says only which mask became text, and is told nothing: what happens for a value, for poison, for one
that is never computed and without any secure output is the same to it.
Rule 2: the cleartext goes from the keeper to the file; here are handles, and the header of an entry, which is made of
what this side knows.
Rule 3: a line of the audit comes before each entry. Entries are counted as they are asked for, never as they succeed.
Rule 4: a problem is told once per reason, and ends nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from capkernel.broker.audit import AuditLog, AuditUnavailable
from capkernel.broker.ledger import Ledger
from capkernel.broker.ports import MirrorPort
from capkernel.broker.secure_file import SecureFile, SecureFileUnusable
from capkernel.broker.threads import run_whole

MAX_PER_CELL: Final = 200
MAX_PER_SESSION: Final = 20_000
MAX_SHOWN_ORIGINS: Final = 10
WHAT: Final = "classified.mirror"


class SecureOutput:
    """The entries of one session. On the event loop; looking at the file is done in a thread."""

    def __init__(
        self, file: SecureFile, vault: MirrorPort, audit: AuditLog, ledger: Ledger, tell: Callable[[str], None]
    ) -> None:
        """tell: takes a line for the person."""
        self._file = file
        self._vault = vault
        self._audit = audit
        self._ledger = ledger
        self._tell = tell
        self._told: set[str] = set()
        self._of_cell = self._of_session = 0
        self._waiting: deque[tuple[str, int, str]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Task[None]] = set()

    def begin_cell(self) -> None:
        self._of_cell = 0

    def shown(self, handle: str, cell: int) -> None:
        """A cell showed the mask of this handle, which is one of the session. Returns at once."""
        self._of_cell += 1
        self._of_session += 1
        if self._of_cell > MAX_PER_CELL or self._of_session > MAX_PER_SESSION:
            if self._of_cell == MAX_PER_CELL + 1 or self._of_session == MAX_PER_SESSION + 1:
                self._note("denied", cell, f"more than {MAX_PER_CELL} in a cell or {MAX_PER_SESSION} in a session")
            return
        self._waiting.append((handle, cell, self._header(handle, cell)))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._hand_over())

    @property
    def idle(self) -> bool:
        """Whether no entry waits to be handed to the vault, or for the vault."""
        return not self._waiting and not self._asked and (self._pump is None or self._pump.done())

    async def settle(self, seconds: float) -> None:
        """Wait for the entries under way, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                if self._pump is not None:
                    await asyncio.shield(self._pump)
                if self._asked:
                    await asyncio.wait(set(self._asked))
        except TimeoutError:
            return

    def _header(self, handle: str, cell: int) -> str:
        origins = sorted(self._vault.origins(handle) or ())
        more = len(origins) - MAX_SHOWN_ORIGINS
        known = self._ledger.get(handle)
        parts = [
            datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
            f"session {self._audit.session[:8]}",
            f"cell {cell}",
            f"from {', '.join(origins[:MAX_SHOWN_ORIGINS]) or 'nothing known'}" + (f" and {more}" if more > 0 else ""),
        ]
        if known is not None and known.label:
            parts.append(f"label (the cell's own word) {known.label[:200]!r}")
        return " | ".join(parts)

    async def _hand_over(self) -> None:
        while self._waiting:
            handle, cell, header = self._waiting.popleft()
            try:
                await run_whole(self._file.look)
                self._audit.record(WHAT, "allowed", cell=cell)
            except SecureFileUnusable as problem:
                self._failed(cell, str(problem))
            except AuditUnavailable:
                continue  # it has said so itself
            else:
                task = asyncio.get_running_loop().create_task(self._mirror(handle, cell, header))
                self._asked.add(task)
                task.add_done_callback(self._asked.discard)

    async def _mirror(self, handle: str, cell: int, header: str) -> None:
        problem = await self._vault.mirror(handle, header)
        if problem:
            self._failed(cell, f"it cannot be written ({os.strerror(problem)})")

    def _failed(self, cell: int, why: str) -> None:
        self._note("failed", cell, why)
        if why not in self._told:
            self._told.add(why)
            self._tell(off(why))

    def _note(self, decision: str, cell: int, reason: str) -> None:
        try:
            self._audit.record(WHAT, decision, cell=cell, reason=reason, who="broker")
        except AuditUnavailable:
            return


def off(why: str) -> str:
    """The line that says that values do not reach the secure output."""
    return f"the secure output (output.secure_file) takes nothing: {why}"
