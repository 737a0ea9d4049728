"""The checker's key for a function is the one the worker computes when it has run the cell."""

from __future__ import annotations

import ast
from types import CodeType
from typing import Any

import pytest

from capkernel.checker.captures.codekeys import CodeKeys
from capkernel.wire.codekey import cell_filename, code_key

_CELLS = [
    "f = lambda x: x + 1",
    "a, b = lambda x: x + 1, lambda x: x + 2",
    "f = [lambda x: x, lambda x: x]",
    "f = lambda x: (lambda y: x + y)",
    "f = lambda: lambda: lambda: 1",
    "def f(x, y=2, *a, k=3):\n    return x + y",
    "def f():\n    def g():\n        def f():\n            return 1\n        return f\n    return g",
    "def d(f): return f\n@d\n@(lambda q: q)\ndef f(x):\n    'doc'\n    return x",
    "class C:\n    n = 1\n    def m(self): return 1\n    @property\n    def p(self): return [x for x in self.q]",
    "def f():\n    pass",
    "def f():\n    'only a docstring'",
    "é = 'ü'; f = lambda x: 'ä' + x; g = lambda x: é",
    "def f(x):\n    for i in x:\n        yield (lambda: i)",
    "async def f():\n    await g()",
    "fs = {n: (lambda x: x) for n in range(2)}",
    "def f(k=lambda x: x): return k",
    "x = (\n    lambda a:\n        a\n        + 1\n)",
]


def _interactive_codes(text: str) -> list[CodeType]:
    """Code objects as IPython compiles a cell: all but the last expression, then that one interactively."""
    module = ast.parse(text, cell_filename(7))
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    body, last = module.body, []
    if isinstance(body[-1], ast.Expr):
        body, last = body[:-1], body[-1:]
    codes = [compile(ast.Module(body, []), cell_filename(7), "exec", flags, dont_inherit=True)]
    if last:
        codes.append(compile(ast.Interactive(last), cell_filename(7), "single", flags, dont_inherit=True))
    found: list[CodeType] = []
    while codes:
        code = codes.pop()
        found.append(code)
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


@pytest.mark.parametrize("text", [*_CELLS, *(f"{text}\n(lambda z: z)(1)" for text in _CELLS)])
def test_every_definition_has_the_key_of_its_code(text: str) -> None:
    keys = CodeKeys(7, text)
    running = {code_key(code) for code in _interactive_codes(text)}
    definitions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
    ]
    assert definitions
    for node in definitions:
        key = keys.of(node)
        assert key is not None, ast.unparse(node)
        assert key in running
        assert key.cell == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a, b = lambda x: x + 1, lambda x: x + 2", {"a": "x + 1", "b": "x + 2"}),
        ("a = lambda x: (lambda y: x + y)\nb = a(1)", {"a": "lambda y: x + y", "b": "x + y"}),
        ("def a():\n    return lambda: 2\nb = a()", {"b": "2"}),
        ("a = (lambda f: f)(lambda q: q * 2); b = lambda q: q * 3", {"a": "q * 2", "b": "q * 3"}),
        ("é = 1; a = lambda: 'ü'; b = lambda: é", {"a": "'ü'", "b": "é"}),
        ("a, b = lambda: 1, lambda: 1.0", {"a": "1", "b": "1.0"}),
        ("a = lambda: 1; b = lambda: lambda: 2; c = b()", {"a": "1", "b": "lambda: 2", "c": "2"}),
        ("x = 1; a = lambda x: 1; b = lambda: x", {"a": "1", "b": "x"}),
    ],
)
def test_the_key_leads_from_the_running_function_to_its_own_source(text: str, expected: dict[str, str]) -> None:
    keys = CodeKeys(7, text)
    by_key = {keys.of(node): node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda)}
    space: dict[str, Any] = {}
    exec(compile(text, cell_filename(7), "exec", dont_inherit=True), space)
    for name, body in expected.items():
        node = by_key[code_key(space[name].__code__)]
        assert ast.unparse(node.body) == body


def test_functions_that_take_other_things_have_other_keys() -> None:
    text = "f = [lambda x: 1, lambda: 1, lambda *x: 1, lambda x, /: 1, lambda *, x: 1, lambda **x: 1, lambda x=2: 1]"
    keys = CodeKeys(7, text)
    found = {keys.of(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda)}
    assert None not in found
    assert len(found) >= 6  # where a constant has no place, a default says nothing of what the function does


def test_other_cells_have_other_keys() -> None:
    node = ast.parse("f = lambda x: x").body[0]
    assert isinstance(node, ast.Assign)
    assert isinstance(node.value, ast.Lambda)
    assert CodeKeys(1, "f = lambda x: x").of(node.value) != CodeKeys(2, "f = lambda x: x").of(node.value)
