"""What a function that runs in the vault sees of the API: Classified over values that are right here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Never


class InsideClassified:
    """Classified[T] inside a job: the operations, refusals and mask of the one outside, but nothing is posted."""

    __slots__ = ("_value",)

    def __init__(self, _: Never, /) -> None:
        raise TypeError("a Classified value comes from classify or map, never from a constructor")

    def map(self, f: Callable[[Any], Any], /) -> InsideClassified:
        return wrap(f(opened(self)))

    def flat_map(self, f: Callable[[Any], InsideClassified], /) -> InsideClassified:
        made = f(opened(self))
        if type(made) is not InsideClassified:
            raise TypeError("flat_map needs a function that returns a Classified")
        return made

    def zip(self, other: InsideClassified, /) -> InsideClassified:
        if type(other) is not InsideClassified:
            raise TypeError("zip takes a Classified")
        return wrap((opened(self), opened(other)))

    def __repr__(self) -> str:
        return "Classified(***)"

    def __format__(self, _spec: str, /) -> str:
        return repr(self)

    def _refuse(self, *_: object) -> Never:
        raise TypeError("a Classified value has no truth value, order, length, equality or hash: use .map(...)")

    __bool__ = __len__ = __iter__ = __contains__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __int__ = __float__ = __index__ = __bytes__ = __getitem__ = __call__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = _refuse


def wrap(value: object) -> InsideClassified:
    made = object.__new__(InsideClassified)
    made._value = value  # type: ignore[attr-defined]
    return made


def opened(secret: InsideClassified) -> Any:
    """A private copy of the value, as a function outside would get one."""
    return copy.deepcopy(secret._value)  # type: ignore[attr-defined]


def classify(value: object, /, *, label: str | None = None) -> InsideClassified:  # noqa: ARG001 — as outside
    return wrap(copy.deepcopy(value))


API: dict[str, object] = {"Classified": InsideClassified, "classify": classify}
