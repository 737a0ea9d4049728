"""One warm engine for all tests of the rules; every test gets a session without names."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from mypy import build as _first  # noqa: F401  (must be the first mypy module)

from capkernel.checker.cache import build_cache
from capkernel.checker.captures import CaptureSession
from capkernel.checker.engine import Engine
from capkernel.checker.profiles import STANDARD
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.scan import GONE, NEW, scan
from capkernel.checker.session import CheckerSession
from capkernel.checker.subset import check_subset


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine(build_cache(lambda _: None), STANDARD)


class Notebook:
    """Checks and commits cells in order."""

    def __init__(self, engine: Engine) -> None:
        engine.reset()
        self.captures = CaptureSession()
        self.session = CheckerSession(engine, STANDARD, check_subset, self.captures)
        self.number = 0

    def cell(self, text: str) -> Accepted | Rejected:
        self.number += 1
        verdict = self.session.check(self.number, text)
        if isinstance(verdict, Accepted):
            names = scan(ast.parse(text))
            bound = frozenset(name for name, states in names.end.items() if states & NEW)
            gone = frozenset(name for name, states in names.end.items() if states == GONE)
            self.session.commit(self.number, bound, gone)
        return verdict

    def accepted(self, text: str) -> Accepted:
        verdict = self.cell(text)
        assert isinstance(verdict, Accepted), verdict
        return verdict

    def refused(self, text: str) -> list[str]:
        """The codes of the refusal."""
        verdict = self.cell(text)
        assert isinstance(verdict, Rejected), verdict
        return [diagnostic.code for diagnostic in verdict.diagnostics]


@pytest.fixture
def notebook(engine: Engine) -> Notebook:
    return Notebook(engine)


Checked = Callable[[str], list[str]]


@pytest.fixture
def subset_codes() -> Checked:
    """The codes that the safe subset gives a text."""
    return lambda text: [found.code for found in check_subset(ast.parse(text), 1, text)]
