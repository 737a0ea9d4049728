"""A session means to mypy what it means to Python: state accumulates, names change type, the last binding counts."""

from __future__ import annotations

import pytest


def test_names_keep_their_type(cells) -> None:
    cells.run("x: int = 1\ny = [1, 2]\ndef f() -> int:\n    return x + 1\n")
    assert cells.type("f() + len(y)") == "int"
    assert cells.type("y") == "list[int]"


@pytest.mark.parametrize(
    ("text", "typ"),
    [
        ("x: str = 'a'", "str"),
        ("x = 5.0", "float"),
        ("x = str(x)", "str"),
        ("x = [x]", "list[int]"),
        ("x = x + 1", "int"),
        ("x += 1", "int"),
        ("if len('a') > x:\n    x = None", "int | None"),
        ("for x in 'abc':\n    pass", "str | int"),
        ("def x() -> str:\n    return ''", "Callable[[], str]"),
        ("class x: ...", "type[x]"),
        ("import math as x", "Module"),
        ("with open('f') as x:\n    pass", "TextIOWrapper[_WrappedBuffer]"),
        ("x, other = 'a', x", "str"),
        ("x = 1\nx = 'a'", "str"),
        ("(x := 'a')", "str"),
        ("try:\n    x = str(x)\nexcept ValueError:\n    pass", "str | int"),
        ("match x:\n    case 1:\n        x = None", "int | None"),
        ("[x := str(n) for n in range(3)]", "Any"),
    ],
)
def test_a_later_cell_rebinds_with_another_type(cells, text: str, typ: str) -> None:
    cells.run("x = 1")
    verdict = cells.run(text)
    assert not verdict.warnings
    kinds = set(cells.type("x").split(" | "))
    assert kinds == set(typ.split(" | "))


def test_a_class_redefined_is_another_class(cells) -> None:
    cells.run("class A:\n    v: int = 0\na = A()")
    first = cells.number
    cells.run("class A:\n    w: str = ''\nb = A()")
    second = cells.number
    assert cells.type("a.v") == "int"
    assert cells.type("b.w") == "str"
    verdict = cells.run("def take(q: A) -> None: ...\ntake(a)")
    assert [warning.message for warning in verdict.warnings] == [
        f"Argument 1 to `take` has incompatible type `A (cell {first})`; expected `A (cell {second})`"
    ]


def test_a_class_derives_from_its_former_self(cells) -> None:
    cells.run("class A:\n    def old(self) -> int:\n        return 1")
    verdict = cells.run("class A(A):\n    def new(self) -> str:\n        return ''")
    assert not verdict.warnings
    assert cells.type("A().old()") == "int"
    assert cells.type("A().new()") == "str"


def test_a_function_wraps_its_former_self(cells) -> None:
    cells.run("def f(x: int) -> int:\n    return x")
    verdict = cells.run("import functools\nf = functools.cache(f)")
    assert not verdict.warnings
    assert cells.type("f(3)") == "int"


def test_an_empty_list_is_filled_in_the_next_cell(cells) -> None:
    assert not cells.run("results = []\ncache = {}").warnings
    assert cells.type("results") == "list[Any]"
    assert not cells.run("results.append(1)\ncache['a'] = 2").warnings
    assert not cells.run("more = []\nfor i in range(3):\n    more.append(i)").warnings
    assert cells.type("more") == "list[int]"


def test_none_first_is_no_dead_code_later(cells) -> None:
    cells.run("model = None")
    text = "def predict(x: int) -> object:\n    if model is None:\n        raise ValueError\n    return model.run(x)\n"
    typed = cells.typed(text)
    call = typed.module.body[0].body[1].value
    assert typed.resolve(call) is not None
    together = cells.typed("model = None\n" + text)
    assert together.resolve(together.module.body[1].body[1].value) is not None


def test_none_first_in_a_class(cells) -> None:
    text = (
        "class A:\n    p = None\n    def use(self):\n"
        "        if self.p is None:\n            return 0\n        return self.p.x\n"
    )
    typed = cells.typed(text)
    assert typed.resolve(typed.module.body[0].body[1].body[1].value) is not None


def test_a_function_sees_what_a_name_may_be_not_what_it_is_now(cells) -> None:
    cells.run("def find() -> int | None: ...\nfound = find()\nassert found is not None")
    assert cells.type("found") == "int"
    verdict = cells.run("def use() -> int:\n    return found + 1\n")
    assert [warning.code for warning in verdict.warnings] == ["operator"]
    assert not cells.run("found + 1").warnings


def test_results_and_history(cells) -> None:
    cells.run("1 + 1")
    cells.run("'a'")
    assert cells.type("_") == "str"
    assert cells.type("__") == "int"
    assert cells.type("Out[1], In[1]") == "tuple[Any, str]"
    assert not cells.run("display(_, __, ___)").warnings


def test_top_level_await(cells) -> None:
    verdict = cells.run("import asyncio\nz = await asyncio.sleep(0.1, 'done')\nz")
    assert verdict.last_type == "str"
    assert not verdict.warnings
    text = (
        "from contextlib import asynccontextmanager\n"
        "async def numbers():\n    yield 1\n"
        "@asynccontextmanager\nasync def opened():\n    yield 'x'\n"
        "async for n in numbers():\n    print(n)\n"
        "async with opened() as o:\n    print(o)\n"
        "[n async for n in numbers()]\n"
    )
    assert not cells.run(text).warnings


