"""What is recalled is what mypy finds: every session twice, by an engine that recalls and by one that does not."""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import CELLS, sections_of

from capkernel.checker import recall
from capkernel.checker.captures import CaptureSession
from capkernel.checker.engine import Engine
from capkernel.checker.profiles import STANDARD
from capkernel.checker.protocol import Accepted
from capkernel.checker.session import CheckerSession
from capkernel.checker.subset import check_subset
from capkernel.checker.typed_cell import TypedCell

_FRESH = re.compile(r"(`|\bcell_\d+_)-?\d+")  # numbers of type variables and of modules: new at every call


class Watched(CaptureSession):
    """Keeps the last cell it saw, typed."""

    last: TypedCell | None = None

    def check(self, cell: TypedCell) -> Any:
        self.last = cell
        return super().check(cell)


class Notebook:
    def __init__(self, engine: Engine) -> None:
        engine.reset()
        self.engine = engine
        self.watched = Watched()
        self.session = CheckerSession(engine, STANDARD, check_subset, self.watched)
        self.number = 0

    def run(self, text: str) -> tuple[str, list[str]]:
        """All that the verdict says, and the type and symbol of every expression."""
        self.number += 1
        self.watched.last = None
        verdict = self.session.check(self.number, text)
        if isinstance(verdict, Accepted):
            self.session.commit(self.number, frozenset(verdict.names), frozenset())
        cell = self.watched.last
        said = verdict.warnings if isinstance(verdict, Accepted) else verdict.diagnostics
        # Of several ways out of a block, a refusal names whichever it came upon first.
        found = [(one.code, one.span, "" if one.code == "capability-escape" else one.message) for one in said]
        rest = (verdict.plan, verdict.names, verdict.last_type, verdict.more) if isinstance(verdict, Accepted) else ()
        return _FRESH.sub(r"\1", repr((found, rest))), [] if cell is None else self._types(cell)

    def _types(self, cell: TypedCell) -> list[str]:
        found = []
        for node in ast.walk(cell.module):
            if isinstance(node, ast.expr):
                resolved = cell.resolve(node)
                found.append("none" if resolved is None else _FRESH.sub(r"\1", f"{resolved.type} {resolved.fullname}"))
        return found


@pytest.fixture(scope="module")
def engines(cache_directory: Path) -> tuple[Engine, Engine]:
    """One that recalls, and mypy alone."""
    recalling, plain = Engine(cache_directory), Engine(cache_directory)
    plain.recall.enabled = False
    return recalling, plain


@pytest.fixture
def both(engines: tuple[Engine, Engine]) -> Iterator[tuple[Notebook, Notebook]]:
    depth = sys.getrecursionlimit()
    yield Notebook(engines[0]), Notebook(engines[1])
    sys.setrecursionlimit(depth)


SETTING = """\
import numpy as np
import pandas as pd
a = np.arange(20.0).reshape(4, 5)
v = np.array([1, 2, 3])
m = a > 2
f = 1.5
i = 2
s = "k"
l = [1, 2, 3]
d = {"k": l, "v": l}
df = pd.DataFrame(d)
g = df.groupby("k")
c = df["v"]
t = (1, "x")
n = None if f > 1 else 3
z = len
o = max(l)
"""
LEFT = ["a", "v", "m", "f", "i", "s", "l", "d", "df", "g", "c", "t", "n", "o", "a.T", "df['v']", "np.sqrt(a)", "a[0]"]
RIGHT = ["a", "v", "m", "f", "i", "s", "l", "c", "2", "2.5", "'k'", "[1, 2]", "(1, 2)"]
AROUND = """
{x}.sum()
{x}.sum(axis=0)
{x}.mean()
len({x})
float({x})
abs({x})
{x}.head()
{x}.shape
np.where(m, {x}, 0)
{x}.agg({{'v': 'sum'}})
{x}.agg('sum')
-{x}
~{x}
not {x}
{x}.loc[0]
{x}.missing
{x}[{x} > 1]
{x}[0]
{x}[1:]
{x}['k']
sorted({x})
max({x}, default=1)
print({x})
{x}.astype(float)
pd.DataFrame({x})
np.array({x})
list({x}) * 3
range({x})
dict(k={x})
[{x}, 1]
{x}.items()
{x} or 1
{x}.apply(lambda q: q)
[q for q in {x}]
{x}(1)
z({x})
str({x}).upper()
{x}.groupby('k').mean()
""".split("\n")[1:-1]
OPERATORS = ["+", "-", "*", "/", "@", "%", "**", "//", ">", "==", "in", "&"]


