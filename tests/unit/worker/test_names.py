"""Exactly the names a cell bound and deleted."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from capkernel.worker.names import NameLog

FILE = "<cell 1>"


class Session:
    def __init__(self, **names: Any) -> None:
        self.names: dict[str, Any] = dict(names)
        self.log = NameLog(self.names)

    def run(self, code: str) -> tuple[set[str], set[str]]:
        tree = ast.parse(code)
        self.log.begin(tree)
        error: BaseException | None = None
        try:
            exec(compile(tree, FILE, "exec"), self.names)
        except BaseException as problem:
            error = problem
        bound, deleted = self.log.end(error, FILE)
        return set(bound) - {"__builtins__"}, set(deleted)


SIMPLE = [
    ("x = 1", {"x"}),
    ("x = y = 1; z: int = 2", {"x", "y", "z"}),
    ("(a, [b, *c]) = 1, [2, 3]", {"a", "b", "c"}),
    ("import os.path, json as j\nfrom math import pi as p", {"os", "j", "p"}),
    ("def f(q): inner = 1\nasync def g(): pass\nclass C:\n    attribute = 1", {"f", "g", "C"}),
    ("for i in range(2): last = i", {"i", "last"}),
    ("with open('/dev/null') as h: inside = 1", {"h", "inside"}),
    ("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    caught = 1", {"caught"}),
    ("if (n := 10) > 5: big = True", {"n", "big"}),
    ("_ = [w := v for v in range(3)]", {"_", "w"}),
    ("match [1, 2, 3]:\n    case [first, *rest]: pass", {"first", "rest"}),
    ("match {'a': 1, 'b': 2}:\n    case {'a': one, **more}: pass", {"one", "more"}),
    ("def f():\n    global made\n    made = 1\nf()", {"f", "made"}),
    ("x: int", set()),
    ("x = 1\ndel x", set()),
    ("[v for v in range(3)]", set()),
    ("lambda q: (r := q)", set()),
    ("print", set()),
    ("from os.path import *", None),
]


@pytest.mark.parametrize(("code", "expected"), SIMPLE)
def test_bound(code: str, expected: set[str] | None) -> None:
    bound, deleted = Session().run(code)
    assert deleted == set()
    if expected is None:
        assert {"join", "basename"} <= bound
    else:
        assert bound == expected


def test_rebinding_to_the_same_object_counts_at_the_top() -> None:
    session = Session(x=1)
    assert session.run("x = 1") == ({"x"}, set())
    assert session.run("x: float = x") == ({"x"}, set())


def test_a_branch_not_taken_binds_nothing() -> None:
    session = Session(x=1)
    assert session.run("if False:\n    x = 'text'") == (set(), set())
    assert session.run("if True:\n    x = 'text'") == ({"x"}, set())


def test_deleting() -> None:
    session = Session(x=1, y=2)
    assert session.run("del x") == (set(), {"x"})
    assert session.run("for _ in [1]:\n    del y") == ({"_"}, {"y"})
    assert Session(e=1).run("try:\n    1/0\nexcept Exception as e:\n    pass") == (set(), {"e"})


def test_a_cell_that_raised_half_way() -> None:
    session = Session(b=0, c=0)
    assert session.run("a = 1\nb = 0\n1 / 0\nc = 0") == ({"a", "b"}, set())
    assert session.run("c = 1; 1 / 0") == ({"c"}, set())
    assert session.run("def f():\n    return 1 / 0\nb = 0\nf()\nc = 'x'") == ({"f", "b"}, set())


def test_a_function_of_an_earlier_cell_that_stores() -> None:
    session = Session()
    session.run("def f():\n    global counter\n    counter = counter + 1000\ncounter = 1000")
    assert session.run("f()") == ({"counter"}, set())
    assert session.run("1 + 1") == (set(), set())


def test_another_object_at_the_same_address_is_another() -> None:
    for kind in ("[0]", "{}", "'x y' * int('50')", "set()", "(1, [2])"):
        session = Session()
        session.run(f"x = {kind}")
        bound, _ = session.run(f"for _ in range(20):\n    x = None\n    x = {kind}")
        assert bound == {"_", "x"}, kind


def test_a_plain_rebinding_does_not_keep_the_old_value() -> None:
    import weakref

    class Big:
        pass

    session = Session(x=Big())
    old = weakref.ref(session.names["x"])
    seen: list[bool] = []
    session.names["look"] = lambda: seen.append(old() is None)
    session.run("x = None\nlook()\nfor _ in [1]: x = 5")
    assert seen == [True]


def test_nothing_is_reported_for_a_cell_that_never_began() -> None:
    assert Session(x=1).log.end(None, FILE) == ((), ())
