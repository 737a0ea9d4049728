"""What mypy found for an expression, found again when another cell has the same expression of the same types.

Most of what checking a line of numpy or pandas costs is the choice among dozens of overloads, and a notebook asks the
same questions again and again: what is an array of floats `@` such an array, what is `frame.groupby("k")`. mypy keeps a
cache of expressions while it checks a module (`ExpressionChecker.expr_cache`); here its entries outlive the module, by
what they depend on instead of by the node they are of.

An entry is used for an expression of the same form (operators, names of attributes and arguments), over the same
functions and classes of libraries, over variables of equal types, and over the same constants, unless their values
cannot matter (`constants`). All else that mypy could look at is left out:
what is written in cells (functions, classes, types that hold them), what the API gives (capabilities, classified
values), lambdas and comprehensions, attributes and items that the cell has narrowed, statements inside of others.

Rule 1: an entry is what mypy itself found, for an expression it had nothing to say about.
Rule 2: an expression in the context of a type (`x: T = ...`, an argument) is mypy's to judge.
Rule 3: when a module is loaded everything is forgotten: what a name of a library means may have become more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any, Final

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.build import State
from mypy.checker import TypeChecker
from mypy.checker_state import checker_state
from mypy.literals import literal_hash
from mypy.nodes import (
    AssignmentStmt,
    BytesExpr,
    CallExpr,
    ComparisonExpr,
    ComplexExpr,
    Decorator,
    DictExpr,
    Expression,
    ExpressionStmt,
    FloatExpr,
    FuncDef,
    IndexExpr,
    ListExpr,
    MemberExpr,
    MypyFile,
    NameExpr,
    OpExpr,
    OverloadedFuncDef,
    SliceExpr,
    Statement,
    StrExpr,
    TupleExpr,
    TypeInfo,
    UnaryExpr,
    Var,
)
from mypy.state import state as mypy_state
from mypy.types import (
    AnyType,
    CallableType,
    DeletedType,
    ErasedType,
    Instance,
    LiteralType,
    NoneType,
    Overloaded,
    PartialType,
    TupleType,
    Type,
    TypeAliasType,
    UninhabitedType,
    UnionType,
    get_proper_type,
)

from capkernel.checker.constants import CONSTANTS, INSIDE, Constants, inside, is_of_constants

MOST = 2000  # entries
_LARGEST = 80  # expressions in one
_LARGE: Final = frozenset(("numpy", "pandas"))
_FUNCTIONS_OF: Final = frozenset(("builtins", "math", "numpy", "pandas"))
_TYPES_OF: Final = _FUNCTIONS_OF | {"collections", "datetime", "decimal", "fractions", "typing"}
_PLAIN: Final = frozenset((*CONSTANTS, FloatExpr, ComplexExpr))  # no type of mypy's holds a float
_NEW_TYPES: Final = frozenset(
    f"builtins.{name}" for name in ("type", "super", "property", "classmethod", "staticmethod")
)
_LIBRARY = (FuncDef, OverloadedFuncDef, Decorator, TypeInfo, Var, MypyFile)

Key = tuple[Hashable, ...]


class _Mark(Enum):
    BY_VALUE = "in the place of types: there are some for each value of the constants"
    ASK = "in the place of a type: the part is a constant, which says itself what it is"


Types = tuple[Type | _Mark | None, ...]


class Recall:
    """The memory of one engine."""

    def __init__(self) -> None:
        self._found: dict[Key, Types | _Mark] = {}
        self._constants = Constants()
        self.enabled = True
        self.used = 0  # how often an entry stood for mypy's work

    def __len__(self) -> int:
        return len(self._found)

    def forget(self) -> None:
        self._found.clear()
        self._constants.forget()

    def _get(self, key: Key, parts: Sequence[Expression]) -> Types | None:
        """What is known of an expression and of all in it, its `parts`."""
        found = self._found.get(key)
        if isinstance(found, _Mark):
            found = self._found.get((key, _values(parts)))
        return None if isinstance(found, _Mark) else found

    def _put(
        self,
        checker: TypeChecker,
        key: Key,
        parts: Sequence[Expression],
        types: Sequence[Type | None],
        target: Expression | None = None,
    ) -> None:
        """`target`: the part that is assigned to; it has no type."""
        if (
            (types[0] is None and target is None)
            or len(parts) > _LARGEST
            or not all(typ is None or _is_lasting(typ) for typ in types)
        ):
            return
        if self._found.get(key) is None:
            constants = frozenset(part for part in parts if is_of_constants(part))
            matter = self._constants.matter(parts, types, target)
            with checker.local_type_map:  # what a constant was in its place stays as it is
                matter = matter or any(
                    checker.expr_checker.accept(part) != typ
                    for part, typ in zip(parts, types, strict=True)
                    if part in constants
                )
            kept = (
                _Mark.ASK if part in constants and typ is not None else typ
                for part, typ in zip(parts, types, strict=True)
            )
            self._keep(key, _Mark.BY_VALUE if matter else tuple(kept))
        if isinstance(self._found.get(key), _Mark):
            self._keep((key, _values(parts)), tuple(types))

    def _keep(self, key: Key, found: Types | _Mark) -> None:
        while len(self._found) >= MOST:
            del self._found[next(iter(self._found))]
        self._found[key] = found

    def first_pass(self, state: State) -> None:
        """`State.type_check_first_pass`, with what is known laid ready for each statement."""
        checker = state.type_checker()
        options = checker.options
        if not self.enabled or options.check_unreachable or options.warn_unreachable or "__all__" in checker.globals:
            state.type_check_first_pass()
            return
        tree = checker.tree
        with state.wrap_context(), mypy_state.strict_optional_set(options.strict_optional), checker_state.set(checker):
            checker.recurse_into_functions = True
            checker.errors.set_file(checker.path, tree.fullname, scope=checker.tscope, options=options)
            with (
                checker.tscope.module_scope(tree.fullname),
                checker.enter_partial_types(),
                checker.binder.top_frame_context(),
            ):
                for statement in tree.defs:
                    if checker.binder.is_unreachable():
                        checker.mark_unreachable(tree.defs, after=statement)
                        break
                    self._statement(checker, statement)

    def _statement(self, checker: TypeChecker, statement: Statement) -> None:
        if not _is_worth_it(statement):
            checker.accept(statement)
        elif isinstance(statement, AssignmentStmt) and _is_of_item(statement):
            self._item(checker, statement)
        else:
            self._other(checker, statement)

    def _item(self, checker: TypeChecker, statement: AssignmentStmt) -> None:
        """`x[i] = y` is a call that leaves nothing behind but the types of its parts: known, it is not made again."""
        target, value = statement.lvalues[0], statement.rvalue
        assert isinstance(target, IndexExpr)
        forms = _Forms(checker)
        keys = [forms.key(part) for part in (target.base, target.index, value)]
        if None in keys:
            self._other(checker, statement)
            return
        key, parts = ("item", *keys), [*forms.parts(target), *forms.parts(value)]
        types = self._get(key, parts)
        if types is not None:
            checker.store_types(self._here(checker, parts, types))
            return
        said = _said(checker)
        self._other(checker, statement)
        if _said(checker) == said:
            every = checker._type_maps[0]
            self._put(checker, key, parts, tuple(every.get(part) for part in parts), target)

    def _other(self, checker: TypeChecker, statement: Statement) -> None:
        top = _top_of(statement)
        if top is None:
            checker.accept(statement)
            return
        forms = _Forms(checker)
        place = _place_of(statement)
        cached: list[tuple[Expression, Key]] = []  # to learn from mypy's cache
        overridden = False
        key = forms.key(top)
        if key is not None and place:
            parts = forms.parts(top)
            types = self._get(key, parts) or self._get((place, key), parts)
            if types is not None:
                self._override(checker, parts, types)
                overridden = True
        if not overridden:
            self._lay_ready(checker, forms, top, cached)
        said = _said(checker)
        try:
            checker.accept(statement)
        finally:
            checker.expr_checker.type_overrides.pop(top, None)
        if overridden or _said(checker) != said:
            return
        kept = checker.expr_checker.expr_cache
        for expression, its_key in cached:
            entry = kept.get((expression, None))
            if entry is not None and not entry[2]:
                _, typ, _, found = entry
                parts = forms.parts(expression)
                self._put(checker, its_key, parts, (typ, *(found.get(part) for part in parts[1:])))
        if key is not None and place:
            every = checker._type_maps[0]
            parts = forms.parts(top)
            types = tuple(every.get(part) for part in parts)
            # What returns nothing may stand alone, and nowhere else.
            nothing = isinstance(get_proper_type(types[0]), NoneType)
            self._put(checker, (place, key) if nothing else key, parts, types)

    def _override(self, checker: TypeChecker, parts: Sequence[Expression], types: Types) -> None:
        found = self._here(checker, parts, types)
        checker.store_types(found)
        checker.expr_checker.type_overrides[parts[0]] = found[parts[0]]

    def _here(self, checker: TypeChecker, parts: Sequence[Expression], types: Types) -> dict[Expression, Type]:
        """The types of the parts of an expression."""
        self.used += 1
        return {
            part: checker.expr_checker.accept(part) if isinstance(typ, _Mark) else typ
            for part, typ in zip(parts, types, strict=True)
            if typ is not None
        }

    def _lay_ready(
        self, checker: TypeChecker, forms: _Forms, top: Expression, missed: list[tuple[Expression, Key]]
    ) -> None:
        """Put what is known of the largest known parts of `top` into mypy's cache; the others come into `missed`."""
        todo = [top]
        while todo:
            expression = todo.pop()
            key = forms.key(expression)
            if key is not None and isinstance(expression, (CallExpr, OpExpr)):
                parts = forms.parts(expression)
                types = self._get(key, parts)
                if types is not None:
                    found = self._here(checker, parts, types)
                    kept = checker.expr_checker.expr_cache
                    kept[(expression, None)] = (checker.binder.version, found[expression], [], found)
                    continue
                missed.append((expression, key))
            todo.extend(inside(expression))


