"""What the capture checker keeps from cell to cell, and the order in which it judges one.

Rule 1: `check` changes nothing; what a cell would leave is in its facts, and only `commit` keeps it.
Rule 2: names are looked up late: a function of an earlier cell is judged with the names as they are at its use.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from capkernel.checker.captures.asks import ask_sites, asks_of_names
from capkernel.checker.captures.flow import Flow
from capkernel.checker.captures.flow_machine import TooMuchWork
from capkernel.checker.captures.known import (
    Change,
    Class,
    Context,
    Data,
    Entry,
    Function,
    View,
    context_of,
    final_entries,
    half_way_entries,
)
from capkernel.checker.captures.map_calls import MapCalls
from capkernel.checker.captures.openers import Openers
from capkernel.checker.captures.plan import PlanBuilder
from capkernel.checker.captures.rules import Rules
from capkernel.checker.captures.scope_sites import SiteKey, has_scope
from capkernel.checker.captures.types import Types, session_classes
from capkernel.checker.captures.uses import (
    Piece,
    globals_of,
    holds_no_code,
    read_cell,
    read_definition,
    scopes_with_uses,
)
from capkernel.checker.captures.values import Frame, Heap, Site, Value, reaches_dead
from capkernel.checker.subset.report import Report
from capkernel.checker.typed_cell import TypedCell
from capkernel.diagnostics.model import Diagnostic
from capkernel.wire.plan import NOTHING, AskSite, Plan


@dataclass
class Facts:
    """What an accepted cell leaves behind."""

    context: Context
    entries: dict[str, Entry]
    classes: dict[str, Class]
    values: dict[str, Value] = field(default_factory=dict)  # of the names whose flow was followed
    ever: dict[str, Value] = field(default_factory=dict)  # the same, at any point of the cell
    lines: dict[str, int] = field(default_factory=dict)
    heap: Heap | None = None
    changed: dict[str, Change] = field(default_factory=dict)
    openers: dict[str, str] = field(default_factory=dict)  # names that hold a function that takes a path


@dataclass
class CaptureVerdict:
    """Refused when a diagnostic is an error; then the plan allows nothing."""

    diagnostics: list[Diagnostic]
    plan: Plan
    facts: Facts


_REMEMBERED = 200  # functions


class CaptureSession:
    """The capture checker of one session."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._classes: dict[str, Class] = {}
        self._types = Types()
        self._frame = Frame(None, None)
        self._heap = Heap()
        self._mentions: dict[ast.AST, frozenset[str]] = {}
        self._scoped: dict[ast.AST, bool] = {}
        self._pieces: dict[ast.AST, Piece] = {}
        self._asks: dict[ast.AST, tuple[AskSite, ...]] = {}
        self._method_names: frozenset[str] = frozenset()
        self._openers: dict[str, str] = {}
        self._changed: dict[str, Change] = {}

    def check(self, cell: TypedCell) -> CaptureVerdict:
        """Judge a typed cell. Changes nothing."""
        context = context_of(cell)
        report = Report(cell)
        plan = PlanBuilder()
        classes = dict(self._classes)
        types = self._types
        own = _classes_of(context)
        if own:
            types = self._types.copy()
            for name, definition in own.items():
                classes[name] = definition
                if definition.info is not None:
                    types.add_class(definition.info)
        facts = Facts(context, final_entries(context), own)
        view = View(self._entries, context, None)
        changed = dict(self._changed)
        maps = MapCalls(context, self._entries, types, classes, report, plan, changed)
        openers = Openers(self._openers)
        rules = Rules(context, view, report, plan, maps, openers, changed)
        rules.walk()
        facts.openers = openers.here
        facts.changed = rules.changed
        reached, handed = self._reached(context)
        followed: set[tuple[SiteKey, str]] = set()
        if rules.opens_block or rules.stored & self._methods(own) or self._is_flow_needed(context, reached):
            followed = self._follow(facts, report, types, classes)
        if rules.opens_block or any(self._has_scope(function) for function in reached):
            rebound = frozenset().union(*(globals_of(function.node) for function in reached))
            here = read_cell(context, types, rebound)
            earlier = [self._piece(function) for function in reached]
            scopes = scopes_with_uses(here, earlier, handed, _overlay(self._entries, facts.entries), types, followed)
            plan.add_scopes(scopes, here.sinks.union(*(piece.sinks for piece in earlier)))
        plan.add_asks(ask_sites(context.cell.module, context))
        for function in reached:
            plan.add_asks(self._asks_of(function))
        plan.add_asks(asks_of_names(handed, context))
        refused = any(found.severity == "error" for found in report.found)
        found = sorted(report.found, key=lambda one: (one.span.line, one.span.column))
        return CaptureVerdict(found, NOTHING if refused else plan.plan(), facts)

    def commit(self, facts: Facts, bound: frozenset[str], deleted: frozenset[str], *, raised: bool = False) -> None:
        """The accepted cell ran and left these names. `raised`: it came half-way, nobody knows how far, so a name is
        whatever the cell makes of it anywhere."""
        entries = half_way_entries(facts.context, bound) if raised else facts.entries
        values = facts.values
        if raised:
            values = values | {name: facts.ever[name] for name in bound & facts.ever.keys()}
        for name in deleted:
            self._entries.pop(name, None)
            self._frame.names.pop(name, None)
        for name in bound:
            entry = entries.get(name)
            if entry is None:
                self._entries.pop(name, None)  # bound by a star import: mypy knows what it is
            else:
                self._entries[name] = entry
            self._frame.names.pop(name, None)
        for name in bound | deleted:
            self._openers.pop(name, None)
        self._changed |= facts.changed
        self._openers |= {name: path for name, path in facts.openers.items() if name in self._entries}
        # What the cell did to objects of earlier cells shows in their names, too.
        for name, value in values.items():
            if name in self._entries and name not in deleted:
                if name not in bound:
                    # The cell may have ended before it came to bind the name; then it is what it was.
                    value |= self._frame.names.get(name, value)
                self._frame.names[name] = value
                self._frame.lines[name] = facts.lines.get(name, 0)
        if facts.heap is not None:
            self._heap = self._pruned(facts.heap)
        if len(self._mentions) > _REMEMBERED:  # what they say is found again; their functions may be long gone
            for found in (self._mentions, self._scoped, self._pieces, self._asks):
                found.clear()
        for name, definition in facts.classes.items():
            self._classes[name] = definition
            self._method_names |= _method_names(definition)
            if definition.info is not None:
                self._types.add_class(definition.info)

    # ── the flow of capabilities ─────────────────────────────────────────────────────────────────────────────────────

    def _follow(
        self, facts: Facts, report: Report, types: Types, classes: dict[str, Class]
    ) -> set[tuple[SiteKey, str]]:
        frame = Frame(None, None, dict(self._frame.names), dict(self._frame.lines))
        heap = Heap(self._heap.contents, self._heap.fields)
        heap.instances.update(self._heap.instances)
        heap.partials.update(self._heap.partials)
        heap.patched.update(self._heap.patched)
        flow = Flow(facts.context, report, types.inert, frame, heap, _overlay(self._entries, facts.entries), classes)
        ever = flow.record()
        try:
            flow.run(facts.context.cell.module)
        except TooMuchWork:
            report.add(
                "too-much-work",
                facts.context.cell.module,
                "what this cell does with capabilities is too much to follow",
                help="split the cell, and keep what happens inside a block short",
            )
        facts.values, facts.lines, facts.heap = frame.names, frame.lines, heap
        facts.ever = ever.get(frame, {})
        return flow.followed

    def _is_flow_needed(self, context: Context, reached: list[Function | Class]) -> bool:
        """Whether the cell can meet a dead capability, or a function that opens a block."""
        if any(self._has_scope(function) for function in reached):
            return True
        holding = {name for name, value in self._frame.names.items() if reaches_dead(value, self._heap, self._read_by)}
        if not holding:
            return False
        names = {node.id for node in context.scopes.standing}
        for function in reached:
            names |= self._names_of(function)
        return bool(names & holding)

    def _methods(self, own: dict[str, Class]) -> frozenset[str]:
        """Names of methods: another function stored under one of them may be called in its place."""
        return self._method_names.union(*(_method_names(definition) for definition in own.values()))

    def _read_by(self, function: Function) -> list[Value]:
        names = self._names_of(function)
        return [value for name, value in self._frame.names.items() if name in names]

    def _reached(self, context: Context) -> tuple[list[Function | Class], set[str]]:
        """Functions and classes of earlier cells that the cell can get at: by name, by type, or through a value.
        And the names that stand in such values: what they are may be called at any time."""
        found: dict[ast.AST, Function | Class] = {}
        handed: set[str] = set()
        todo: list[str] = list({node.id: None for node in context.scopes.standing})
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            entry = self._entries.get(name)
            if name in seen or entry is None:
                continue
            seen.add(name)
            if isinstance(entry.known, Data) and not holds_no_code(entry, self._types):
                handed |= entry.mentions
                todo.extend(entry.mentions)
            for known in self._definitions(entry):
                if known.node not in found:
                    found[known.node] = known
                    todo.extend(self._names_of(known))
        return list(found.values()), handed

    def _piece(self, definition: Function | Class) -> Piece:
        known = self._pieces.get(definition.node)
        if known is None:
            known = self._pieces[definition.node] = read_definition(definition, self._types)
        return known

    def _asks_of(self, definition: Function | Class) -> tuple[AskSite, ...]:
        known = self._asks.get(definition.node)
        if known is None:
            known = self._asks[definition.node] = tuple(ask_sites(definition.node, definition.context))
        return known

    def _definitions(self, entry: Entry) -> list[Function | Class]:
        found: list[Function | Class] = []
        for known in entry.known_ways:
            if isinstance(known, (Function, Class)):
                found.append(known)
            elif isinstance(known, Data):
                infos = session_classes(known.type)
                infos |= {derived for info in infos for derived in self._types.overriders(info)}
                bases = {base.fullname for info in infos for base in info.mro}
                found += [self._classes[name] for name in sorted(bases) if name in self._classes]
        return found

    def _names_of(self, definition: Function | Class) -> frozenset[str]:
        known = self._mentions.get(definition.node)
        if known is None:
            known = frozenset(
                part for node in ast.walk(definition.node) for part in ([node.id] if isinstance(node, ast.Name) else [])
            )
            self._mentions[definition.node] = known
        return known

    def _has_scope(self, definition: Function | Class) -> bool:
        known = self._scoped.get(definition.node)
        if known is None:
            known = self._scoped[definition.node] = has_scope(definition.node, definition.context)
        return known

    def _pruned(self, heap: Heap) -> Heap:
        """Only what a name of the session can still reach."""
        kept = Heap()
        kept.patched = dict(heap.patched)
        for value in [*self._frame.names.values(), *heap.patched.values()]:
            for token in heap.within(value):
                if isinstance(token, Site) and token in heap.contents:
                    kept.contents[token] = heap.contents[token]
                    if token in heap.fields:
                        kept.fields[token] = heap.fields[token]
                    if token.node in heap.partials:
                        kept.partials[token.node] = heap.partials[token.node]
                    if token.node in heap.instances:
                        kept.instances[token.node] = heap.instances[token.node]
        return kept


def _overlay(old: dict[str, Entry], new: dict[str, Entry]) -> dict[str, Entry]:
    return {**old, **new}


def _method_names(definition: Class) -> frozenset[str]:
    return frozenset(method.name for method in definition.methods())


def _classes_of(context: Context) -> dict[str, Class]:
    """Every class of the cell by the name mypy gave it."""
    found: dict[str, Class] = {}
    for node in context.scopes.of:
        if isinstance(node, ast.ClassDef):
            definition = Class(node, context, context.class_info(node))
            if definition.info is not None:
                found[definition.info.fullname] = definition
    return found
