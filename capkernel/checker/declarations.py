"""Expressions that mypy reads as declarations and gives no type: base classes, type arguments, `property`, `NewType`.

They are checked all the same, as types or names of symbols. Only such parts count as can do nothing when they run:
names, attributes, subscripts, displays of those, constants, `|`. A call in such a place is not one of them, unless mypy
analysed that call itself (`namedtuple(...)` as a base class).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.nodes import (
    AssertTypeExpr,
    CallExpr,
    CastExpr,
    Decorator,
    Expression,
    IndexExpr,
    MemberExpr,
    Node,
    RefExpr,
    TypeAliasExpr,
    TypeApplication,
)
from mypy.types import OVERLOAD_NAMES, Type

from capkernel.wire.syntax import children, walk

_PARTS = (
    ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Dict, ast.Constant, ast.Starred, ast.UnaryOp,
)  # fmt: skip


def declarations(
    module: ast.Module, became: Mapping[ast.AST, Node], types: Mapping[Expression, Type]
) -> frozenset[ast.expr]:
    """Those expressions of `module`. `types` are the expressions mypy did type."""
    found: set[ast.expr] = set()
    for node in walk(module):
        if isinstance(node, ast.ClassDef):
            for base in (*node.bases, *(keyword.value for keyword in node.keywords)):
                found.update(_parts(base, became))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.update(_removed_decorators(node, became.get(node), became))
        elif isinstance(node, ast.Call):
            found.update(_of_call(node, became.get(node), became))
        elif isinstance(node, ast.Attribute):
            made = became.get(node)
            if isinstance(made, MemberExpr) and made.kind is not None and made in types:
                # `module.name` or `Class.name`, found as one symbol: what is before the dot is only a way to it.
                found.update(_parts(node.value, became))
        elif isinstance(node, ast.Assign):
            if any(isinstance(target, (ast.Tuple, ast.List)) for target in node.targets):
                found.update(_unpacked(node.value))
        elif isinstance(node, ast.Subscript):
            made = became.get(node)
            if isinstance(made, IndexExpr) and isinstance(made.analyzed, (TypeApplication, TypeAliasExpr)):
                found.update(_parts(node.value, became))
                found.update(_parts(node.slice, became))
    return frozenset(found)


def _unpacked(value: ast.expr) -> Iterator[ast.expr]:
    # `a, b = x, y` is two assignments to mypy; the pair itself is nothing. x and y have types, or are refused.
    if isinstance(value, (ast.Tuple, ast.List)):
        yield value
        for element in value.elts:
            yield from _unpacked(element)


def _of_call(node: ast.Call, made: Node | None, became: Mapping[ast.AST, Node]) -> Iterator[ast.expr]:
    if isinstance(node.func, ast.Name) and node.func.id == "super":
        yield node.func
        for argument in node.args:
            yield from _parts(argument, became)
    if not isinstance(made, CallExpr) or made.analyzed is None:
        return
    if isinstance(made.analyzed, CastExpr):
        types: Iterable[ast.expr] = node.args[:1]
    elif isinstance(made.analyzed, AssertTypeExpr):
        types = node.args[1:]
    else:
        types = (*node.args, *(keyword.value for keyword in node.keywords))
    yield from _parts(node.func, became)
    for argument in types:
        yield from _parts(argument, became)


def _removed_decorators(
    node: ast.FunctionDef | ast.AsyncFunctionDef, made: Node | None, became: Mapping[ast.AST, Node]
) -> Iterator[ast.expr]:
    if isinstance(made, Decorator):
        for decorator in node.decorator_list:
            # mypy takes out of the list what it understands itself: property, classmethod, overload, x.setter...
            understood = all(became.get(decorator) is not kept for kept in made.decorators)
            if understood or _is_overload(became.get(decorator)) or _is_accessor(decorator, node.name):
                yield from _parts(decorator, became)


def _is_overload(made: Node | None) -> bool:
    return isinstance(made, RefExpr) and made.fullname in OVERLOAD_NAMES


def _is_accessor(decorator: ast.expr, name: str) -> bool:
    return (
        isinstance(decorator, ast.Attribute)
        and decorator.attr in ("setter", "deleter", "getter")
        and isinstance(decorator.value, ast.Name)
        and decorator.value.id == name
    )


def _parts(node: ast.expr, became: Mapping[ast.AST, Node]) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield node
        yield from _parts(node.left, became)
        yield from _parts(node.right, became)
    elif isinstance(node, _PARTS):
        yield node
        for child in children(node):
            if isinstance(child, ast.expr):
                yield from _parts(child, became)
    elif isinstance(node, ast.Call):
        made = became.get(node)
        if isinstance(made, CallExpr) and made.analyzed is not None:
            yield node
