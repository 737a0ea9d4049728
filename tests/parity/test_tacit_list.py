"""tests/parity/tacit.md is whole, and what it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ROW = re.compile(r"^\| ([BH]\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[^`]+)`")
TESTS_OF_BEHAVIOURS, HOLES = 525, 17


@cache
def rows(text: str | None = None) -> list[tuple[str, str]]:
    """Number and where it is shown."""
    found = ROW.findall((HERE / "tacit.md").read_text("utf-8") if text is None else text)
    return [(number, shown) for number, _, shown in found]


@cache
def names_in(file: str) -> frozenset[str]:
    """Names of the tests of a Python file, or the headings of a Markdown file."""
    text = (ROOT / file).read_text("utf-8")
    if file.endswith(".md"):
        return frozenset(line[3:].strip() for line in text.splitlines() if line.startswith("## "))
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def problem_with(shown: str) -> str:
    """Why `shown` is no honest entry, or ""."""
    named = NAMED.findall(shown)
    for test in named:
        file, separator, name = test.partition("::") if "::" in test else test.partition("#")
        if not separator or not (ROOT / file).is_file():
            return f"there is no file {file}"
        if name not in names_in(file):
            return f"{file} has no {name!r}"
    reason = re.match(r"no meaning here: \S.{8,}", shown)
    return "" if named or reason or "*planned*" in shown else "neither a test, nor a reason, nor planned"


def test_every_number_is_there_once() -> None:
    expected = [f"B{n}" for n in range(1, TESTS_OF_BEHAVIOURS + 1)] + [f"H{n}" for n in range(1, HOLES + 1)]
    assert [number for number, _ in rows()] == expected


def test_what_is_named_exists() -> None:
    wrong = {number: problem for number, shown in rows() if (problem := problem_with(shown))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ("`tests/parity/nowhere.py::test_x`", "no file"),
        ("`tests/parity/test_tacit_list.py::test_nothing`", "has no"),
        ("`tests/cells/parity/tacit.md#B999`", "has no"),
        ("`tests/parity/test_tacit_list.py`", "no file"),
        ("no meaning here: ", "neither"),
        ("done", "neither"),
    ],
)
def test_what_is_wrong_is_found(shown: str, problem: str) -> None:
    assert problem in problem_with(shown)
