"""What a static type says about authority: a value of plain data can hold none, whatever it was made from.

Rule 1: a type that is not known to be plain may carry. `Any`, `object`, callables, iterators and protocols carry.
Rule 2: a class of a cell is as plain as its fields, and as those of every class of the session that derives from it.
"""

from __future__ import annotations

from collections.abc import Iterator

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.nodes import TypeInfo, Var
from mypy.types import (
    AnyType,
    CallableType,
    DeletedType,
    Instance,
    LiteralType,
    NoneType,
    Overloaded,
    ProperType,
    TupleType,
    Type,
    TypeAliasType,
    TypedDictType,
    TypeType,
    TypeVarLikeType,
    UninhabitedType,
    UnionType,
    get_proper_type,
)

from capkernel.wire.local_names import without_prefixes

API = "capkernel.api."
CLASSIFIED = "capkernel.api.classified.Classified"
CAPABILITY = "capkernel.api.files.Capability"

_IMMUTABLE = frozenset(
    f"builtins.{name}" for name in ("int", "float", "complex", "bool", "str", "bytes", "range", "slice", "ellipsis")
)
_PLAIN = _IMMUTABLE | {
    "builtins.bytearray",
    "builtins.memoryview",
    "builtins._NotImplementedType",
    "types.NoneType",
    "types.EllipsisType",
    "typing.Text",
}
_PLAIN_MODULES = (
    "datetime.",
    "decimal.",
    "fractions.",
    "uuid.",
    "zoneinfo.",
    "numpy.",
    "pandas.",
    "ipaddress.",
    "numbers.",
    "random.Random",
    "capkernel.api.search.GrepMatch",
    "time.struct_time",
    "sys._",
    "string.",
)
# ... but for these, which hold a function or a file that they were given, and use it later.
_HOLDING_CODE = frozenset(
    (
        "numpy.vectorize",
        "numpy.lib._function_base_impl.vectorize",
        "pandas.io.formats.style.Styler",
        "pandas.io.parsers.readers.TextFileReader",
        "pandas.io.json._json.JsonReader",
        "pandas.io.excel._base.ExcelFile",
    )
)
# Plain when their arguments are.
_CONTAINERS = frozenset(
    [f"builtins.{name}" for name in ("list", "tuple", "dict", "set", "frozenset")]
    + [
        f"collections.{name}"
        for name in (
            "OrderedDict",
            "Counter",
            "deque",
            "ChainMap",
            "defaultdict",
            "_OrderedDictKeysView",
            "_OrderedDictValuesView",
            "_OrderedDictItemsView",
        )
    ]
    + [f"_collections_abc.{name}" for name in ("dict_keys", "dict_values", "dict_items")]
    + ["types.MappingProxyType", "re.Pattern", "re.Match"]
)
_PURE_PATHS = ("pathlib.PurePath", "pathlib.PurePosixPath", "pathlib.PureWindowsPath")
# Library bases that add no field to a class of a cell.
_FIELDLESS = frozenset(
    (
        "builtins.object",
        "typing.Generic",
        "typing.NamedTuple",
        "abc.ABC",
        "enum.Enum",
        "enum.IntEnum",
        "enum.StrEnum",
        "enum.Flag",
        "enum.IntFlag",
        "enum.ReprEnum",
        "typing._TypedDict",
        "typing.TypedDict",
    )
)


def is_session_module(module: str) -> bool:
    """Whether a symbol's module is a cell."""
    return module.startswith("cell_")


