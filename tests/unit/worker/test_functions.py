"""What a worker says about a function it hands to `map`."""

from __future__ import annotations

import functools
import json
import math
import operator
import re
from typing import Any

import pytest

from capkernel.api.classified import Classified
from capkernel.wire.codekey import cell_filename, code_key
from capkernel.wire.values import decode
from capkernel.wire.vault import function_id
from capkernel.worker.functions import Functions


def session(code: str, cell: int = 3, **names: Any) -> tuple[dict[str, Any], Functions]:
    namespace: dict[str, Any] = {"__name__": "__main__", **names}
    exec(compile(code, cell_filename(cell), "exec"), namespace)
    return namespace, Functions(namespace, {"classify": names.get("classify")})


def captured(functions: Functions, function: Any) -> Any:
    return decode(functions.describe(function)[1], classified=lambda handle: f"handle {handle}")


def test_a_lambda_of_a_cell() -> None:
    names, functions = session("k = 3\nunused = [1]\nf = lambda x: x + k")
    reference, _ = functions.describe(names["f"])
    assert reference.key == code_key(names["f"].__code__)
    assert reference.key is not None
    assert reference.key.cell == 3
    assert reference.table == ""
    assert captured(functions, names["f"]) == {"globals": {"k": 3}, "closure": {}}


@pytest.mark.parametrize(
    ("function", "table"),
    [
        (len, "builtins.len"),
        (str.upper, "builtins.str.upper"),
        (str, "builtins.str"),
        (json.loads, "json.loads"),
        (math.sqrt, "math.sqrt"),
        (sorted, "builtins.sorted"),
        (str.__add__, "builtins.str.__add__"),
        (dict.fromkeys, "builtins.dict.fromkeys"),
        (bytes.decode, "builtins.bytes.decode"),
    ],
)
def test_library_functions_go_by_name(function: Any, table: str) -> None:
    reference, blob = session("")[1].describe(function)
    assert (reference.key, reference.table) == (None, table)
    assert decode(blob) == {"globals": {}, "closure": {}}


def test_numpy_and_pandas_by_name() -> None:
    np = pytest.importorskip("numpy")
    _, functions = session("")
    assert functions.describe(np.sqrt)[0].table == "numpy.sqrt"
    assert functions.describe(np.sum)[0].table == "numpy.sum"


def test_what_is_reached_through_other_functions_of_the_session() -> None:
    names, functions = session(
        "import math\nscale = 2\nbias = 1.5\nimportant = {'a': [1]}\n"
        "def inner(x): return x * scale\ndef outer(x): return inner(x) + bias + math.pi + len(important)\n"
        "class Thing: pass\ndef last(x): return (Thing, outer(x), last)"
    )
    assert captured(functions, names["last"])["globals"] == {"scale": 2, "bias": 1.5, "important": {"a": [1]}}


def test_an_attribute_of_the_same_name_is_not_a_capture() -> None:
    names, functions = session("data = open\nf = lambda x: x.data")
    assert captured(functions, names["f"])["globals"] == {}


def test_nested_code_counts() -> None:
    names, functions = session("k = 1\nm = 2\nf = lambda x: [y + k for y in x if (lambda z: z + m)(y)]")
    assert captured(functions, names["f"])["globals"] == {"k": 1, "m": 2}


def test_closures_of_the_entry_and_of_others() -> None:
    names, functions = session(
        "def make(n):\n    def inner(x): return x + n\n    def outer(x): return inner(x) * n\n    return outer\n"
        "f = make(5)\n"
        "def other(n):\n    return lambda x: x - n\ng = other(7)\nh = lambda x: g(x)"
    )
    inner = names["f"].__closure__[0].cell_contents
    key = code_key(inner.__code__)
    assert key is not None
    assert captured(functions, names["f"]) == {
        "globals": {},
        "closure": {"n": 5},
        "closures": {function_id(key): {"n": 5}},
    }
    own = code_key(names["g"].__code__)
    assert own is not None
    assert captured(functions, names["h"]) == {"globals": {}, "closure": {}, "closures": {function_id(own): {"n": 7}}}


