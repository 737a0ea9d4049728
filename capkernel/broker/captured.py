"""Is what a worker says a function captured what the checker said it would be?

Rule 1: the types come from the plan of an accepted cell; a value of another type makes the result poison, and no code
of the function sees it.
"""

from __future__ import annotations

from capkernel.wire.types import ANY, TypeNode, check_captured
from capkernel.wire.vault import FunctionBundle, function_id


def require_types(bundle: FunctionBundle, captured: bytes) -> None:
    """Raise Mismatch, or BadValue for what is no captured data. Nothing is decoded; the work is bounded."""
    expected = _expected(bundle)
    if expected:
        check_captured(captured, expected)


def _expected(bundle: FunctionBundle) -> dict[tuple[str, str], TypeNode]:
    """The type of every captured name. A name that two functions know by different types may be of either."""
    found: dict[tuple[str, str], TypeNode] = {}
    for function in bundle.functions:
        own = "closure" if function.key == bundle.entry else function_id(function.key)
        for free in function.free:
            if free.kind != "data" or free.type == ANY:
                continue
            for group in (own, "globals"):
                known = found.setdefault((group, free.name), free.type)
                if known != free.type:
                    found[(group, free.name)] = TypeNode("union", (known, free.type))
    for function in bundle.functions:  # one that does not say wins: the others may know less
        for free in function.free:
            if free.kind in ("data", "classified") and free.type == ANY:
                found.pop(("globals", free.name), None)
    return found
