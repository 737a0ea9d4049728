"""Every row of the tables is needed: a cell made from the row is judged otherwise when the row is gone.

One cell is made for each row, by a pattern for its kind of row. `decides`: the row alone makes the cell accepted or
refused. Other kinds only have to change what is said: there a second rule refuses the same thing for another reason,
and the row brings the reason that helps.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import golden
import mutants
import pytest

from capkernel.checker.protocol import Rejected
from capkernel.checker.tables import ambient, borrows, pure, subset
from capkernel.diagnostics import render_text

pytestmark = pytest.mark.timeout(600)

Made = Callable[[str], str]


@dataclass(frozen=True)
class Rows:
    """The rows of one kind."""

    table: Any
    name: str
    made: Made  # the cell for a row
    allows: bool  # what a row that decides does
    decides: bool = True
    only: Callable[[str], bool] = lambda row: True


def judged(text: str) -> tuple[bool, str]:
    """Whether a cell of its own session is refused, and everything that is said of it."""
    verdict = golden.new_session("standard").check(1, text)
    said = verdict.diagnostics if isinstance(verdict, Rejected) else verdict.warnings
    return isinstance(verdict, Rejected), render_text(said, {1: text})


def imported(path: str) -> str:
    """The import that makes `path` readable: of the longest part that is a module here."""
    parts = path.split(".")
    if parts[0] == "builtins":
        return ""
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        return f"import {module}\n"
    return f"import {path.rpartition('.')[0] or path}\n"  # not installed, or not in this Python


def shown(path: str) -> str:
    return path.removeprefix("builtins.")


def in_map(body: Made) -> Made:
    def made(row: str) -> str:
        return f"{imported(row)}def f(v):\n    return {body(shown(row))}\nclassify(1).map(f)\n"

    return made


def in_map_by_name(expression: str) -> Made:
    return lambda row: f"def f(v):\n    return {expression.format(row)}\nclassify(1).map(f)\n"


def imported_in_map(row: str) -> str:
    module = importlib.import_module(row)
    names = [name for name in getattr(module, "__all__", dir(module)) if not name.startswith("_")]
    own = [name for name in names if str(getattr(getattr(module, name), "__module__", "")).startswith(row)]
    name = (own or [name for name in names if name.islower()])[0]
    return f"def f(v):\n    import {row}\n    return [v, {row}.{name}][0]\nclassify(1).map(f)\n"


def in_block(statement: str, before: str = "kept: list[object] = []") -> Made:
    def made(row: str) -> str:
        return f"{imported(row)}{before}\nwith request_file_system('.') as fs:\n    {statement.format(shown(row))}\n"

    return made


def method_in_block(statement: str) -> Made:
    before = "import unknown\nthing = unknown.Thing()"
    return lambda row: f"{before}\nwith request_file_system('.') as fs:\n    {statement.format(row)}\n"


# A member of each module that stands for all of its effects.
MEMBERS = {
    "IPython": "IPython.display.display",
    "asyncio": "asyncio.sleep",
    "logging": "logging.info",
    "matplotlib": "matplotlib.get_backend",
    "numpy.random": "numpy.random.random",
    "os": "os.cpu_count",
    "random": "random.random",
    "secrets": "secrets.token_hex",
    "sys": "sys.getsizeof",
    "threading": "threading.Lock",
    "time": "time.time",
    "uuid": "uuid.uuid4",
    "warnings": "warnings.warn",
    "weakref": "weakref.ref",
}


def effect(row: str) -> str:
    return in_map(value)(MEMBERS.get(row, row))


def read_from_open_file(after: str) -> Made:
    def made(row: str) -> str:
        return (
            f"{imported(row)}with request_file_system('.') as fs:\n    with fs.access('a').open('rb') as file:\n"
            f"        found = {row}(file)\n{after}"
        )

    return made


def bound_and_read(row: str) -> str:
    return f"{row}\n" if row == "__debug__" else f"{row} = 'a'\n{row}\n"


def opened(row: str) -> str:
    arguments = [*["0"] * ambient().path_functions[row], "'a.txt'"]
    return f"{imported(row)}{row}({', '.join(arguments)})\n"


def after_lambda(row: str) -> str:
    """A member that mypy knows nothing of: the block has ended when what it gave is used."""
    return (
        f"with request_file_system('.') as fs:\n    entries = [fs.access('a')]\n"
        f"    def of(e):\n        return e.{row}\n    found = [of(e) for e in entries]\nfound[0]\n"
    )


def value(row: str) -> str:
    return f"[v, {row}][0]" if row != "getattr" else "getattr(v, 'a')"


def of_value(row: str) -> str:
    return f"def f(v):\n    return v.{row}\n"


KINDS = [
    Rows(pure(), "names", in_map(value), allows=True),
    Rows(pure(), "modules", imported_in_map, allows=True),
    Rows(
        pure(), "partial_modules", lambda row: f"def f(v):\n    import {row}\n    return v\nclassify(1).map(f)\n", True
    ),
    Rows(pure(), "exceptions", in_map(value), allows=False, decides=False),
    Rows(pure(), "effects", effect, allows=False, decides=False),
    Rows(pure(), "impure_methods", in_map_by_name("v.{0}(v)"), allows=False),
    Rows(pure(), "text_without_target", in_map_by_name("v.{0}()"), allows=True),
    Rows(borrows(), "names", in_block("{0}(kept, fs)"), allows=True, decides=False),
    Rows(borrows(), "data", read_from_open_file("found\n"), allows=True),
    Rows(borrows(), "frames", read_from_open_file("rows = [found, 1]\nrows\n"), allows=True),
    Rows(borrows(), "keeping", in_block("{0}(kept, 0, lambda: fs)"), allows=False, decides=False),
    Rows(borrows(), "packages", in_block("{0}.thing(kept, lambda: fs)"), allows=True, decides=False),
    Rows(borrows(), "methods", method_in_block("thing.{0}(fs)"), allows=True),
    Rows(borrows(), "starts", in_block("{0}(lambda: fs)"), allows=False, decides=False),
    Rows(borrows(), "start_methods", method_in_block("thing.{0}(lambda: fs)"), allows=False, decides=False),
    Rows(borrows(), "plain_members", after_lambda, allows=True),
    Rows(ambient(), "refused_modules", lambda row: f"import {row}\n", allows=False, decides=False),
    Rows(ambient(), "denied", lambda row: f"{imported(row)}{row}\n", allows=False, decides=False),
    Rows(ambient(), "member_advice", lambda row: f"{imported(row)}{row}\n", allows=False, decides=False),
    Rows(ambient(), "plain_calls", read_from_open_file(""), allows=True),
    Rows(ambient(), "path_functions", opened, allows=False, decides=False),
    Rows(
        ambient(),
        "path_methods",
        lambda row: f"import pandas\npandas.DataFrame().{row}('a.txt')\n",
        allows=False,
        decides=False,
    ),
    Rows(ambient(), "path_keywords", lambda row: f"import pandas\npandas.read_csv({row}='a.txt')\n", allows=False),
    Rows(subset(), "code", lambda row: f"{row}\n", allows=False, decides=False),
    Rows(subset(), "namespaces", lambda row: f"{row}\n", allows=False),
    Rows(subset(), "interactive", lambda row: f"{row}\n", allows=False),
    Rows(subset(), "files", lambda row: f"{row}\n", allows=False),
    Rows(subset(), "fixed", lambda row: f"{row} = 1\n", allows=False),
    Rows(subset(), "readable_dunders", of_value, allows=True),
    Rows(subset(), "operators", of_value, allows=True),
    Rows(subset(), "settable_dunders", lambda row: f"def f(v):\n    v.{row} = 'a'\n", allows=True),
    Rows(subset(), "module_dunders", bound_and_read, allows=True),
    Rows(subset(), "method_dunders", lambda row: f"class C:\n    def {row}(self, *a): ...\n", allows=True),
    Rows(subset(), "class_data_dunders", lambda row: f"class C:\n    {row} = ()\n", allows=True),
    Rows(subset(), "frame_attributes", of_value, allows=False),
    Rows(subset(), "magics", lambda row: f"get_ipython().run_line_magic('{row}', '')\n", allows=True),
    Rows(
        subset(),
        "matplotlib_backends",
        lambda row: f"get_ipython().run_line_magic('matplotlib', '{row}')\n",
        allows=True,
    ),
    Rows(
        subset(),
        "metaclasses",
        lambda row: f"from abc import ABCMeta\nfrom enum import EnumMeta, EnumType\nclass C(metaclass={row}): ...\n",
        allows=True,
    ),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{type(kind.table).__name__}.{kind.name}")
def test_every_row_is_needed(kind: Rows) -> None:
    rows = sorted(getattr(kind.table, kind.name))
    assert rows
    wrong = []
    for row in rows:
        text = kind.made(row)
        refused, said = judged(text)
        with mutants.without(kind.table, kind.name, row):
            refused_without, said_without = judged(text)
        if (refused, refused_without) == (not kind.allows, kind.allows):
            continue
        if kind.decides or said == said_without:
            wrong.append(f"{row}: refused {refused}, without it {refused_without}\n{text}{said}")
    assert wrong == []


def test_every_field_with_rows_has_a_pattern() -> None:
    patterns = {(type(kind.table).__name__, kind.name) for kind in KINDS}
    fields = {
        (type(table).__name__, name)
        for table in (pure(), borrows(), ambient(), subset())
        for name, rows in vars(table).items()
        if not isinstance(rows, tuple)
    }
    # What is left: prose, and the members of modules that are open in part (below).
    assert fields - patterns == {
        ("Ambient", "advice"),
        ("Ambient", "partial"),
        ("Ambient", "partial_advice"),
    }


@pytest.mark.parametrize("module", sorted(ambient().partial))
def test_every_allowed_member_is_needed(module: str) -> None:
    table = ambient()
    members, wrong = sorted(table.partial[module]), []
    for member in members:
        text = f"from {module} import {member} as here\n"
        refused, said = judged(text)
        with mock.patch.dict(table.partial, {module: table.partial[module] - {member}}):
            refused_without, _ = judged(text)
        if refused or not refused_without:
            wrong.append(f"{member}: refused {refused}, without it {refused_without}\n{said}")
    assert wrong == []
    text = f"from {module} import no_such_member\n"
    with mutants.without(table, "partial", module):
        refused_whole = table.refused_module(module) is not None
        assert judged(text)[0] == refused_whole
    assert judged(text)[0]
