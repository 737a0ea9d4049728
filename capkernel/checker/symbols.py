"""mypy's symbols for the names of a session: what a name is bound to, and what a new cell is given for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.nodes import (
    GDEF,
    AssignmentStmt,
    Decorator,
    Expression,
    FuncDef,
    MypyFile,
    NameExpr,
    OverloadedFuncDef,
    SymbolNode,
    SymbolTableNode,
    TypeAlias,
    TypeInfo,
    TypeVarLikeExpr,
    Var,
)
from mypy.typeops import make_simplified_union
from mypy.types import AnyType, NoneType, Type, TypeOfAny, TypeType, UnionType, get_proper_type
from mypy.typevars import fill_typevars_with_any


@dataclass(frozen=True)
class Binding:
    """What the session holds for a name: mypy's symbol, the cell that bound it, and its type if it is a value.

    `wide` is the type the name may have at other times: what a function body that reads it has to live with.
    """

    node: SymbolNode
    cell: int
    type: Type | None
    wide: Type | None = None


class JoinedTypes(dict[Expression, Type]):
    """A type map that keeps every type an expression had. mypy checks `finally` once per way into it."""

    def __setitem__(self, expression: Expression, typ: Type) -> None:
        known = self.get(expression)
        if known is not None and known != typ:
            typ = make_simplified_union([known, typ])
        super().__setitem__(expression, typ)

    def update(self, found: Mapping[Expression, Type]) -> None:  # type: ignore[override]
        # What mypy tried in a map of its own, for overloads, arrives by this way.
        for expression, typ in found.items():
            self[expression] = typ


def put(tree: MypyFile, name: str, node: SymbolNode) -> None:
    """Make `name` mean `node` in the module of a cell."""
    tree.names[name] = SymbolTableNode(GDEF, node)


def variable(module_id: str, name: str, typ: Type) -> Var:
    """A variable that mypy finds finished: it will not infer or widen its type."""
    made = Var(name, typ)
    made._fullname = f"{module_id}.{name}"
    made.is_ready = True
    made.is_inferred = False
    return made


def value(module_id: str, name: str, cell: int, typ: Type, wide: Type) -> Binding:
    return Binding(variable(module_id, name, typ), cell, typ, wide)


def anything() -> Type:
    """Any, as mypy gives it to what has no annotation."""
    return AnyType(TypeOfAny.unannotated)


def or_anything(typ: Type) -> Type:
    """`typ`; for None alone, None or anything: such a name waits for its value, and no code is dead because of it."""
    return UnionType([anything(), NoneType()]) if isinstance(get_proper_type(typ), NoneType) else typ


def assignment(name: str, of: str) -> AssignmentStmt:
    """`name = of`, without a place in the text: what mypy says about it means nothing to the person."""
    return AssignmentStmt([NameExpr(name)], NameExpr(of))


def kind_of(node: SymbolNode) -> str:
    """What to show for a name whose symbol has no type of a value."""
    if isinstance(node, MypyFile):
        return "module"
    if isinstance(node, (FuncDef, OverloadedFuncDef, Decorator)):
        return "function"
    return "type" if isinstance(node, (TypeAlias, TypeVarLikeExpr)) else ""


def type_of(node: SymbolNode) -> Type:
    return type_or_none(node) or anything()


def type_or_none(node: SymbolNode) -> Type | None:
    """The type of the value a symbol stands for; None for modules, aliases and functions without annotations."""
    if isinstance(node, (Var, FuncDef, OverloadedFuncDef)):
        return node.type
    if isinstance(node, Decorator):
        return node.var.type
    if isinstance(node, TypeInfo):
        return TypeType.make_normalized(fill_typevars_with_any(node))
    return None
