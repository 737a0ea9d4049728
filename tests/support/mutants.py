"""Rules switched off one at a time, in this process and for a test only: golden sessions must notice.

A rule is a place in the checker that says no: a code and the functions that emit it. It is switched off by dropping
what it says. A row of the tables is taken out of the table. Nothing here is a switch of the product: the harness
replaces functions of the loaded modules and puts them back.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from unittest import mock

import golden

from capkernel.checker import session as checker_session
from capkernel.checker.findings import blocked, findings
from capkernel.checker.repairs.causes import with_suggestions
from capkernel.checker.repairs.source import Source
from capkernel.checker.subset.report import Report
from capkernel.diagnostics import Diagnostic

Rule = str  # "impure-map: MapCalls._refuse_unknown < MapCalls._judge"


@dataclass
class Trace:
    """Which rules spoke, and which are switched off."""

    spoke: set[Rule] = field(default_factory=set)
    off: Rule | None = None

    def hears(self, rule: Rule) -> bool:
        self.spoke.add(rule)
        return rule != self.off


@dataclass
class Killed:
    """What the golden sessions made of one mutant."""

    rule: str
    pairs: int  # sections in which the rule speaks
    killed: int  # of these: fail without it
    survivors: list[str] = field(default_factory=list)


@contextmanager
def harness() -> Iterator[Trace]:
    """The checker with its rules told apart. Repairs are left out: they ask the same rules again."""
    trace = Trace()
    plain_add, plain_parse = Report.add, checker_session.parse

    def add(self: Report, code: str, *args: Any, **named: Any) -> None:
        if trace.hears(f"{code}: {_speaker(sys._getframe(1))}"):
            plain_add(self, code, *args, **named)

    def parse(cell: int, text: str) -> ast.Module | Diagnostic:
        module = plain_parse(cell, text)
        if isinstance(module, Diagnostic) and not trace.hears(f"{module.code}: parse"):
            return ast.Module([], [])
        return module

    def filtered(plain: Callable[..., list[Diagnostic]], name: str) -> Callable[..., list[Diagnostic]]:
        def call(*args: Any) -> list[Diagnostic]:
            return [one for one in plain(*args) if one.severity != "error" or trace.hears(f"{one.code}: {name}")]

        return call

    def offered(
        refused: list[Diagnostic], text: str, module: ast.Module | None, _: object, names: frozenset[str], *rest: Any
    ) -> tuple[Diagnostic, ...]:
        earlier, members = rest
        return tuple(with_suggestions(refused, Source(text, module, names, earlier), members))

    with (
        mock.patch.object(Report, "add", add),
        mock.patch.multiple(
            checker_session,
            parse=parse,
            offer=offered,
            findings=filtered(findings, "findings"),
            blocked=filtered(blocked, "blocked"),
            _settings=filtered(checker_session._settings, "settings"),
        ),
    ):
        yield trace


def _speaker(frame: FrameType | None) -> str:
    """The function that speaks and its caller, without the report's own."""
    names: list[str] = []
    while frame is not None and len(names) < 2:
        if frame.f_code.co_name not in ("ambient", "add"):
            names.append(frame.f_code.co_qualname.removesuffix(".<locals>.<lambda>"))
        frame = frame.f_back
    return " < ".join(names)


def sections() -> list[tuple[str, golden.Section]]:
    return [(f"{path.name}: {section.name}", section) for path, section in golden.all_sections()]


def rules(trace: Trace, all_sections: Iterable[tuple[str, golden.Section]]) -> dict[Rule, list[int]]:
    """The sections, by index, in which each rule speaks. All must pass with every rule on."""
    found: dict[Rule, list[int]] = defaultdict(list)
    for index, (name, section) in enumerate(all_sections):
        trace.spoke.clear()
        problem = golden.run_section(section)
        assert not problem, f"{name}: {problem}"
        for rule in trace.spoke:
            found[rule].append(index)
    return dict(found)


def kill(trace: Trace, rule: Rule, indices: Iterable[int], all_sections: list[tuple[str, golden.Section]]) -> Killed:
    """Run the sections in which `rule` speaks without it."""
    result = Killed(rule, 0, 0)
    trace.off = rule
    try:
        for index in indices:
            name, section = all_sections[index]
            result.pairs += 1
            if _fails(section):
                result.killed += 1
            else:
                result.survivors.append(name)
    finally:
        trace.off = None
    return result


def _fails(section: golden.Section) -> bool:
    try:
        return bool(golden.run_section(section))
    except Exception:
        return True  # without the rule the checker goes where it was never meant to go


# ── rows of the tables ───────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def without(table: Any, name: str, row: str) -> Iterator[None]:
    """The table without one row. Tables are frozen: this writes below that, and puts the old value back."""
    old = getattr(table, name)
    new = {key: value for key, value in old.items() if key != row} if hasattr(old, "items") else old - {row}
    object.__setattr__(table, name, new)
    try:
        yield
    finally:
        object.__setattr__(table, name, old)
