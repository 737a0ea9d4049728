"""Where a cell asks for capabilities: calls of `request_*`, which stand only as the item of a `with` block."""

from __future__ import annotations

import ast

from capkernel.checker.captures.known import Context
from capkernel.checker.captures.types import API

SCOPE_KINDS = {
    "request_file_system": "file_system",
    "request_exec_permission": "exec",
    "request_network": "network",
}


def granting_name(node: ast.expr, context: Context) -> str | None:
    """ "request_file_system" when `node` means that function, under whatever name; else None."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    resolved = context.resolve(node)
    if resolved is None or not resolved.fullname.startswith(API):
        return None
    name = resolved.fullname.rpartition(".")[2]
    return name if name in SCOPE_KINDS else None


def granting_call(node: ast.expr, context: Context) -> str | None:
    """The same for a call of it."""
    return granting_name(node.func, context) if isinstance(node, ast.Call) else None


def has_scope(node: ast.AST, context: Context) -> bool:
    """Whether a piece of source opens a block anywhere inside."""
    return any(
        isinstance(inner, (ast.With, ast.AsyncWith))
        and any(granting_call(item.context_expr, context) for item in inner.items)
        for inner in ast.walk(node)
    )


def literal_argument(call: ast.Call, kind: str) -> str | None:
    """The root (or first host, or command) as written; the default when left out; None when it is computed."""
    if kind == "request_file_system" and not call.args and not call.keywords:
        return "."
    values = call.args[:1] or [keyword.value for keyword in call.keywords if keyword.arg == "root"]
    if len(call.args) + len(call.keywords) != 1 or not values:
        return None
    value = values[0]
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
