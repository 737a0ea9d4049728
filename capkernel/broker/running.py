"""The cell that runs now, and how much it does at once.

Rule 1: at most one cell of a session runs. Whatever has waited asks again whether its cell is still that one; else what
it came for is revoked.
Rule 2: the effects of one cell are bounded, and so are those of the session, where some of earlier cells may hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from capkernel.broker.failures import denied, revoked
from capkernel.wire.plan import Plan

PARALLEL_EFFECTS: Final = 4  # of one cell
MAX_WAITING: Final = 64  # of one cell
MAX_RUNNING: Final = 32  # of the session: effects of earlier cells may still hang in a file system


@dataclass(eq=False)
class Cell:
    """plan: what the checker found that it may do. slots: of effects that are done side by side."""

    number: int
    plan: Plan
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL_EFFECTS))
    waiting: int = 0

    @contextmanager
    def asked(self) -> Iterator[None]:
        """While an effect of this cell is asked for, done or not. Raises EffectError for one too many."""
        if self.waiting >= MAX_WAITING:
            raise denied(f"more than {MAX_WAITING} effects at once: wait for some of them")
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


class Running:
    """Of one session. Changed on the event loop; read in threads as well."""

    def __init__(self) -> None:
        self.cell: Cell | None = None
        self.effects = 0  # that are being done, of whatever cell

    def require(self, cell: Cell) -> None:
        """Raise EffectError unless it still runs."""
        if self.cell is not cell:
            raise revoked()

    @contextmanager
    def effect(self, cell: Cell) -> Iterator[None]:
        """While an effect of the cell is being done. Raises EffectError when the cell is over, or one too many."""
        self.require(cell)
        if self.effects >= MAX_RUNNING:
            raise denied(f"{MAX_RUNNING} effects of earlier cells have not ended: the file system hangs")
        self.effects += 1
        try:
            yield
        finally:
            self.effects -= 1
