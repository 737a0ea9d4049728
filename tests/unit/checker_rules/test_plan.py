"""The plan of an accepted cell: what it may open, what it may ship, what its masks show."""

from __future__ import annotations

from typing import Any

from capkernel.checker.protocol import Accepted
from capkernel.vault.apply import build
from capkernel.wire.plan import CodeKey, FreeName, Plan, PureFunction
from capkernel.wire.types import ANY, TypeNode, shown
from capkernel.wire.vault import FunctionBundle, function_id

from .conftest import Notebook


def _by_name(plan: Plan, name: str) -> PureFunction:
    found = [function for function in plan.pure if function.name == name]
    assert len(found) == 1, plan.pure
    return found[0]


def _run(plan: Plan, entry: PureFunction, argument: Any, data: dict[str, Any] | None = None, **closures: Any) -> Any:
    """Build the entry as the vault does, out of the plan's sources, and apply it."""
    bundle = FunctionBundle(entry=entry.key, functions=plan.pure)
    return build(bundle, {"globals": data or {}, "closure": closures})(argument)


def test_a_block_is_in_the_plan_with_its_literal_argument(notebook: Notebook) -> None:
    plan = notebook.accepted('with request_file_system("data") as fs:\n    fs.access("a").read()').plan
    (site,) = plan.scopes
    assert (site.kind, site.argument, site.cell) == ("file_system", "data", 1)
    assert (site.span.line, site.span.column, site.span.end_column) == (1, 5, 32)


def test_arguments_that_are_not_literals(notebook: Notebook) -> None:
    plan = notebook.accepted(
        "root = 'a' + 'b'\nwith request_file_system(root) as a, request_file_system() as b, request_file_system(root='c') as c:\n    pass"  # noqa: E501
    ).plan
    assert [site.argument for site in plan.scopes] == [None, ".", "c"]


def test_blocks_behind_helpers_methods_and_values_are_in_the_plan(notebook: Notebook) -> None:
    notebook.accepted('def low() -> str:\n    with request_file_system("low") as fs:\n        return fs.root')
    notebook.accepted("def high() -> str:\n    return low()")
    notebook.accepted(
        'class Store:\n    def load(self) -> str:\n        with request_file_system("store") as fs:\n            return fs.root\nstore = Store()'  # noqa: E501
    )
    notebook.accepted("handlers = {'a': [high]}")
    assert [site.argument for site in notebook.accepted("high()").plan.scopes] == ["low"]
    assert [site.argument for site in notebook.accepted("store.load()").plan.scopes] == ["store"]
    assert [site.argument for site in notebook.accepted("handlers['a'][0]()").plan.scopes] == ["low"]
    assert notebook.accepted("1 + 1").plan.scopes == ()


def test_a_refused_cell_has_no_plan_and_leaves_nothing(notebook: Notebook) -> None:
    assert notebook.refused('def leak():\n    with request_file_system("x") as fs:\n        return fs') == [
        "capability-escape"
    ]
    assert notebook.refused("leak()") == ["unbound-name"]


def test_sinks(notebook: Notebook) -> None:
    plan = notebook.accepted(
        's = classify("a")\nwith request_file_system("d") as fs:\n    fs.write_classified("secrets/a", s)'
    ).plan
    assert plan.sinks == ("write_classified",)
    assert notebook.accepted("1").plan.sinks == ()


def test_masks_show_the_static_type_and_no_literal(notebook: Notebook) -> None:
    plan = notebook.accepted(
        'class Row:\n    pass\ns = classify("sk-secret")\ns.map(len)\ns.map(lambda x: [x]).zip(s)\n'
        "def both(a: Classified[str]) -> Classified[dict[str, int]]:\n    return a.map(lambda x: {x: 1})\nboth(s)"
    ).plan
    assert {mask.type for mask in plan.masks} == {"str", "int", "list[str]", "tuple[list[str], str]", "dict[str, int]"}
    assert not any("secret" in mask.type or "cell_" in mask.type for mask in plan.masks)


