"""Repairs of code that observes a secret: the same question asked inside the vault, with `map`.

The smallest expression that holds the question is tried first, then what stands around it; a branch on a secret becomes
a value that depends on it.
"""

from __future__ import annotations

import ast
from itertools import islice

from capkernel.checker.repairs.source import Repairs, Source, dotted, names_in, safe, substituted, unparsed, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

_PLAIN = (ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.JoinedStr, ast.ListComp)
_ASK = "ask inside the vault"
_VARIABLES = ("x", "value", "inner", "s_")


def observed(source: Source, diagnostic: Diagnostic) -> Repairs:
    node = _expression(source, diagnostic)
    secret = _secret(diagnostic, node)
    if node is None or secret is None:
        return
    yield from _unpacked(source, node, secret)
    chain = _chain(source, node, secret)
    yield from islice(chain, 1)
    yield from _comparison(source, node, secret)
    yield from chain
    yield from _statement(source, node, secret)


def formatted(source: Source, diagnostic: Diagnostic) -> Repairs:
    node = _expression(source, diagnostic)
    if node is None:
        return
    outer: ast.AST = node
    while isinstance(source.parents.get(outer), (ast.FormattedValue, ast.JoinedStr)) or isinstance(
        outer, ast.FormattedValue
    ):
        outer = source.parents[outer]
    secret = _secret(diagnostic, outer if isinstance(outer, ast.expr) else node)
    if secret is None or not isinstance(outer, ast.expr):
        return
    variable = _variable(outer)
    inside = f"{secret}.map(lambda {variable}: {substituted(outer, secret, variable)})"
    call = source.parents.get(outer)
    if isinstance(call, ast.Call) and dotted(call.func) == "print" and any(one.arg == "file" for one in call.keywords):
        shown = ast.Call(call.func, call.args, [one for one in call.keywords if one.arg != "file"])
        yield from unsafe("print it to the cell, where it shows as its mask", source.replace(call, unparsed(shown)))
        return
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("write", "append")
        and call.args == [outer]
    ):
        target = source.segment(call.func.value)
        yield from unsafe("write it as a secret", source.replace(call, f"{target}.write_classified({inside})"))
    yield from safe("make the text inside the vault", source.replace(outer, inside))
    yield from _chain(source, outer, secret)


# ── what is asked of what ────────────────────────────────────────────────────────────────────────────────────────────


def _expression(source: Source, diagnostic: Diagnostic) -> ast.expr | None:
    node = source.at(diagnostic.span)
    if isinstance(node, ast.Expr):
        return node.value
    if isinstance(node, (ast.AugAssign, ast.Assign)):
        return None if isinstance(node, ast.Assign) else node.target
    found = source.at(diagnostic.span, ast.expr)
    return found if isinstance(found, ast.expr) else None


def _secret(diagnostic: Diagnostic, node: ast.expr | None) -> str | None:
    """The text of the classified expression inside of `node`."""
    if node is None or not diagnostic.captured:
        return None
    name, typ = diagnostic.captured[0].name, diagnostic.captured[0].type
    texts = {unparsed(one) for one in ast.walk(node) if isinstance(one, ast.expr)}
    if name in texts and typ.startswith("Classified"):
        return name
    if not typ.startswith("Classified"):  # a container of secrets
        inner = [one for one in names_in(node) if one in texts]
        return inner[0] if len(inner) == 1 else None
    candidates = [
        one.value
        if isinstance(one, (ast.Subscript, ast.Attribute))
        else one.left
        if isinstance(one, (ast.Compare, ast.BinOp))
        else one
        for one in [node]
    ]
    if isinstance(node, ast.Call) and node.args:
        candidates = [node.args[0]]
    return unparsed(candidates[0]) if candidates else None


def _variable(node: ast.AST) -> str:
    used = names_in(node)
    return next(name for name in (*_VARIABLES, "x_1", "x_2", "x_3") if name not in used)


def _mapped(expression: ast.expr, secret: str) -> str:
    if unparsed(expression) == secret:
        return f"{secret}.map(bool)"
    variable = _variable(expression)
    text = substituted(expression, secret, variable)
    for builtin in (
        "len",
        "sorted",
        "list",
        "hash",
        "int",
        "float",
        "bool",
        "sum",
        "min",
        "max",
        "str",
        "abs",
        "set",
        "tuple",
        "dict",
    ):
        if text == f"{builtin}({variable})" and builtin != "hash":
            return f"{secret}.map({builtin})"
    return f"{secret}.map(lambda {variable}: {text})"


# ── the repairs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _comparison(source: Source, node: ast.expr, secret: str) -> Repairs:
    """Two secrets are compared as a pair."""
    if not isinstance(node, (ast.Compare, ast.BinOp)):
        return
    sides = [node.left, *(node.comparators if isinstance(node, ast.Compare) else [node.right])]
    texts = [unparsed(one) for one in sides]
    if len(sides) != 2:
        return
    if texts[0] == texts[1] == secret:
        variable = _variable(node)
        yield from unsafe(
            _ASK, source.replace(node, f"{secret}.map(lambda {variable}: {substituted(node, secret, variable)})")
        )
        return
    first, second = sides
    pair = unparsed(node).replace(texts[0], "pair[0]", 1)
    rest = pair[len("pair[0]") :]
    if rest.endswith(texts[1]):
        pair = f"pair[0]{rest[: -len(texts[1])]}pair[1]"
        if not isinstance(second, _PLAIN) and not isinstance(first, _PLAIN):
            yield from unsafe(
                "compare them as a pair, inside the vault",
                source.replace(node, f"{texts[0]}.zip({texts[1]}).map(lambda pair: {pair})"),
            )


