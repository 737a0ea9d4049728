"""A cell after mypy: Python's own syntax tree, with a type and a symbol for every expression in it.

The rules of this project walk `ast`, the tree the worker compiles, in one dialect; mypy's tree is only asked questions.

Rule 1: mypy's tree is made out of these very `ast` nodes (never parsed a second time), and every node remembers what it
became. So the answer for a node is an identity, not a position: nodes that share a position (in f-strings) stay apart.
Rule 2: what mypy left without a type was not checked. `resolve` answers None for it, and None must be refused.
Rule 3: an expression that was checked under several assumptions (in `finally`, under a constrained type variable) has
the union of the types it had.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.nodes import (
    Expression,
    MemberExpr,
    NameExpr,
    Node,
    RefExpr,
    SuperExpr,
    SymbolNode,
    TypeInfo,
)
from mypy.typeops import make_simplified_union
from mypy.types import (
    CallableType,
    FunctionLike,
    Instance,
    LiteralType,
    Overloaded,
    TupleType,
    Type,
    TypedDictType,
    TypeType,
    TypeVarLikeType,
    UnionType,
    get_proper_type,
)

from capkernel.checker.declarations import declarations
from capkernel.diagnostics.source_lines import source_lines
from capkernel.wire.plan import Span


@dataclass(frozen=True)
class Resolved:
    """What mypy knows of one expression.

    `fullname` is where the symbol is defined ("builtins.len", "cell_3.total", "posixpath.join"), for an attribute of a
    value the member of its class ("builtins.str.strip"), and "" when there is no one symbol. `type` is None for a
    target of an assignment, a module on the way to its member, and what mypy reads as a declaration (base classes, type
    arguments, `@property`).
    """

    type: Type | None
    symbol: SymbolNode | None = None
    fullname: str = ""


@dataclass
class TypedCell:
    """One cell, parsed and typed. `number` is the cell's number in the session, `module_id` what symbols begin with."""

    number: int
    text: str
    module: ast.Module
    module_id: str = ""
    session_names: Mapping[str, Resolved] = field(default_factory=dict)  # bound by earlier cells, read by this one
    error_lines: frozenset[int] = frozenset()  # where mypy found any error: types on these lines are claims, not facts
    _became: Mapping[ast.AST, Node] = field(default_factory=dict, repr=False)  # by identity
    _types: Mapping[Expression, Type] = field(default_factory=dict, repr=False)
    _lines: list[str] = field(default_factory=list, repr=False)
    _copies: dict[tuple[int, int, str, str], list[Expression]] | None = field(default=None, repr=False)
    _declarations: frozenset[ast.expr] | None = field(default=None, repr=False)

    def resolve(self, node: ast.expr) -> Resolved | None:
        """Type and symbol of `node`, or None: mypy gave it none, so it was not checked and must be refused.

        Annotations, keyword names and match patterns are no expressions to mypy; do not ask for them.
        """
        if isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Load):
            return self.resolve(node.value)
        expression = self._became.get(node)
        if not isinstance(expression, Expression):
            return None
        typ = self._types.get(expression)
        if typ is None:
            typ = self._type_elsewhere(expression)
        if typ is None and not self._needs_no_type(node):
            return None
        if isinstance(expression, NameExpr):
            return Resolved(typ, expression.node, _fullname(expression))
        if isinstance(expression, MemberExpr):
            return self._member(expression, typ)
        if isinstance(expression, SuperExpr):
            symbol = None if expression.info is None else _member_of(expression.info, expression.name)
            return Resolved(typ, symbol, symbol.fullname if symbol is not None else "")
        return Resolved(typ)

    @property
    def types(self) -> Mapping[Expression, Type]:
        """mypy's types by mypy's expressions."""
        return self._types

    def symbol_of(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda) -> Node | None:
        """What a definition became in mypy's tree: FuncDef, Decorator, ClassDef or LambdaExpr. None: not checked."""
        return self._became.get(node)

    def span(self, node: ast.AST) -> Span:
        """The place of `node` for a diagnostic, in characters."""
        line, column, end_line, end_column = place(node)
        return self.span_at(line, column, end_line, end_column)

    def span_at(self, line: int, column: int, end_line: int, end_column: int) -> Span:
        """The same for a place in lines and UTF-8 bytes, as `ast` and mypy count."""
        return Span(line, self._characters(line, column), end_line, self._characters(end_line, end_column))

    def _characters(self, line: int, column: int) -> int:
        if not self._lines:
            self._lines = source_lines(self.text)
        if not 1 <= line <= len(self._lines):
            return max(column, 0)
        text = self._lines[line - 1]
        if text.isascii():
            return max(column, 0)
        return len(text.encode("utf-8", "replace")[: max(column, 0)].decode("utf-8", "replace"))

    def _needs_no_type(self, node: ast.expr) -> bool:
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            return True  # a target; what is stored has a type, or is refused itself
        if self._declarations is None:
            self._declarations = declarations(self.module, self._became, self._types)
        return node in self._declarations

    def _type_elsewhere(self, expression: Expression) -> Type | None:
        """The type of an expression that mypy checked in another shape than it wrote it."""
        if self._copies is None:
            self._copies = self._find_copies()
        found = [self._types[copy] for copy in self._copies.get(_key(expression), ()) if copy in self._types]
        if found:
            return found[0] if len(found) == 1 else make_simplified_union(found)
        return None

    def _find_copies(self) -> dict[tuple[int, int, str, str], list[Expression]]:
        # A function with a constrained type variable is checked once per constraint, as copies of its body.
        known = {id(made) for made in self._became.values()}
        copies: dict[tuple[int, int, str, str], list[Expression]] = {}
        for expression in self._types:
            if id(expression) not in known:
                copies.setdefault(_key(expression), []).append(expression)
        for made in self._became.values():
            if isinstance(made, SuperExpr) and made in self._types:
                # `super()` itself is only part of `super().name`.
                copies.setdefault(_key(made.call), []).append(made)
        return copies

    def _member(self, expression: MemberExpr, typ: Type | None) -> Resolved:
        if expression.node is not None and not isinstance(expression.expr, SuperExpr):
            fullname = _fullname(expression)
            if fullname:
                return Resolved(typ, expression.node, fullname)
        owner = self._types.get(expression.expr)
        symbol = None if owner is None else member(owner, expression.name)
        if symbol is None:
            return Resolved(typ)
        return Resolved(typ, symbol, symbol.fullname)


