"""Building functions from checked source and applying them, in process."""

from __future__ import annotations

import re
from typing import Any

import pytest

from capkernel.vault.apply import BadBundle, failure_of, run, table_entry
from capkernel.wire.plan import CodeKey, FreeName, Made, PureFunction
from capkernel.wire.values import Unsendable, decode, encode
from capkernel.wire.vault import FunctionBundle, function_id


def key(name: str, line: int = 1, cell: int = 1) -> CodeKey:
    return CodeKey(cell, line, name, (line, 0, line, 10))


def function(name: str, source: str, *free: FreeName, line: int = 1, cell: int = 1) -> PureFunction:
    kind = "lambda" if name == "<lambda>" else "def"
    return PureFunction(key(name, line, cell), kind, name, source, free)


def data(*names: str) -> tuple[FreeName, ...]:
    return tuple(FreeName(name, "data") for name in names)


def calls(name: str, line: int = 1) -> FreeName:
    return FreeName(name, "function", function=key(name, line))


def handle_of(value: object) -> str | None:
    return value.name if isinstance(value, Handle) else None


class Handle:
    def __init__(self, name: str) -> None:
        self.name = name


def apply(
    argument: object,
    *functions: PureFunction,
    table: str = "",
    captured: dict[str, Any] | None = None,
    held: dict[str, bytes] | None = None,
    flat: bool = False,
    made: Made = "",
) -> object:
    """The first function is the entry."""
    bundle = FunctionBundle(functions[0].key if functions else None, table, functions, made)
    blob = encode(captured or {"globals": {}, "closure": {}}, handle_of=handle_of)
    return decode(run(bundle, encode(argument), blob, held or {}, flat=flat))


def test_a_lambda_over_several_lines_with_comments() -> None:
    assert apply(2, function("<lambda>", "lambda x: (\n  x  # twice\n  * 2)  # done")) == 4


def test_a_def_with_defaults_keywords_and_unevaluated_annotations() -> None:
    source = "def f(x: Missing, *, k: list[Gone] = [3]) -> Nowhere:\n    return x + k[0]\n"
    assert apply(2, function("f", source)) == 5


def test_globals_and_closure_data_are_bound_by_value() -> None:
    made = apply(
        1,
        function("<lambda>", "lambda x: (x, a, b)", *data("a", "b")),
        captured={"globals": {"a": 10, "b": "global"}, "closure": {"b": "closure"}},
    )
    assert made == (1, 10, "closure")


def test_a_closure_of_another_function_is_found_by_its_id() -> None:
    helper = function("inner", "def inner(x):\n    return x + k\n", *data("k"), line=5)
    made = apply(
        1,
        function("<lambda>", "lambda x: inner(x) + k", calls("inner", 5), *data("k")),
        helper,
        captured={"globals": {}, "closure": {"k": 100}, "closures": {function_id(helper.key): {"k": 10}}},
    )
    assert made == 111


def test_recursion_and_mutual_recursion() -> None:
    fact = function("fact", "def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\n", calls("fact"))
    assert apply(5, fact) == 120
    even = function("even", "def even(n):\n    return n == 0 or odd(n - 1)\n", calls("odd", 9))
    odd = function("odd", "def odd(n):\n    return n != 0 and even(n - 1)\n", calls("even"), line=9)
    assert apply(7, even, odd) is False
    assert apply(7, odd, even) is True


def test_a_function_used_as_a_default_is_built_first() -> None:
    main = function("main", "def main(x, f=twice):\n    return f(x)\n", calls("twice", 7))
    assert apply(4, main, function("twice", "def twice(x):\n    return 2 * x\n", line=7)) == 8


def test_modules_and_table_entries() -> None:
    made = apply(
        '{"a": -2}',
        function(
            "<lambda>", "lambda x: abs(math.floor(loads(x)['a'] - 0.5))",
            FreeName("math", "module", "math"), FreeName("loads", "table", "json.loads"),
        ),
    )  # fmt: skip
    assert made == 3
    assert apply(" a ", table="builtins.str.strip") == "a"
    assert apply([1, 2], table="builtins.len") == 2


def given(*arguments: object, **keywords: object) -> dict[str, Any]:
    return {"globals": {}, "closure": {}, "applied": {"arguments": list(arguments), "keywords": keywords}}


@pytest.mark.parametrize(
    ("table", "made", "captured", "argument", "result"),
    [
        ("builtins.round", "partial", given(ndigits=1), 2.55, 2.5),
        ("builtins.str.join", "partial", given(", "), ["a", "b"], "a, b"),
        ("builtins.dict.get", "partial", given({"a": 1}), "a", 1),
        ("re.Pattern.findall", "partial", given(re.compile("a.")), "abac", ["ab", "ac"]),
        ("operator.itemgetter", "factory", given("a", "b"), {"a": 1, "b": 2}, (1, 2)),
        ("operator.itemgetter", "factory", given("__class__"), {"__class__": 1}, 1),
        ("operator.attrgetter", "factory", given("real"), 3, 3),
        ("operator.methodcaller", "factory", given("split", sep=","), "a,b", ["a", "b"]),
    ],
)
def test_functions_that_are_made_anew(table: str, made: Made, captured: Any, argument: object, result: object) -> None:
    assert apply(argument, table=table, made=made, captured=captured) == result


