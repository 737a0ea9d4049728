"""The plan of an accepted cell: the blocks it can open, the functions it can hand to `map`, the masks it can show."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from capkernel.checker.captures.codekeys import CodeKeys
from capkernel.checker.captures.known import Class, Context, Function
from capkernel.checker.captures.reach import Reach
from capkernel.checker.captures.scope_sites import SCOPE_KINDS, granting_call, literal_argument
from capkernel.checker.captures.sources import shipped_source
from capkernel.wire.plan import CodeKey, FreeName, MaskSite, Plan, PureFunction, ScopeSite

_SINKS = frozenset(("write_classified",))


class Unshippable(Exception):
    """A function whose text cannot be shipped as it was checked."""

    def __init__(self, definition: Function | Class) -> None:
        super().__init__("a definition that does not read back as it was checked")
        self.definition = definition


class PlanBuilder:
    """Collects what one cell may do."""

    def __init__(self) -> None:
        self._scopes: dict[tuple[int, ast.AST], ScopeSite] = {}
        self._sinks: set[str] = set()
        self._pure: dict[CodeKey, PureFunction] = {}
        self._tables: set[str] = set()
        self._masks: list[MaskSite] = []
        self._keys: dict[Context, CodeKeys] = {}

    def plan(self) -> Plan:
        return Plan(
            tuple(sorted(self._scopes.values(), key=lambda site: (site.cell, site.span.line, site.span.column))),
            tuple(sorted(self._sinks)),
            tuple(self._pure.values()),
            tuple(sorted(self._tables)),
            tuple(self._masks),
        )

    def add_effects(self, nodes: Iterable[ast.AST], context: Context) -> None:
        """The blocks and sinks that stand in a piece of source."""
        for node in nodes:
            if isinstance(node, (ast.With, ast.AsyncWith)):
                for item in node.items:
                    self._add_scope(item.context_expr, context)
            elif isinstance(node, ast.Attribute) and node.attr in _SINKS:
                self._sinks.add(node.attr)

    def _add_scope(self, call: ast.expr, context: Context) -> None:
        kind = granting_call(call, context)
        if kind is None or not isinstance(call, ast.Call):
            return
        site = ScopeSite(SCOPE_KINDS[kind], literal_argument(call, kind), context.number, context.cell.span(call))
        self._scopes[(context.number, call)] = site

    def add_mask(self, node: ast.Call, typ: str, context: Context) -> None:
        self._masks.append(MaskSite(context.cell.span(node), typ))

    def add_table(self, *names: str) -> None:
        self._tables.update(name for name in names if name)

    def add_pure(self, reach: Reach) -> None:
        """A judged function and everything it reaches. Raises Unshippable."""
        keys = {node: self._key(definition) for node, (definition, _) in reach.functions.items()}
        for node, (definition, free) in reach.functions.items():
            context = definition.context
            source = shipped_source(definition.node, context.cell.text)
            if source is None:
                raise Unshippable(definition)
            name = definition.name if isinstance(definition, Function) else definition.node.name
            kind = "lambda" if isinstance(node, ast.Lambda) else "def"  # a class is a definition like a function
            resolved = tuple(self._free_name(entry, reach, keys) for _, entry in sorted(free.items()))
            self._pure[keys[node]] = PureFunction(keys[node], kind, name, source, resolved)

    def _free_name(self, free: FreeName, reach: Reach, keys: dict[ast.AST, CodeKey]) -> FreeName:
        if free.kind != "function":
            return free
        return FreeName(free.name, "function", "", keys[reach.targets[free.target]])

    def _key(self, definition: Function | Class) -> CodeKey:
        context = definition.context
        known = self._keys.get(context)
        if known is None:
            known = self._keys[context] = CodeKeys(context.number, context.cell.text)
        key = known.of(definition.node)
        if key is None:
            raise Unshippable(definition)
        return key