def member(owner: Type, name: str) -> SymbolNode | None:
    """The symbol that attribute `name` of a value of type `owner` is, when there is exactly one."""
    found: SymbolNode | None = None
    for info in classes_of(owner):
        symbol = None if info is None else _member_of(info, name)
        if symbol is None or (found is not None and symbol is not found):
            return None
        found = symbol
    return found


def classes_of(typ: Type) -> Iterator[TypeInfo | None]:
    """The classes a value of this type can have; a None among them stands for: unknown."""
    proper = get_proper_type(typ)
    if isinstance(proper, Instance):
        yield proper.type
    elif isinstance(proper, UnionType):
        for item in proper.items:
            yield from classes_of(item)
    elif isinstance(proper, TupleType):
        yield proper.partial_fallback.type
    elif isinstance(proper, (LiteralType, TypedDictType)):
        yield proper.fallback.type
    elif isinstance(proper, TypeVarLikeType):
        yield from classes_of(proper.upper_bound)
    elif isinstance(proper, TypeType):
        yield from classes_of(proper.item)
    elif isinstance(proper, (CallableType, Overloaded)):
        yield from _classes_of_callable(proper)
    else:
        yield None


def _classes_of_callable(proper: FunctionLike) -> Iterator[TypeInfo | None]:
    if not proper.is_type_obj():
        yield proper.fallback.type
        return
    for item in proper.items:
        yield from classes_of(item.ret_type)


def _member_of(info: TypeInfo, name: str) -> SymbolNode | None:
    entry = info.get(name)
    return None if entry is None else entry.node


def _fullname(expression: RefExpr) -> str:
    if expression.node is not None and expression.node.fullname:
        # An alias of an import has the name it was written with; the symbol knows where it comes from.
        return expression.node.fullname
    return expression.fullname or ""


def _key(expression: Expression) -> tuple[int, int, str, str]:
    return (expression.line, expression.column, type(expression).__name__, getattr(expression, "name", ""))


def place(node: ast.AST) -> tuple[int, int, int, int]:
    """Line, column, end line, end column of a node, in UTF-8 bytes. A definition's place is its first line."""
    line: int = getattr(node, "lineno", 1)
    column: int = getattr(node, "col_offset", 0)
    end_line = getattr(node, "end_lineno", None)
    end_column = getattr(node, "end_col_offset", None)
    if end_line is None or end_column is None:
        return line, column, line, column + 1
    return line, column, end_line, end_column


__all__ = ["Resolved", "TypedCell", "classes_of", "member", "place"]
