"""What is shipped reads back as the very tree that was checked."""

from __future__ import annotations

import ast

import pytest

from capkernel.checker.captures.sources import shipped_source

_TEXTS = [
    "f = lambda x: x + 1",
    "f = (lambda x:\n     x\n       + 1)",
    "def f(x):\n    return x",
    "def outer():\n    def inner(x):\n        s = '''a\n  b\n'''\n        return s + x\n    return inner",
    "if True:\n        def deep(x):\n            # a comment\n            return f'''{x}\n   kept'''",
    "class C:\n    x: int = 1\n    def m(self):\n        return self.x\n",
    "@d\ndef f(x): return x; y = 1",
    "def f(x): return 'é' + x",
    "def f(x): return x;g = 3",
]


@pytest.mark.parametrize("text", _TEXTS)
def test_source_reads_back(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Lambda):
            source = shipped_source(node, text)
            assert source is not None
            assert ast.dump(ast.parse(f"({source})", mode="eval").body) == ast.dump(node)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            source = shipped_source(node, text)
            assert source is not None
            assert ast.dump(ast.parse(source).body[0]) == ast.dump(node)


def test_what_would_read_otherwise_is_not_shipped() -> None:
    # Half of the margin is a tab: cutting it would move the body.
    node = ast.parse("def outer():\n\tdef inner(x):\n\t\treturn x\n").body[0].body[0]  # type: ignore[attr-defined]
    assert shipped_source(node, "def outer():\n    def inner(y):\n        return y\n") is None
