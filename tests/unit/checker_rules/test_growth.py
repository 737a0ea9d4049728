"""What a check does grows with the length of the cell, not with its square: counted in lines of Python, not in time.

mypy is compiled, so its own work does not count here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import golden
import pytest

TAB = "    "
SHAPES: dict[str, Callable[[int], str]] = {
    "maps": lambda n: "s = classify('a')\n" + "s = s.map(lambda v: v)\n" * n,
    "maps of one function": lambda n: "def f(v: str) -> str: return v\ns = classify('a')\n" + "s = s.map(f)\n" * n,
    "a chain of maps": lambda n: "s0 = classify('a')\n" + each(n, "s{i} = s0.map(lambda v: v + '{i}')\n"),
    "pairs": lambda n: "s = classify('a')\n" + "s = s.zip(s).map(lambda p: p[0])\n" * n,
    "values": lambda n: each(n, "x{i} = {i}\nprint(x{i})\n"),
    "one name": lambda n: "x = 1\n" + "x = x + 1\n" * n,
    "functions": lambda n: "def f0(a: int) -> int: return a\n" + each(n, "def f{j}(a: int) -> int: return f{i}(a)\n"),
    "functions without types": lambda n: each(n, "def f{i}(a):\n    b = a\n    return b\n"),
    "classes": lambda n: each(n, "class A{i}:\n    x = {i}\n    def m(self) -> int: return self.x\n"),
    "branches": lambda n: "x = 1\n" + "if x > 2:\n    x = 3\nelse:\n    x = 4\n" * n,
    "loops": lambda n: "x = 1\n" + "for i in range(3):\n    x += i\n" * n,
    "tries": lambda n: "x = 1\n" + "try:\n    x = 2\nexcept ValueError:\n    x = 3\n" * n,
    "comprehensions": lambda n: each(n, "l{i} = [a for a in range(9) if a]\n"),
    "members": lambda n: "import os\n" + "os.path.join('a', 'b').upper()\n" * n,
    "one block": lambda n: "with request_file_system('d') as fs:\n" + "    a = fs.access('a').read()\n" * n,
    "blocks": lambda n: each(n, "with request_file_system('d') as f{i}:\n    t{i} = f{i}.access('a').read()\n"),
    "blocks of one name": lambda n: "with request_file_system('d') as fs:\n    t = fs.access('a').read()\n" * n,
    "blocks in functions": lambda n: each(
        n, "def f{i}() -> str:\n    with request_file_system('d') as fs:\n        return fs.access('a').read()\n"
    ),
    "a helper of a block": lambda n: (
        "def h(fs: FileSystem) -> str: return fs.access('a').read()\n"
        "with request_file_system('d') as fs:\n" + "    h(fs)\n" * n
    ),
    "after a block": lambda n: "with request_file_system('d') as fs: pass\n" + each(n, "x{i} = [{i}]\nprint(x{i})\n"),
    "warnings": lambda n: each(n, "''.n{i}\n"),
}


def each(n: int, text: str) -> str:
    return "".join(text.format(i=i, j=i + 1) for i in range(n))


def work(text: str) -> int:
    """How many lines of Python the check of a cell runs."""
    session = golden.new_session("standard")
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        verdict = session.check(2, text)
    finally:
        sys.settrace(before)
    assert golden.Accepted is type(verdict), verdict
    return lines


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_the_cell_is_twice_the_work(shape: str) -> None:
    _first, few, more, most = (work(SHAPES[shape](n)) for n in (2, 10, 20, 40))  # the first one reads tables, too
    # Twice as many more lines cost twice as much; with the square of the length it would be four times.

    assert most - more < 2.25 * (more - few)


NESTED: dict[str, Callable[[int], str]] = {
    "functions with a `del` of their own": lambda n: "".join(
        f"{TAB * i}def f{i}(a{i}):\n{TAB * (i + 1)}b{i} = 1\n{TAB * (i + 1)}del b{i}\n" for i in range(n)
    ),
    "functions": lambda n: "".join(f"{TAB * i}def f{i}(a{i}):\n" for i in range(n)) + f"{TAB * n}return 1\n",
    "comprehensions": lambda n: "x = " + "[" * n + "1" + "".join(f" for a{i} in 'ab']" for i in range(n)) + "\n",
    "choices": lambda n: "x = 1\ny = " + "".join(f"({i} if x > {i} else " for i in range(n)) + "0" + ")" * n + "\n",
}


@pytest.mark.parametrize("shape", NESTED)
def test_one_more_level_does_not_double_the_work(shape: str) -> None:
    _first, few, more = (work(NESTED[shape](n)) for n in (3, 8, 16))
    assert more < 5 * few  # twice the depth: at most the square


@pytest.mark.parametrize("profile", ["standard", "strict"])
def test_many_finally_blocks_in_one_another(profile: str) -> None:
    """mypy's own work doubles with each; in `strict` its answer may refuse, so without one there is no verdict."""
    depth = 18
    text = "".join(f"{TAB * i}try:\n" for i in range(depth)) + f"{TAB * depth}x = 1\n"
    text += "".join(f"{TAB * i}finally:\n{TAB * (i + 1)}y = {i}\n" for i in reversed(range(depth)))
    verdict = golden.new_session(profile).check(1, text)
    if profile == "standard":
        assert isinstance(verdict, golden.Accepted)
    else:
        assert isinstance(verdict, golden.Rejected)
        assert [one.code for one in verdict.diagnostics] == ["too-much-work"]


def test_a_walk_that_grows_with_the_square_would_be_seen() -> None:
    def squared(n: int) -> int:
        lines = 0

        def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return trace

        def walk() -> None:
            for _ in range(n):
                for _ in range(n):
                    pass

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            walk()
        finally:
            sys.settrace(before)
        return lines

    few, more, most = squared(20), squared(40), squared(80)
    assert most - more > 2.25 * (more - few)