def cells() -> Iterator[str]:
    """Lines of a notebook, six to a cell, each line an expression or an assignment of one."""
    every = [f"{x} {operator} {y}" for x, operator, y in itertools.product(LEFT[:14], OPERATORS, RIGHT)][::17]
    every += [form.format(x=x) for form, x in itertools.product(AROUND, LEFT)][::2]
    for start in range(0, len(every), 6):
        lines = every[start : start + 6]
        yield "\n".join(f"r{index} = {line}" if index % 2 else line for index, line in enumerate(lines)) + "\n"


def test_generated_lines_have_the_same_types_and_verdicts(both: tuple[Notebook, Notebook]) -> None:
    recalling, plain = both
    texts = [SETTING, *cells()]
    for text in texts:
        assert recalling.run(text) == plain.run(text), text
    used = recalling.engine.recall.used
    for text in texts[1:]:
        assert recalling.run(text) == plain.run(text), text
    assert recalling.engine.recall.used > used + 150
    assert plain.engine.recall.used == 0


# What mypy reads in constants: literals of signatures, tuples, exponents, formats. {c} is one of VALUES.
BY_CONSTANT = """
a.sum(axis={c})
np.array(l, ndmin={c})
np.array([1.5, {c}])
np.reshape(a, (4, {c}))
np.zeros({c}, dtype=float)
np.linspace(0, {c}, retstep=True)
a.astype({c})
a[{c}]
a[{c}, 0]
v ** {c}
i ** {c}
i % {c}
f * {c}
t[{c}]
t[:{c}]
t * {c}
t + ({c},)
pow(i, {c})
round(f, {c})
s * {c}
s[{c}]
"{{}}".format({c})
l + [{c}]
l[{c}]
d[{c}]
d.get({c}, l)
df[{c}]
df[[{c}]]
df.loc[{c}]
df.iloc[{c}]
df.sum(axis={c})
df.sort_values({c})
df.merge(df, how={c})
df.merge(df, on={c})
df.groupby({c}).mean()
df.drop(columns={c})
df.fillna({c}).head({c})
pd.concat([df, df], axis={c})
pd.date_range("2024-01-01", periods={c})
c > {c}
c + {c}
c.astype({c})
g.agg({{"v": {c}}})
g.agg({c})
np.isclose({c}, a)
getattr(df, {c})
open({c})
int({c})
str({c}).split({c})
max({c}, i)
sorted([{c}, {c}])
dict(k={c})
{c} in l
{c} == i
n == {c}
-{c}
~{c}
print({c}, sep={c})
range({c})[{c}]
np.where(m, {c}, a)
np.unique(v, return_counts={c})
np.histogram(a, bins={c})
""".strip().split("\n")
VALUES = ["0", "-1", "'index'", "'k'", "b'x'", "2.5", "(0, 1)"]


def test_what_depends_on_a_constant_is_told_apart(both: tuple[Notebook, Notebook]) -> None:
    """Each line with every value, in an order that lets entries of one value meet the others."""
    recalling, plain = both
    assert recalling.run(SETTING) == plain.run(SETTING)
    used = recalling.engine.recall.used
    for values in (VALUES, VALUES[::-1]):
        for value in values:
            for start in range(0, len(BY_CONSTANT), 8):
                lines = [line.format(c=value) for line in BY_CONSTANT[start : start + 8]]
                text = "\n".join(f"r{at} = {line}" if at % 2 else line for at, line in enumerate(lines)) + "\n"
                assert recalling.run(text) == plain.run(text), text
    assert recalling.engine.recall.used > used + 100


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("df['a'] + df['b']\n", "df['c'] + df['d']\n", True),
        ("np.zeros((2, 3)).reshape(3, -1)\n", "np.zeros((5, 6)).reshape(10, -1)\n", True),
        ("df['new'] = c * 2\n", "df['newer'] = c * 3\n", True),
        ("np.array([1.0, 2, 3])\n", "np.array([1.0, 4, 5])\n", True),
        ("a + i ** 2\n", "a + i ** -2\n", False),
        ("a * t[0]\n", "print(a, t[1])\n", False),
        ("df.merge(df, how='left')\n", "df.merge(df, how='inner')\n", False),
    ],
)
def test_whether_another_constant_is_another_question(
    both: tuple[Notebook, Notebook], first: str, second: str, same: bool
) -> None:
    notebook = both[0]
    notebook.engine.recall.forget()
    notebook.run(SETTING)
    notebook.run(first)
    before = notebook.engine.recall.used
    notebook.run(second)
    assert (notebook.engine.recall.used > before) == same


