"""The order of the questions, the limits, and what a refusal leaves: nothing."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.session import MOST_BYTES, MOST_WARNINGS, CheckerSession, parse
from capkernel.diagnostics.model import Diagnostic, Span


def codes(verdict: Accepted | Rejected) -> list[str]:
    assert isinstance(verdict, Rejected)
    return [diagnostic.code for diagnostic in verdict.diagnostics]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x = 1\0", "syntax"),
        ("'\ud800'", "syntax"),
        ("#" * (MOST_BYTES + 1), "too-much-work"),
        ("é" * (MOST_BYTES // 2 + 1), "too-much-work"),
        ("+".join(["1"] * 20000), "too-much-work"),
        ("-" * 3000 + "1", "too-much-work"),
        ("a" + ".b" * 20000, "too-much-work"),
        ("x" + "()" * 20000, "too-much-work"),
        ("(" * 500 + ")" * 500, "syntax"),
        ("return 1", "syntax"),
        ("yield 1", "syntax"),
        ("def f():\n    nonlocal x", "syntax"),
        ("break", "syntax"),
        ("def f(a, a): ...", "syntax"),
        ("if 1:\nx", "syntax"),
        ("x: int = = 3", "syntax"),
    ],
)
def test_what_is_no_cell(cells, text: str, code: str) -> None:
    assert cells.codes(text) == [code]


def test_a_trial_is_not_even_remembered_for_help(cells) -> None:
    cells.number += 1
    cells.session.check(cells.number, "later = undefined_name", trial=True)
    (missing,) = cells.check("later").diagnostics
    assert f"cell {cells.number - 1}" not in repr(missing)
    cells.session.check(cells.number, "later = undefined_name")
    (missing,) = cells.check("later").diagnostics
    assert f"cell {cells.number - 1}" in repr(missing)


def test_empty_cells_are_fine(cells) -> None:
    for text in ("", "\n", "# only a comment", "   \n\n", "pass"):
        assert isinstance(cells.check(text), Accepted)


def test_the_place_of_a_syntax_error(cells) -> None:
    diagnostic = cells.check("x = 1\ny = é é\n").diagnostics[0]
    assert (diagnostic.span.line, diagnostic.span.column) == (2, 6)


def test_a_deep_but_reasonable_cell_is_judged(cells) -> None:
    assert cells.codes("+".join(["1"] * 250)) == []
    assert cells.codes("s = ''\ns" + ".strip()" * 150) == []


def test_the_subset_comes_first(cells) -> None:
    cells.subset = [Diagnostic("unsafe-feature", "no", cells.number, Span(1, 0, 1, 1))]
    assert cells.codes("print(nope)") == ["unsafe-feature"]
    assert cells.captures.cells == []


def test_a_warning_of_the_subset_does_not_refuse(cells) -> None:
    cells.subset = [Diagnostic("unsafe-feature", "hm", cells.number, Span(1, 0, 1, 1), "warning")]
    verdict = cells.check("1")
    assert isinstance(verdict, Accepted)
    assert [warning.message for warning in verdict.warnings] == ["hm"]


def test_the_capture_checker_refuses(cells) -> None:
    cells.captures.said = [Diagnostic("capability-escape", "no", cells.number, Span(1, 0, 1, 1))]
    assert cells.codes("x = 1") == ["capability-escape"]
    cells.captures.said = []
    assert cells.codes("x") == ["unbound-name"]


def test_types_and_captures_are_told_together(cells) -> None:
    cells.captures.said = [Diagnostic("capability-escape", "no", cells.number, Span(2, 0, 2, 1))]
    assert cells.codes("print(nope)\nx = 1") == ["unbound-name", "capability-escape"]


def test_the_capture_checker_hears_what_ran(cells) -> None:
    cells.run("a = 1\nb = 2", bound={"a"})
    assert cells.captures.heard == [(f"facts of {cells.number}", frozenset({"a"}), frozenset())]


def test_a_cell_that_was_not_accepted_cannot_be_committed(cells) -> None:
    cells.check("print(nope)")
    with pytest.raises(KeyError):
        cells.session.commit(cells.number, frozenset(), frozenset())
    cells.run("x = 1")
    with pytest.raises(KeyError):
        cells.session.commit(cells.number, frozenset({"x"}), frozenset())


def test_asked_again_about_the_same_number(cells) -> None:
    cells.check("x = 1")
    number = cells.number
    assert isinstance(cells.session.check(number, "x = 'a'\ny = x"), Accepted)
    cells.session.commit(number, frozenset({"x"}), frozenset())
    assert cells.type("x") == "str"


def test_several_accepted_cells_may_wait(cells) -> None:
    cells.check("x = 1")
    first = cells.number
    cells.check("y = 'a'")
    second = cells.number
    cells.session.commit(second, frozenset({"y"}), frozenset())
    cells.session.commit(first, frozenset({"x"}), frozenset())
    assert cells.type("x, y") == "tuple[int, str]"


def test_a_crash_is_no_verdict(cells) -> None:
    class Broken:
        def check(self, cell: object, /) -> object:
            raise RuntimeError("a bug")

        def commit(self, *_: object, **__: object) -> None: ...

    session = CheckerSession(cells.engine, SimpleNamespace(), lambda *_: [], Broken())  # type: ignore[arg-type]
    with pytest.raises((RuntimeError, AttributeError)):
        session.check(10_000_000, "x = 1")
    assert not [name for name in cells.engine._manager.modules if name.startswith("cell_10000000")]


def test_the_tree_is_the_one_python_makes(cells) -> None:
    text = "x = 1  # type: int\nf'{x!r:>{x}}'\nasync def f(): await x\n"
    module = parse(1, text)
    assert isinstance(module, ast.Module)
    before = ast.dump(module, include_attributes=True)
    cells.checked(text)
    assert before == ast.dump(ast.parse(text), include_attributes=True)
    typed = cells.typed(text)
    assert ast.dump(typed.module, include_attributes=True) == before


def test_ten_warnings_of_a_cell_and_how_many_more(cells) -> None:
    verdict = cells.check("".join(f"a{n} = ''.n{n}\n" for n in range(40)))
    assert isinstance(verdict, Accepted)
    assert len(verdict.warnings) == MOST_WARNINGS == 10
    assert verdict.more == 30
    assert [warning.span.line for warning in verdict.warnings] == list(range(1, 11))
    few = cells.check("'a' + 1\n")
    assert isinstance(few, Accepted)
    assert (len(few.warnings), few.more) == (1, 0)


def test_what_was_said_once_is_not_said_at_the_next_place(cells) -> None:
    cells.run("import math")
    verdict = cells.check("math.squareroot(1)\nmath.squareroot(2)\nmath.cubic(3)\n")
    assert isinstance(verdict, Accepted)
    assert [(warning.code, warning.span.line) for warning in verdict.warnings] == [
        ("attr-defined", 1),
        ("attr-defined", 3),
    ]
    assert verdict.more == 0
