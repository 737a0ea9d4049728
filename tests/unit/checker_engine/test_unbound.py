"""`unbound-name` refuses exactly the reads that certainly raise NameError."""

from __future__ import annotations

import pytest

CERTAIN = [
    "print(nope)",
    "nope.attribute",
    "x = nope",
    "print(x)\nx = 1",
    "for n in range(3):\n    print(nope)",
    "with open('f') as f:\n    nope(f)",
    "[nope for n in range(3)]",
    "class A:\n    y = nope",
    "def f(x=nope): ...",
    "@nope\ndef f(): ...",
    "def f(x: nope): ...",
    "class A(nope): ...",
    "nope += 1",
    "del nope",
    "try:\n    nope\nexcept ValueError:\n    pass",
    "try:\n    nope\nfinally:\n    print(1)",
    "f'{nope}'",
    "(lambda *a: 1)(nope)",
    "lambda x=nope: x",
    "print((nope := 1), nope, nope2)",
]

FINE = [
    "def f():\n    return later",
    "lambda: later",
    "async def f():\n    await later()",
    "class A:\n    def m(self):\n        return later",
    "if len('a') > 3:\n    nope",
    "while len('a') > 3:\n    nope",
    "x = 1 if len('a') else nope",
    "len('a') or nope",
    "try:\n    unicode\nexcept NameError:\n    unicode = str\nunicode('a')",
    "try:\n    nope\nexcept Exception:\n    pass",
    "try:\n    nope\nexcept:\n    pass",
    "(nope for n in range(3))",
    "def f():\n    global made\n    made = 1\nf()\nprint(made)",
    "print(__name__, __doc__)",
    "for i in range(3):\n    if i > 0:\n        print(last)\n    last = i",
    "class A:\n    x = 1\n    y = x",
    "x = [y for y in range(3) for z in range(y)]",
    "def f(a, *b, c=1, **d):\n    return a, b, c, d",
    "import os.path\nos.path.join('a')",
    "match [1, 2]:\n    case [first, *rest]:\n        print(first, rest)",
    "try:\n    x = 1\nexcept ValueError as e:\n    print(e)\nelse:\n    print(x)",
    "_ = 3\n_",
    "from __future__ import annotations\ndef f(x: nope) -> nope: ...",
]


@pytest.mark.parametrize("text", CERTAIN)
@pytest.mark.parametrize("profile", ["cells", "relaxed"])
def test_certain(request: pytest.FixtureRequest, profile: str, text: str) -> None:
    codes = request.getfixturevalue(profile).codes(text)
    assert codes
    assert set(codes) == {"unbound-name"}


@pytest.mark.parametrize("text", FINE)
def test_not_certain(cells, text: str) -> None:
    assert cells.codes(text) == []


def test_python_agrees() -> None:
    """The two lists are checked against Python itself: every certain one raises NameError, no other one does."""
    for text in CERTAIN:
        namespace: dict[str, object] = {"open": lambda _name: memoryview(b"")}
        with pytest.raises(NameError):
            exec(compile(text, "<cell>", "exec", dont_inherit=True), namespace)
    for text in FINE:
        exec(compile(text, "<cell>", "exec", dont_inherit=True), {"__name__": "x", "__doc__": ""})


def test_lazy_annotations_stay_on(cells) -> None:
    assert cells.codes("def f(x: nope): ...") == ["unbound-name"]
    cells.engine._lazy_annotations = True
    try:
        assert cells.codes("def f(x: nope): ...") == []
    finally:
        cells.engine._lazy_annotations = False


def test_the_message_says_why(cells) -> None:
    def message(text: str) -> str:
        return cells.check(text).diagnostics[0].message

    assert message("print(nope)") == "`nope` is not bound"
    assert message("x = 1\ndel x\nx") == "`x` is deleted before this reads it"
    assert message("print(y)\ny = 1") == "`y` is read before the cell binds it"


def test_each_name_once_and_nothing_that_follows(cells) -> None:
    verdict = cells.check("a = nope + 1\nb = nope + a\nc: int = a.x\n")
    assert [diagnostic.code for diagnostic in verdict.diagnostics] == ["unbound-name"]
