"""Where a cell can ask the person: for a secret (`request_secret`), for a secret's value (`request_declassify`).

Rule 1: every place counts at which the name of one of the two functions stands and means it (no cell can bind or import
it under another one). Where it is not called at once with a literal, it may be asked for anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from capkernel.checker.captures.known import Context
from capkernel.checker.captures.types import API
from capkernel.wire.plan import AskSite
from capkernel.wire.syntax import literal_text, walk

KINDS: Final = {"request_secret": "secret", "request_declassify": "declassify"}


def ask_sites(top: ast.AST, context: Context) -> Iterator[AskSite]:
    """The sites in a cell, or in a definition of an earlier one."""
    for node in walk(top):
        kind = KINDS.get(node.id) if isinstance(node, ast.Name) else None
        resolved = None if kind is None or not isinstance(node, ast.Name) else context.resolve(node)
        if kind is None or resolved is None or not resolved.fullname.startswith(API):
            continue
        call = context.parents.get(node)
        named = _literal(call) if isinstance(call, ast.Call) and call.func is node and kind == "secret" else None
        yield AskSite(kind, named, context.number, context.cell.span(node))


def asks_of_names(names: Iterable[str], context: Context) -> Iterator[AskSite]:
    """The sites of functions that only stand in values that the cell reads: with any argument."""
    span = context.cell.span(context.cell.module)
    return (AskSite(KINDS[name], None, context.number, span) for name in sorted(KINDS.keys() & set(names)))


def _literal(call: ast.Call) -> str | None:
    if len(call.args) != 1 or any(keyword.arg is None for keyword in call.keywords):
        return None
    return literal_text(call.args[0])
