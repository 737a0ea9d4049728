"""The lists of this folder are whole, and what they name exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ROW = re.compile(r"^\| ([A-Za-z]\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[^`]+)`")
TACIT = [*(f"B{number}" for number in range(1, 526)), *(f"H{number}" for number in range(1, 18))]
LACUNA = [f"L{number}" for number in range(1, 56)]
CASES = """
a001 a003 a004 a006 a007 a009 a010 a012 a013 a015 a016 a018 a019 a021 a022 a024 a025 a027 a028 a030 a031 a033 a034
a036 a037 a039 a040 a042 a043 a045 a046 a048 a049 a051 a052 b010 b011 b013 b014 b016 b017 b019 b020 b022 b023 b025
b001 b003 b004 b006 b007 b026 b027 b029 b030 b032 b033 b035 b036 b037 b039 b040 b042 b043 b045 b046 b048 b049 b051
b052 b054 b055 c001 c003 c004 c006 c007 c009 c010 c012 c014 c015 c017 c018 c020 c021 c023 c024 c027 c028 c030 c031
c032 c034 c036 c037 c039 c040 c042 c043 c045 c046 c048 c049 c051
d001 d003 d004 d006 d007 d009 d010 d012 d013 d015 d016 d018 d019 e001 e003 e004 e006 e007 e009 e010 S15749 S15772
S15923 S19315 S20051 S21347 S21401 S21442 S21764 S23303 S23579 S23746 S26035
""".split()
LISTS = {"tacit.md": TACIT, "lacuna.md": LACUNA, "cases.md": CASES}


@cache
def rows(name: str) -> list[tuple[str, str]]:
    """Number and where it is shown."""
    return [(number, shown) for number, _, shown in ROW.findall((HERE / name).read_text("utf-8"))]


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


@pytest.mark.parametrize("name", LISTS)
def test_every_number_is_there_once(name: str) -> None:
    assert [number for number, _ in rows(name)] == LISTS[name]


@pytest.mark.parametrize("name", LISTS)
def test_what_is_named_exists(name: str) -> None:
    wrong = {number: problem for number, shown in rows(name) if (problem := problem_with(shown))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ("`tests/parity/nowhere.py::test_x`", "no file"),
        ("`tests/parity/test_lists.py::test_nothing`", "has no"),
        ("`tests/cells/parity/tacit.md#B999`", "has no"),
        ("`tests/parity/test_lists.py`", "no file"),
        ("no meaning here: ", "neither"),
        ("done", "neither"),
    ],
)
def test_what_is_wrong_is_found(shown: str, problem: str) -> None:
    assert problem in problem_with(shown)
