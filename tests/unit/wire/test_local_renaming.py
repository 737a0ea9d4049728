"""Names of local modules, as the tree has them that is checked and runs."""

# ruff: noqa: E501  (cells, as they are written)
from __future__ import annotations

import ast

import pytest

from capkernel.wire.local_imports import exports_of
from capkernel.wire.local_names import NO_NAMES, LocalNames, session_name, without_prefixes
from capkernel.wire.local_renaming import rename

EXPORTS = {
    "pkg": {"start": "pkg.core:start"},
    "pkg.core": {"start": "pkg.core:start"},
    "tools": {"clean": "tools:clean", "N": "tools:N", "_own": "tools:_own"},
}
CELL = LocalNames("", False, EXPORTS, {"t": "tools", "old": "tools:clean"})
CLEAN = session_name("tools", "clean")


def renamed(text: str, names: LocalNames = CELL) -> str:
    found = rename(ast.parse(text), names)
    assert found.problems == []
    compile(found.tree, "text", "exec")
    return ast.unparse(found.tree)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import tools\ntools.clean(tools.N)", f"pass\n{CLEAN}(toolsǀN)"),
        ("import tools as x\nx.clean", f"pass\n{CLEAN}"),
        ("from tools import clean as c\nc(1)", f"pass\n{CLEAN}(1)"),
        ("from tools import *\nclean, _own", f"pass\n({CLEAN}, _own)"),
        ("import pkg.core\npkg.core.start, pkg.start", "pass\n(pkgǁcoreǀstart, pkgǁcoreǀstart)"),
        ("from pkg import core\ncore.start()", "pass\npkgǁcoreǀstart()"),
        ("t.clean('x'), old", f"({CLEAN}('x'), {CLEAN})"),
        ("def f(t, old):\n    return t.clean, old", "def f(t, old):\n    return (t.clean, old)"),
        ("def f():\n    from tools import clean\n    return clean", f"def f():\n    pass\n    return {CLEAN}"),
        ("[old for old in old]", f"[old for old in {CLEAN}]"),
        ("lambda old=old: old", f"lambda old={CLEAN}: old"),
        ("class C:\n    old = old\n    def m(self):\n        return old", f"class C:\n    old = old\n\n    def m(self):\n        return {CLEAN}"),
        ("old = old(1)", f"old = {CLEAN}\nold = old(1)"),
        ("from tools import clean\nclean = clean(1)", f"clean = {CLEAN}\nclean = clean(1)"),
        ("x: 'old' = 1", f"x: '{CLEAN}' = 1"),
        ("f'{old(1)!r}'", f"f'{{{CLEAN}(1)!r}}'"),
        ("import json, os.path\njson.old", "import json, os.path\njson.old"),
    ],
)  # fmt: skip
def test_a_cell(text: str, expected: str) -> None:
    assert renamed(text) == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import tools\nprint(tools)", "unsafe-feature"),
        ("import tools\ntools.clean = 1", "unsafe-feature"),
        ("import tools\ndel tools.N", "unsafe-feature"),
        ("import tools\ntools.nothing", "attr-defined"),
        ("from tools import nothing", "unsafe-import"),
        ("import tools.nothing", "unsafe-import"),
        ("import tools\ntools = 1", "unsafe-import"),
        ("import pkg\nf(pkg.core)", "unsafe-feature"),
    ],
)
def test_what_it_cannot_mean(text: str, code: str) -> None:
    assert [problem.code for problem in rename(ast.parse(text), CELL).problems] == [code]


def test_a_module() -> None:
    names = LocalNames("pkg.m", False, EXPORTS)
    text = (
        "import os.path\nfrom .core import start\nfrom typing import TypeVar\nT = TypeVar('T')\n"
        "class P:\n    a: int = 1\n    def twin(self) -> 'P':\n        return P()\n"
        "def f(a, P=None):\n    global made\n    made = start(a)\n    return P, __name__\n"
    )
    own = {"os", "TypeVar", "T", "P", "f", "made"}
    exported = exports_of(ast.parse(text), names)
    assert exported == {"start": "pkg.core:start", **{name: f"pkg.m:{name}" for name in own}}
    result = renamed(text, names)
    m = "pkgǁmǀ"
    assert f"import os.path as {m}osǁpath\nimport os as {m}os" in result
    assert f"{m}T = {m}TypeVar('{m}T')" in result
    assert f"class {m}P:\n    a: int = 1\n\n    def twin(self) -> '{m}P':\n        return {m}P()" in result
    assert (
        f"def {m}f(a, P=None):\n    global {m}made\n    {m}made = pkgǁcoreǀstart(a)\n    return (P, 'pkg.m')" in result
    )


def test_without_local_modules_nothing_is_touched() -> None:
    tree = ast.parse("import tools\ntools.x = old")
    before = ast.dump(tree)
    assert rename(tree, NO_NAMES).tree is tree
    assert ast.dump(tree) == before


def test_places_stay() -> None:
    tree = rename(ast.parse("x = 1\ny = (t.clean)(2)\n"), CELL).tree
    call = tree.body[1].value  # type: ignore[attr-defined]
    assert (call.func.lineno, call.func.col_offset, call.func.end_col_offset) == (2, 5, 12)


def test_what_a_person_reads_has_no_prefix() -> None:
    assert without_prefixes(f"`{CLEAN}` and pkgǁcoreǀstart()") == "`clean` and start()"
    assert without_prefixes("nothing to do") == "nothing to do"
