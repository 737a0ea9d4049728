"""Memory kept back, so that a cell that met its limit can still be told so, and the next one can free something.

It is asked for and never touched, so it costs address space and nothing else.
"""

from __future__ import annotations

_BYTES = 32 * 1024 * 1024


class Reserve:
    """Held while there is memory, given back when there is none."""

    def __init__(self) -> None:
        self._held: bytearray | None = None

    def hold(self) -> None:
        """Take it back, if there is memory again."""
        if self._held is None:
            try:
                self._held = bytearray(_BYTES)
            except MemoryError:
                pass

    def release(self) -> None:
        self._held = None
