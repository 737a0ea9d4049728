"""Timed parts mean what they meant, and say their times."""

from __future__ import annotations

import ast

import pytest

from capkernel.wire.worker import Timed
from capkernel.worker.timing import Stopwatch, with_timing


def run(text: str, *timed: Timed) -> dict[str, object]:
    shell = Stopwatch()
    names: dict[str, object] = {"get_ipython": lambda: shell}
    exec(compile(with_timing(ast.parse(text), timed), "cell", "exec"), names)
    return names


def test_timed_once(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("a = []\na.append(1)\nb = len(a)\n", Timed(2, 3))
    assert (names["a"], names["b"]) == ([1], 1)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["CPU times", "Wall time"]


def test_timed_often_binds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("a = []\nfor i in range(2):\n    b = a.append(i)\n", Timed(3, 3, True, 5, 2))
    assert names["a"] == [0] * 10 + [1] * 10
    assert "b" not in names
    assert "__timed__" not in names
    assert capsys.readouterr().out.count("2 runs, 5 loops each") == 2


def test_the_value_of_the_last_expression_is_kept() -> None:
    last = with_timing(ast.parse("x = 2\nx + 1\n"), (Timed(2, 2),)).body[-1]
    assert isinstance(last, ast.Expr)
    shell = Stopwatch()
    shell.begin_timing()
    names = {"x": 2, "get_ipython": lambda: shell}
    assert eval(compile(ast.Expression(last.value), "cell", "eval"), names) == 3


@pytest.mark.parametrize("first", [Timed(2, 2, True, 2, 1), Timed(2, 2)])
def test_the_whole_is_said_once_and_last(first: Timed, capsys: pytest.CaptureFixture[str]) -> None:
    run("a = []\na.append(1)\nlen(a)\n", Timed(1, 3), first, Timed(3, 3, True, 5, 2))
    said = [line.partition(" ")[2].partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert said[-2:] == ["times", "time"], said
    assert said.count("times") == 2 - first.many
