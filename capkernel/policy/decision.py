"""What a policy answers. Two cases, both values: a decision is never an exception and never a truth value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Never


@dataclass(frozen=True)
class Allowed:
    """The effect may happen."""

    def __bool__(self) -> Never:
        raise TypeError("a decision has no truth value: match it against Allowed and Denied")


@dataclass(frozen=True)
class Denied:
    """The effect must not happen. `reason` says why and what to do; it goes to the cell and to the audit."""

    reason: str

    def __bool__(self) -> Never:
        raise TypeError("a decision has no truth value: match it against Allowed and Denied")


Decision = Allowed | Denied

ALLOWED = Allowed()