def _is_worth_it(statement: Statement) -> bool:
    """Whether something of numpy or pandas stands in it: what mypy finds of the rest in no time is left to mypy."""
    todo: list[Expression] = []
    if isinstance(statement, AssignmentStmt):
        todo += [*statement.lvalues, statement.rvalue]
    elif isinstance(statement, ExpressionStmt):
        todo.append(statement.expr)
    for part in todo:  # grows while it is read
        if not isinstance(part, NameExpr):
            todo.extend(inside(part))
        elif isinstance(part.node, Var) and part.node.type is not None and _root(part.node.fullname) not in _LARGE:
            proper = get_proper_type(part.node.type)
            for typ in proper.items if isinstance(proper, UnionType) else (proper,):
                one = get_proper_type(typ)
                if isinstance(one, Instance) and _root(one.type.fullname) in _LARGE:
                    return True
        elif part.node is not None and _root(part.node.fullname) in _LARGE:
            return True
    return False


def _top_of(statement: Statement) -> Expression | None:
    """The expression of a statement that may be worth the trouble."""
    if isinstance(statement, ExpressionStmt):
        top = statement.expr
    elif isinstance(statement, AssignmentStmt) and not statement.is_alias_def:
        top = statement.rvalue
    else:
        return None
    return top if isinstance(top, tuple(INSIDE)) and not is_of_constants(top) else None


