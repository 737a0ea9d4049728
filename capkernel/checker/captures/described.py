"""mypy's types in the closed description of `wire.types`: what the kernel compares a captured value with.

Rule 1: a type is described only when every value that a name of it can hold in an honest cell agrees with the
description. Whatever is not sure is `any`.
"""

from __future__ import annotations

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.types import (
    Instance,
    LiteralType,
    NoneType,
    TupleType,
    Type,
    TypedDictType,
    UnionType,
    UnpackType,
    get_proper_type,
)

from capkernel.wire.types import ANY, MAX_DEPTH, TypeNode, union

_MAX_PARTS = 8  # alternatives of a union, items of a tuple
_SCALARS = {f"builtins.{name}": name for name in ("int", "float", "complex", "bool", "str", "bytes")}
_ONE_ARGUMENT = {f"builtins.{name}": name for name in ("list", "set", "frozenset")}
_LIBRARY = {
    "numpy.ndarray": "ndarray",
    "pandas.core.frame.DataFrame": "DataFrame",
    "pandas.core.series.Series": "Series",
}


def described(typ: Type | None, depth: int = 0) -> TypeNode:
    """The description of a type."""
    if typ is None or depth > MAX_DEPTH:
        return ANY
    proper = get_proper_type(typ)
    if isinstance(proper, NoneType):
        return TypeNode("None")
    if isinstance(proper, LiteralType):
        return described(proper.fallback, depth)
    if isinstance(proper, UnionType):
        if len(proper.items) > _MAX_PARTS:
            return ANY
        return union([described(item, depth + 1) for item in proper.items])
    if isinstance(proper, TypedDictType):
        return TypeNode("dict")
    if isinstance(proper, TupleType):
        if proper.partial_fallback.type.fullname != "builtins.tuple":
            return ANY
        items = [get_proper_type(item) for item in proper.items]
        if len(items) > _MAX_PARTS or any(isinstance(item, UnpackType) for item in items) or not items:
            return TypeNode("tuple")
        return TypeNode("tuple", tuple(described(item, depth + 1) for item in items))
    return _instance(proper, depth) if isinstance(proper, Instance) else ANY


def _instance(proper: Instance, depth: int) -> TypeNode:
    name = proper.type.fullname
    arguments = tuple(described(argument, depth + 1) for argument in proper.args)
    if name in _SCALARS:
        return TypeNode(_SCALARS[name])
    if name in _ONE_ARGUMENT and len(arguments) == 1:
        return TypeNode(_ONE_ARGUMENT[name], arguments)
    if name == "builtins.dict" and len(arguments) == 2:
        return TypeNode("dict", arguments)
    if name == "builtins.tuple" and len(arguments) == 1:
        return TypeNode("tuple", (TypeNode("items", arguments),))
    return TypeNode(_LIBRARY[name]) if name in _LIBRARY else ANY
