"""Whether what runs elsewhere is waited for in the block that starts it: a thread is joined, a task is awaited.

Read off the text: the start stands in an `await`, or the name (or list) that gets it is awaited or joined by a later
statement of the same block, with nothing that could skip it. The search ends at the block that grants a capability, and
at the function, so the wait is over before either ends. An exception in between can leave the thread or task behind;
its handle is dead then, as the broker revokes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from capkernel.checker.captures.known import FUNCTIONS, Context
from capkernel.checker.captures.scope_sites import entered_in, granting_call

_TOGETHER = ("gather", "wait_for", "wait")
_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.Starred)
_RUN_THROUGH = frozenset(("list", "tuple", "set", "dict", "sorted", "sum", "max", "min"))


def is_waited_for(start: ast.Call, context: Context) -> bool:
    """Whether the thread or task that `start` makes has ended when the block around it ends."""
    top: ast.AST = start
    parent = context.parents.get(top)
    while isinstance(parent, (*_DISPLAYS, ast.comprehension)) or _waits_together(parent, top):
        top, parent = parent, context.parents.get(parent)  # type: ignore[assignment, arg-type]
    if isinstance(parent, ast.Await):
        return True
    if isinstance(top, (ast.GeneratorExp, ast.Starred)):
        return False
    name = _name_of(top, parent, context)
    if not name:
        return False
    for statement in _later_in_block(start, not isinstance(parent, ast.Call), context):
        if _waits(statement, name, context):
            return True
        if any(isinstance(inner, _LEAVING) or _binds(inner, name) for inner in ast.walk(statement)):
            return False
    return False


def is_run_through(node: ast.Call, context: Context) -> bool:
    """Whether all that an iterator gives is taken at once: `list(pool.map(...))`, `for x in pool.map(...)`."""
    parent = context.parents.get(node)
    if isinstance(parent, ast.For):
        return parent.iter is node and not any(isinstance(one, (ast.Break, ast.Return)) for one in ast.walk(parent))
    if isinstance(parent, ast.comprehension):
        return parent.iter is node and not isinstance(context.parents.get(parent), ast.GeneratorExp)
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id in _RUN_THROUGH
        and parent.args[:1] == [node]
    )


def _waits_together(node: ast.AST | None, inside: ast.AST) -> bool:
    """`asyncio.gather(...)` and its like: they end when what they are given has ended."""
    if not isinstance(node, ast.Call) or inside not in node.args:
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _TOGETHER and not any(keyword.arg != "return_exceptions" for keyword in node.keywords)


def _name_of(node: ast.AST, parent: ast.AST | None, context: Context) -> str:
    """The local name that gets the value, or the list of such values."""
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return parent.targets[0].id
    if isinstance(parent, ast.Call) and parent.args == [node] and isinstance(parent.func, ast.Attribute):
        listed = parent.func.value
        if parent.func.attr == "append" and isinstance(listed, ast.Name):
            return listed.id if isinstance(context.parents.get(parent), ast.Expr) else ""
    return ""


def _binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)


def _later_in_block(node: ast.AST, is_replaced: bool, context: Context) -> Iterator[ast.stmt]:
    """Statements that run after `node` and before the block that grants, or the function, ends.

    is_replaced: the next round of a loop binds the name to another one, so this one must be waited for inside.
    """
    child: ast.AST = node
    current = context.parents.get(node)
    while current is not None:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(current, field, None)
            if isinstance(block, list) and any(child is one for one in block):
                yield from block[block.index(child) + 1 :]
        if isinstance(current, FUNCTIONS) or _grants(current, context):
            return
        if is_replaced and isinstance(current, (ast.For, ast.AsyncFor, ast.While)):
            return
        child, current = current, context.parents.get(current)


_LEAVING = (ast.Return, ast.Break, ast.Continue)


def _grants(node: ast.AST, context: Context) -> bool:
    if not isinstance(node, (ast.With, ast.AsyncWith)):
        return False
    return any(granting_call(item.context_expr, context) for item in node.items) or bool(entered_in(node, context))


def _waits(statement: ast.stmt, name: str, context: Context) -> bool:
    if isinstance(statement, ast.Try):
        return any(_waits(one, name, context) for one in [*statement.body, *statement.finalbody])
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        each = statement.target
        return (
            isinstance(each, ast.Name)
            and _is(statement.iter, name)
            and any(_waits(one, each.id, context) for one in statement.body)
        )
    if not isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)) or statement.value is None:
        return False
    return any(_is_wait(node, name, context) for node in _evaluated(statement.value))


def _is_wait(node: ast.AST, name: str, context: Context) -> bool:
    if isinstance(node, ast.Await):
        awaited = node.value
        return _is(awaited, name) or (
            isinstance(awaited, ast.Call)
            and any(_waits_together(awaited, one) and _is(one, name) for one in awaited.args)
        )
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp)):
        first = node.generators[0]
        alone = len(node.generators) == 1 and not first.ifs and isinstance(first.target, ast.Name)
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        return (
            alone
            and isinstance(first.target, ast.Name)
            and _is(first.iter, name)
            and any(_is_wait(one, first.target.id, context) for one in _evaluated(element))
        )
    return (
        isinstance(node, ast.Call)
        and not node.args
        and not node.keywords
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
        and _is(node.func.value, name)
    )


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts that are evaluated whenever `node` is."""
    yield node
    if isinstance(node, (ast.Lambda, ast.BoolOp, ast.IfExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _evaluated(child)


def _is(node: ast.expr, name: str) -> bool:
    if isinstance(node, ast.Starred):
        return _is(node.value, name)
    return isinstance(node, ast.Name) and node.id == name