def test_masks_say_what_is_called_and_what_it_is_assigned_to(notebook: Notebook) -> None:
    plan = notebook.accepted(
        "s = classify('a')\nn: Classified[int] = s.map(len)\na, b = s.map(len), s.zip(n)\nk = s.map(len).map(str)"
    ).plan
    found = sorted((mask.span.line, mask.method, mask.name) for mask in plan.masks)
    assert found == [
        (1, "classify", "s"), (2, "map", "n"), (3, "map", ""), (3, "zip", ""), (4, "map", ""), (4, "map", "k"),
    ]  # fmt: skip


def test_free_names_of_every_kind(notebook: Notebook) -> None:
    notebook.accepted(
        "import json\nimport numpy as np\nfrom math import sqrt\nkey = classify('k')\nlimit = 3\ndef clean(x: str) -> str:\n    return x.strip()"  # noqa: E501
    )
    plan = notebook.accepted(
        "s = classify('abc')\n"
        "s.flat_map(lambda x: key.map(lambda k: json.dumps([np.sum([1]), sqrt(4), limit, clean(x), len(k)], default=str)))"  # noqa: E501
    ).plan
    entry = next(function for function in plan.pure if "key.map" in function.source)
    kinds = {free.name: (free.kind, free.target) for free in entry.free}
    assert kinds == {
        "json": ("module", "json"),
        "np": ("module", "numpy"),
        "sqrt": ("table", "math.sqrt"),
        "key": ("classified", ""),
        "limit": ("data", ""),
        "clean": ("function", ""),
        "len": ("table", "builtins.len"),
        "str": ("table", "builtins.str"),
    }
    clean = next(free for free in entry.free if free.name == "clean")
    assert clean.function == _by_name(plan, "clean").key
    assert clean.function.cell == 1


def test_table_functions_given_directly(notebook: Notebook) -> None:
    plan = notebook.accepted("import json\ns = classify('1')\ns.map(json.loads)\ns.map(str.upper)\ns.map(len)").plan
    assert set(plan.tables) >= {"json.loads", "builtins.str.upper", "builtins.len"}
    assert plan.pure == ()


def test_what_is_shipped_computes_the_same(notebook: Notebook) -> None:
    notebook.accepted("import re\nbase = 10\ndef digits(x: str) -> list[str]:\n    return re.findall('[0-9]', x)")
    plan = notebook.accepted("s = classify('a1b2')\ns.map(lambda x: base + len(digits(x)))").plan
    assert _run(plan, _by_name(plan, "<lambda>"), "a1b2c3", {"base": 10}) == 13


def test_a_recursive_helper_is_shipped(notebook: Notebook) -> None:
    notebook.accepted("def depth(x: str) -> int:\n    return 0 if not x else 1 + depth(x[1:])")
    plan = notebook.accepted("s = classify('abc')\ns.map(depth)").plan
    assert _run(plan, _by_name(plan, "depth"), "abcd") == 4


def test_a_closure_over_plain_data_is_shipped(notebook: Notebook) -> None:
    plan = notebook.accepted(
        "s = classify('abc')\n"
        "def tag(prefix: str) -> Classified[str]:\n"
        "    def join(x: str) -> str:\n"
        "        return prefix + x\n"
        "    return s.map(join)\n"
        "tag('p')"
    ).plan
    join = _by_name(plan, "join")
    assert join.free == (FreeName("prefix", "data", type=TypeNode("str")),)
    assert _run(plan, join, "x", prefix="p-") == "p-x"


def test_captured_names_carry_their_static_types(notebook: Notebook) -> None:
    notebook.accepted(
        "from typing import Any, Literal\nimport decimal\n"
        "a = 1\nb = ['x']\nc = {'k': (1, 2.0)}\nd: int | None = 3\n"
        "e: Literal['p', 'q'] = 'p'\nf: tuple[int, ...] = ()\n"
        "g = {1}\nh: dict[str, list[int | str]] = {}\ni = decimal.Decimal(1)\nk = True\nm = b'x'"
    )
    plan = notebook.accepted("s = classify('abc')\ns.map(lambda x: str((a, b, c, d, e, f, g, h, i, k, m)))").plan
    types = {free.name: shown(free.type) for free in _by_name(plan, "<lambda>").free if free.kind == "data"}
    assert types == {
        "a": "int", "b": "list[str]", "c": "dict[str, tuple[int, float]]", "d": "int | None", "e": "str",
        "f": "tuple[int, ...]", "g": "set[int]", "h": "dict[str, list[int | str]]", "i": "any", "k": "bool",
        "m": "bytes",
    }  # fmt: skip