def _is_of_item(statement: AssignmentStmt) -> bool:
    return statement.type is None and len(statement.lvalues) == 1 and isinstance(statement.lvalues[0], IndexExpr)


def _place_of(statement: Statement) -> str:
    """Where mypy gives the whole expression no context, whatever it is; "" for elsewhere."""
    if isinstance(statement, ExpressionStmt):
        return "statement"
    if isinstance(statement, AssignmentStmt) and statement.type is None and len(statement.lvalues) == 1:
        target = statement.lvalues[0]
        if isinstance(target, NameExpr) and target.is_inferred_def and isinstance(target.node, Var):
            plain = not (target.node.is_final or target.name.startswith("__")) and target.node.type is None
            return "value" if plain else ""
    return ""


def _said(checker: TypeChecker) -> int:
    return len(checker.errors.error_info_map.get(checker.path, ()))


class _Forms:
    """The keys of the expressions of one statement, and the expressions in each, itself first."""

    def __init__(self, checker: TypeChecker) -> None:
        self._checker = checker
        self._keys: dict[Expression, Key | None] = {}

    def key(self, expression: Expression) -> Key | None:
        """What mypy's answer for `expression` depends on, None when that is more than is looked at here."""
        if expression not in self._keys:
            self._keys[expression] = self._key(expression)
        return self._keys[expression]

    def parts(self, expression: Expression) -> list[Expression]:
        found = [expression]
        for part in found:  # grows while it is read
            found.extend(inside(part))
        return found

    def _key(self, expression: Expression) -> Key | None:
        kind = type(expression)
        if kind in _PLAIN:
            return (kind.__name__,)
        if isinstance(expression, NameExpr):
            return self._name(expression)
        own = self._own(expression)
        if own is None:
            return None
        if isinstance(expression, MemberExpr) and expression.node is not None:
            return _library(expression.node)
        if isinstance(expression, (MemberExpr, IndexExpr)) and self._is_narrowed(expression):
            return None
        keys = []
        for part in inside(expression):
            key = self.key(part)
            if key is None:
                return None
            keys.append(key)
        return (kind.__name__, own, *keys)

    def _is_narrowed(self, expression: Expression) -> bool:
        return literal_hash(expression) is not None and self._checker.binder.get(expression) is not None

    def _own(self, expression: Expression) -> Hashable:
        """What an expression is beside its parts; None when it is of no kind that is understood here."""
        match expression:
            case MemberExpr():
                return expression.name
            case CallExpr(analyzed=None):
                return (tuple(expression.arg_kinds), tuple(expression.arg_names))
            case IndexExpr(analyzed=None):
                return ""
            case OpExpr(analyzed=None) if expression.op not in ("and", "or"):
                return None if isinstance(expression.left, (StrExpr, BytesExpr)) else expression.op
            case UnaryExpr() if expression.op != "not":
                return expression.op
            case ComparisonExpr():
                return tuple(expression.operators)
            case ListExpr() | TupleExpr():
                return len(expression.items)
            case DictExpr() if all(key is not None for key, _ in expression.items):
                return len(expression.items)
            case SliceExpr():
                return (
                    expression.begin_index is None, expression.end_index is None, expression.stride is None
                )  # fmt: skip
        return None

    def _name(self, expression: NameExpr) -> Key | None:
        node = expression.node
        if not isinstance(node, Var) or _root(node.fullname) in _FUNCTIONS_OF:
            return None if node is None else _library(node)
        typ = node.type
        if typ is None or isinstance(typ, PartialType):
            return None
        with self._checker.msg.filter_errors(), self._checker.local_type_map:  # mypy finds and says it again
            now = self._checker.expr_checker.accept(expression)
        coded = _coded(now)
        return None if coded is None else ("variable", coded)