def test_a_partial_of_a_function_of_a_cell() -> None:
    add = function("add", "def add(n, x, *, k):\n    return x + n * k\n")
    assert apply(1, add, made="partial", captured=given(3, k=10)) == 31


@pytest.mark.parametrize(
    ("table", "made", "captured"),
    [
        ("builtins.round", "partial", None),
        ("builtins.round", "partial", {"globals": {}, "applied": {"arguments": []}}),
        ("builtins.round", "partial", {"globals": {}, "applied": {"arguments": {}, "keywords": {}}}),
        ("builtins.type", "factory", given("a")),
        ("operator.attrgetter", "factory", given("__class__")),
        ("operator.attrgetter", "factory", given("real.__class__")),
        ("operator.methodcaller", "factory", given("__reduce__")),
        ("operator.methodcaller", "factory", given(3)),
        ("operator.attrgetter", "factory", given()),
    ],
)
def test_functions_that_cannot_be_made(table: str, made: Made, captured: Any) -> None:
    with pytest.raises(BadBundle):
        apply(3, table=table, made=made, captured=captured)


def test_numpy_and_pandas_captured_by_value() -> None:
    import numpy as np
    import pandas as pd

    made = apply(
        3,
        function("<lambda>", "lambda n: (weights * n).sum() + prices.p.sum()", *data("weights", "prices")),
        captured={"globals": {"weights": np.arange(4.0), "prices": pd.DataFrame({"p": [1, 2]})}, "closure": {}},
    )
    assert made == 21.0


@pytest.mark.parametrize(
    "name", ["len", "builtins.__import__", "builtins.no_such", "os.path.", "no_such_module_here.x"]
)
def test_table_names_that_are_none(name: str) -> None:
    with pytest.raises((BadBundle, ImportError)):
        table_entry(name)


@pytest.mark.parametrize(
    ("functions", "captured"),
    [
        ((function("<lambda>", "lambda x: y", *data("y")),), {"globals": {}}),
        ((function("<lambda>", "lambda x: x"),), {"other": {}}),
        ((function("<lambda>", "lambda x: x"),), [1]),
        ((function("<lambda>", "lambda x: f(x)", calls("f", 99)),), {"globals": {}}),
        ((function("<lambda>", "lambda x: x", FreeName("y", "ambient")),), {"globals": {}}),
        ((function("<lambda>", "lambda x: x", FreeName("display", "api", "capkernel.api.x")),), {"globals": {}}),
        ((function("<lambda>", "3"),), {"globals": {}}),
    ],
)  # fmt: skip
def test_bundles_that_cannot_be_built(functions: tuple[PureFunction, ...], captured: Any) -> None:
    with pytest.raises(BadBundle):
        apply(1, *functions, captured=captured)


CLASSIFIED = FreeName("other", "classified")


def test_flat_map_with_a_captured_classified() -> None:
    captured = {"globals": {"other": Handle("h1")}, "closure": {}}
    source = function("<lambda>", "lambda x: other.map(lambda y: x + y)", CLASSIFIED)
    assert apply(1, source, captured=captured, held={"h1": encode(41)}, flat=True) == 42


def test_the_classified_inside_has_the_operations_and_refusals_of_the_one_outside() -> None:
    captured = {"globals": {"other": Handle("h1")}, "closure": {}}
    held = {"h1": encode([1])}

    def inside(expression: str) -> object:
        source = function("<lambda>", f"lambda x: {expression}", CLASSIFIED, FreeName("classify", "api", "classify"))
        return apply(1, source, captured=captured, held=held, flat=True)

    assert inside("other.zip(classify(2)).map(lambda pair: pair)") == ([1], 2)
    assert inside("other.flat_map(lambda y: classify(repr(other) + f'{other:>40}'))") == "Classified(***)" * 2
    assert inside("other.map(lambda y: y.append(2)).flat_map(lambda _: other)") == [1]  # each map gets its own copy
    for refused in ("other == 1", "len(other)", "{other: 1}", "[y for y in other]", "1 if other else 2", "other[0]"):
        with pytest.raises(TypeError, match=r"use \.map|unhashable|not subscriptable"):
            inside(refused)


def test_a_classified_cannot_be_the_result_of_map_nor_plain_data_that_of_flat_map() -> None:
    captured = {"globals": {"other": Handle("h1")}, "closure": {}}
    source = function("<lambda>", "lambda x: other", CLASSIFIED)
    with pytest.raises(Unsendable):
        apply(1, source, captured=captured, held={"h1": encode(1)})
    with pytest.raises(TypeError, match="returns a Classified"):
        apply(1, function("<lambda>", "lambda x: x"), flat=True)


def test_a_failure_is_told_by_type_and_place_in_the_cell() -> None:
    source = function("f", "def f(x):\n    y = x\n    raise ValueError(f'canary {y}')\n", line=10, cell=4)
    with pytest.raises(ValueError, match="canary") as caught:
        apply(1, source)
    assert failure_of(caught.value) == ("ValueError", "cell 4, line 12")
