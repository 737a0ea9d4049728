"""Names and states: what a cell binds, what it reads of earlier cells, and where old and new can meet."""

from __future__ import annotations

import ast

import pytest

from capkernel.checker.scan import GONE, NEW, OLD, scan


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("x = 1", NEW),
        ("if c:\n    x = 1", OLD | NEW),
        ("if c:\n    x = 1\nelse:\n    x = 2", NEW),
        ("for x in c:\n    pass", OLD | NEW),
        ("while c:\n    x = 1", OLD | NEW),
        ("x = 1\ndel x", GONE),
        ("if c:\n    del x", OLD | GONE),
        ("try:\n    x = 1\nexcept E:\n    pass", OLD | NEW),
        ("try:\n    x = 1\nexcept E:\n    x = 2", NEW),
        ("try:\n    c\nfinally:\n    x = 1", NEW),
        ("try:\n    c\nexcept E as x:\n    pass", OLD | GONE),
        ("with c as x:\n    pass", NEW),
        ("match c:\n    case [x, *_]:\n        pass", OLD | NEW),
        ("c or (x := 1)", OLD | NEW),
        ("(x := 1) or c", NEW),
        ("import x.y", NEW),
        ("import a as x", NEW),
        ("from a import b as x", NEW),
        ("class x: ...", NEW),
        ("async def x(): ...", NEW),
        ("a, (b, *x) = c", NEW),
        ("[x := 1 for i in c]", NEW),
    ],
)
def test_state_at_the_end(text: str, end: int) -> None:
    assert scan(ast.parse(text)).end["x"] == end


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    x = 1",
        "class A:\n    x = 1",
        "[x for x in c]",
        "lambda x: x",
        "def f(x, *y, z=1, **w): ...",
        "def f():\n    import x\n    from a import x\n    with c as x: pass\n    for x in c: pass",
        "a.x = 1",
        "x[0]",
        "x: int",
    ],
)
def test_binds_no_session_name(text: str) -> None:
    assert "x" not in scan(ast.parse(text)).bound


@pytest.mark.parametrize(
    ("text", "carried"),
    [
        ("x = f(x)", False),
        ("x += 1", True),
        ("for i in c:\n    x = g(x)", True),
        ("if c:\n    x = 1\nx", True),
        ("x = 1\nx", False),
        ("x = 1\nx += 1", False),
        ("while x:\n    x = g(x)", True),
    ],
)
def test_old_and_new_meet(text: str, carried: bool) -> None:
    assert ("x" in scan(ast.parse(text)).carried) is carried


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("def f():\n    return x", {"x"}),
        ("def f():\n    x = 1\n    return x", set()),
        ("def f():\n    global x\n    x = 1", {"x"}),
        ("def f():\n    x = 1\n    def g():\n        global x\n        return x\n", {"x"}),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n", set()),
        ("class A:\n    x = x", {"x"}),
        ("class A:\n    x = 1\n    def m(self):\n        return x", {"x"}),
        ("[y for y in x]", {"x"}),
        ("[x for y in z for x in y]", {"z"}),
        ("lambda y=x: y", {"x"}),
        ("def f(y: x = z): ...", {"x", "z"}),
        ("{x: y for x, y in z}", {"z"}),
        ("try:\n    pass\nexcept x as e:\n    e", {"x", "e"}),
    ],
)
def test_used(text: str, used: set[str]) -> None:
    assert scan(ast.parse(text)).used == used


def test_set_in_functions() -> None:
    names = scan(ast.parse("def f():\n    global a, b\n    a = 1\n    return b\n"))
    assert names.set_in_functions == {"a"}


def test_deep_loops_take_no_longer_than_deep_code() -> None:
    text = ""
    for depth in range(19):
        text += "    " * depth + f"for i{depth} in c:\n"
    text += "    " * 19 + "x = x\n"
    assert "x" in scan(ast.parse(text)).carried
