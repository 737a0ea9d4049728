"""Which types cut: plain data holds nothing, everything that may carry does."""

from __future__ import annotations

import ast

import pytest

from capkernel.checker.captures.types import Types, shown
from capkernel.checker.protocol import Accepted

from .conftest import Notebook

_PRELUDE = """
import collections, datetime, decimal, enum, fractions, re, uuid, pathlib, dataclasses, typing
from collections.abc import Callable, Iterator, Generator, Awaitable
from typing import Any, NamedTuple, TypedDict, Literal, Protocol
import numpy as np, pandas as pd
class Colour(enum.Enum):
    RED = 1
class Row(NamedTuple):
    a: int
class Movie(TypedDict):
    name: str
class Bad(TypedDict):
    f: Callable[[], int]
class Reads(Protocol):
    def read(self) -> str: ...
@dataclasses.dataclass
class Point:
    x: int
    tags: list[str]
@dataclasses.dataclass
class Holder:
    fs: FileSystem
@dataclasses.dataclass
class Tree:
    value: int
    children: list["Tree"]
class Base:
    x: int = 0
class Derived(Base):
    f: object = None
class Error(Exception):
    pass
"""
_PLAIN = [
    "int",
    "str | None",
    "list[dict[str, tuple[int, ...]]]",
    "bytes",
    "bool",
    "set[float]",
    "datetime.datetime",
    "decimal.Decimal",
    "fractions.Fraction",
    "uuid.UUID",
    "re.Pattern[str]",
    "re.Match[str] | None",
    "pathlib.PurePath",
    "range",
    "Colour",
    "Row",
    "Movie",
    "Point",
    "list[Point]",
    "Tree",
    "Literal['a']",
    "np.ndarray[Any, Any]",
    "pd.DataFrame",
    "pd.Series[int]",
    "collections.Counter[str]",
    "collections.deque[int]",
    "collections.defaultdict[str, list[int]]",
    "frozenset[str]",
    "type[int]",
    "np.float64",
    "memoryview",
]
_CARRIES = [
    "Any",
    "object",
    "list[Any]",
    "dict[str, object]",
    "Callable[[], int]",
    "Iterator[int]",
    "Generator[int, None, None]",
    "Reads",
    "FileSystem",
    "list[FileEntry]",
    "Holder",
    "Bad",
    "Base",
    "Derived",
    "Awaitable[int]",
    "Exception",
    "Error",
    "type[Point]",
    "tuple[int, FileSystem]",
    "Classified[str]",
    "str | FileEntry",
    "list",
    "dict",
]


@pytest.fixture(scope="module")
def types_of_names(engine: object) -> dict[str, tuple[bool, bool, str]]:
    """For each type text: plain, plain for the flow of capabilities, as shown."""
    notebook = Notebook(engine)  # type: ignore[arg-type]
    names = [*_PLAIN, *_CARRIES]
    text = _PRELUDE + "\n".join(f"def f{n}(x: {name}) -> None:\n    x" for n, name in enumerate(names))
    assert isinstance(notebook.session.check(1, text), Accepted)
    checked, facts = notebook.session._accepted[1]
    types = Types()
    for definition in facts.classes.values():
        types.add_class(definition.info)
    found = {}
    for node in ast.walk(checked.typed.module):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("f") and node.name[1:].isdigit():
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)
            typ = checked.typed.resolve(statement.value).type
            found[names[int(node.name[1:])]] = (types.is_plain(typ), types.inert.is_plain(typ), shown(typ))
    return found


@pytest.mark.parametrize("name", _PLAIN)
def test_plain_types(name: str, types_of_names: dict[str, tuple[bool, bool, str]]) -> None:
    assert types_of_names[name][:2] == (True, True)


@pytest.mark.parametrize("name", _CARRIES)
def test_types_that_carry(name: str, types_of_names: dict[str, tuple[bool, bool, str]]) -> None:
    plain, inert, _ = types_of_names[name]
    assert not plain
    assert inert == (name == "Classified[str]")


def test_types_are_shown_without_modules_and_values(types_of_names: dict[str, tuple[bool, bool, str]]) -> None:
    assert types_of_names["Literal['a']"][2] == "str"
    assert types_of_names["list[dict[str, tuple[int, ...]]]"][2] == "list[dict[str, tuple[int, ...]]]"
    assert types_of_names["Point"][2] == "Point"
    assert types_of_names["str | None"][2] == "str | None"
    assert all("cell_" not in text for *_, text in types_of_names.values())
