"""Which pure functions keep the format of a secret: its text stays whole, with fixed text around it.

A reply that depends on a secret in a header tells little when the header is the secret as its origin gave it; it would
tell a bit per request about a value that the cell may shape. So what counts is the whole way from the origin, and each
step on it is one of these or it is not kept any more.

Rule 1: closed. Of one text parameter, used once: the parameter, `.strip()` of it, fixed text before and after, by `+`
or in an f-string without conversions and formats. Names other than the parameter are not fixed text.
Rule 2: no types are asked: the way begins with a `str`, and every step makes a `str` of a `str`.
"""

from __future__ import annotations

import ast


def keeps_format(node: ast.AST) -> bool:
    """Whether this function or class of a cell is such a step."""
    if isinstance(node, ast.Lambda):
        body: ast.expr | None = node.body
    elif isinstance(node, ast.FunctionDef) and not node.decorator_list:
        body = _returned(node.body)
    else:
        return False
    arguments = node.args
    parameters = [*arguments.posonlyargs, *arguments.args]
    others = (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.defaults)
    if body is None or len(parameters) != 1 or any(others):
        return False
    return _uses(body, parameters[0].arg) == 1


def _returned(body: list[ast.stmt]) -> ast.expr | None:
    """What the body of a `def` returns when it does nothing else; a docstring may stand before."""
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        body = body[1:]
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None


def _uses(node: ast.expr, parameter: str) -> int | None:
    """How often the parameter stands in fixed text; None for anything else."""
    if isinstance(node, ast.Constant):
        return 0 if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _sum([node.left, node.right], parameter)
    if isinstance(node, ast.JoinedStr):
        return _sum(node.values, parameter)
    if isinstance(node, ast.FormattedValue):
        return _uses(node.value, parameter) if node.conversion == -1 and node.format_spec is None else None
    return 1 if _is_value(node, parameter) else None


def _sum(parts: list[ast.expr], parameter: str) -> int | None:
    total = 0
    for part in parts:
        found = _uses(part, parameter)
        if found is None:
            return None
        total += found
    return total


def _is_value(node: ast.expr, parameter: str) -> bool:
    """The parameter, or what is left of it without the blanks around it."""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        return (
            isinstance(node.func, ast.Attribute) and node.func.attr == "strip" and _is_value(node.func.value, parameter)
        )
    return isinstance(node, ast.Name) and node.id == parameter