FOLDERS = ("notebooks", "typing", "engine")
FILES = sorted(path.relative_to(CELLS) for folder in FOLDERS for path in (CELLS / folder).rglob("*.md"))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_golden_sessions_twice_over(engines: tuple[Engine, Engine], file: Path) -> None:
    for section in sections_of((CELLS / file).read_text("utf-8")):
        if section.elsewhere:
            continue
        notebooks = [Notebook(engine) for engine in engines]
        for _ in range(2):
            for block in section.cells:
                first, second = (notebook.run(block.text + "\n") for notebook in notebooks)
                assert first == second, block.text


def test_the_comparison_would_see_a_wrong_entry(both: tuple[Notebook, Notebook]) -> None:
    recalling, plain = both
    for notebook in both:
        notebook.run(SETTING)
        notebook.run("a @ a\n")
    kept = recalling.engine.recall
    entries = {key: types for key, types in kept._found.items() if isinstance(types, tuple) and len(types) > 1}
    assert entries
    kept._found = {key: (types[1], *types[1:]) for key, types in entries.items()}  # all is what its first part is
    assert recalling.run("a @ a\n") != plain.run("a @ a\n")
    kept.forget()


OWN = """\
def own(q: int) -> int:
    return q

class Own:
    def __init__(self, x: int) -> None:
        self.x = x

secret = classify("x")
"""


def recalled(notebook: Notebook, text: str) -> bool:
    """Whether anything of `text` is recalled when it comes a second time."""
    notebook.run(text)
    before = notebook.engine.recall.used
    notebook.run(text)
    return notebook.engine.recall.used > before


@pytest.mark.parametrize(
    "text",
    ["a @ a\n", "x = df['v'] + df['v']\n", "df.loc[0]\n", "df.agg({'v': 'sum'})\n", "x: object = np.sqrt(a + 1)\n"],
)
def test_what_is_recalled(both: tuple[Notebook, Notebook], text: str) -> None:
    both[0].run(SETTING)
    assert recalled(both[0], text)


@pytest.mark.parametrize(
    "text",
    [
        "classify('x').map(lambda q: q)\n",
        "with request_file_system('data') as fs:\n    fs.access('a').size\n",
        "secret + 'x'\n",
        "own(1)\n",
        "Own(1).x + 1\n",
        "[own] + [own]\n",
        "df.missing(1)\n",  # mypy has something to say
        "l.append('x')\n",
        "max(l) + len(d['k']) * 2\n",  # mypy is as fast
        "(lambda q: q + 1)(2)\n",
        "sum(q for q in l)\n",
        "import math\nif f > 1:\n    math.sqrt(f)\n",
        "exit()\n",
    ],
)
def test_what_is_not_recalled(both: tuple[Notebook, Notebook], text: str) -> None:
    notebook = both[0]
    notebook.run(SETTING)
    notebook.run(OWN)
    assert not recalled(notebook, text)


def test_a_class_or_a_name_that_changed_is_judged_anew(both: tuple[Notebook, Notebook]) -> None:
    for text in (
        SETTING,
        "x = 1\n", "y = x + x\ny\n", "y = x + x\ny\n", "x = 2.5\n", "y = x + x\ny\n",
        "q = [1]\nq.append(2)\nw = q + q\n", "q = []\nq.append('a')\nw = q + q\n",
        "u = 1 if f > 1 else 'a'\nassert isinstance(u, int)\nb = u + 1\n",
        "u = 1 if f > 1 else 'a'\nb = str(u) + 'x'\n",
        "e = t[0] + 1\n", "e = t[1] + 'x'\n",
        "d['k'] = l\nk = d['k'] + l\n", "k = d['k'] + l\n",
        "df.columns = ['p', 'q']\nlen(df.columns)\n", "len(df.columns)\n",
    ):  # fmt: skip
        for _ in range(2):
            assert both[0].run(text) == both[1].run(text), text


def test_bounded_and_forgotten_when_a_module_is_loaded(
    both: tuple[Notebook, Notebook], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "MOST", 5)
    notebook = both[0]
    notebook.engine.recall.forget()
    notebook.run(SETTING)
    for text in cells():
        notebook.run(text)
        assert len(notebook.engine.recall) <= 5
    assert len(notebook.engine.recall) == 5
    missing = [name for name in ("turtle", "tkinter", "idlelib") if name not in notebook.engine.modules]
    notebook.engine._load(["no_such_module_at_all"])
    assert len(notebook.engine.recall) == 5
    for name in missing[:1]:
        notebook.engine._load([name])
        assert len(notebook.engine.recall) == 0
