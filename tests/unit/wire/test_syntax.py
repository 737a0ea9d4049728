"""`wire.syntax` against Python's own `ast`, on everything that this project is written in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import capkernel
from capkernel.wire.syntax import Visitor, children, walk

_SOURCES = sorted(Path(capkernel.__file__).parent.rglob("*.py"))
_RARE = """
match point:
    case Point(x=0, y=[1, *rest]) | {"a": None, **more} if rest: pass
    case -1 | "text" | None as found: pass
async def f(a, /, b: int = 1, *args: str, c, d=2, **kw) -> int:
    async with x as y, z: yield await w
    global one, two
    return {**kw, 'k': lambda: (n := 1)}, f"{a!r:>{b}}", a[1:2, ::3], not a @ b
    a if b < c in d else [i async for i in e]
try: pass
except* (A, B) as error: raise error from None
finally: del a.b, c[0]
"""


def _inner(found: list[ast.AST]) -> list[ast.AST]:
    return [node for node in found if not isinstance(node, ast.expr_context)]


def test_walks_what_ast_walks_in_the_same_order() -> None:
    for text in [_RARE, *(source.read_text("utf-8") for source in _SOURCES)]:
        tree = ast.parse(text)
        assert walk(tree) == _inner(list(ast.walk(tree)))


def test_children_are_those_of_ast() -> None:
    for node in ast.walk(ast.parse(_RARE)):
        assert children(node) == _inner(list(ast.iter_child_nodes(node)))


def test_a_node_without_all_its_fields_has_the_parts_that_it_has() -> None:
    assert children(ast.Return()) == []
    only = ast.Pass()
    assert children(ast.Module(body=[only])) == [only]


@pytest.mark.parametrize("text", [_RARE, "def f(a=b): c = [d for d in e]\n"])
def test_a_visitor_sees_what_a_visitor_of_ast_sees(text: str) -> None:
    class Names(Visitor):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def visit_Name(self, node: ast.Name) -> None:
            self.seen.append(node.id)

        def visit_Lambda(self, node: ast.Lambda) -> None:
            self.seen.append("lambda")

    class Theirs(ast.NodeVisitor):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def visit_Name(self, node: ast.Name) -> None:
            self.seen.append(node.id)

        def visit_Lambda(self, node: ast.Lambda) -> None:
            self.seen.append("lambda")

    ours, theirs = Names(), Theirs()
    ours.visit(ast.parse(text))
    theirs.visit(ast.parse(text))
    assert ours.seen == theirs.seen
    assert ours.seen


def test_a_visitor_has_the_methods_of_its_own_class() -> None:
    class Base(Visitor):
        found = ""

        def visit_Name(self, node: ast.Name) -> None:
            self.found += "base"

    class Derived(Base):
        def visit_Name(self, node: ast.Name) -> None:
            self.found += "derived"

    for kind, expected in ((Base, "base"), (Derived, "derived")):
        visitor = kind()
        visitor.visit(ast.parse("x"))
        assert visitor.found == expected
