"""Rule P: a function given to `Classified.map` or `flat_map` is pure.

The rule is about reach, not about calls. Inside a pure function every value comes from the argument, from captured
plain data, from what the function made itself, or from a library name that the tables call pure; nothing among these
has authority, so calling a method or a parameter of them has no effect. It is enough that

Rule 1: every name and module member it mentions, in whatever position, is pure, a pure session function or class, plain
data, or a Classified handle; and the same holds for every session function and class that it reaches.
Rule 2: it names no method that the tables call impure, and stores into nothing that it did not make or get.
Rule 3: special methods of a reached class are called by syntax and by libraries, so all of them must be pure; ordinary
methods must be when their name is used anywhere in reach.

What is captured is taken by value at the call. The verdict is for the definitions as they are at that moment.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from mypy.nodes import TypeInfo

from capkernel.checker.captures.known import Change, Class, Function, View
from capkernel.checker.captures.pure_walk import Body, ClassBody
from capkernel.checker.captures.reach import Reach, Violation, may_be_called, stored_root_of
from capkernel.checker.captures.scopes import parameters_of
from capkernel.checker.captures.types import Types
from capkernel.wire.plan import FreeName


class Purity:
    """Judges functions against one view of the session."""

    def __init__(
        self, view: View, types: Types, classes: dict[str, Class], changed: Mapping[str, Change] | None = None
    ) -> None:
        self._changed = changed or {}
        self._view = view
        self._types = types
        self._classes = classes
        self._mutated: dict[ast.AST, set[str]] = {}

    def judge(self, function: Function) -> Reach:
        """Everything `function` reaches. It is pure when there are no violations."""
        reach = Reach()
        self._function(function, reach, "")
        self._settle(reach)
        return reach

    def _settle(self, reach: Reach) -> None:
        # Methods become reachable when a class does or when a name is used; go on until nothing is new.
        judged: set[ast.AST] = set()
        changed = True
        while changed:
            changed = False
            for definition in list(reach.classes.values()):
                for method in definition.methods():
                    if method.node in judged or not may_be_called(method, reach.attributes, definition):
                        continue
                    judged.add(method.node)
                    changed = True
                    free = reach.functions[definition.node][1]
                    Body(self, method, reach, f"{definition.node.name}.{method.name}", free).walk()

    # ── what a body asks for ─────────────────────────────────────────────────────────────────────────────────────────

    def _function(self, function: Function, reach: Reach, via: str) -> None:
        if function.node in reach.functions:
            return
        free: dict[str, FreeName] = {}
        reach.functions[function.node] = (function, free)
        body = Body(self, function, reach, via, free)
        body.check_shape()
        body.walk()

    def reach_function(self, function: Function, reach: Reach) -> None:
        self._function(function, reach, function.name)

    def reach_class(self, definition: Class, reach: Reach) -> None:
        if definition.node in reach.functions:
            return
        free: dict[str, FreeName] = {}
        reach.functions[definition.node] = (definition, free)
        if definition.info is not None:
            reach.classes[definition.info] = definition
            self._check_unchanged(definition, definition.info, reach)
        ClassBody(self, definition, reach, free).walk()

    def _check_unchanged(self, definition: Class, info: TypeInfo, reach: Reach) -> None:
        """What is shipped is the text of the class; what was stored in it later is not in there."""
        change = self._changed.get(info.fullname)
        if change is not None:
            reach.violations.append(
                Violation(
                    definition.node,
                    definition.context,
                    f"uses the class `{info.name}`, whose `{change.attribute}` was changed after it was defined",
                    info.name,
                    f"type[{info.name}]",
                    f"cell {change.cell}, line {change.line}",
                )
            )

    def class_of(self, info: TypeInfo) -> Class | None:
        return self._classes.get(info.fullname)

    @property
    def view(self) -> View:
        return self._view

    @property
    def types(self) -> Types:
        return self._types

    def mutated_parameters(self, function: Function) -> set[str]:
        """Names of the parameters that the body stores into."""
        known = self._mutated.get(function.node)
        if known is None:
            self._mutated[function.node] = known = set()
            for node in ast.walk(function.node):
                root = stored_root_of(node)
                if root is not None and function.context.scopes.owner(root) is function.scope:
                    known.add(root.id)
            known &= {argument.arg for argument in parameters_of(function.node)}
        return known
