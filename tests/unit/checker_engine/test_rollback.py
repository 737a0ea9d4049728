"""Refusing, forgetting and crashing leave mypy and the session as they were."""

from __future__ import annotations

import ast
import hashlib

import mypy.build  # noqa: F401
import pytest
from mypy.plugin import FunctionContext, Plugin
from mypy.server.astdiff import snapshot_symbol_table
from mypy.types import Type

from capkernel.checker.engine import Engine

BAD = [
    "x: int = 'a'",
    "class Q(Undefined): ...",
    "numbers.append('x')\nnope",
    "import no_such_module\nnope",
    "base = 'now text'\nbase + 1\nnope",
    "del numbers\nnumbers",
    "class Item:\n    other: str\nItem(1)",
    "from typing import TypeVar\nT = TypeVar('T')\nclass G(list[T]): ...\ng: G[int] = 3",
    "numbers = numbers + ['a']\nnope",
    "def f() -> int:\n    return later\nnope",
    "class Item(Item):\n    extra = 1\nnope",
    "import sched, cgi\nnope",
    "from math import *\nnope",
    "def reset():\n    global base\n    base = 'a'\nreset()\nnope",
    "def f(:",
    "Classified(1)",
    "@dataclass\nclass D:\n    a: int\nD()",
    "item.size = 'text'\nItem.size = 'text'\nnope",
    "from enum import Enum\nclass E(Enum):\n    A = 1\nE.A.nothing\nnope",
    "class Sub(Item): ...\nnope",
]

START = (
    "from dataclasses import dataclass\nbase = 1\nnumbers = [1, 2]\n"
    "class Item:\n    size: int = 1\n    def grow(self) -> int:\n        return self.size + base\nitem = Item()\n"
)


def fingerprint(engine: Engine, first: int) -> str:
    manager = engine._manager
    seen = hashlib.sha256()
    for name in sorted(manager.modules):
        if name in ("builtins", "typing", "collections", "dataclasses", "enum", "math", "capkernel.api.files") or (
            name.startswith("cell_") and int(name.split("_")[1]) >= first
        ):
            table = manager.modules[name].names
            seen.update(repr((name, sorted(table))).encode())
            snapshot = snapshot_symbol_table(name, table)
            seen.update(repr(sorted((key, repr(value)) for key, value in snapshot.items())).encode())
    seen.update(repr(sorted((name, str(b.type), str(b.wide), id(b.node)) for name, b in engine.table.items())).encode())
    seen.update(repr(sorted(engine.globals_set)).encode())
    for mapping in (engine._graph, manager.import_map, manager.import_options, manager.ast_cache):
        seen.update(repr(sorted(name for name in mapping if name.startswith("cell_"))).encode())
    seen.update(repr(sorted(manager.errors.error_info_map)).encode())
    return seen.hexdigest()


@pytest.mark.parametrize("text", BAD)
def test_a_refused_cell_leaves_nothing(cells, text: str) -> None:
    cells.run(START)
    first = cells.number
    before = fingerprint(cells.engine, first)
    assert cells.codes(text)
    assert fingerprint(cells.engine, first) == before


def test_the_fingerprint_sees_a_change(cells) -> None:
    cells.run(START)
    first = cells.number
    before = fingerprint(cells.engine, first)
    cells.run("base = 'a'")
    assert fingerprint(cells.engine, first) != before


def test_a_discarded_cell_leaves_nothing(cells) -> None:
    cells.run(START)
    first = cells.number
    before = fingerprint(cells.engine, first)
    cells.check("base = 'a'\nclass Item: ...")
    cells.session.discard(cells.number)
    assert fingerprint(cells.engine, first) == before


class Bomb(Plugin):
    """A bug inside mypy: raises when a given function is called."""

    def __init__(self, inner: Plugin) -> None:
        super().__init__(inner.options)
        self._inner = inner
        self.armed = True

    def get_function_hook(self, fullname: str):
        return _explode if fullname == "builtins.sorted" and self.armed else self._inner.get_function_hook(fullname)


def _explode(context: FunctionContext) -> Type:
    raise KeyError("sk-secret")


@pytest.mark.parametrize(
    "text",
    [
        "sorted([3, 1])",
        "def f(a: list[int]) -> list[int]:\n    class Z:\n        def m(self) -> list[int]:\n"
        "            return [x for x in sorted(a)]\n    return Z().m()",
        "class Sub(Item):\n    def m(self) -> None:\n        sorted([1])",
    ],
)
def test_a_crash_inside_mypy_leaves_nothing(cells, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    cells.run(START)
    first = cells.number
    before = fingerprint(cells.engine, first)
    # The chain of plugins is compiled; the bug goes where it looks plugins up.
    chained = cells.engine._manager.plugin
    plugins = list(chained._plugins)
    bomb = Bomb(plugins[0])
    chained._plugins[0] = bomb
    try:
        with pytest.raises(KeyError):
            cells.checked(text)
    finally:
        chained._plugins[0] = plugins[0]
    assert fingerprint(cells.engine, first) == before
    assert cells.type("sorted([3, 1])") == "list[int]"
    assert cells.type("item.grow()") == "int"


def test_a_replay_finds_the_same_types(cells, cache_directory) -> None:
    texts = [
        START,
        "base = str(base)\nlast = [base]",
        "class Item(Item):\n    more = 1.5\nitem = Item()",
        "item.more\n",
    ]
    for text in texts:
        cells.run(text)
    found = {name: str(binding.type) for name, binding in cells.engine.table.items()}
    again = Engine(cache_directory)
    for number, text in enumerate(texts, cells.number - len(texts) + 1):
        checked = again.check(number, text, ast.parse(text))
        again.commit(checked, checked.names, ())
    replayed = {name: str(binding.type) for name, binding in again.table.items()}
    assert {name: typ for name, typ in found.items() if not name.startswith("_")} == {
        name: typ for name, typ in replayed.items() if not name.startswith("_")
    }


def test_a_module_number_is_never_used_twice(cells) -> None:
    ids = [cells.typed("x = 1").module_id]
    cells.number -= 1
    ids.append(cells.typed("x = 1").module_id)
    assert len(set(ids)) == 2
