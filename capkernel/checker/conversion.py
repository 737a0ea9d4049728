"""From Python's tree to mypy's, node by node, without a second parse.

Rule 1: every expression and definition of the cell is noted with the mypy node it became; nothing else says what
belongs together.
Rule 2: comments are not part of the tree. Neither `# type:` nor `# mypy:` can change what mypy does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Mapping

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.errors import Errors
from mypy.fastparse import ASTConverter
from mypy.nodes import AssignmentStmt, Decorator, FuncDef, Import, ImportAll, ImportFrom, MypyFile, Node
from mypy.options import Options
from mypy.types import CallableType, NoneType

from capkernel.checker.symbols import anything, or_anything
from capkernel.wire.scope_bindings import arguments_of
from capkernel.wire.syntax import children, walk, without_text

Became = dict[ast.AST, Node]

_NO_MODULE = "no module "
_NOTED = (ast.expr, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_KINDS = [
    kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, _NOTED) and kind is not ast.expr
]


def convert(module: ast.Module, module_id: str, path: str, options: Options, errors: Errors) -> tuple[MypyFile, Became]:
    """mypy's tree for `module`, and what each of its nodes became."""
    errors.set_file(path, module_id, options)
    converter = ASTConverter(options=options, is_stub=False, errors=errors, strip_function_bodies=False, path=path)
    became: Became = {}
    for kind in _KINDS:
        visit = getattr(converter, f"visit_{kind.__name__}", None)
        if visit is not None:
            converter.visitor_cache[kind] = _noting(_as_text(visit) if kind is ast.Constant else visit, became)
    tree = converter.visit(ast.Module(body=module.body, type_ignores=[]))
    assert isinstance(tree, MypyFile)
    tree._fullname = module_id
    return tree, became


def _noting(visit: Callable[[ast.AST], Node], became: Became) -> Callable[[ast.AST | None], Node]:
    def visit_and_note(node: ast.AST | None) -> Node:
        assert node is not None  # `visit(None)` is answered before any visitor is looked up
        made = visit(node)
        became[node] = made
        return made

    return visit_and_note


def _as_text(visit: Callable[[ast.AST], Node]) -> Callable[[ast.AST], Node]:
    """mypy writes texts into types and messages, and reads some as code: not one with half a surrogate pair."""

    def visit_text(node: ast.AST) -> Node:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and without_text(node.value):
            shown = node.value.encode("utf-8", "replace").decode("utf-8")
            return visit(ast.copy_location(ast.Constant(shown, node.kind), node))
        return visit(node)

    return visit_text


def hide_modules(tree: MypyFile, hidden: Container[str]) -> None:
    """Let imports of `hidden` modules find nothing: the modules of cells exist for mypy alone."""
    for statement in tree.imports:
        if isinstance(statement, Import):
            statement.ids = [
                (_NO_MODULE + name, alias or name) if name in hidden else (name, alias) for name, alias in statement.ids
            ]
        elif isinstance(statement, (ImportFrom, ImportAll)) and statement.id in hidden:
            statement.id = _NO_MODULE + statement.id


def open_none(module: ast.Module, nodes: Iterable[ast.AST], deferred: set[str], became: Mapping[ast.AST, Node]) -> None:
    """Let `x = None` in a class body, or where functions read x, be the start of something else.

    mypy would take the name for None for ever, call `if x is not None:` dead, and look at nothing inside.
    `nodes`: all of the module's.
    """
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                _open_assignment(statement, became, None)
    for statement in module.body:
        _open_assignment(statement, became, deferred)


def _open_assignment(statement: ast.stmt, became: Mapping[ast.AST, Node], only: set[str] | None) -> None:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Name) or not isinstance(value, ast.Constant) or value.value is not None:
        return
    made = became.get(statement)
    if isinstance(made, AssignmentStmt) and (only is None or target.id in only):
        made.unanalyzed_type = or_anything(NoneType())
        made.type = made.unanalyzed_type


def erase_annotations(became: Became, places: Container[tuple[int, int]]) -> None:
    """Let every annotation with one of `places` in it mean Any.

    mypy gives no types at all to what is done with a value whose annotation is no type (`f: callable`).
    """
    for node, made in became.items():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            _erase_in_signature(node, made.func if isinstance(made, Decorator) else made, places)
        elif isinstance(node, ast.AnnAssign) and isinstance(made, AssignmentStmt) and _has(node.annotation, places):
            made.type = made.unanalyzed_type = anything()


def _erase_in_signature(
    node: ast.FunctionDef | ast.AsyncFunctionDef, made: Node, places: Container[tuple[int, int]]
) -> None:
    if not isinstance(made, FuncDef) or not isinstance(made.type, CallableType):
        return
    arguments = arguments_of(node.args)
    bad = [argument.annotation is not None and _has(argument.annotation, places) for argument in arguments]
    returns = node.returns is not None and _has(node.returns, places)
    if len(bad) != len(made.type.arg_types) or not (any(bad) or returns):
        return
    for argument, is_bad in zip(made.arguments, bad, strict=True):
        if is_bad:
            argument.type_annotation = anything()
    signature = made.type.copy_modified(
        arg_types=[anything() if is_bad else typ for typ, is_bad in zip(made.type.arg_types, bad, strict=True)],
        ret_type=anything() if returns else made.type.ret_type,
    )
    made.type, made.unanalyzed_type = signature, signature.copy_modified()


def _has(annotation: ast.expr, places: Container[tuple[int, int]]) -> bool:
    return any((node.lineno, node.col_offset) in places for node in walk(annotation) if isinstance(node, ast.expr))


def has_finally(nodes: Iterable[ast.AST]) -> bool:
    return any(isinstance(node, (ast.Try, ast.TryStar)) and node.finalbody for node in nodes)


def finally_depth(nodes: Iterable[ast.AST]) -> int:
    """How many `try` statements with a `finally` stand in one another at most. `nodes`: parents before children."""
    depths: dict[ast.AST, int] = {}
    for node in nodes:
        own = depths.get(node, 0) + (isinstance(node, (ast.Try, ast.TryStar)) and bool(node.finalbody))
        if own:
            depths[node] = own
            for child in children(node):
                depths[child] = own
    return max(depths.values(), default=0)
