"""The safe subset on the tree alone: the closed world, names, magics, imports."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from capkernel.checker.subset import check_subset
from capkernel.checker.subset.nodes import _KNOWN
from capkernel.checker.tables import subset

Codes = Callable[[str], list[str]]


def test_a_node_that_is_not_known_is_refused() -> None:
    class Novelty(ast.stmt):
        _fields = ()

    node = Novelty(lineno=1, col_offset=0, end_lineno=1, end_col_offset=1)
    found = check_subset(ast.Module([node], []), 1, "x")
    assert [(one.code, "Novelty" in one.message) for one in found] == [("not-understood", True)]


def test_the_closed_world_knows_what_this_python_parses() -> None:
    outside = {
        "TemplateStr",
        "Interpolation",
        "FunctionType",
        "Interactive",
        "Expression",
        "Suite",
        "Param",
        "AugLoad",
        "AugStore",
        "Num",
        "Str",
        "Bytes",
        "NameConstant",
        "Ellipsis",
        "Index",
        "ExtSlice",
    }
    concrete = {
        kind
        for kind in vars(ast).values()
        if isinstance(kind, type)
        and issubclass(kind, ast.AST)
        and not kind.__subclasses__()
        and kind.__module__ in ("ast", "_ast")
    }
    assert {kind.__name__ for kind in concrete - _KNOWN} <= outside


@pytest.mark.parametrize("name", sorted(subset().forbidden))
def test_forbidden_builtins_cannot_be_read_or_rebound(name: str, subset_codes: Codes) -> None:
    read = subset_codes(f"x = {name}")
    assert len(read) == 1
    assert read[0] in ("unsafe-feature", "ambient-authority")
    assert subset_codes(f"{name} = 1")[0] in ("redefined-api", "unsafe-feature")
    assert "redefined-api" in subset_codes(f"def f():\n    global {name}\n    {name} = 1") or name == "__import__"


@pytest.mark.parametrize("name", sorted(subset().forbidden - {"__import__"}))
def test_a_local_of_the_same_name_is_harmless(name: str, subset_codes: Codes) -> None:
    assert subset_codes(f"def f({name}=1):\n    return {name} + 1") == []
    assert subset_codes(f"[{name} for {name} in []]") == []
    assert subset_codes(f"class A:\n    def {name}(self): pass\nA().{name}()") == []


_BINDING_FORMS = [
    "{} = 1",
    "{}: int = 1",
    "{} += 1",
    "(a, *{}) = x",
    "[{}] = x",
    "({} := 1)",
    "[({} := 1) for x in y]",
    "for {} in x: pass",
    "async def f():\n    async for {} in x: pass",
    "with x as {}: pass",
    "with x as (a, {}): pass",
    "import a as {}",
    "from a import b as {}",
    "from a import {}",
    "import {}",
    "import {}.b",
    "try: pass\nexcept E as {}: pass",
    "try: pass\nexcept* E as {}: pass",
    "match x:\n    case {}: pass",
    "match x:\n    case [*{}]: pass",
    "match x:\n    case {{'a': 1, **{}}}: pass",
    "match x:\n    case C(a={}): pass",
    "match x:\n    case 1 as {}: pass",
    "def {}(): pass",
    "async def {}(): pass",
    "class {}: pass",
    "def f({}): pass",
    "def f({}, /): pass",
    "def f(*{}): pass",
    "def f(**{}): pass",
    "def f(*, {}): pass",
    "lambda {}: 1",
    "[0 for {} in x]",
    "{{0: 0 for {} in x}}",
    "(0 for {} in x)",
    "def f():\n    global {}",
    "def f():\n    {} = 1\n    def g():\n        nonlocal {}",
    "del {}",
]


@pytest.mark.parametrize("form", _BINDING_FORMS)
def test_every_binding_form_of_an_api_name_is_refused(form: str, subset_codes: Codes) -> None:
    assert "redefined-api" in subset_codes(form.replace("{}", "Classified").replace("{{", "{").replace("}}", "}"))


@pytest.mark.parametrize("form", _BINDING_FORMS)
def test_the_same_form_with_another_name_is_fine(form: str, subset_codes: Codes) -> None:
    assert subset_codes(form.replace("{}", "other").replace("{{", "{").replace("}}", "}")) == []


@pytest.mark.parametrize(
    "cell",
    [
        "!ls",
        "x = !ls",
        "%run a.py",
        "%%bash\nid",
        "%load_ext x",
        "%cd /",
        "%pip install x",
        "%env A=1",
        "x?",
        "%matplotlib qt",
        "%config Application.log_level=1",
        "%config InlineBackend.figure_format = open('x').read()",
        "%%writefile a\nb",
        "%debug",
    ],
)
def test_magics_that_are_refused(cell: str, subset_codes: Codes) -> None:
    assert subset_codes(TransformerManager().transform_cell(cell)) == ["unsafe-magic"]


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline",
        "%matplotlib",
        "%who",
        "%whos int",
        "%precision 3",
        "%config InlineBackend.figure_format = 'svg'",
    ],
)
def test_magics_that_are_allowed(cell: str, subset_codes: Codes) -> None:
    assert subset_codes(TransformerManager().transform_cell(cell)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from scipy import signal, optimize",
        "import urllib.parse",
        "from __future__ import annotations",
        "import http_utils",
        "from os import path",
        "from math import *",
        "import xml.etree.ElementTree as ET",
        "import some.deep.package as p",
        "from typing import TYPE_CHECKING",
        "import httpx, polars, sqlalchemy",
    ],
)
def test_imports_that_are_free(text: str, subset_codes: Codes) -> None:
    assert subset_codes(text) == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import os.subprocess", "free"),
        ("import socket", "unsafe-import"),
        ("from . import a", "unsafe-import"),
        ("from x import _y", "unsafe-import"),
        ("import _thread", "unsafe-import"),
        ("import a._b", "unsafe-import"),
        ("from a import os", "unsafe-feature"),
        ("from os import *", "ambient-authority"),
        ("from __future__ import barry_as_FLUFL", "unsafe-feature"),
        ("from urllib import request", "unsafe-import"),
        ("from sys import modules", "unsafe-feature"),
    ],
)
def test_imports_that_are_refused(text: str, code: str, subset_codes: Codes) -> None:
    assert subset_codes(text) == ([] if code == "free" else [code])


def test_strings_are_never_a_reason(subset_codes: Codes) -> None:
    assert (
        subset_codes("x = '''eval(open('/etc/passwd').read()) __class__ !rm -rf %run os.environ'''\n# eval() os.system")
        == []
    )


def test_private_names_in_a_class_are_mangled(subset_codes: Codes) -> None:
    assert subset_codes("__x = 1\nclass A:\n    def f(self): return __x") == ["not-understood"]
    assert subset_codes("class A:\n    def f(self):\n        __x = self.__y\n        return __x") == []


def test_every_diagnostic_says_what_to_do(subset_codes: Codes) -> None:
    for text in (
        "eval('1')",
        "open('x')",
        "import socket",
        "x.__class__",
        "getattr(x, n)",
        "classify = 1",
        "type('a', (), {})",
    ):
        for found in check_subset(ast.parse(text), 1, text):
            assert found.help, text
            assert not found.message.endswith(".")
            assert "\n" not in found.message
