"""What clients, notebooks and exports get of a displayed Classified: its mask, and a card for the person's front end.

Rule 1: everything in a bundle is of the broker's records, so of the posts alone: it is the same bytes for every value
of one static type, for poison, and for what was never computed. Nothing in it is the worker's word.
Rule 2: a handle that is none of this session's gets nothing.
Rule 3: it holds text, made visible. The label is the cell's claim; who shows it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any, Final

from capkernel.broker.ledger import MAX_TEXT, Ledger
from capkernel.wire.shown_text import visible

MIME_TYPE: Final = "application/vnd.capkernel.classified+json"
VERSION: Final = 1
_ORIGINS: Final = 5
_HINT: Final = "hidden: revealed in JupyterLab while the kernel runs, or by <code>capkernel view</code>"

Bundles = Callable[[str], dict[str, Any] | None]


class ClassifiedBundles:
    """The bundle of a handle, by MIME type; None for a handle that the records do not hold."""

    def __init__(self, ledger: Ledger, origins: Callable[[str], frozenset[str] | None]) -> None:
        """origins: of everything a value was made from."""
        self._ledger = ledger
        self._origins = origins

    def __call__(self, handle: str) -> dict[str, Any] | None:
        known = self._ledger.get(handle)
        if known is None:
            return None
        kind = visible(known.type)
        mask = f"Classified[{kind}](***)" if kind else "Classified(***)"
        card: dict[str, Any] = {"v": VERSION, "handle": handle, "type": kind}
        origin = _shown(sorted(self._origins(handle) or ()))
        if origin:
            card["origin"] = origin
        if known.label:
            card["label"] = visible(known.label)
        return {
            "text/plain": mask,
            "text/html": f"<p><code>{escape(mask)}</code> <small>{_HINT}</small></p>",
            MIME_TYPE: card,
        }


def _shown(origins: list[str]) -> str:
    more = f", and {len(origins) - _ORIGINS} more" if len(origins) > _ORIGINS else ""
    return ", ".join(visible(origin[:MAX_TEXT]) for origin in origins[:_ORIGINS]) + more
