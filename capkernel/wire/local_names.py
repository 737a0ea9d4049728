"""Modules beside the notebook, as session code: their names are names of the session, under a prefix.

`utils.py` is judged and run like a cell, but what its top level binds as `f` the session knows as `utilsǀf`.
`local_imports` reads what a text's imports mean, `local_renaming` writes the session's names into its tree.
"""

from __future__ import annotations

import msgspec

# Letters, as Python sees them (clicks of Khoisan languages), that nobody has on a keyboard.
BEFORE_NAME = "ǀ"
DOT = "ǁ"


class LocalNames(msgspec.Struct, frozen=True):
    """What one text means by its imports.

    `module` is "" for a cell, else the text is that module's. `exports`: loaded module → name → what it is: "m" for a
    module, "m:n" for name n of module m. `aliases`: names of the session that earlier cells imported, likewise.
    """

    module: str = ""
    package: bool = False
    exports: dict[str, dict[str, str]] = {}
    aliases: dict[str, str] = {}


NO_NAMES = LocalNames()


def session_name(module: str, name: str) -> str:
    """What the session calls `name` of `module`."""
    return module.replace(".", DOT) + BEFORE_NAME + name


def plain_name(name: str) -> str:
    """What the module itself calls it."""
    return name.rpartition(BEFORE_NAME)[2]


def without_prefixes(text: str) -> str:
    """`text` with every session name of a local module as the module has it."""
    if BEFORE_NAME not in text:
        return text
    parts = text.split(BEFORE_NAME)
    for index, part in enumerate(parts[:-1]):
        end = len(part)
        while end and (part[end - 1].isalnum() or part[end - 1] in ("_", DOT)):
            end -= 1
        parts[index] = part[:end]
    return "".join(parts)
