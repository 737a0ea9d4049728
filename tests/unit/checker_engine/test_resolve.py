"""Every expression that was checked has a type; what has none was not checked."""

from __future__ import annotations

import ast
import textwrap

import pytest

EVERY_KIND = """
import re
import os.path
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from collections import namedtuple
from typing import AnyStr, Callable, Generic, NamedTuple, NewType, TypedDict, TypeVar, cast, overload

T = TypeVar("T", bound="Base")
UserId = NewType("UserId", int)
Pair = namedtuple("Pair", ["left", "right"], defaults=(None,))
Movie = TypedDict("Movie", {"name": str})
Alias = dict[str, list[int]]

class Colour(Enum):
    RED = 1

class Point(NamedTuple):
    x: int = 0

class Named(namedtuple("Named", "a b")):
    pass

class Base(Generic[T]):
    count = None
    def __init__(self, *values: int, **named: str) -> None:
        super().__init__()
        self.values, self.named = values, named
        self.values[0]
    @property
    def first(self) -> int:
        return self.values[0]
    @first.setter
    def first(self, value: int) -> None:
        self.named["v"] = str(value)
    @classmethod
    def make(cls) -> "Base":
        return cls(1, 2)
    @staticmethod
    def none() -> None: ...
    @cached_property
    def both(self) -> tuple[int, int]:
        return (self.first, -self.first)

class Derived(Base, metaclass=type):
    def first_twice(self) -> int:
        return super(Derived, self).first * 2

@dataclass(order=True)
class Record:
    number: int
    tags: list[str] = field(default_factory=list)

@overload
def pick(a: int) -> int: ...
@overload
def pick(a: str) -> str: ...
def pick(a):
    return a

def both_kinds(text: AnyStr) -> AnyStr:
    parts = text + text
    return parts.upper()

def gives(n: int = 3, *, key: Callable[[int], int] = lambda v: v + 1):
    a, (b, *c) = 1, (2, 3, 4)
    got = yield a
    yield from [b, *c]
    del got
    try:
        found = {**{"a": 1}, "b": 2}
        if not (1 < n <= 5) and n != 2 or n is None:
            raise ValueError(f"{n!r:>{a}} and {found['a']:.2f}" f"{n}{n}")
    except (ValueError, KeyError) as problem:
        print(problem)
    else:
        print(n if n else -n, ~n, not n)
    finally:
        n += 1
    return {v for v in c}, {k: v for k, v in zip(c, c)}, [x async for x in later()], (w for w in c if w)

async def later():
    async with opened() as handle:
        handle.read()
    yield await wait()

def opened(): ...
async def wait() -> int: ...

match Point(1):
    case Point(x=0):
        pass
    case Point() as p if p.x > 1:
        print(p.x)
    case _:
        print(cast("int", 3), cast(list[int], []))

values = [1, 2, 3][0:2:1]
first, *rest = values
total = sum(map(lambda v: v * 2, values), start=0)
re.compile("a").match("b")
print(os.path.join("a", "b"), *values, sep="", **{"end": "x"})
print(Base[int], Record(1) < Record(2), Pair(1), Movie(name="a"), UserId(1), Colour.RED.value, Alias())
(walrus := 3)
while walrus := walrus - 1:
    continue
assert values, "message"
lambda *a, b=1, **c: (a, b, c)
Record.number
pick(1), pick("a")
{1, 2}
"x" "y", b"z", 1j, ..., None, True
"""


def expressions(module: ast.Module) -> list[ast.expr]:
    """All but annotations, match patterns and the fields of classes in patterns."""
    found: list[ast.expr] = []

    def visit(node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns") or isinstance(node, ast.pattern):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant) and not child.value:
                    continue  # Python 3.12 ends a format specification with an empty text
                if isinstance(child, ast.AST):
                    if isinstance(child, ast.expr):
                        found.append(child)
                    visit(child)

    visit(module)
    return found


def test_every_kind_of_expression_is_found(cells) -> None:
    typed = cells.typed(EVERY_KIND)
    missing = [
        f"{type(node).__name__} at {node.lineno}: {ast.unparse(node)[:60]}"
        for node in expressions(typed.module)
        if typed.resolve(node) is None
    ]
    assert missing == []


def test_the_test_has_every_kind() -> None:
    has = {type(node) for node in ast.walk(ast.parse(EVERY_KIND))}
    all_kinds = {kind for kind in ast.expr.__subclasses__() if kind.__name__ not in ("TemplateStr", "Interpolation")}
    assert all_kinds - has == set()


@pytest.mark.parametrize(
    "text",
    [
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    BAD",
        "MYPY = False\nif not MYPY:\n    BAD",
        "import sys\nif sys.platform != 'linux2' and sys.platform != 'linux':\n    BAD",
        "import sys\nif sys.version_info < (3, 9):\n    BAD",
        "def f() -> int:\n    raise ValueError\n    BAD",
        "def f(x: int) -> int:\n    if isinstance(x, str):\n        BAD\n    return x",
        "from typing import no_type_check\n@no_type_check\ndef f(x):\n    BAD",
        "assert False\nBAD",
        "import sys\ndef g() -> None:\n    sys.exit()\n    BAD",
        "if 0:\n    BAD",
        "def f(x: None) -> int:\n    if x:\n        BAD\n    return 1",
    ],
)
def test_code_mypy_skips_has_no_type(cells, text: str) -> None:
    typed = cells.typed(text.replace("BAD", "print(open('secret'))\n".strip()))
    calls = [node for node in ast.walk(typed.module) if isinstance(node, ast.Call)]
    bad = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in ("print", "open")]
    assert len(bad) == 2
    assert [typed.resolve(call) for call in bad] == [None, None]
    assert all(typed.resolve(call.func) is None for call in bad)