class Types:
    """Answers about types, remembered while the session knows the same classes.

    `inert` answers for the flow of capabilities, where a Classified counts as plain: it holds no capability.
    """

    def __init__(self, *, classified_is_plain: bool = False) -> None:
        self._classified_is_plain = classified_is_plain
        self.inert: Types = self if classified_is_plain else Types(classified_is_plain=True)
        self._plain_classes: dict[TypeInfo, bool] = {}
        self._entered: set[TypeAliasType] = set()
        self._subclasses: dict[TypeInfo, list[TypeInfo]] = {}

    def copy(self) -> Types:
        """The same knowledge, to which the classes of one more cell can be added."""
        made = Types()
        for one in (made, made.inert):
            one._subclasses = {base: list(derived) for base, derived in self._subclasses.items()}
        return made

    def add_class(self, info: TypeInfo) -> None:
        """A class of the session; it may make its bases carry."""
        for base in info.mro[1:]:
            if is_session_module(base.module_name):
                self._subclasses.setdefault(base, []).append(info)
        self._plain_classes.clear()
        if self.inert is not self:
            self.inert.add_class(info)

    def overriders(self, info: TypeInfo) -> list[TypeInfo]:
        """Classes of the session that derive from this one."""
        return self._subclasses.get(info, [])

    def is_plain(self, typ: Type | None) -> bool:
        """Whether a value of this type is plain data: it can neither be nor reach a capability or an effect."""
        return typ is not None and self._plain(typ)

    def is_immutable(self, typ: Type | None) -> bool:
        """Whether values of this type cannot be changed, so that aliases of them do not matter."""
        if typ is None or (isinstance(typ, TypeAliasType) and typ.is_recursive):
            return False
        proper = get_proper_type(typ)
        if isinstance(proper, (NoneType, LiteralType, UninhabitedType)):
            return True
        if isinstance(proper, UnionType):
            return all(self.is_immutable(item) for item in proper.items)
        if isinstance(proper, TupleType):
            return all(self.is_immutable(item) for item in proper.items)
        return isinstance(proper, Instance) and (
            proper.type.fullname in _IMMUTABLE
            or proper.type.fullname.startswith(("datetime.", "decimal."))
            or proper.type.is_enum
        )

    def _plain(self, typ: Type) -> bool:
        if isinstance(typ, TypeAliasType) and typ.is_recursive:
            if typ in self._entered:
                return True  # an alias that names itself adds nothing
            self._entered.add(typ)
            try:
                return self._plain(get_proper_type(typ))
            finally:
                self._entered.discard(typ)
        proper = get_proper_type(typ)
        if isinstance(proper, (NoneType, UninhabitedType, LiteralType, DeletedType)):
            return True
        if isinstance(proper, (AnyType, CallableType, Overloaded)):
            return isinstance(proper, (CallableType, Overloaded)) and self._is_library_class(proper)
        if isinstance(proper, UnionType):
            return all(self._plain(item) for item in proper.items)
        if isinstance(proper, TupleType):
            return all(self._plain(item) for item in proper.items) and self._plain_named_tuple(proper)
        if isinstance(proper, TypedDictType):
            return all(self._plain(item) for item in proper.items.values())
        if isinstance(proper, TypeVarLikeType):
            return self._plain(proper.upper_bound)
        if isinstance(proper, TypeType):
            item = get_proper_type(proper.item)
            return isinstance(item, Instance) and not is_session_module(item.type.module_name)
        if isinstance(proper, Instance):
            return self._plain_instance(proper)
        return False

    def _is_library_class(self, proper: CallableType | Overloaded) -> bool:
        if not proper.is_type_obj():
            return False
        info = proper.type_object()
        return not is_session_module(info.module_name) and not info.fullname.startswith(API)

    def _plain_named_tuple(self, proper: TupleType) -> bool:
        info = proper.partial_fallback.type
        if info.is_named_tuple:
            return all(self._plain_class(derived) for derived in self.overriders(info))
        return not is_session_module(info.module_name) or self._plain_class(info)

    def _plain_instance(self, proper: Instance) -> bool:
        name = proper.type.fullname
        if name in _PLAIN or name in _PURE_PATHS:
            return True
        if name == CLASSIFIED:
            return self._classified_is_plain
        if name in _CONTAINERS:
            return bool(proper.args) and all(self._plain(argument) for argument in proper.args)
        if is_session_module(proper.type.module_name):
            return all(self._plain(argument) for argument in proper.args) and self._plain_class(proper.type)
        if name.startswith(_PLAIN_MODULES):
            return name not in _HOLDING_CODE
        return proper.type.is_enum or (
            proper.type.is_named_tuple and proper.type.tuple_type is not None and self._plain(proper.type.tuple_type)
        )

    def _plain_class(self, info: TypeInfo) -> bool:
        known = self._plain_classes.get(info)
        if known is not None:
            return known
        self._plain_classes[info] = True  # a class that only refers to itself adds nothing
        plain = all(self._plain_base(base) for base in info.mro) and all(
            self._plain_class(derived) for derived in self.overriders(info)
        )
        self._plain_classes[info] = plain
        return plain

    def _plain_base(self, base: TypeInfo) -> bool:
        if not is_session_module(base.module_name):
            return (
                base.fullname in _FIELDLESS
                or base.fullname in _PLAIN
                or base.fullname in _CONTAINERS
                or base.fullname.startswith(("typing.", "collections.abc.", "_collections_abc."))
            )
        if base.is_protocol:
            return False  # anything that has these members
        if base.is_enum or base.is_named_tuple:
            return True  # a named tuple's fields are judged as a tuple's
        return all(
            symbol.node.type is not None and self._plain(symbol.node.type)
            for name, symbol in base.names.items()
            if isinstance(symbol.node, Var) and not name.startswith("__") and not symbol.node.is_property
        )