def test_two_functions_of_one_place_are_refused() -> None:
    names, functions = session(
        "def make(n):\n    return lambda x: x - n\na = make(1)\nb = make(2)\nf = lambda x: a(x) + b(x)"
    )
    with pytest.raises(TypeError, match="made at the same place"):
        functions.describe(names["f"])


def test_classified_handles_are_captured_as_handles() -> None:
    secret: Any = object.__new__(Classified)
    secret._handle, secret._type = "ab12", "str"
    names, functions = session("f = lambda x: (x, key)", key=secret)
    assert captured(functions, names["f"])["globals"] == {"key": "handle ab12"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: open("/dev/null"),  # noqa: SIM115
        lambda: object(),
        lambda: iter([1]),
        lambda: [object()],
    ],
)
def test_what_cannot_be_sent_is_named(make: Any) -> None:
    value = make()
    names, functions = session("f = lambda x: thing", thing=value)
    with pytest.raises(TypeError, match="captures `thing`"):
        functions.describe(names["f"])


def applied(blob: bytes) -> Any:
    return decode(blob)["applied"]


@pytest.mark.parametrize(
    ("function", "table", "made", "arguments", "keywords"),
    [
        (functools.partial(round, ndigits=1), "builtins.round", "partial", [], {"ndigits": 1}),
        (functools.partial(pow, 2), "builtins.pow", "partial", [2], {}),
        (", ".join, "builtins.str.join", "partial", [", "], {}),
        ({"a": 1}.get, "builtins.dict.get", "partial", [{"a": 1}], {}),
        (re.compile("a+").findall, "re.Pattern.findall", "partial", [re.compile("a+")], {}),
        (functools.partial(re.compile("a").sub, "b"), "re.Pattern.sub", "partial", [re.compile("a"), "b"], {}),
        (functools.partial("a".replace, "a"), "builtins.str.replace", "partial", ["a", "a"], {}),
        (operator.itemgetter("a"), "operator.itemgetter", "factory", ["a"], {}),
        (operator.itemgetter(1, 2), "operator.itemgetter", "factory", [1, 2], {}),
        (operator.attrgetter("a.b"), "operator.attrgetter", "factory", ["a.b"], {}),
        (operator.methodcaller("split", ","), "operator.methodcaller", "factory", ["split", ","], {}),
        (operator.methodcaller("split", sep=","), "operator.methodcaller", "factory", ["split"], {"sep": ","}),
    ],
)
def test_what_a_function_is_made_of(
    function: Any, table: str, made: str, arguments: list[Any], keywords: dict[str, Any]
) -> None:
    reference, blob = session("")[1].describe(function)
    assert (reference.table, reference.made, reference.key) == (table, made, None)
    assert applied(blob) == {"arguments": arguments, "keywords": keywords}


def test_a_partial_of_a_function_of_the_session() -> None:
    names, functions = session("def add(n, x):\n    return x + n + more\nmore = 1")
    reference, blob = functions.describe(functools.partial(names["add"], 3))
    assert reference.key is not None
    assert reference.made == "partial"
    assert decode(blob) == {
        "globals": {"more": 1}, "closure": {}, "applied": {"arguments": [3], "keywords": {}},
    }  # fmt: skip


def test_an_argument_that_cannot_be_sent_is_named() -> None:
    names, functions = session("def add(n, x):\n    return x")
    with pytest.raises(TypeError, match="argument 0"):
        functions.describe(functools.partial(names["add"], object()))
    with pytest.raises(TypeError, match="arguments that cannot be sent"):
        functions.describe(functools.partial(pow, object()))


class Text(str):
    pass


@pytest.mark.parametrize(
    "function",
    [object(), Text(",").join, functools.partial(Text(",").join)],
)
def test_what_is_no_function_by_name_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="map takes a function"):
        session("")[1].describe(function)


def test_a_function_of_a_test_module_is_no_function_of_a_cell() -> None:
    reference, _ = session("")[1].describe(test_nested_code_counts)
    assert reference.key is None
    assert reference.table.endswith("test_functions.test_nested_code_counts")  # in no table, so refused by the kernel
