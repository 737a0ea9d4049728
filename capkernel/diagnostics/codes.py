"""The registry of our codes. Kebab-case, stable; mypy's own codes pass through unchanged and are not listed here.

Every code has a title (the rule in one line) and a reason (why the rule exists), shown by `capkernel explain CODE`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    name: str
    title: str
    why: str


_ALL = (
    Code(
        "syntax",
        "the cell is not Python",
        "a cell is checked whole before its first statement runs, so it must parse whole",
    ),
    Code(
        "unsafe-magic",
        "IPython magics and shell escapes outside the allowed list are refused",
        "a magic runs code and commands that no checker sees",
    ),
    Code(
        "unstable-text",
        "the cell would read differently if it were transformed again",
        "the text that is checked must be the very text that runs",
    ),
    Code(
        "ambient-authority",
        "a cell reaches files, processes, the network or the environment only through capabilities",
        "whatever a cell may do is asked for where it is used, so that it can be seen, limited and taken back",
    ),
    Code(
        "unsafe-feature",
        "reflection, dynamic code and interpreter internals are outside the checked subset",
        "they would let a cell do what the checker cannot see",
    ),
    Code(
        "unsafe-import",
        "this module exists only to reach outside the session",
        "the worker has nothing to lend it, and the checker cannot follow it",
    ),
    Code(
        "scope-outside-with",
        "a scope-granting call stands only as the item of a `with` block",
        "the block is what ends the capability; without one nobody would take it back",
    ),
    Code(
        "capability-escape",
        "a capability may not outlive its scope",
        "the handle is revoked when the block ends; what holds it afterwards could only fail, or wait for a way round",
    ),
    Code(
        "capability-forge",
        "capabilities and Classified values are granted, never constructed",
        "a handle made by a cell would designate nothing",
    ),
    Code(
        "impure-map",
        "a function given to `Classified.map` must be pure",
        "the function sees the secret; whatever it could touch could carry the secret out",
    ),
    Code(
        "classified-observed",
        "a Classified value has no truth value, order, length, equality, iteration or hash",
        "each of them would answer a question about the secret outside the vault",
    ),
    Code(
        "classified-format",
        "a Classified value is formatted only in output, where it shows as its mask",
        "anywhere else the text would hold `Classified[...](***)`, never the value: a bug",
    ),
    Code(
        "redefined-api",
        "names of the capability API and of checked builtins cannot be rebound",
        "the checker and the worker must mean the same thing by them",
    ),
    Code(
        "unbound-name",
        "this name is not bound when the cell reads it",
        "the cell would stop half-way with a NameError",
    ),
    Code(
        "untyped-code",
        "this code has no types, so it was not checked",
        "code the type checker skips still runs; the rules cannot hold for what was not looked at",
    ),
    Code(
        "not-understood",
        "the checker does not know this construct",
        "what is not understood is refused, never skipped",
    ),
    Code(
        "too-much-work",
        "checking this cell went past its limits",
        "a cell that cannot be checked in bounded time and memory does not run",
    ),
    Code(
        "checker-unavailable",
        "the checker could not answer",
        "without a verdict nothing runs",
    ),
)

CODES: dict[str, Code] = {code.name: code for code in _ALL}
"""Every code of ours by name, in the order they are documented."""