# Plain, but not in the codec that captured data is sent in.
_NOT_SENT = ("re.Match", "pathlib.", "collections.", "types.", "random.", "string.")


def unsendable(typ: Type | None) -> str:
    """The class of which values cannot be sent to the vault, when a value of this type is or holds one; else ""."""
    for part in [] if typ is None else _parts(typ):
        info = part.partial_fallback.type if isinstance(part, TupleType) else None
        info = part.type if isinstance(part, Instance) else info
        if info is not None and (is_session_module(info.module_name) or info.fullname.startswith(_NOT_SENT)):
            return info.name
    return ""


def class_object(typ: Type | None) -> TypeInfo | None:
    """The class that a value of this type is, when it is a class itself."""
    proper = get_proper_type(typ) if typ is not None else None
    if isinstance(proper, (CallableType, Overloaded)) and proper.is_type_obj():
        return proper.type_object()
    return next(instances(proper.item), None) if isinstance(proper, TypeType) else None


def is_callable(typ: Type | None) -> bool:
    """Whether a type is a function or a class itself: code, that no codec sends."""
    return typ is not None and isinstance(get_proper_type(typ), (CallableType, Overloaded, TypeType))


def is_library_function(typ: Type | None) -> bool:
    """Whether a value of this type is a function of a library's module: no object of the session is behind it."""
    proper = None if typ is None else get_proper_type(typ)
    signatures = proper.items if isinstance(proper, Overloaded) else [proper]
    definitions = [one.definition if isinstance(one, CallableType) else None for one in signatures]
    return all(
        found is not None and not getattr(found, "info", None) and not is_session_module(found.fullname)
        for found in definitions
    )


def is_any(typ: Type | None) -> bool:
    """Whether nothing is known of a value."""
    return typ is not None and isinstance(get_proper_type(typ), AnyType)


def is_exception(info: TypeInfo) -> bool:
    return any(base.fullname == "builtins.BaseException" for base in info.mro)


def mentions_any(typ: Type | None) -> bool:
    """Whether something in a type is not known, so that what mypy derives from it is a claim."""
    return typ is None or any(isinstance(part, AnyType) for part in _parts(typ))


def _parts(typ: Type) -> Iterator[ProperType]:
    """A type and the types it is made of. An alias that names itself (`Tree = tuple["Tree", ...]`) is entered once."""
    todo, entered = [typ], set[TypeAliasType]()
    while todo:
        part = todo.pop()
        if isinstance(part, TypeAliasType):
            if part in entered:
                continue
            entered.add(part)
        proper = get_proper_type(part)
        yield proper
        if isinstance(proper, Instance):
            todo.extend(proper.args)
        elif isinstance(proper, (UnionType, TupleType)):
            todo.extend(proper.items)
        elif isinstance(proper, TypedDictType):
            todo.extend(proper.items.values())
        elif isinstance(proper, TypeVarLikeType):
            todo.append(proper.upper_bound)


