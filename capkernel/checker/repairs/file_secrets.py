"""Files that every policy calls secret: a repair reads them as what they are.

Rule 1: only the patterns that hold without a word of the operator are known here: what a policy adds to them, a refusal
does not tell a cell.
"""

from __future__ import annotations

import ast
from functools import cache

from capkernel.checker.repairs.source import Source
from capkernel.policy.defaults import CLASSIFIED
from capkernel.policy.patterns import PatternSet

WORDS = "read it as a secret: the text stays in the vault, and `map` computes with it"


def is_always_secret(path: str | None) -> bool:
    """Whether a path below the folder of the notebook, or a directory above it there, is secret by any policy."""
    parts = [] if path is None else [part for part in path.split("/") if part not in ("", ".")]
    return any(
        _patterns().matches("/".join(parts[:count]) + ("/" if count < len(parts) else ""))
        for count in range(1, len(parts) + 1)
    )


@cache
def _patterns() -> PatternSet:
    return PatternSet(CLASSIFIED)


def after_it(source: Source, read: ast.expr) -> tuple[ast.expr, str]:
    """What is done with a text where it is read, `open(".env").read().strip()`: the whole, and `.strip()`."""
    whole, parent = read, source.parents.get(read)
    while (isinstance(parent, (ast.Attribute, ast.Subscript)) and parent.value is whole) or (
        isinstance(parent, ast.Call) and parent.func is whole
    ):
        assert isinstance(parent, ast.expr)
        whole, parent = parent, source.parents.get(parent)
    return whole, source.segment(whole).removeprefix(source.segment(read)) if whole is not read else ""
