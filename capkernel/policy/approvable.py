"""Effects that a policy can make wait for the person's decision: `[approvals] ask = ["files.write"]`.

Names are those of the audit. One that covers others asks for them too, so that there is no way around it: to append is
to write.
"""

from __future__ import annotations

import difflib
from typing import Final

COVERED: Final[dict[str, tuple[str, ...]]] = {
    "files.open_scope": ("files.open_scope",),
    "files.read": ("files.read", "files.open", "files.grep"),
    "files.write": ("files.write", "files.create", "files.append", "files.mkdir"),
    "files.create": ("files.create",),
    "files.append": ("files.append",),
    "files.mkdir": ("files.mkdir",),
    "files.delete": ("files.delete",),
    "files.read_classified": ("files.read_classified",),
    "files.write_classified": ("files.write_classified",),
    "files.overwrite_classified": ("files.overwrite_classified",),
}
"""What can be asked for, and the effects that then ask."""

WIDENING: Final = frozenset(("files.overwrite_classified",))
"""What is refused without being asked, and so may only be asked by the operator's word."""


def effects(ask: tuple[str, ...]) -> frozenset[str]:
    """The effects that ask, of a policy's `approvals.ask`."""
    return frozenset(effect for name in ask for effect in COVERED.get(name, ()))


def problem_with(name: str) -> str | None:
    """What is wrong with a name in `approvals.ask`, and what was meant; None when nothing is."""
    if name in COVERED:
        return None
    close = difflib.get_close_matches(name, COVERED, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(COVERED)}"
    return f"{name!r} is not an effect that can ask; {hint}"