def is_classified(typ: Type | None) -> bool:
    """Whether a value of this type can be a Classified."""
    return typ is not None and any(info.fullname == CLASSIFIED for info in instances(typ))


def only_classified(typ: Type | None) -> Instance | None:
    """The type when it is exactly Classified[...], else None."""
    proper = get_proper_type(typ) if typ is not None else None
    return proper if isinstance(proper, Instance) and proper.type.fullname == CLASSIFIED else None


def holds_classified(typ: Type | None) -> bool:
    """Whether a value of this type can be or contain a Classified, as far as the type tells."""
    return typ is not None and any(
        isinstance(part, Instance) and part.type.fullname == CLASSIFIED for part in _parts(typ)
    )


def is_capability(typ: Type | None) -> bool:
    """Whether a value of this type can be a capability."""
    return typ is not None and any(base.fullname == CAPABILITY for info in instances(typ) for base in info.mro)


def instances(typ: Type) -> Iterator[TypeInfo]:
    """The classes a value of this type is known to be able to have."""
    proper = get_proper_type(typ)
    if isinstance(proper, Instance):
        yield proper.type
    elif isinstance(proper, UnionType):
        for item in proper.items:
            yield from instances(item)
    elif isinstance(proper, TypeVarLikeType):
        yield from instances(proper.upper_bound)
    elif isinstance(proper, TupleType):
        yield proper.partial_fallback.type
    elif isinstance(proper, LiteralType):
        yield proper.fallback.type


def session_classes(typ: Type | None) -> set[TypeInfo]:
    """Classes of cells that a value of this type can be or contain, as far as the type tells."""
    found: set[TypeInfo] = set()
    for part in [] if typ is None else _parts(typ):
        if isinstance(part, Instance):
            found.add(part.type)
        elif isinstance(part, TupleType):
            found.add(part.partial_fallback.type)
    return {info for info in found if is_session_module(info.module_name)}


def shown(typ: Type | None) -> str:
    """A type as a person writes it: no module names, no cell numbers, no literal values."""
    return without_prefixes(_written(typ))


def _written(typ: Type | None) -> str:
    if typ is None:
        return "?"
    if isinstance(typ, TypeAliasType) and typ.alias is not None and typ.is_recursive:
        return typ.alias.name
    proper = get_proper_type(typ)
    if isinstance(proper, NoneType):
        return "None"
    if isinstance(proper, AnyType):
        return "Any"
    if isinstance(proper, LiteralType):
        return proper.fallback.type.name
    if isinstance(proper, UnionType):
        return " | ".join(dict.fromkeys(_written(item) for item in proper.items))
    if isinstance(proper, TupleType):
        if proper.partial_fallback.type.fullname != "builtins.tuple":
            return proper.partial_fallback.type.name
        return f"tuple[{', '.join(_written(item) for item in proper.items) or '()'}]"
    if isinstance(proper, TypedDictType):
        return proper.fallback.type.name if proper.fallback.type.name != "_TypedDict" else "dict"
    if isinstance(proper, (CallableType, Overloaded)):
        return "Callable" if not proper.is_type_obj() else f"type[{proper.type_object().name}]"
    if isinstance(proper, TypeType):
        return f"type[{_written(proper.item)}]"
    if isinstance(proper, TypeVarLikeType):
        return _written(proper.upper_bound)
    if isinstance(proper, Instance):
        if not proper.args:
            return proper.type.name
        more = ", ..." if proper.type.fullname == "builtins.tuple" else ""
        return f"{proper.type.name}[{', '.join(_written(argument) for argument in proper.args)}{more}]"
    return "Never" if isinstance(proper, UninhabitedType) else "?"
