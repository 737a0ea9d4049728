"""What a type offers: its attributes, its signatures, and where it was defined."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.messages import pretty_callable
from mypy.nodes import ArgKind, Decorator, FuncDef, MypyFile, OverloadedFuncDef, SymbolNode, TypeInfo, Var
from mypy.options import Options
from mypy.types import AnyType, CallableType, Overloaded, Type, TypedDictType, UnionType, get_proper_type

from capkernel.checker.messages import plain, widen
from capkernel.checker.symbols import type_or_none
from capkernel.checker.typed_cell import classes_of

CLASSIFIED = "capkernel.api.classified.Classified"
CAPABILITY = "capkernel.api.files.Capability"

_MOST_SIGNATURES = 4
_MOST_CHARACTERS = 300  # of a signature with its types: what is longer nobody reads
_MOST_PARAMETERS = 60


def members_of_module(module: MypyFile, loaded: set[str]) -> dict[str, SymbolNode | None]:
    """The public names of a module, and its loaded submodules."""
    found: dict[str, SymbolNode | None] = {
        name: symbol.node for name, symbol in module.names.items() if symbol.module_public and not symbol.module_hidden
    }
    before = module.fullname + "."
    for name in loaded:
        if name.startswith(before) and "." not in name[len(before) :]:
            found.setdefault(name[len(before) :], None)
    return {name: node for name, node in found.items() if is_offered(name)}


def members_of(typ: Type) -> dict[str, SymbolNode | None]:
    """The attributes of a value of this type; of a union, those of any part. Nothing where mypy knows nothing."""
    found: dict[str, SymbolNode | None] = {}
    for info in classes_of(typ):
        if info is None or _is_none(info):
            continue
        for base in info.mro:
            for name, symbol in base.names.items():
                if is_offered(name):
                    found.setdefault(name, symbol.node)
    return found


def is_offered(name: str) -> bool:
    """Whether a cell may say it: dunder attributes are refused, and mypy has names that nobody can write."""
    return name.isidentifier() and not name.startswith("__")


def kind_of(node: SymbolNode | None) -> str:
    """As Jupyter's completers name it."""
    match node:
        case MypyFile() | None:
            return "module"
        case TypeInfo():
            return "class"
        case Decorator():
            return "property" if node.var.is_property else "function"
        case OverloadedFuncDef():
            return "property" if node.is_property else "function"
        case FuncDef():
            return "function"
        case Var():
            return "function" if isinstance(get_proper_type(node.type), (CallableType, Overloaded)) else "instance"
        case _:
            return "class"


def signatures(typ: Type, name: str, options: Options) -> tuple[str, ...]:
    """`name(parameters) -> result` for each way to call a value of this type."""
    proper = get_proper_type(typ)
    if isinstance(proper, UnionType):
        return tuple(line for item in proper.items for line in signatures(item, name, options))[:_MOST_SIGNATURES]
    if not isinstance(proper, (CallableType, Overloaded)):
        return ()
    lines = dict.fromkeys(_signature(item, name, options) for item in proper.items)
    return tuple(lines)[:_MOST_SIGNATURES]


def _signature(item: CallableType, name: str, options: Options) -> str:
    shown = widen(plain(pretty_callable(item, options)))
    shown = shown[shown.find("(") :]
    for own in ("(self, /, ", "(self, ", "(cls, "):  # it is passed by itself
        if shown.startswith(own):
            shown = f"({shown[len(own) :]}"
            break
    shown = f"{name}{shown}".replace("(self)", "()").replace("(/, ", "(")
    return (
        shown if len(shown) <= _MOST_CHARACTERS else f"{name}({', '.join(islice(_parameters(item), _MOST_PARAMETERS))})"
    )


def _parameters(item: CallableType) -> Iterator[str]:
    """Their names alone, as in a definition."""
    starred = False
    for name, kind in zip(item.arg_names, item.arg_kinds, strict=True):
        if kind.is_named() and not starred:
            yield "*"
        starred = starred or kind.is_named() or kind.is_star()
        given = (name or "_") + ("=..." if kind.is_optional() else "")
        yield f"**{given}" if kind is ArgKind.ARG_STAR2 else f"*{given}" if kind is ArgKind.ARG_STAR else given


def bound(node: SymbolNode | None) -> Type | None:
    """The type of a symbol as an attribute of a value: a method without its first parameter."""
    typ = None if node is None else type_or_none(node)
    is_method = isinstance(node, (FuncDef, OverloadedFuncDef, Decorator)) and bool(getattr(node, "info", None))
    proper = get_proper_type(typ)
    if not is_method or getattr(node, "is_static", False):
        return typ
    if isinstance(proper, CallableType):
        return _without_first(proper)
    return Overloaded([_without_first(item) for item in proper.items]) if isinstance(proper, Overloaded) else typ


def _without_first(item: CallableType) -> CallableType:
    if not item.arg_types or item.arg_kinds[0].is_star():
        return item
    return item.copy_modified(
        arg_types=item.arg_types[1:], arg_kinds=item.arg_kinds[1:], arg_names=item.arg_names[1:], definition=None
    )


def parameters(typ: Type) -> Iterator[str]:
    """What can be passed by name."""
    proper = get_proper_type(typ)
    if isinstance(proper, UnionType):
        for part in proper.items:
            yield from parameters(part)
    elif isinstance(proper, (CallableType, Overloaded)):
        for item in proper.items:
            for name, kind in zip(item.arg_names, item.arg_kinds, strict=True):
                if name and not kind.is_star() and is_offered(name):
                    yield name


def keys_of(typ: Type) -> tuple[str, ...]:
    """The keys of a TypedDict."""
    proper = get_proper_type(typ)
    return tuple(proper.items) if isinstance(proper, TypedDictType) else ()


def defined_at(node: SymbolNode | None, typ: Type | None) -> str:
    """The full name of the definition that documents it: of the symbol, or of the class of a value."""
    if isinstance(node, (FuncDef, OverloadedFuncDef, Decorator, TypeInfo, MypyFile)):
        return node.fullname or ""
    classes = [] if typ is None else [info for info in classes_of(typ) if info is not None and not _is_none(info)]
    return classes[0].fullname if len(classes) == 1 else ""


def label_of(typ: Type | None) -> str:
    """`capability`, `classified` or `plain`: what a value of this type is, or holds."""
    names = set(_class_names(typ, 0))
    if CAPABILITY in names:
        return "capability"
    return "classified" if CLASSIFIED in names else "plain"


def is_capability(typ: Type | None) -> bool:
    """Whether a value of this type is a handle itself."""
    if typ is None:
        return False
    return any(info is not None and info.has_base(CAPABILITY) for info in classes_of(typ))


def is_known(typ: Type | None) -> bool:
    return typ is not None and not isinstance(get_proper_type(typ), AnyType)


def _class_names(typ: Type | None, depth: int) -> Iterator[str]:
    if typ is None or depth > 4:
        return
    proper = get_proper_type(typ)
    for info in classes_of(proper):
        if info is not None:
            yield from (base.fullname for base in info.mro)
    parts = list(getattr(proper, "args", ())) + list(getattr(proper, "items", ()) or ())
    for part in parts:
        if isinstance(part, Type):
            yield from _class_names(part, depth + 1)


def _is_none(info: TypeInfo) -> bool:
    return info.fullname in ("types.NoneType", "builtins.object")
