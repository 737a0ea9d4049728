"""The plan of an accepted cell: the blocks it can open, the functions it can hand to `map`, the masks it can show."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import msgspec

from capkernel.checker.captures.codekeys import CodeKeys
from capkernel.checker.captures.format_keeping import keeps_format
from capkernel.checker.captures.known import Class, Context, Function
from capkernel.checker.captures.reach import Reach
from capkernel.checker.captures.sources import shipped_source
from capkernel.wire.plan import AskSite, CodeKey, FreeName, MaskSite, Plan, PureFunction, ScopeSite
from capkernel.wire.types import union


class Unshippable(Exception):
    """A function whose text cannot be shipped as it was checked."""

    def __init__(self, definition: Function | Class) -> None:
        super().__init__("a definition that does not read back as it was checked")
        self.definition = definition


def _either(before: tuple[FreeName, ...], now: tuple[FreeName, ...]) -> tuple[FreeName, ...]:
    """Free names of a function that the cell hands over in two places, between which a name may be bound anew."""
    known = {free.name: free.type for free in before if free.kind == "data"}
    return tuple(
        msgspec.structs.replace(free, type=union([known[free.name], free.type]))
        if free.kind == "data" and free.name in known
        else free
        for free in now
    )


class PlanBuilder:
    """Collects what one cell may do."""

    def __init__(self) -> None:
        self._scopes: list[ScopeSite] = []
        self._sinks: set[str] = set()
        self._pure: dict[CodeKey, PureFunction] = {}
        self._tables: set[str] = set()
        self._masks: list[MaskSite] = []
        self._asks: list[AskSite] = []
        self._keys: dict[Context, CodeKeys] = {}
        self._sources: dict[ast.AST, str | None] = {}

    def plan(self) -> Plan:
        return Plan(
            tuple(self._scopes),
            tuple(sorted(self._sinks)),
            tuple(self._pure.values()),
            tuple(sorted(self._tables)),
            tuple(self._masks),
            tuple(self._asks),
        )

    def add_scopes(self, scopes: Iterable[ScopeSite], sinks: Iterable[str]) -> None:
        """The blocks the cell can open, and where secrets may go in them."""
        self._scopes += scopes
        self._sinks.update(sinks)

    def add_asks(self, asks: Iterable[AskSite]) -> None:
        """What the cell can ask the person for."""
        self._asks += asks

    def add_mask(self, node: ast.Call, typ: str, context: Context) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        self._masks.append(MaskSite(context.cell.span(node), typ, called, _assigned_to(context.parents.get(node))))

    def add_table(self, *names: str) -> None:
        self._tables.update(name for name in names if name)

    def add_pure(self, reach: Reach) -> None:
        """A judged function and everything it reaches. Raises Unshippable."""
        keys = {node: self._key(definition) for node, (definition, _) in reach.functions.items()}
        for node, (definition, free) in reach.functions.items():
            context = definition.context
            if node not in self._sources:
                self._sources[node] = shipped_source(definition.node, context.cell.text)
            source = self._sources[node]
            if source is None:
                raise Unshippable(definition)
            name = definition.name if isinstance(definition, Function) else definition.node.name
            kind = "lambda" if isinstance(node, ast.Lambda) else "def"  # a class is a definition like a function
            resolved = tuple(self._free_name(entry, reach, keys) for _, entry in sorted(free.items()))
            before = self._pure.get(keys[node])
            if before is not None:
                resolved = _either(before.free, resolved)
            self._pure[keys[node]] = PureFunction(keys[node], kind, name, source, resolved, keeps_format(node))

    def _free_name(self, free: FreeName, reach: Reach, keys: dict[ast.AST, CodeKey]) -> FreeName:
        if free.kind != "function":
            return free
        return FreeName(free.name, "function", "", keys[reach.targets[free.target]])

    def _key(self, definition: Function | Class) -> CodeKey:
        context = definition.context
        known = self._keys.get(context)
        if known is None:
            known = self._keys[context] = CodeKeys(context.number, context.cell.module)
        key = known.of(definition.node)
        if key is None:
            raise Unshippable(definition)
        return key


def _assigned_to(statement: ast.AST | None) -> str:
    """The one name that this statement gives its whole value to, or ""."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.NamedExpr(target=ast.Name(id=name)):
            return name
        case _:
            return ""
