"""What was typed and what the front end may ask about it: history, kept here and nowhere else, in memory."""

from __future__ import annotations

import fnmatch
from typing import Any

_MOST = 10_000
_LONGEST = 1000  # characters of a pattern: matching is done on the kernel's own loop


class History:
    """The cells of this session, in order."""

    def __init__(self) -> None:
        self._cells: list[tuple[int, str, str]] = []  # number, as typed, as checked

    def add(self, number: int, raw: str, text: str) -> None:
        self._cells.append((number, raw, text))
        del self._cells[:-_MOST]

    def find(
        self,
        access: str,
        *,
        raw: bool = True,
        output: bool = False,
        session: int = 0,
        start: int = 0,
        stop: int | None = None,
        n: int | None = None,
        pattern: str | None = None,
        unique: bool = False,
    ) -> list[tuple[int, int, Any]]:
        """Entries `(session, number, source)`, as the Jupyter protocol has them. Outputs are not kept."""
        cells = self._cells
        match access:
            case "tail":
                chosen = cells
            case "range":
                # 0 is this session; earlier ones are not kept.
                chosen = [cell for cell in cells if session == 0 and start <= cell[0] < (stop or cell[0] + 1)]
            case "search":
                wanted = pattern or "*"
                chosen = [c for c in cells if len(wanted) <= _LONGEST and fnmatch.fnmatchcase(c[1], wanted)]
            case _:
                chosen = []
        found = [(0, number, typed if raw else text) for number, typed, text in chosen]
        if unique:
            latest = {source: (session, number, source) for session, number, source in found}
            found = sorted(latest.values(), key=lambda entry: entry[1])
        if n is not None and access != "range":
            found = found[-n:] if n > 0 else []
        return [(session, number, (source, None)) for session, number, source in found] if output else list(found)
