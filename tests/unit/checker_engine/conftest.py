"""A session of cells on one warm engine per profile; a test starts with no names bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capkernel.checker import cache
from capkernel.checker.engine import Checked, Engine
from capkernel.checker.profiles import PROFILES, RELAXED, STANDARD, STRICT, Profile
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.scan import GONE
from capkernel.checker.session import CheckerSession
from capkernel.checker.typed_cell import TypedCell
from capkernel.diagnostics.model import Diagnostic
from capkernel.wire.plan import NOTHING, Plan


@pytest.fixture(scope="session")
def cache_directory() -> Path:
    return cache.build_cache(print)


class Silent:
    """A capture checker that has nothing to say. `said` makes it refuse; `heard` is what it was told."""

    def __init__(self) -> None:
        self.said: list[Diagnostic] = []
        self.cells: list[TypedCell] = []
        self.heard: list[tuple[Any, frozenset[str], frozenset[str]]] = []

    def check(self, cell: TypedCell, /) -> SilentVerdict:
        self.cells.append(cell)
        return SilentVerdict(list(self.said), f"facts of {cell.number}")

    def commit(self, facts: Any, bound: frozenset[str], deleted: frozenset[str], /, *, raised: bool = False) -> None:
        self.heard.append((facts, bound, deleted))


class SilentVerdict:
    def __init__(self, diagnostics: list[Diagnostic], facts: object) -> None:
        self.diagnostics = diagnostics
        self.plan: Plan = NOTHING
        self.facts = facts


class Cells:
    """A notebook: every `run` is the next cell, and binds what it says it binds."""

    def __init__(self, engine: Engine, profile: Profile, first: int) -> None:
        self.engine = engine
        self.number = first
        self.subset: list[Diagnostic] = []
        self.captures = Silent()
        self.session = CheckerSession(engine, profile, lambda _module, _cell, _text: self.subset, self.captures)

    def check(self, text: str) -> Accepted | Rejected:
        self.number += 1
        return self.session.check(self.number, text)

    def run(
        self, text: str, *, bound: set[str] | None = None, deleted: set[str] | None = None, raised: bool = False
    ) -> Accepted:
        verdict = self.check(text)
        assert isinstance(verdict, Accepted), verdict.diagnostics
        gone = frozenset(deleted) if deleted is not None else self._deleted(text)
        names = frozenset(verdict.names) - gone if bound is None else frozenset(bound)
        self.session.commit(self.number, names, gone, raised=raised)
        return verdict

    def codes(self, text: str) -> list[str]:
        """The codes that refuse `text`, nothing kept."""
        verdict = self.check(text)
        self.session.discard(self.number)
        return [] if isinstance(verdict, Accepted) else [diagnostic.code for diagnostic in verdict.diagnostics]

    def warnings(self, text: str) -> list[str]:
        verdict = self.check(text)
        assert isinstance(verdict, Accepted), verdict.diagnostics
        self.session.discard(self.number)
        return [diagnostic.code for diagnostic in verdict.warnings]

    def type(self, expression: str) -> str:
        """The type of an expression of the session, as a person reads it."""
        verdict = self.check(expression)
        assert isinstance(verdict, Accepted), verdict.diagnostics
        self.session.discard(self.number)
        return verdict.last_type

    def typed(self, text: str) -> TypedCell:
        return self.checked(text).typed

    def checked(self, text: str) -> Checked:
        self.number += 1
        return self.engine.check(self.number, text, ast.parse(text))

    def _deleted(self, text: str) -> frozenset[str]:
        from capkernel.checker.scan import scan

        return frozenset(name for name, states in scan(ast.parse(text)).end.items() if states == GONE)


_engines: dict[str, tuple[Engine, list[int]]] = {}


def _cells(name: str, place: Path) -> Cells:
    profile = PROFILES[name]
    if name not in _engines:
        _engines[name] = (Engine(place, profile), [0])
    engine, used = _engines[name]
    engine.reset()
    return Cells(engine, profile, used[0])


def _lend(name: str, place: Path) -> Iterator[Cells]:
    cells = _cells(name, place)
    yield cells
    _engines[name][1][0] = cells.number


@pytest.fixture
def cells(cache_directory: Path) -> Iterator[Cells]:
    """The standard profile."""
    yield from _lend(STANDARD.name, cache_directory)


@pytest.fixture
def strict(cache_directory: Path) -> Iterator[Cells]:
    yield from _lend(STRICT.name, cache_directory)


@pytest.fixture
def relaxed(cache_directory: Path) -> Iterator[Cells]:
    yield from _lend(RELAXED.name, cache_directory)
