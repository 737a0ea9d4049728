"""The pure functions of the session: what a worker may name when it asks for a `map`.

Rule 1: the vault gets source that the checker wrote into the plan of an accepted cell. The worker names a function by
its key; what it says about it otherwise is not looked at.
Rule 2: a name that is not here, or reaches something that is not here, becomes an empty bundle, and the result poison.
"""

from __future__ import annotations

from typing import Final

from capkernel.wire.plan import CodeKey, Plan, PureFunction
from capkernel.wire.vault import FunctionBundle
from capkernel.wire.worker import FunctionRef

NOTHING: Final = FunctionBundle()
"""Designates no function; the vault makes poison of it."""


class FunctionRegistry:
    """Pure functions and library functions of accepted cells."""

    def __init__(self) -> None:
        self._functions: dict[CodeKey, PureFunction] = {}
        self._tables: set[str] = set()

    def accept(self, plan: Plan) -> None:
        """Called when an accepted cell starts. A cell defines under its own number, so nothing is replaced silently."""
        for function in plan.pure:
            self._functions[function.key] = function
        self._tables.update(plan.tables)

    def bundle(self, ref: FunctionRef) -> FunctionBundle:
        """The function with everything it reaches, or NOTHING."""
        if ref.key is None:
            return FunctionBundle(table=ref.table, made=ref.made) if ref.table in self._tables else NOTHING
        if ref.table:
            return NOTHING  # both: nonsense
        found: dict[CodeKey, PureFunction] = {}
        waiting = [ref.key]
        while waiting:
            key = waiting.pop()
            if key in found:
                continue
            function = self._functions.get(key)
            if function is None:
                return NOTHING
            found[key] = function
            for free in function.free:
                if free.kind == "function":
                    if free.function is None:
                        return NOTHING
                    waiting.append(free.function)
        return FunctionBundle(entry=ref.key, functions=tuple(found.values()), made=ref.made)