def test_star_import_is_kept(cells) -> None:
    cells.run("from math import *\nsqrt(2.0)")
    assert cells.type("pi") == "float"
    assert cells.codes("from math import *\nnot_in_math(1)") == ["unbound-name"]


def test_star_import_of_something_unknown(cells) -> None:
    verdict = cells.run("from no_such_module import *\nwhatever + 1", bound={"whatever"})
    assert [warning.code for warning in verdict.warnings] == ["name-defined"]
    assert cells.type("whatever") == "Any"


def test_submodules_stay_visible(cells) -> None:
    cells.run("import xml.dom.minidom")
    assert cells.type("xml.dom.minidom.parseString('<a/>')") == "Document"


def test_libraries_are_typed(cells) -> None:
    pytest.importorskip("numpy")
    cells.run("import numpy as np\ngrid = np.zeros((2, 2))")
    assert cells.type("grid").startswith("ndarray[")
    pytest.importorskip("pandas")
    cells.run("import pandas as pd\nframe = pd.DataFrame({'a': [1]})")
    assert cells.type("frame.head()") == "DataFrame"


def test_a_missing_module_is_anything(cells) -> None:
    assert not cells.run("import no_such_module\nno_such_module.f(1)").warnings
    assert cells.type("no_such_module") == "Any"


def test_the_modules_of_cells_cannot_be_imported(cells) -> None:
    cells.run("x = 1")
    cells.run(f"import cell_{cells.number} as before")
    assert cells.type("before") == "Any"


def test_the_api_is_there(cells) -> None:
    from capkernel import api

    for name in api.__all__:
        assert cells.codes(name) == []
    text = (
        "with request_file_system('data') as fs:\n    text = fs.access('a').read()\n    key = fs.read_classified('k')\n"
    )
    assert not cells.run(text).warnings
    assert cells.type("key.map(len)") == "Classified[int]"


def test_what_a_verdict_says_of_names(cells) -> None:
    verdict = cells.run(
        "import math as m\ndef f(x): return x\nclass A: ...\nT = list[int]\nn = [f]\nfrom os import getcwd as g"
    )
    assert verdict.names == {
        "m": "module",
        "f": "function",
        "A": "type[A]",
        "T": "type",
        "n": "list[Callable[[Any], Any]]",
        "g": "Callable[[], str]",
    }


class TestGlobals:
    def test_a_function_binds_a_new_name(self, cells) -> None:
        cells.run("def init():\n    global cfg\n    cfg = 1\n")
        verdict = cells.run("init()\ncfg + 1", bound={"cfg"})
        assert not verdict.warnings
        assert cells.codes("cfg") == []

    def test_a_function_changes_a_known_name(self, cells) -> None:
        cells.run("count = 0\ndef tick():\n    global count\n    count += 1\n")
        assert not cells.run("tick()\ncount + 1", bound={"count"}).warnings
        assert cells.type("count") == "int"

    def test_a_function_that_may_change_the_type(self, cells) -> None:
        cells.run("state = 0\ndef swap() -> None:\n    global state\n    state = 'text'\n")
        cells.run("swap()", bound={"state"})
        # mypy says `assignment` in `swap`, which only warns; so the type of `state` is not believed any more.
        assert cells.type("state") == "Any"


class TestDeleted:
    def test_across_cells(self, cells) -> None:
        cells.run("y = 1")
        cells.run("del y")
        assert cells.codes("y") == ["unbound-name"]

    @pytest.mark.parametrize("first", ["y = 1", "def y(): ...", "import math as y", "class y: ..."])
    def test_within_one_cell(self, cells, first: str) -> None:
        assert cells.codes(f"{first}\ndel y\nprint(y)") == ["unbound-name"]

    def test_bound_again(self, cells) -> None:
        assert cells.codes("y = 1\ndel y\ny = 'a'\nprint(y)") == []

    def test_perhaps_deleted_is_not_certain(self, cells) -> None:
        assert cells.codes("y = 1\nif len('ab') > 1:\n    del y\nprint(y)") == []

    def test_an_exception_ends_with_its_handler(self, cells) -> None:
        assert cells.codes("try:\n    1 / 0\nexcept ValueError as e:\n    print(e)") == []


class TestWhatIsKept:
    def test_only_what_was_bound(self, cells) -> None:
        cells.run("a = 1\nb = 2", bound={"a"})
        assert cells.type("a") == "int"
        assert cells.codes("b") == ["unbound-name"]

    def test_half_a_cell_has_wide_types(self, cells) -> None:
        cells.run("v = 1\nprint(1 / 0)\nv = 'text'", bound={"v"}, raised=True)
        assert cells.type("v") == "int | str"
        cells.run("v = 1\nprint(1)\nv = 'text'")
        assert cells.type("v") == "str"

    def test_a_name_of_every_session_keeps_its_meaning(self, cells) -> None:
        cells.run("1", bound={"print", "classify", "Classified"})
        assert cells.type("print(1)") == "None"
        assert cells.type("classify('a')") == "Classified[str]"

    def test_a_value_against_its_annotation_is_no_fact(self, relaxed) -> None:
        verdict = relaxed.run("n: int = 'text'")
        assert [warning.code for warning in verdict.warnings] == ["assignment"]
        assert relaxed.type("n") == "Any"