def test_a_captured_name_is_what_it_may_be_at_any_of_its_places(notebook: Notebook) -> None:
    notebook.accepted("x: int | str = 1\ndef f(v: str) -> str:\n    return v + (x if isinstance(x, str) else str(x))")
    plan = notebook.accepted("s = classify('abc')\ns.map(f)").plan
    [x] = [free for free in _by_name(plan, "f").free if free.name == "x"]
    assert set(shown(x.type).split(" | ")) == {"int", "str"}
    notebook.accepted("x = 2.5")
    plan = notebook.accepted("s.map(f)").plan
    [x] = [free for free in _by_name(plan, "f").free if free.name == "x"]
    assert x.type == ANY or "float" in shown(x.type)


def test_a_class_is_shipped_with_its_decorator_and_helpers(notebook: Notebook) -> None:
    notebook.accepted(
        "from dataclasses import dataclass\n"
        "def half(n: int) -> int:\n    return n // 2\n"
        "@dataclass\n"
        "class Pair:\n    a: int\n    b: int = 2\n    def total(self) -> int:\n        return half(self.a) + self.b"
    )
    plan = notebook.accepted("s = classify('abcd')\ns.map(lambda x: Pair(len(x)).total())").plan
    pair = _by_name(plan, "Pair")
    assert pair.source.startswith("@dataclass")
    assert {free.name for free in pair.free} >= {"dataclass", "half"}
    assert _run(plan, _by_name(plan, "<lambda>"), "abcd") == 4


def test_a_partial_under_a_name_ships_the_function_it_was_made_of(notebook: Notebook) -> None:
    notebook.accepted("from functools import partial\ndef add(n: int, x: int) -> int:\n    return n + x")
    notebook.accepted("p = partial(add, 2)\nother = p")
    plan = notebook.accepted("s = classify(1)\ns.map(other)").plan
    assert [function.name for function in plan.pure] == ["add"]
    assert not plan.tables
    plan = notebook.accepted("from operator import itemgetter\nfirst = itemgetter(0)\nclassify('ab').map(first)").plan
    assert (plan.pure, plan.tables) == ((), ("operator.itemgetter",))


def test_two_lambdas_on_one_line_are_told_apart(notebook: Notebook) -> None:
    plan = notebook.accepted("s = classify('abc')\na, b = s.map(lambda x: x + 'a'), s.map(lambda x: x + 'b')").plan
    results = {function.source: _run(plan, function, "x") for function in plan.pure}
    assert results == {"lambda x: x + 'a'": "xa", "lambda x: x + 'b'": "xb"}
    assert len({function.key for function in plan.pure}) == 2


def test_the_shipped_helper_is_the_one_of_now(notebook: Notebook) -> None:
    notebook.accepted(
        "def clean(x: str) -> str:\n    return x.strip()\ndef prepare(x: str) -> str:\n    return clean(x)"
    )
    notebook.accepted("def clean(x: str) -> str:\n    return x.upper()")
    plan = notebook.accepted("s = classify('abc')\ns.map(prepare)").plan
    assert _by_name(plan, "clean").key.cell == 2
    assert _run(plan, _by_name(plan, "prepare"), "a") == "A"


def test_the_same_text_gives_the_same_plan(notebook: Notebook) -> None:
    text = "s = classify('abc')\ns.map(lambda x: x)"
    first = notebook.session.check(1, text)
    second = notebook.session.check(1, text)
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert first.plan == second.plan


def test_function_ids_are_the_vaults(notebook: Notebook) -> None:
    plan = notebook.accepted("s = classify('abc')\ns.map(lambda x: x)").plan
    assert isinstance(plan.pure[0].key, CodeKey)
    assert function_id(plan.pure[0].key).startswith("1:2:<lambda>:")
