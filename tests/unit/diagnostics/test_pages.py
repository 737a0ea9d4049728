"""Every code has a page, its examples behave as the page says, and golden sessions expect it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import golden
import pytest

from capkernel import cli
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.diagnostics import CODES
from capkernel.diagnostics.pages import folder, page
from capkernel.kernel.cell_text import CellRefused, CellTexts

_FENCE = re.compile(r"^```py ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# No text of a cell makes the checker end: no example here, but tests/integration/test_checker_process.py.
_WITHOUT_EXAMPLE = frozenset(("checker-unavailable",))
# Said by the kernel, before a cell reaches the checker: tests/unit/kernel holds its cases.
_NOT_GOLDEN = frozenset(("checker-unavailable", "unstable-text"))


@dataclass(frozen=True)
class Example:
    kind: str
    text: str


def examples(code: str) -> list[Example]:
    return [Example(found[1], found[2]) for found in _FENCE.finditer(page(code))]


def test_every_code_has_a_page_and_no_page_is_left_over() -> None:
    assert {path.stem for path in folder().glob("*.md")} - {"README"} == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_page_says_what_why_and_what_to_do(code: str) -> None:
    text = page(code)
    assert text.startswith(f"# `{code}`\n")
    assert CODES[code].title[1:] in text
    for heading in ("## Why", "## What to do"):
        body = text.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
        assert len(body.split()) >= 12, heading


@pytest.mark.parametrize("code", [code for code in CODES if code not in _WITHOUT_EXAMPLE])
def test_the_examples_behave_as_the_page_says(code: str) -> None:
    kinds = set()
    for number, example in enumerate(examples(code), 1):
        text = eval(example.text) if example.kind == "makes" else example.text
        kinds.add(example.kind)
        if code == "unstable-text":
            assert codes_of_text(text) == ([code] if example.kind else [])
            continue
        session = golden.new_session("standard")
        verdict = session.check(number, text)
        if example.kind:
            assert isinstance(verdict, Rejected)
            assert {found.code for found in verdict.diagnostics} == {code}
        else:
            assert isinstance(verdict, Accepted), verdict
    assert "" in kinds
    assert len(kinds) == 2


def codes_of_text(text: str) -> list[str]:
    try:
        CellTexts().checked_text(text, 1)
    except CellRefused as refused:
        return [refused.diagnostic.code]
    return []


def test_every_code_is_expected_by_golden_sessions() -> None:
    expected = {found.code for _, section in golden.all_sections() for cell in section.cells
                for found in golden.expectations(cell)}  # fmt: skip
    assert set(CODES) - expected == _NOT_GOLDEN


def test_the_index_lists_every_page() -> None:
    linked = re.findall(r"\]\(([\w-]+)\.md\)", (folder() / "README.md").read_text("utf-8"))
    assert linked == list(CODES)


def test_explain_shows_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "impure-map"]) == 0
    assert capsys.readouterr().out.strip() == page("impure-map").strip()
