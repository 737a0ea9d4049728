"""A name that changes its type under an earlier function: said at the new binding, refused in strict."""

from __future__ import annotations

import pytest

from capkernel.checker.protocol import Accepted, Rejected


def start(cells) -> int:
    cells.run("x: int = 1\n")
    cells.run("def total() -> int:\n    y = 2\n    return x + y\n")
    return cells.number


def test_standard_warns_and_names_it(cells) -> None:
    number = start(cells)
    verdict = cells.check("z = 1\nx = 'text'\n")
    assert isinstance(verdict, Accepted)
    (warning,) = verdict.warnings
    assert warning.code == "operator"
    assert warning.message.startswith(f"this `x` would break `total` of cell {number}: Unsupported operand types")
    assert (warning.cell, warning.span.line) == (cells.number, 2)
    assert (warning.notes[0].cell, warning.notes[0].span.line) == (number, 3)


def test_strict_refuses(strict) -> None:
    start(strict)
    verdict = strict.check("x = 'text'\n")
    assert isinstance(verdict, Rejected)
    assert [diagnostic.code for diagnostic in verdict.diagnostics] == ["operator"]
    assert strict.type("total()") == "int"


@pytest.mark.parametrize(
    "text",
    [
        "x = 2",
        "x = True",
        "y = 'another name'",
        "x = 'text'\ndef total() -> str:\n    return x",
        "def other() -> None:\n    x = 'local'",
        "print(x)",
    ],
)
def test_nothing_to_say(cells, strict, text: str) -> None:
    for profile in (cells, strict):
        start(profile)
        verdict = profile.check(text)
        assert isinstance(verdict, Accepted), verdict.diagnostics
        assert verdict.warnings == ()


def test_a_function_that_is_gone_does_not_matter(cells) -> None:
    start(cells)
    cells.run("del total")
    assert cells.warnings("x = 'text'") == []


def test_a_class_changes(cells) -> None:
    cells.run("class A:\n    size: int = 1")
    cells.run("def area(a: int) -> int:\n    return A().size * a")
    assert cells.warnings("class A:\n    width: int = 1") == ["attr-defined"]


def test_methods_count(cells) -> None:
    cells.run("x = 1")
    cells.run("class B:\n    def m(self) -> int:\n        return x + 1")
    assert cells.warnings("x = 'a'") == ["operator"]


def test_what_was_wrong_before_is_not_said_again(cells) -> None:
    cells.run("x = 'a'")
    cells.run("def f() -> int:\n    return x + 1")
    assert cells.warnings("x = b'a'") == ["operator"]  # another message: bytes
    cells.run("x = 1")
    assert cells.warnings("x = 'b'") == []


def test_a_forward_reference_is_looked_at_when_it_appears(cells) -> None:
    verdict = cells.run("def later_user() -> int:\n    return helper(1, 2)")
    assert [warning.code for warning in verdict.warnings] == ["name-defined"]
    assert cells.warnings("def helper(a: int) -> int:\n    return a") == ["call-arg"]
    assert cells.warnings("def helper(a: int, b: int) -> int:\n    return a") == []


def test_many_dependants(cells) -> None:
    cells.run("cfg = 1")
    for i in range(30):
        cells.run(f"def u{i}() -> int:\n    return cfg + {i}")
    verdict = cells.check("cfg = 'text'")
    assert [warning.code for warning in verdict.warnings] == ["operator"] * 10
    assert verdict.more == 20
    before = set(cells.engine._manager.modules)
    cells.warnings("cfg = 'text'")
    assert set(cells.engine._manager.modules) == before