def _library(node: Any) -> Key | None:
    """A function, class or value of a library: the key is the very object."""
    if isinstance(node, _LIBRARY) and _root(node.fullname) in _FUNCTIONS_OF and node.fullname not in _NEW_TYPES:
        return ("library", node)
    return None


def _values(parts: Sequence[Expression]) -> Key:
    return tuple(part.value for part in parts if isinstance(part, CONSTANTS))


def _root(fullname: str) -> str:
    return fullname.partition(".")[0]


def _coded(typ: Type) -> Hashable:
    """A type as a key, with all that an answer may depend on; None for one that is not understood here."""
    if isinstance(typ, TypeAliasType) and typ.is_recursive:
        return None
    proper = get_proper_type(typ)
    truth = (proper.can_be_true, proper.can_be_false)
    match proper:
        case Instance():
            if proper.extra_attrs is not None or not _is_known(proper.type):
                return None
            known = proper.last_known_value
            value = None if known is None else (type(known.value), known.value)
            return _all("instance", (proper.type, value, truth), proper.args)
        case TupleType() if _is_known(proper.partial_fallback.type):
            return _all("tuple", (proper.partial_fallback.type, truth), proper.items)
        case UnionType():
            return _all("union", truth, proper.items)
        case LiteralType() if _is_known(proper.fallback.type):
            return ("literal", proper.fallback.type, type(proper.value), proper.value, truth)
        case NoneType():
            return ("none", truth)
        case AnyType() if proper.missing_import_name is None:
            return ("any", proper.type_of_any)
    return None


def _is_known(info: TypeInfo) -> bool:
    return _root(info.fullname) in _TYPES_OF


def _all(kind: str, own: Hashable, types: Sequence[Type]) -> Hashable:
    coded = tuple(map(_coded, types))
    return None if None in coded else (kind, own, coded)


def _is_lasting(typ: Type) -> bool:
    """Whether a type is all that mypy's answer was: it said nothing beside it of what follows."""
    proper = get_proper_type(typ)
    if isinstance(proper, (UninhabitedType, DeletedType, ErasedType, PartialType)):
        return False
    if isinstance(proper, Overloaded):
        return all(map(_is_lasting, proper.items))
    return not isinstance(proper, CallableType) or (proper.type_guard is None and proper.type_is is None)
