"""A cell for each of mypy's error codes that a cell can get, and why there is none for the others."""

from __future__ import annotations

HEAD = "import abc, typing, enum, dataclasses, asyncio\nfrom typing import *\n"

EXAMPLES: dict[str, str] = {
    "attr-defined": "'a'.nothing",
    "name-defined": "def f() -> int:\n    return later",
    "call-arg": "def f(a: int) -> None: ...\nf()",
    "arg-type": "def f(a: int) -> None: ...\nf('x')",
    "call-overload": "max(1, key='x')",
    "valid-type": "v = 1\ndef f(a: v) -> None: ...",
    "nonetype-type": "from types import NoneType\nx: NoneType = None",
    "var-annotated": "results = []",
    "override": "class A:\n    def m(self, a: int) -> int: ...\nclass B(A):\n    def m(self, a: str) -> int: ...",
    "return": "def f(a: bool) -> int:\n    if a:\n        return 1",
    "return-value": "def f() -> int:\n    return 'a'",
    "assignment": "x: int = 'hello'",
    "method-assign": "class A:\n    def m(self) -> None: ...\ndef n(self: A) -> None: ...\nA.m = n",
    "type-arg": "x: list = [1]",
    "type-var": "T1 = TypeVar('T1', bound=int)\ndef f(a: T1) -> T1: return a\nf('x')",
    "union-attr": "x: int | str = 1 if input() else 'a'\nx.upper()",
    "index": "1[0]",
    "operator": "1 + 'a'",
    "list-item": "x: list[int] = ['a']",
    "dict-item": "x: dict[str, int] = {'a': 'b'}",
    "typeddict-item": "class T(TypedDict):\n    a: int\nt: T = {'a': 'x'}",
    "typeddict-unknown-key": "class T(TypedDict):\n    a: int\nt: T = {'a': 1, 'b': 2}",
    "typeddict-readonly-mutated": (
        "from typing_extensions import ReadOnly, TypedDict as TD\n"
        "class T(TD):\n    a: ReadOnly[int]\nt: T = {'a': 1}\nt['a'] = 2"
    ),
    "no-redef": "class A: ...\nA: int = 3",
    "func-returns-value": "def f() -> None: ...\nx = f()",
    "abstract": "class A(abc.ABC):\n    @abc.abstractmethod\n    def m(self) -> None: ...\nA()",
    "type-abstract": (
        "class A(abc.ABC):\n    @abc.abstractmethod\n    def m(self) -> None: ...\n"
        "def make(kind: type[A]) -> None: ...\nmake(A)"
    ),
    "valid-newtype": "P = NewType('P', 'int | str')",
    "str-format": "'%d' % 'a'",
    "str-bytes-safe": "'{}'.format(b'a')",
    "exit-return": (
        "class C:\n    def __enter__(self) -> int: return 1\n"
        "    def __exit__(self, *rest: object) -> bool: return False"
    ),
    "literal-required": "class T(TypedDict):\n    a: int\nt: T = {'a': 1}\nkey = input()\nt[key]",
    "unused-coroutine": "async def g() -> None: ...\nasync def f() -> None:\n    g()",
    "empty-body": "def f() -> int:\n    ...",
    "safe-super": (
        "class A(abc.ABC):\n    @abc.abstractmethod\n    def m(self) -> int: ...\n"
        "class B(A):\n    def m(self) -> int: return super().m()"
    ),
    "no-untyped-def": "def f(x):\n    return x",
    "no-untyped-call": "def f(x):\n    return x\ndef g() -> None:\n    f(1)",
    "assert-type": "assert_type(1, str)",
    "comparison-overlap": "1 == 'a'",
    "no-any-return": "x: Any = input()\ndef f() -> int:\n    return x",
    "possibly-undefined": "if input():\n    x = 1\nprint(x)",
    "truthy-function": "def f() -> int: return 1\nif f: print(1)",
    "str-unpack": "def f(s: str) -> None:\n    a, b = s",
    "name-match": "from collections import namedtuple\nP = namedtuple('Q', 'a')",
    "no-overload-impl": "@overload\ndef f(a: int) -> int: ...\n@overload\ndef f(a: str) -> str: ...",
    "used-before-def": "def f() -> None:\n    print(x)\n    x = 1",
    "exhaustive-match": (
        "class E(enum.Enum):\n    A = 1\n    B = 2\ndef f(e: E) -> None:\n    match e:\n        case E.A: print(1)"
    ),
    "metaclass": "class A(abc.ABC, enum.Enum): ...",
    "syntax": "def f(:",
    "misc": "class A(int, str): ...",
    "overload-cannot-match": (
        "@overload\ndef f(a: object) -> int: ...\n@overload\ndef f(a: int) -> str: ...\n"
        "def f(a: object) -> int | str: return 1"
    ),
    "overload-overlap": (
        "@overload\ndef f(a: int) -> int: ...\n@overload\ndef f(a: object) -> str: ...\n"
        "def f(a: object) -> int | str: return 1"
    ),
    "prop-decorator": (
        "def d(f: Callable[..., int]) -> Callable[..., int]: return f\n"
        "class A:\n    @d\n    @property\n    def m(self) -> int: return 1"
    ),
    "untyped-decorator": "def d(f):\n    return f\n@d\ndef g() -> int: return 1",
    "narrowed-type-not-subtype": ("from typing_extensions import TypeIs\ndef f(x: int) -> TypeIs[str]: return True"),
    "has-type": "def f() -> None:\n    print(x)\n    x = 1",
    "top-level-await": "await asyncio.sleep(0)",
}

NO_EXAMPLE: dict[str, str] = {
    "import": "an import without types is Any",
    "import-not-found": "an import without types is Any",
    "import-untyped": "an import without types is Any",
    "await-not-async": "Python's own compiler refuses it first",
    "maybe-unrecognized-str-typeform": "mypy says arg-type where a cell could get it",
    "redundant-cast": "off", "no-any-unimported": "off", "unreachable": "off", "annotation-unchecked": "off",
    "redundant-expr": "off", "truthy-bool": "off", "truthy-iterable": "off", "ignore-without-code": "off",
    "unused-awaitable": "off", "redundant-self": "off", "unused-ignore": "off", "explicit-override": "off",
    "unimported-reveal": "off", "mutable-override": "off", "explicit-any": "off", "deprecated": "off",
}  # fmt: skip
