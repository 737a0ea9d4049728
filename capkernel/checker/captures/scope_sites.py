"""Where a cell asks for capabilities: calls of `request_*`, as the item of a `with` block or entered by a stack's.

An exit stack ends with its own block, and so does what it entered: `with ExitStack() as stack:` and in its body
`stack.enter_context(request_file_system("data"))`. That holds while the stack is used for nothing that could take it
elsewhere, so its name may only stand in front of the members that add to it.
"""

from __future__ import annotations

import ast

from capkernel.checker.captures.known import Context
from capkernel.checker.captures.types import API
from capkernel.wire.syntax import literal_text

SCOPE_KINDS = {
    "request_file_system": "file_system",
    "request_exec_permission": "exec",
    "request_network": "network",
}


SiteKey = tuple[int, int, int]
"""Cell, line and column of the granting call: also how the flow analysis names a capability."""


def key_of(call: ast.Call, context: Context) -> SiteKey:
    return (context.number, call.lineno, call.col_offset)


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
        and (any(granting_call(item.context_expr, context) for item in inner.items) or entered_in(inner, context))
        for inner in ast.walk(node)
    )


# ── exit stacks ──────────────────────────────────────────────────────────────────────────────────────────────────────

_STACKS = frozenset(("contextlib.ExitStack", "contextlib.AsyncExitStack"))
_ADDING = frozenset(
    ("enter_context", "enter_async_context", "push", "push_async_exit", "callback", "push_async_callback")
)
_ELSEWHERE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)


def entered_in(block: ast.With | ast.AsyncWith, context: Context) -> list[ast.Call]:
    """The granting calls whose capabilities end with `block`, because a stack that it opens enters them."""
    if not any(_stack_name(item, context) for item in block.items):
        return []
    calls = (inner for inner in ast.walk(block) if isinstance(inner, ast.Call) and granting_call(inner, context))
    return [call for call in calls if entering_block(call, context) is block]


def entering_block(call: ast.Call, context: Context) -> ast.With | ast.AsyncWith | None:
    """The block of the stack that enters the capability of a granting call; None when it cannot be told."""
    outer = context.parents.get(call)
    if not isinstance(outer, ast.Call) or outer.args != [call] or outer.keywords:
        return None
    member = outer.func
    if (
        not isinstance(member, ast.Attribute)
        or member.attr != "enter_context"
        or not isinstance(member.value, ast.Name)
    ):
        return None
    name = member.value.id
    child: ast.AST = outer
    current = context.parents.get(outer)
    while current is not None and not isinstance(current, _ELSEWHERE):
        if isinstance(current, (ast.With, ast.AsyncWith)) and any(child is one for one in current.body):
            bound = [item for item in current.items if _stack_name(item, context) == name]
            if bound:
                return current if _stays(name, bound[0], current, context) else None
        child, current = current, context.parents.get(current)
    return None


def _stack_name(item: ast.withitem, context: Context) -> str:
    """The name that `with ExitStack() as name` gives to a stack."""
    call, target = item.context_expr, item.optional_vars
    if not isinstance(call, ast.Call) or call.args or call.keywords or not isinstance(target, ast.Name):
        return ""
    resolved = context.resolve(call.func) if isinstance(call.func, (ast.Name, ast.Attribute)) else None
    return target.id if resolved is not None and resolved.fullname in _STACKS else ""


def _stays(name: str, item: ast.withitem, block: ast.With | ast.AsyncWith, context: Context) -> bool:
    """Whether the name means this stack in the whole block, and only members that add to it are used."""
    for node in ast.walk(block):
        if not isinstance(node, ast.Name) or node.id != name or node is item.optional_vars:
            continue
        parent = context.parents.get(node)
        if not isinstance(parent, ast.Attribute) or parent.attr not in _ADDING:
            return False
        call = context.parents.get(parent)
        if not isinstance(call, ast.Call) or call.func is not parent:
            return False
    owner = context.scopes.owner(item.optional_vars) if isinstance(item.optional_vars, ast.Name) else None
    targets = [] if owner is None else owner.bindings.get(name, [])
    inside = set(ast.walk(block))
    return all(one.node is item.optional_vars or one.node not in inside for one in targets)


def literal_argument(call: ast.Call, kind: str) -> str | None:
    """The root (or first host, or command) as written; the default when left out; None when it is computed."""
    if kind == "request_file_system" and not call.args and not call.keywords:
        return "."
    values = call.args[:1] or [keyword.value for keyword in call.keywords if keyword.arg == "root"]
    if len(call.args) + len(call.keywords) != 1 or not values:
        return None
    return literal_text(values[0])
