"""Whatever stands where an expression may stand is judged: in every field of every kind of syntax tree node.

The fields are read off the running Python's own description of its trees, so a new one is missed here before it is
missed by the checker.
"""

from __future__ import annotations

import ast
import re
import sys

import golden
import pytest

from capkernel.checker.captures.scopes import scopes_of
from capkernel.checker.protocol import Rejected
from capkernel.checker.subset.bindings import _HOW
from capkernel.checker.subset.nodes import _KNOWN

# Where the expression stands as `HOLE`. Functions are called, so that what is in them runs.
TEMPLATES = [
    "HOLE", "x = HOLE", "x: int = HOLE", "x: HOLE = 1", "x = 1\nx += HOLE", "x = {}\nx[HOLE] = 1",
    "x = {1: 1}\ndel x[HOLE]", "async def f(): return HOLE\nawait f()", "def f(a=HOLE): pass",
    "def f(*, a=HOLE): pass", "@HOLE\ndef f(): pass", "def f(a: HOLE): pass", "def f() -> HOLE: pass",
    "def f():\n    return HOLE\nf()", "def f(): yield HOLE\nlist(f())", "def f(): yield from HOLE\nlist(f())",
    "async def f() -> HOLE: pass", "@HOLE\nasync def f(): pass", "@HOLE\nclass C: pass", "class C(HOLE): pass",
    "class C(key=HOLE): pass", "class C:\n    x = HOLE", "f = lambda: HOLE\nf()", "if HOLE: pass",
    "if 1 > 2: pass\nelif HOLE: pass", "while HOLE: break", "for i in HOLE: pass", "for i in []: pass\nelse: HOLE",
    "async def f():\n    async for i in HOLE: pass\nawait f()", "with HOLE: pass", "with HOLE as x: pass",
    "async def f():\n    async with HOLE: pass\nawait f()", "raise HOLE", "raise ValueError from HOLE", "assert HOLE",
    "assert x, HOLE", "try: pass\nexcept HOLE: pass", "try: pass\nexcept* HOLE: pass", "try: HOLE\nfinally: pass",
    "try: pass\nfinally: HOLE", "match HOLE:\n    case _: pass", "match 1:\n    case 1 if HOLE: pass",
    "match 1:\n    case _: HOLE", "HOLE + 1", "1 + HOLE", "HOLE or 1", "1 and HOLE", "not HOLE", "-HOLE", "~HOLE",
    "HOLE < 1", "1 < HOLE", "HOLE if 1 else 2", "1 if HOLE else 2", "1 if 0 else HOLE", "(x := HOLE)", "await HOLE",
    "[HOLE]", "(HOLE,)", "{HOLE}", "{HOLE: 1}", "{1: HOLE}", "[*HOLE]", "{**HOLE}", "print(*HOLE)", "print(**HOLE)",
    "print(HOLE)", "print(end=HOLE)", "HOLE()", "HOLE.real", "HOLE[0]", "[1][HOLE]", "[1][HOLE:]", "[1][:HOLE]",
    "[1][::HOLE]", "[HOLE for i in [1]]", "[i for i in HOLE]", "[i for i in [1] if HOLE]", "{HOLE for i in [1]}",
    "{HOLE: 1 for i in [1]}", "{1: HOLE for i in [1]}", "list(HOLE for i in [1])", 'f"{HOLE}"', 'f"{1:{HOLE}}"',
]  # fmt: skip
if sys.version_info >= (3, 12):
    TEMPLATES += ["type X = HOLE", "def f[T: HOLE](): pass", "class C[T: HOLE]: pass"]
if sys.version_info >= (3, 13):
    TEMPLATES += ["def f[T = HOLE](): pass", "def f[*T = HOLE](): pass", "def f[**T = HOLE](): pass"]

