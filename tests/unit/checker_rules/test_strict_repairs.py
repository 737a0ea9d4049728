"""What the type checker refuses in `strict`, and the edit that is offered: applied as it is, nothing is left."""
# ruff: noqa: E501  (cells, each on a line)

from __future__ import annotations

import golden
import pytest
from fixer import repair

from capkernel.checker.protocol import Accepted
from capkernel.diagnostics import Diagnostic

REPAIRED: dict[str, tuple[list[str], str, str]] = {
    "union-attr m": (
        ["union-attr"],
        "import re\nm = re.match('a', 'b')\nprint(m.group(0))\n",
        "import re\nm = re.match('a', 'b')\nassert m is not None\nprint(m.group(0))\n",
    ),
    "union-attr fn": (
        ["union-attr"],
        "import re\ndef first(text: str) -> str:\n    m = re.search('a', text)\n    return m.group(0)\n",
        "import re\ndef first(text: str) -> str:\n    m = re.search('a', text)\n    assert m is not None\n    return m.group(0)\n",
    ),
    "union-attr chain": (
        ["union-attr"],
        "import re\nprint(re.match('a', 'b').group(0))\n",
        "import re\nfound = re.match('a', 'b')\nassert found is not None\nprint(found.group(0))\n",
    ),
    "optional arg": (
        ["arg-type"],
        "def f(x: int | None) -> int:\n    return abs(x)\n",
        "def f(x: int | None) -> int:\n    assert x is not None\n    return abs(x)\n",
    ),
    "optional operator": (
        ["operator"],
        "def f(x: int | None) -> int:\n    return x + 1\n",
        "def f(x: int | None) -> int:\n    assert x is not None\n    return x + 1\n",
    ),
    "optional index": (
        ["index"],
        "def f(x: list[int] | None) -> int:\n    return x[0]\n",
        "def f(x: list[int] | None) -> int:\n    assert x is not None\n    return x[0]\n",
    ),
    "optional iter": (
        ["union-attr"],
        "def f(x: list[int] | None) -> int:\n    n = 0\n    for k in x:\n        n += k\n    return n\n",
        "def f(x: list[int] | None) -> int:\n    n = 0\n    assert x is not None\n    for k in x:\n        n += k\n    return n\n",
    ),
    "optional return": (
        ["return-value"],
        "def f(d: dict[str, int], k: str) -> int:\n    return d.get(k)\n",
        "def f(d: dict[str, int], k: str) -> int | None:\n    return d.get(k)\n",
    ),
    "arg int str": (
        ["arg-type"],
        "def f(n: int) -> int:\n    return n\nf('3')\n",
        "def f(n: int) -> int:\n    return n\nf(int('3'))\n",
    ),
    "arg str int": (
        ["arg-type"],
        "def f(n: str) -> str:\n    return n\nf(3)\n",
        "def f(n: str) -> str:\n    return n\nf(str(3))\n",
    ),
    "arg list": (
        ["arg-type"],
        "def f(n: list[int]) -> int:\n    return len(n)\nf((1, 2))\n",
        "def f(n: list[int]) -> int:\n    return len(n)\nf(list((1, 2)))\n",
    ),
    "operator str+int": (
        ["operator"],
        "n = 3\nprint('a' + n)\n",
        "n = 3\nprint('a' + str(n))\n",
    ),
    "operator str+int2": (
        ["operator"],
        "n = input('n')\nprint(n + 1)\n",
        "n = input('n')\nprint(int(n) + 1)\n",
    ),
    "return int str": (
        ["return-value"],
        "def f(n: int) -> str:\n    return n\n",
        "def f(n: int) -> str:\n    return str(n)\n",
    ),
    "return none": (
        ["return"],
        "def f(n: int) -> str:\n    if n:\n        return 'a'\n",
        "def f(n: int) -> str | None:\n    if n:\n        return 'a'\n    return None\n",
    ),
    "return missing ann": (
        ["no-untyped-def"],
        "def f(n: int):\n    return n + 1\n",
        "def f(n: int) -> int:\n    return n + 1\n",
    ),
    "return value None fn": (
        ["return-value"],
        "def f(n: int) -> None:\n    return n\n",
        "def f(n: int) -> int:\n    return n\n",
    ),
    "untyped def": (
        ["no-untyped-def"],
        "def f(a, b=1):\n    return a + b\n",
        "from typing import Any\ndef f(a: Any, b: int = 1) -> Any:\n    return a + b\n",
    ),
    "untyped def2": (
        ["no-untyped-def"],
        "def greet(name):\n    print('hi', name)\n",
        "def greet(name: object) -> None:\n    print('hi', name)\n",
    ),
    "untyped def3": (
        ["no-untyped-call", "no-untyped-def"],
        "def add(a, b):\n    return a + b\nadd(1, 2)\n",
        "def add(a: int, b: int) -> int:\n    return a + b\nadd(1, 2)\n",
    ),
    "untyped method": (
        ["no-untyped-def"],
        "class A:\n    def m(self):\n        return 1\n",
        "class A:\n    def m(self) -> int:\n        return 1\n",
    ),
    "untyped init": (
        ["no-untyped-def"],
        "class A:\n    def __init__(self, size=3):\n        self.size = size\n",
        "class A:\n    def __init__(self, size: int = 3) -> None:\n        self.size = size\n",
    ),
    "var-annotated": (
        ["var-annotated"],
        "found = []\n",
        "from typing import Any\nfound: list[Any] = []\n",
    ),
    "var-annotated2": (
        ["var-annotated"],
        "table = {}\n",
        "from typing import Any\ntable: dict[Any, Any] = {}\n",
    ),
    "var-annotated3": (
        ["var-annotated"],
        "def f() -> int:\n    seen = set()\n    return len(seen)\n",
        "from typing import Any\ndef f() -> int:\n    seen: set[Any] = set()\n    return len(seen)\n",
    ),
    "type-arg": (
        ["type-arg"],
        "def f(x: list) -> int:\n    return len(x)\n",
        "from typing import Any\ndef f(x: list[Any]) -> int:\n    return len(x)\n",
    ),
    "type-arg2": (
        ["type-arg"],
        "def f(x: dict) -> int:\n    return len(x)\n",
        "from typing import Any\ndef f(x: dict[Any, Any]) -> int:\n    return len(x)\n",
    ),
    "possibly": (
        ["possibly-undefined"],
        "import random\nif random.random() > 0.5:\n    label = 'a'\nprint(label)\n",
        "import random\nlabel = \"\"\nif random.random() > 0.5:\n    label = 'a'\nprint(label)\n",
    ),
    "possibly2": (
        ["possibly-undefined"],
        "def f(n: int) -> str:\n    if n > 1:\n        kind = 'big'\n    elif n > 0:\n        kind = 'small'\n    return kind\n",
        "def f(n: int) -> str:\n    kind = \"\"\n    if n > 1:\n        kind = 'big'\n    elif n > 0:\n        kind = 'small'\n    return kind\n",
    ),
    "possibly for": (
        ["possibly-undefined"],
        "def f(xs: list[int]) -> int:\n    for x in xs:\n        last = x\n    return last\n",
        "def f(xs: list[int]) -> int:\n    last = 0\n    for x in xs:\n        last = x\n    return last\n",
    ),
    "assignment": (
        ["assignment"],
        "x: int = 'a'\n",
        "x: str = 'a'\n",
    ),
    "assignment2": (
        ["no-redef"],
        "x = 1\nx: str = 'a'\n",
        "x = 1\nx = 'a'\n",
    ),
    "assignment None": (
        ["assignment"],
        "class A:\n    name: str = None\n",
        "class A:\n    name: str | None = None\n",
    ),
    "exhaustive": (
        ["exhaustive-match"],
        "def f(x: int | str) -> int:\n    match x:\n        case int():\n            return 1\n    return 2\n",
        "def f(x: int | str) -> int:\n    match x:\n        case int():\n            return 1\n        case _:\n            pass\n    return 2\n",
    ),
    "no-any-return": (
        ["no-any-return"],
        "import json\ndef f(t: str) -> dict[str, int]:\n    return json.loads(t)\n",
        "import json\ndef f(t: str) -> dict[str, int]:\n    result: dict[str, int] = json.loads(t)\n    return result\n",
    ),
    "no-untyped-call": (
        ["no-untyped-call", "no-untyped-def"],
        "def f(a):\n    return a\nprint(f(1))\n",
        "def f(a: int) -> int:\n    return a\nprint(f(1))\n",
    ),
    "index": (
        ["index"],
        "d = {'a': 1}\nd[1]\n",
        "d = {'a': 1}\nd[str(1)]\n",
    ),
    "attr-defined": (
        ["attr-defined"],
        "x = 'a'\nx.upperr()\n",
        "x = 'a'\nx.upper()\n",
    ),
    "attr-defined2": (
        ["attr-defined"],
        "def f(x: object) -> str:\n    return x.upper()\n",
        "def f(x: object) -> str:\n    assert isinstance(x, str)\n    return x.upper()\n",
    ),
    "list-item": (
        ["list-item"],
        "x: list[int] = ['a']\n",
        "x: list[str] = ['a']\n",
    ),
    "dict-item": (
        ["dict-item"],
        "x: dict[str, int] = {'a': 'b'}\n",
        "x: dict[str, str] = {'a': 'b'}\n",
    ),
    "comparison": (
        ["comparison-overlap"],
        "x = 1\nx == 'a'\n",
        "x = 1\nstr(x) == 'a'\n",
    ),
    "func-returns": (
        ["func-returns-value"],
        "def f() -> None:\n    pass\nx = f()\n",
        "def f() -> None:\n    pass\nf()\n",
    ),
    "float arg": (
        ["arg-type"],
        "import time\ntime.sleep('1')\n",
        "import time\ntime.sleep(float('1'))\n",
    ),
    "int of float": (
        ["call-overload"],
        "for i in range(10 / 2):\n    print(i)\n",
        "for i in range(10 // 2):\n    print(i)\n",
    ),
    "has-type": (
        ["unbound-name"],
        "x = y\ny = 1\n",
        "y = 1\nx = y\n",
    ),
    "truthy": (
        ["truthy-function"],
        "def f() -> bool: return True\nif f:\n    print(1)\n",
        "def f() -> bool: return True\nif f():\n    print(1)\n",
    ),
    "isinstance": (
        ["union-attr"],
        "def f(x: int | str) -> str:\n    return x.upper()\n",
        "def f(x: int | str) -> str:\n    assert isinstance(x, str)\n    return x.upper()\n",
    ),
    "isinstance2": (
        ["operator"],
        "def f(x: object) -> int:\n    return x + 1\n",
        "def f(x: object) -> int:\n    assert isinstance(x, int)\n    return x + 1\n",
    ),
    "decorated": (
        ["no-untyped-def"],
        "import functools\n@functools.lru_cache\ndef f(n):\n    return n\n",
        "import functools\n@functools.lru_cache\ndef f(n: object) -> object:\n    return n\n",
    ),
    "str join": (
        ["list-item"],
        "','.join([1, 2])\n",
        "','.join([str(1), str(2)])\n",
    ),
    "os path": (
        ["union-attr"],
        "def f(p: str | None) -> str:\n    return p.strip()\n",
        "def f(p: str | None) -> str:\n    assert p is not None\n    return p.strip()\n",
    ),
    "unpack": (
        ["misc"],
        "a, b = 1, 2, 3\n",
        "a, b, *rest = 1, 2, 3\n",
    ),
    "len(none)": (
        ["arg-type"],
        "def f(x: str | None) -> int:\n    return len(x)\n",
        "def f(x: str | None) -> int:\n    assert x is not None\n    return len(x)\n",
    ),
    "fmt": (
        ["return-value"],
        "def show(v: float) -> str:\n    return v\n",
        "def show(v: float) -> str:\n    return str(v)\n",
    ),
    "generator": (
        ["no-untyped-def"],
        "def gen(n: int):\n    for i in range(n):\n        yield i\n",
        "from collections.abc import Iterator\ndef gen(n: int) -> Iterator[int]:\n    for i in range(n):\n        yield i\n",
    ),
    "async": (
        ["no-untyped-def"],
        "async def f():\n    return 1\n",
        "async def f() -> int:\n    return 1\n",
    ),
    "main": (
        ["no-untyped-call", "no-untyped-def"],
        "def main():\n    print(1)\nmain()\n",
        "def main() -> None:\n    print(1)\nmain()\n",
    ),
    "kwargs": (
        ["no-untyped-def"],
        "def f(*args, **kw):\n    return len(args)\n",
        "def f(*args: object, **kw: object) -> int:\n    return len(args)\n",
    ),
    "dict get op": (
        ["operator"],
        "counts: dict[str, int] = {}\nfor w in ['a']:\n    counts[w] = counts.get(w) + 1\n",
        "counts: dict[str, int] = {}\nfor w in ['a']:\n    counts[w] = counts.get(w, 0) + 1\n",
    ),
}
# Nothing says what was meant.
UNREPAIRED = {
    "call-arg": "def f(a: int, b: int) -> int:\n    return a\nf(1)\n",
    "index": "x = 3\nx[0]\n",
    "name-defined": "def f() -> int:\n    return nope\n",
    "abstract": "from abc import ABC, abstractmethod\nclass A(ABC):\n    @abstractmethod\n    def m(self) -> int: ...\nA()\n",
    "override": (
        "class A:\n    def m(self, a: int) -> int: return a\nclass B(A):\n    def m(self, a: str) -> int: return 1\n"
    ),
}


def said(text: str) -> tuple[Diagnostic, ...]:
    """The refusals of a text as the only cell of a session in `strict`."""
    verdict = golden.new_session("strict").check(1, text)
    return () if isinstance(verdict, Accepted) else verdict.diagnostics


@pytest.mark.parametrize("case", REPAIRED)
def test_what_is_offered_is_enough(case: str) -> None:
    codes, before, after = REPAIRED[case]
    assert sorted({one.code for one in said(before)}) == codes
    assert repair(before, said, rounds=1) == (after, True, 1)


@pytest.mark.parametrize("code", UNREPAIRED)
def test_nothing_is_made_up(code: str) -> None:
    found = said(UNREPAIRED[code])
    assert [one.code for one in found] == [code]
    assert all(one.fix is None or not one.fix.edits for one in found)


def test_an_annotation_over_several_lines() -> None:
    before = "def f(\n    a,  # one\n    b=')',\n):\n    return len(b)\n"
    after = "def f(\n    a: object,  # one\n    b: str = ')',\n) -> int:\n    return len(b)\n"
    assert repair(before, said, rounds=1) == (after, True, 1)