@pytest.mark.parametrize(
    "text",
    [
        "def use(f: callable, n: int):\n    return f(n)",
        "def use(*, n: int, f: 'callable' = len):\n    return f(n)",
        "def make() -> callable: ...\nf = make()\nf(1)",
        "f: callable = len\nf('a')",
        "def use(fs: list[callable]):\n    return fs[0](1)",
        "class A:\n    @property\n    def p(self) -> callable: ...\n    def q(self):\n        return self.p(1)",
    ],
)
def test_an_annotation_that_is_no_type_hides_nothing(cells, text: str) -> None:
    typed = cells.typed(text)
    missing = [ast.unparse(node) for node in expressions(typed.module) if typed.resolve(node) is None]
    assert missing == []
    assert set(cells.warnings(text)) == {"valid-type"}


def test_a_name_in_skipped_code_has_no_type(cells) -> None:
    typed = cells.typed("import os\nif 0:\n    x = os\n    class A(x): ...\n")
    value = typed.module.body[1].body[0].value
    assert typed.resolve(value) is None


@pytest.mark.parametrize(
    ("text", "fullname"),
    [
        ("len", "builtins.len"),
        ("import numpy as n\nn.sum", "numpy._core.fromnumeric.sum"),
        ("from os import path as p\np.join", "posixpath.join"),
        ("'a'.strip", "builtins.str.strip"),
        ("[1].append", "builtins.list.append"),
        ("request_file_system", "capkernel.api.files.request_file_system"),
        ("classify('a').map", "capkernel.api.classified.Classified.map"),
        ("print", "builtins.print"),
        ("display", "capkernel.checker.notebook.display"),
        ("str.upper", "builtins.str.upper"),
        ("type('a').upper", "builtins.str.upper"),
        ("(1 if len('a') else True).bit_length", "builtins.int.bit_length"),
        ("(1 if len('a') else 'a').title", ""),
    ],
)
def test_fullname(cells, text: str, fullname: str) -> None:
    typed = cells.typed(text)
    found = typed.resolve(typed.module.body[-1].value)
    assert found is not None
    assert found.fullname == fullname


def test_a_session_name_has_the_symbol_of_its_cell(cells) -> None:
    cells.run("def f(x: int) -> int:\n    return x\nv = 3")
    number = cells.number
    typed = cells.typed("f(v)")
    call = typed.module.body[0].value
    assert typed.resolve(call.func).fullname == f"cell_{number}.f"
    assert typed.resolve(call.args[0]).fullname == f"cell_{number}.v"
    assert set(typed.session_names) == {"f", "v", "print"} - {"print"}
    assert typed.session_names["f"].symbol is typed.resolve(call.func).symbol


def test_a_rebound_name_reads_the_old_symbol(cells) -> None:
    cells.run("def f(x: int) -> int:\n    return x")
    number = cells.number
    typed = cells.typed("f = [f]")
    assert typed.resolve(typed.module.body[0].value.elts[0]).fullname == f"cell_{number}.f"


def test_nodes_at_one_place_stay_apart(cells) -> None:
    # On Python 3.11 the parts of nested f-strings report overlapping positions.
    typed = cells.typed("a = 1\nb = 'x'\nf'{a}{b}' f'{b}{a}' f\"{f'{a}{b}'}\"")
    names = [node for node in ast.walk(typed.module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    assert len(names) == 6
    for node in names:
        assert str(typed.resolve(node).type) == {"a": "int", "b": "str"}[node.id]


def test_finally_has_all_its_types(cells) -> None:
    text = "def f() -> int | str: ...\nv: int | str = f()\ntry:\n    v = 3\nfinally:\n    print(v)\n"
    typed = cells.typed(text)
    argument = typed.module.body[2].finalbody[0].value.args[0]
    assert {str(item) for item in typed.resolve(argument).type.items} == {"int", "str"}


def test_places_are_in_characters(cells) -> None:
    typed = cells.typed("é = 'ü'; naïve = é + 'x'\n")
    value = typed.module.body[1].value
    span = typed.span(value)
    assert (span.column, span.end_column) == (17, 24)
    assert typed.text[span.column : span.end_column] == "é + 'x'"


def test_error_lines(cells) -> None:
    typed = cells.typed(
        textwrap.dedent("""\
        def f(x: int) -> None: ...
        f(1)
        f('a')
        """)
    )
    assert typed.error_lines == {3}