# Only names, attributes and items can stand there, or only constants and dotted names; what is inside those is seen.
PLACES = {
    ("Assign", "targets"), ("AugAssign", "target"), ("AnnAssign", "target"), ("For", "target"), ("AsyncFor", "target"),
    ("Delete", "targets"), ("NamedExpr", "target"), ("comprehension", "target"), ("withitem", "optional_vars"),
    ("MatchValue", "value"), ("MatchMapping", "keys"), ("MatchClass", "cls"), ("TypeAlias", "name"),
}  # fmt: skip
# In a session of its own these do not run; `f'{x:...}'` holds a text of its own.
INSIDE_OTHERS = {("FormattedValue", "format_spec"), ("JoinedStr", "values"), ("Expression", "body")}


def fields_for_expressions() -> set[tuple[str, str]]:
    """(kind of node, field) from "BinOp(expr left, operator op, expr right)"."""
    found = set()
    for kind in _KNOWN:
        for field in re.findall(r"\bexpr[?*]? (\w+)", kind.__doc__ or ""):
            found.add((kind.__name__, field))
    return found


def test_there_is_a_template_for_every_field() -> None:
    covered = set()
    for template in TEMPLATES:
        for node in ast.walk(ast.parse(template)):
            for field, value in ast.iter_fields(node):
                parts = value if isinstance(value, list) else [value]
                if any(isinstance(part, ast.Name) and part.id == "HOLE" for part in parts):
                    covered.add((type(node).__name__, field))
    assert fields_for_expressions() - covered - PLACES - INSIDE_OTHERS == set()


PROBES = {
    "unsafe-feature": "eval('1')",
    "ambient-authority": "open('a')",
    "impure-map": "classify(1).map(print)",
    "classified-observed": "len(classify(1))",
}
# Where the type checker expects a type: no call that it could follow is accepted there.
IN_TYPES = ("x: HOLE", "(a: HOLE)", "-> HOLE", "class C(HOLE)", "[T: HOLE]", "T = HOLE]")
# Evaluated when somebody asks for `__value__`, which no cell can.
NEVER_RUNS = "type X = HOLE"


@pytest.mark.parametrize("code", PROBES)
def test_what_stands_there_is_judged(code: str) -> None:
    overlooked = []
    for template in TEMPLATES:
        verdict = golden.new_session("standard").check(1, f"x = 1\n{template.replace('HOLE', PROBES[code])}\n")
        codes = [found.code for found in verdict.diagnostics] if isinstance(verdict, Rejected) else []
        in_type = "untyped-code" in codes and any(part in template for part in IN_TYPES)
        if code not in codes and not in_type and (template != NEVER_RUNS or code == "unsafe-feature"):
            overlooked.append((template, codes))
    assert overlooked == []


@pytest.mark.parametrize("template", TEMPLATES)
def test_plain_data_may_stand_there(template: str) -> None:
    verdict = golden.new_session("standard").check(1, f"x = 1\n{template.replace('HOLE', '(int)')}\n")
    assert not isinstance(verdict, Rejected), [found.message for found in verdict.diagnostics]


def accepted_trees() -> list[ast.Module]:
    found = []
    for _, section in golden.all_sections():
        for cell in section.cells:
            if not golden.refuses(cell) and len(cell.text) < 5_000:
                found.append(ast.parse(cell.text + "\n"))
    return found


def test_every_node_and_every_way_to_bind_a_name_is_in_an_accepted_cell() -> None:
    trees = accepted_trees()
    nodes = {type(node) for tree in trees for node in ast.walk(tree)}
    assert {kind.__name__ for kind in _KNOWN - nodes} == {"TypeIgnore"}  # only made when it is asked for
    scopes = [scope for tree in trees for scope in scopes_of(tree).module.walk()]
    ways = {binding.how for scope in scopes for bindings in scope.bindings.values() for binding in bindings}
    assert set(_HOW) - ways == (set() if hasattr(ast, "TypeAlias") else {"type parameter"})
