"""What a cell asks the broker for when it uses a member of a `FileSystem` or a `FileEntry`.

Rule 1: a member that asks for something and is not here would be left out of the plan, and the broker would refuse it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Final

ANY: Final = "*"
"""Stands for every verb."""

VERBS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "children": ("list",),
    "walk": ("list",),
    "find": ("list",),
    "exists": ("list",),
    "is_directory": ("list",),
    "is_classified": ("list",),
    "size": ("list",),
    "read": ("read",),
    "read_bytes": ("read",),
    "read_lines": ("read",),
    "lines": ("read",),
    "for_each_line": ("read",),
    "grep": ("read",),
    "grep_recursive": ("list", "read"),
    "open": ("read", "write"),
    "write": ("write",),
    "write_bytes": ("write",),
    "append": ("write",),
    "delete": ("write",),
    "mkdir": ("write",),
    "read_classified": ("read_classified",),
    "read_classified_bytes": ("read_classified",),
    "write_classified": ("write_classified",),
}
"""The verbs of each member of `FileSystem` and `FileEntry` that asks the broker for something (`api.files`). Which one
of `open` is meant depends on its mode."""


def verbs_of(member: ast.Attribute, call: ast.Call | None) -> tuple[str, ...]:
    """What a use of a member can ask for. call: the one that calls it at once, when there is one."""
    if member.attr != "open" or call is None:
        return VERBS_OF.get(member.attr, ())
    modes = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg in (None, "mode"))]
    if not modes:
        return ("read",)
    mode = modes[0].value if len(modes) == 1 and isinstance(modes[0], ast.Constant) else None
    if not isinstance(mode, str):
        return VERBS_OF["open"]
    return ("read",) if mode.startswith("r") else ("write",)
