"""Library functions that take a path, known by their types: a parameter that accepts `os.PathLike` opens what it names.

Functions that only compute with the text of a path are listed in `tables/ambient.toml` ([path_text]).
"""

from __future__ import annotations

import ast

from mypy.types import CallableType, Instance, Overloaded, Type, UnionType, get_proper_type

from capkernel.checker.captures.known import Context
from capkernel.checker.captures.types import instances, is_session_module
from capkernel.checker.tables import ambient

_TEXT = frozenset(("builtins.str", "builtins.bytes"))
_ITEMS = frozenset(
    ("typing.Iterable", "typing.Sequence", "typing.Collection", "builtins.list", "builtins.tuple", "builtins.set")
)


def opened_argument(node: ast.Call, context: Context) -> ast.expr | None:
    """The argument of a library call that names a file the call would open, as far as the types tell."""
    if not any(may_name_a_path(context.type_of(argument)) for argument in _arguments(node)):
        return None
    function = context.resolve(node.func)
    if function is None or function.type is None or function.fullname.startswith(ambient().path_text):
        return None
    proper = get_proper_type(function.type)
    signatures = proper.items if isinstance(proper, Overloaded) else [proper]
    for signature in signatures:
        if isinstance(signature, CallableType) and _is_library(signature):
            found = _first_opened(node, signature, context)
            if found is not None:
                return found
    return None


def _arguments(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(keyword.value for keyword in node.keywords)]


def _is_library(signature: CallableType) -> bool:
    definition = signature.definition
    if definition is not None:
        name = definition.fullname
        return not is_session_module(name) and not name.startswith(ambient().path_text)
    if signature.is_type_obj():
        info = signature.type_object()
        return not is_session_module(info.module_name) and not info.fullname.startswith(ambient().path_text)
    return True


def _first_opened(node: ast.Call, signature: CallableType, context: Context) -> ast.expr | None:
    spread = False
    for index, argument in enumerate(node.args):
        spread = spread or isinstance(argument, ast.Starred)
        formals = signature.arg_types[index:] if spread else signature.arg_types[index : index + 1]
        if _opens(argument, formals, context):
            return argument
    for keyword in node.keywords:
        formals = [
            typ for name, typ in zip(signature.arg_names, signature.arg_types, strict=True) if name == keyword.arg
        ]
        if _opens(keyword.value, formals, context):
            return keyword.value
    return None


def _opens(argument: ast.expr, formals: list[Type], context: Context) -> bool:
    if isinstance(argument, ast.Constant) and argument.value in (":memory:", ""):
        return False  # sqlite3: a database that is no file
    typ = context.type_of(argument.value if isinstance(argument, ast.Starred) else argument)
    if typ is None:
        return False
    if _names_a_path(typ):
        return any(_accepts_path(formal) for formal in formals)
    items = _item_types(typ)
    if isinstance(argument, ast.Starred):
        return any(_names_a_path(item) for item in items) and any(_accepts_path(formal) for formal in formals)
    return any(_names_a_path(item) for item in items) and any(_accepts_paths(formal) for formal in formals)


def may_name_a_path(typ: Type | None) -> bool:
    return typ is not None and (_names_a_path(typ) or any(_names_a_path(item) for item in _item_types(typ)))


def _names_a_path(typ: Type) -> bool:
    return any(
        info.fullname in _TEXT or any(base.fullname in ("os.PathLike", "pathlib.PurePath") for base in info.mro)
        for info in instances(typ)
    )


def _item_types(typ: Type) -> tuple[Type, ...]:
    proper = get_proper_type(typ)
    if isinstance(proper, Instance) and proper.type.fullname in _ITEMS:
        return tuple(proper.args)
    return ()


def _accepts_path(formal: Type) -> bool:
    proper = get_proper_type(formal)
    if isinstance(proper, UnionType):
        return any(_accepts_path(item) for item in proper.items)
    return isinstance(proper, Instance) and proper.type.fullname == "os.PathLike"


def _accepts_paths(formal: Type) -> bool:
    proper = get_proper_type(formal)
    if isinstance(proper, UnionType):
        return any(_accepts_paths(item) for item in proper.items)
    return any(_accepts_path(item) for item in _item_types(proper))
