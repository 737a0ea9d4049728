"""The collector of golden sessions fails when it should."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from capkernel.diagnostics import Diagnostic, Span

_PLACE = Path(__file__).parents[2] / "cells" / "conftest.py"


@pytest.fixture(scope="module")
def collector() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_collector", _PLACE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)

    sys.modules["golden_collector"] = made
    spec.loader.exec_module(made)
    return made


def _block(collector: ModuleType, *lines: str) -> object:
    return collector.Block("py", 1, list(lines))


def _found(code: str, line: int, message: str = "a message", column: int = 0) -> Diagnostic:
    return Diagnostic(code, message, 1, Span(line, column, line, column + 1))


def test_what_is_expected_passes(collector: ModuleType) -> None:
    expected = collector.expectations(_block(collector, "x", 'y  # error: 3 [impure-map] "mess"'))
    assert collector.compare(expected, (_found("impure-map", 2, column=2),), True) == ""
    assert collector.compare([], (), False) == ""


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        ((), False),
        ((_found("unsafe-feature", 2),), True),
        ((_found("impure-map", 1),), True),
        ((_found("impure-map", 2, "another"),), True),
        ((_found("impure-map", 2), _found("impure-map", 3)), True),
    ],
)
def test_what_is_not_expected_fails(collector: ModuleType, found: tuple[Diagnostic, ...], refused: bool) -> None:
    expected = collector.expectations(_block(collector, "x", 'y  # error: [impure-map] "mess"'))
    assert collector.compare(expected, found, refused)


def test_a_refusal_nobody_expects_fails(collector: ModuleType) -> None:
    assert collector.compare([], (_found("impure-map", 1),), True)


def test_sections_and_their_rejections(collector: ModuleType) -> None:
    text = "# T\n\n## a\n\n```py\nx  # error: [impure-map]\n```\n\n## b\n\n```py\nx\n```\n"
    first, second = collector.sections_of(text)
    assert (first.name, first.rejects) == ("T / a", True)
    assert (second.name, second.rejects) == ("T / b", False)


@pytest.mark.parametrize(
    ("settings", "elsewhere"),
    [
        ('python = "3.11"', ""),
        ('python = "99.1"', "Python 99.1 and newer"),
        ('before = "3.11"', "Python before 3.11"),
        ('before = "99.1"', ""),
        ('profile = "strict"', ""),
    ],
)
def test_sessions_for_another_python(collector: ModuleType, settings: str, elsewhere: str) -> None:
    (section,) = collector.sections_of(f"# T\n\n```toml\n{settings}\n```\n\n```py\nx\n```\n")
    assert section.elsewhere == elsewhere


def test_unknown_fences_are_an_error(collector: ModuleType) -> None:
    with pytest.raises(AssertionError, match="unknown fence"):
        collector.sections_of("# T\n```python\nx\n```\n")


def test_every_golden_file_pairs_rejections_with_acceptances(collector: ModuleType) -> None:
    files = sorted(_PLACE.parent.rglob("*.md"))
    sections = [section for file in files for section in collector.sections_of(file.read_text("utf-8"))]
    rejecting = sum(section.rejects for section in sections)
    assert rejecting >= 60
    assert len(sections) - rejecting >= 60
