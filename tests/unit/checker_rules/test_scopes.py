"""Our scopes are the compiler's scopes."""

from __future__ import annotations

import ast
import importlib
import symtable
import sys
from collections.abc import Iterator

import pytest

from capkernel.checker.captures.scopes import Scope, scopes_of

_SNIPPETS = [
    "x = 1\ndef f(a, /, b, *c, d=x, **e):\n    y = a\n    return lambda z: (z, y, x)",
    "class A:\n    x = 1\n    def m(self):\n        return x, self\n    y = [x for _ in range(3)]",
    "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    return g",
    "def f():\n    global g\n    g = 1\n    def h():\n        return g",
    "[(y := x) for x in range(3) if (z := x)]\ny, z",
    "def f(xs):\n    return {k: [v for v in vs if v is not k] for k, vs in xs}",
    "try:\n    pass\nexcept ValueError as e:\n    print(e)\nwith a as (b, *c): pass\nfor i, j in []: pass\nimport a.b, c as d\nfrom e import f as g",  # noqa: E501
    "match x:\n    case {'a': [p, *q], **r}: pass\n    case C(v, w=s) as t: pass",
    "async def f(xs):\n    async for x in xs:\n        yield x\n    async with x as y: pass\n    return",
    "def f():\n    x: int\n    y: int = 3\n    del y\n    z += 1",
    "@d(lambda q: q)\ndef f(x: int = (w := 3)) -> str: return x\nclass C(B, m=M): pass",
    "def f():\n    class A:\n        def g(self): return __class__, f, A\n    return [A for a in A if (lambda: a)]",
]
_MODULES = [
    "argparse",
    "dataclasses",
    "typing",
    "json.decoder",
    "asyncio.tasks",
    "enum",
    "functools",
    "tarfile",
    "unittest.mock",
]


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _local_names_by_compiler(source: str) -> dict[tuple[str, int], set[str]]:
    found: dict[tuple[str, int], set[str]] = {}
    for table in _tables(symtable.symtable(source, "<cell 1>", "exec")):
        if table.get_type() not in ("function", "class") or table.get_name() in (
            "listcomp",
            "setcomp",
            "dictcomp",
            "genexpr",
        ):
            continue
        names = {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_local() and not symbol.get_name().startswith(".") and "__" not in symbol.get_name()
        }
        found.setdefault((table.get_name(), table.get_lineno()), set()).update(names)
    return found


def _local_names_by_us(source: str) -> dict[tuple[str, int], set[str]]:
    found: dict[tuple[str, int], set[str]] = {}
    for scope in scopes_of(ast.parse(source)).module.walk():
        if scope.kind not in ("function", "class"):
            continue
        name = getattr(scope.node, "name", "lambda")
        found.setdefault((name, scope.node.lineno), set()).update(_own(scope))  # type: ignore[attr-defined]
    return found


def _own(scope: Scope) -> set[str]:
    names = {name for name in scope.bindings if name not in scope.globals and name not in scope.nonlocals}
    if sys.version_info >= (3, 12):
        names |= _inlined(scope)
    return {
        name for name in names if "__" not in name
    }  # the compiler renames `__x` in a class; the subset refuses those


def _inlined(scope: Scope) -> set[str]:
    """PEP 709: the compiler lists what a comprehension binds with the names of the function around it. A name still
    means there what it meant before, so our scopes stay apart."""
    names: set[str] = set()
    for child in scope.children:
        if isinstance(child.node, ast.ListComp | ast.SetComp | ast.DictComp):
            names |= set(child.bindings) | _inlined(child)
    return names


def _source(module: str) -> str:
    loaded = importlib.import_module(module)
    assert loaded.__file__ is not None
    with open(loaded.__file__, encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize("source", _SNIPPETS)
def test_local_names_of_snippets(source: str) -> None:
    assert _local_names_by_us(source) == _local_names_by_compiler(source)


@pytest.mark.parametrize("module", _MODULES)
def test_local_names_of_the_standard_library(module: str) -> None:
    source = _source(module)
    ours, theirs = _local_names_by_us(source), _local_names_by_compiler(source)
    assert len(theirs) > 10
    assert ours == theirs


def _owner_kinds(source: str) -> dict[str, str]:
    scopes = scopes_of(ast.parse(source))
    found = {}
    for name in scopes.standing:
        if isinstance(name.ctx, ast.Load):
            owner = scopes.owner(name)
            found[name.id] = "none" if owner is None else owner.kind
    return found


def test_a_class_scope_is_not_seen_from_its_methods() -> None:
    assert _owner_kinds("class A:\n    x = 1\n    def f(self): return x")["x"] == "none"
    assert _owner_kinds("class A:\n    x = 1\n    y = x")["x"] == "class"


def test_a_class_field_does_not_make_a_name_local() -> None:
    scopes = scopes_of(ast.parse("class A:\n    open: int\n    y = open"))
    (name,) = [n for n in scopes.standing if n.id == "open" and isinstance(n.ctx, ast.Load)]
    assert not scopes.is_local(name)


def test_global_reaches_the_module_from_everywhere() -> None:
    source = "def f():\n    x = 1\n    def g():\n        global x\n        return x\nx = 2"
    assert _owner_kinds(source)["x"] == "module"


def test_a_walrus_in_a_comprehension_binds_outside() -> None:
    scopes = scopes_of(ast.parse("def f(xs):\n    [(y := x) for x in xs]\n    return y"))
    function = next(scope for scope in scopes.module.walk() if scope.kind == "function")
    assert "y" in function.bindings
