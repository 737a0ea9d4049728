"""Whether mypy's answer for an expression could be another if a number or a text in it were another.

To mypy a constant is a value of its class that remembers what it is (`Literal[3]?`). That shows in three ways: in the
types of what holds it, where a signature asks for literals, and in the forms that mypy reads by their text.

Rule 1: what is not understood here matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.nodes import (
    ARG_NAMED,
    ARG_POS,
    BytesExpr,
    CallExpr,
    ComparisonExpr,
    Decorator,
    DictExpr,
    Expression,
    FuncDef,
    IndexExpr,
    IntExpr,
    ListExpr,
    MemberExpr,
    OpExpr,
    OverloadedFuncDef,
    SliceExpr,
    StrExpr,
    SymbolNode,
    TupleExpr,
    TypeInfo,
    UnaryExpr,
    Var,
)
from mypy.operators import op_methods, reverse_op_methods
from mypy.type_visitor import TypeQuery
from mypy.types import (
    CallableType,
    FunctionLike,
    Instance,
    LiteralType,
    NoneType,
    Type,
    UnionType,
    get_proper_type,
)

CONSTANTS: Final = (IntExpr, StrExpr, BytesExpr)
_UNARY: Final = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
_KINDS: Final[dict[type[Expression], type]] = {IntExpr: int, StrExpr: str, BytesExpr: bytes}
_EVERY: Final = frozenset(_KINDS.values())
_READ_BY_TEXT: Final = frozenset(("format", "__getattr__", "__getattribute__"))

Types = Sequence[Type | None]
_Kinds = frozenset[type]


class Constants:
    """Knows of which kinds of literals the signatures of libraries speak."""

    def __init__(self) -> None:
        self._asked: dict[SymbolNode, _Kinds] = {}

    def forget(self) -> None:
        self._asked.clear()

    def matter(self, parts: Sequence[Expression], types: Types, target: Expression | None = None) -> bool:
        """Whether the values of the constants among `parts` may have shown in `types`, mypy's answers for them.

        The type of what is nothing but constants is left out: it is to be asked for anew. `target`: the one among the
        parts that is assigned to."""
        kinds = {_KINDS[type(part)] for part in parts if isinstance(part, CONSTANTS)}
        if not kinds:
            return False
        known = dict(zip(parts, types, strict=True))
        for part, typ in known.items():
            # What is called is looked at below, with all its overloads.
            if typ is None or is_of_constants(part) or isinstance(get_proper_type(typ), FunctionLike):
                continue
            if typ.accept(_Literals()):
                return True
        return any(self._asks(part, known, target) & kinds for part in parts)

    def _asks(self, part: Expression, known: dict[Expression, Type | None], target: Expression | None) -> _Kinds:
        """The kinds of literals that what `part` calls can tell apart."""
        match part:
            case CallExpr():
                return self._called(part, known)
            case OpExpr(op=op, left=left, right=right) if op != "**":  # the sign of an exponent is a type
                method = op_methods[op]
                return self._of(left, method, known) | self._of(right, reverse_op_methods[method], known)
            case ComparisonExpr(operators=operators, operands=operands):
                names = {name for op in operators if op in op_methods for name in (op_methods[op],)}
                if any(op not in op_methods and op not in ("is", "is not", "not in") for op in operators):
                    return _EVERY
                names |= {"__contains__"} if "not in" in operators else set()
                names |= {"__gt__", "__lt__", "__ge__", "__le__"} if names & _ORDERED else set()
                return frozenset().union(*(self._of(one, name, known) for one in operands for name in names))
            case IndexExpr(base=base):
                method = "__setitem__" if part is target else "__getitem__"
                return self._of(base, method, known)
            case UnaryExpr(op=op, expr=operand):
                return frozenset() if is_of_constants(part) else self._of(operand, _UNARY.get(op, ""), known)
            case OpExpr():
                return _EVERY
        return frozenset()

    def _called(self, call: CallExpr, known: dict[Expression, Type | None]) -> _Kinds:
        """Of the parameters that get an argument with a constant in it, those of every overload."""
        callee = call.callee
        if isinstance(callee, MemberExpr) and callee.name in _READ_BY_TEXT:
            return _EVERY
        typ = known.get(callee)
        proper = None if typ is None else get_proper_type(typ)
        if isinstance(proper, FunctionLike):
            exposed = [at for at, argument in enumerate(call.args) if _has_constants(argument)]
            return frozenset().union(*(_asked_by(item, call, at) for item in proper.items for at in exposed))
        if isinstance(proper, Instance):
            return self._of(callee, "__call__", known)
        return _EVERY

    def _of(self, value: Expression, method: str, known: dict[Expression, Type | None]) -> _Kinds:
        typ = known.get(value)
        found: _Kinds = frozenset()
        for info in _classes(typ):
            if info is None:
                return _EVERY
            entry = info.get(method)
            if entry is not None and entry.node is not None:
                found |= self._signature(entry.node)
        return found

    def _signature(self, node: SymbolNode) -> _Kinds:
        if node not in self._asked:
            self._asked[node] = _EVERY  # while it is looked at
            self._asked[node] = self._looked_at(node)
        return self._asked[node]

    def _looked_at(self, node: SymbolNode) -> _Kinds:
        match node:
            case Decorator():
                return _EVERY if node.var.type is None or node.func.is_property else _kinds_in([node.var.type])
            case FuncDef() | OverloadedFuncDef():
                return _EVERY if node.type is None or node.is_property else _kinds_in([node.type])
            case Var():
                typ = get_proper_type(node.type)
                if isinstance(typ, Instance) and (call := typ.type.get("__call__")) is not None and call.node:
                    return self._signature(call.node)
                return _kinds_in([typ]) if isinstance(typ, FunctionLike) else _EVERY
        return _EVERY


_ORDERED = frozenset(("__lt__", "__gt__", "__le__", "__ge__"))


def is_of_constants(part: Expression) -> bool:
    """Whether an expression is a constant, or a tuple of such, so that its type says what they are and nothing else."""
    if isinstance(part, TupleExpr):
        return all(map(is_of_constants, part.items))
    if isinstance(part, UnaryExpr):
        return part.op in ("-", "+") and isinstance(part.expr, IntExpr)
    return isinstance(part, CONSTANTS)


def _has_constants(expression: Expression) -> bool:
    todo = [expression]
    for part in todo:  # grows while it is read
        if isinstance(part, CONSTANTS):
            return True
        todo.extend(inside(part))
    return False


def _asked_by(item: CallableType, call: CallExpr, at: int) -> _Kinds:
    """What the parameter of one overload that argument number `at` goes to can tell apart."""
    if any(kind not in (ARG_POS, ARG_NAMED) for kind in call.arg_kinds):
        return _EVERY  # `*args`: any parameter
    name = call.arg_names[at]
    positions = [index for index, kind in enumerate(item.arg_kinds) if kind.is_positional()]
    if name is not None:
        found = [typ for typ, formal in zip(item.arg_types, item.arg_names, strict=True) if formal == name]
    else:
        found = [item.arg_types[positions[at]]] if at < len(positions) else []
    rest = [typ for typ, kind in zip(item.arg_types, item.arg_kinds, strict=True) if kind.is_star()]
    return _kinds_in(found or rest)


def inside(expression: Expression) -> list[Expression]:
    """The expressions directly in one of those kinds that are understood, in a fixed order."""
    look = INSIDE.get(type(expression))
    return [] if look is None else look(expression)


def _parts_of_slice(expression: SliceExpr) -> list[Expression]:
    every = (expression.begin_index, expression.end_index, expression.stride)
    return [part for part in every if part is not None]


INSIDE: Final[dict[type[Expression], Callable[[Any], list[Expression]]]] = {
    MemberExpr: lambda one: [one.expr],
    CallExpr: lambda one: [one.callee, *one.args],
    IndexExpr: lambda one: [one.base, one.index],
    OpExpr: lambda one: [one.left, one.right],
    UnaryExpr: lambda one: [one.expr],
    ComparisonExpr: lambda one: list(one.operands),
    ListExpr: lambda one: list(one.items),
    TupleExpr: lambda one: list(one.items),
    DictExpr: lambda one: [part for pair in one.items for part in pair if part is not None],
    SliceExpr: _parts_of_slice,
}


def _classes(typ: Type | None) -> Iterator[TypeInfo | None]:
    """The classes a value of this type has; None among them: something else."""
    proper = get_proper_type(typ) if typ is not None else None
    if isinstance(proper, Instance):
        yield proper.type
    elif isinstance(proper, UnionType):
        for item in proper.items:
            yield from _classes(item)
    elif not isinstance(proper, NoneType):
        yield None


def _kinds_in(types: Iterable[Type]) -> _Kinds:
    return frozenset().union(*(typ.accept(_Literals()) for typ in types))


class _Literals(TypeQuery[_Kinds]):
    """The classes of the literals in a type, and of the values that its instances remember."""

    def strategy(self, items: list[_Kinds]) -> _Kinds:
        return frozenset().union(*items)

    def visit_literal_type(self, t: LiteralType, /) -> _Kinds:
        return frozenset((type(t.value),))

    def visit_instance(self, t: Instance, /) -> _Kinds:
        known = t.last_known_value
        return super().visit_instance(t) | (frozenset() if known is None else frozenset((type(known.value),)))
