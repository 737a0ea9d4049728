"""The return type of a function without annotations, where its body leaves no doubt: later cells see it instead of Any.

mypy infers none (PEP 484 makes it Any). A cell's own check has typed every `return` already, so nothing is checked
twice; within that cell the function stays as mypy has it.

Rule 1: only what is plain: every way out is a `return` of a value, all of one class, none of it Any, None, or a union.
Authors without annotations who return None now and then do not want each use questioned.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.erasetype import remove_instance_last_known_values
from mypy.nodes import FuncDef, TypeInfo
from mypy.typeops import function_type
from mypy.types import Instance, TupleType, Type, get_proper_type

from capkernel.checker.typed_cell import TypedCell
from capkernel.wire.syntax import children


def infer_returns(typed: TypedCell, function_class: TypeInfo) -> None:
    """Give the functions at the top of a cell the types that their bodies return. `function_class`: `def`'s class."""
    for node in typed.module.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list or node.returns is not None:
            continue
        made = typed.symbol_of(node)
        if not isinstance(made, FuncDef) or made.type is not None or made.is_generator:
            continue
        returned = _returned(typed, node)
        if returned is not None:
            made.type = function_type(made, Instance(function_class, [])).items[0].copy_modified(ret_type=returned)


def _returned(typed: TypedCell, node: ast.FunctionDef) -> Type | None:
    if any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in typed.error_lines):
        return None
    if not ends_in_return(node.body):
        return None
    one: Type | None = None
    for statement in _returns(node.body):
        resolved = None if statement.value is None else typed.resolve(statement.value)
        if resolved is None or resolved.type is None:
            return None
        typ = remove_instance_last_known_values(get_proper_type(resolved.type))
        if not isinstance(typ, (Instance, TupleType)) or (one is not None and one != typ):
            return None
        one = typ
    return one


def ends_in_return(body: Sequence[ast.stmt]) -> bool:
    """Whether the end of `body` is certainly never reached."""
    if not body:
        return False
    match body[-1]:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(body=then, orelse=otherwise):
            return ends_in_return(then) and ends_in_return(otherwise)
        case ast.While(test=ast.Constant(value=True), body=inner):
            return not any(isinstance(node, ast.Break) for node in _inside(inner))
        case ast.Try(body=inner, handlers=handlers, orelse=otherwise, finalbody=last):
            if ends_in_return(last):
                return True
            done = ends_in_return(otherwise) if otherwise else ends_in_return(inner)
            return done and all(ends_in_return(handler.body) for handler in handlers)
    return False


def _returns(body: Iterable[ast.AST]) -> Iterator[ast.Return]:
    return (node for node in _inside(body) if isinstance(node, ast.Return))


def _inside(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    todo = list(body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            todo.extend(children(node))