def _unpacked(source: Source, node: ast.expr, secret: str) -> Repairs:
    statement = source.parents.get(node)
    if not isinstance(statement, ast.Assign) or statement.value is not node or len(statement.targets) != 1:
        return
    target = statement.targets[0]
    if isinstance(target, (ast.Tuple, ast.List)):
        parts = ", ".join(f"{secret}.map(lambda x: x[{index}])" for index in range(len(target.elts)))
        yield from unsafe("take its parts inside the vault", source.replace(node, parts))


def _chain(source: Source, node: ast.expr, secret: str) -> Repairs:
    """The question, and the expressions around it, smallest first."""
    current: ast.AST = node
    parent = source.parents.get(current)
    if unparsed(node) == secret and not isinstance(parent, (ast.If, ast.While, ast.Assert, ast.IfExp, ast.Expr)):
        # A truth test or an iteration: the expression around it is what asks.
        current = _asking(source, node) or node
    tried = 0
    while isinstance(current, ast.expr) and tried < 3:
        if not isinstance(current, (ast.Starred, ast.Lambda, ast.Slice)) and unparsed(current) != secret:
            yield from unsafe(_ASK, source.replace(current, _mapped(current, secret)))
            tried += 1
        following = source.parents.get(current)
        while isinstance(following, (ast.comprehension, ast.keyword)):
            following = source.parents.get(following)
        if isinstance(following, ast.Call) and dotted(following.func) in ("print", "display"):
            return
        if following is None:
            return
        current = following


def _asking(source: Source, node: ast.expr) -> ast.expr | None:
    current: ast.AST | None = source.parents.get(node)
    while isinstance(current, (ast.comprehension, ast.keyword, ast.Starred)):
        current = source.parents.get(current)
    return current if isinstance(current, ast.expr) else None


def _statement(source: Source, node: ast.expr, secret: str) -> Repairs:
    """A branch, a loop or an assertion on a secret."""
    statement = source.statement(node)
    if statement is None or not source.is_alone(statement):
        return
    span, margin = source.whole_lines(statement), source.margin(statement)
    if isinstance(statement, ast.If):
        yield from _chosen(source, statement, secret)
    if isinstance(statement, (ast.If, ast.While)):
        test = statement.test
        yield from unsafe(
            "ask inside the vault: no statement may depend on the answer",
            Edit(span, f"{margin}{_mapped(test, secret)}"),
        )
    elif isinstance(statement, ast.Assert):
        yield from unsafe(
            "ask inside the vault: the answer shows in the viewer",
            Edit(span, f"{margin}{_mapped(statement.test, secret)}"),
        )
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        target = unparsed(statement.target)
        body = statement.body[0]
        if len(statement.body) == 1 and isinstance(body, ast.Expr):
            yield from unsafe(
                "do it inside the vault",
                Edit(span, f"{margin}{secret}.map(lambda x: [{unparsed(body.value)} for {target} in x])"),
            )
        yield from unsafe("take its parts inside the vault", Edit(span, f"{margin}{secret}.map(list)"))
    elif isinstance(statement, ast.Match):
        lines = [f"{margin}def chosen(x):", *(f"    {line}" for line in source.text_of(span))]
        lines[1] = lines[1].replace(unparsed(statement.subject), "x", 1)
        lines = [*lines, f"{margin}{secret}.map(chosen)"]
        yield from unsafe("match inside the vault", Edit(span, "\n".join(lines)))
    elif isinstance(statement, ast.AugAssign):
        target = unparsed(statement.target)
        whole = ast.BinOp(ast.parse(target, mode="eval").body, statement.op, statement.value)
        yield from unsafe(_ASK, Edit(source.span(statement), f"{target} = {_mapped(whole, secret)}"))
        if target != secret:
            yield from unsafe(_ASK, Edit(source.span(statement), f"{secret}_ = {_mapped(whole, secret)}"))


def _chosen(source: Source, statement: ast.If, secret: str) -> Repairs:
    """`if secret: a = 1 else: a = 2` as a value that depends on the secret."""
    branches = [statement.body, statement.orelse]
    if not all(len(one) == 1 for one in branches):
        return
    first, second = branches[0][0], branches[1][0]
    variable = _variable(statement)
    test = unparsed(ast.parse(substituted(statement.test, secret, variable), mode="eval").body)
    span, margin = source.whole_lines(statement), source.margin(statement)
    if (
        isinstance(first, ast.Assign)
        and isinstance(second, ast.Assign)
        and unparsed(first.targets[0]) == unparsed(second.targets[0])
    ):
        value = f"{unparsed(first.value)} if {test} else {unparsed(second.value)}"
        text = f"{unparsed(first.targets[0])} = {secret}.map(lambda {variable}: {value})"
        yield from unsafe("choose the value inside the vault", Edit(span, margin + text))
    values = [one.value for one in (first, second) if isinstance(one, ast.Expr)]
    shown = [
        one.args[0]
        for one in values
        if isinstance(one, ast.Call) and dotted(one.func) == "print" and len(one.args) == 1
    ]
    if len(shown) == 2:
        text = f"print({secret}.map(lambda {variable}: {unparsed(shown[0])} if {test} else {unparsed(shown[1])}))"
        yield from unsafe("choose the text inside the vault", Edit(span, margin + text))


__all__ = ["Span", "formatted", "observed"]
