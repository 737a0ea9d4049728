"""Texts made to crash, hang or fool the checker: each is answered within the limit, and the session goes on.

What ends a check that takes too long is the client's clock, whatever mypy is doing; so the programs of `ENDLESS` need
minutes, and no time is asserted but that the whole test ends.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from capkernel.checker import cache
from capkernel.checker.client import CheckerClient
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.kernel.checker_spawn import CheckerSpawner


def nested_loops(depth: int) -> str:
    """mypy looks at a loop until its types settle, at each inner loop in each round of the outer one."""
    lines = ["x = []", "def f(a): return a"]
    for level in range(depth):
        lines.append("    " * level + f"for v{level} in range(2):")
        lines.append("    " * (level + 1) + "x = [x] if x else list(map(f, [x]))")
    return "\n".join(lines)


def literals(count: int, before: str, test: str) -> str:
    """A union of literals, narrowed by one test after the other."""
    union = ", ".join(repr(f"v{n}") for n in range(count))
    head = f"from typing import Literal\ndef f(x: Literal[{union}]) -> int:\n{before}"
    return head + "".join(test.replace("V", f"'v{n}'") + f"return {n}\n" for n in range(count)) + "    return 0\n"


def nested(opening: str, closing: str, depth: int) -> str:
    return "x = " + opening * depth + "1" + closing * depth


def nested_finally(depth: int) -> str:
    opened = "".join(" " * level + "try:\n" for level in range(depth))
    closed = "".join(" " * level + "finally: pass\n" for level in reversed(range(depth)))
    return opened + " " * depth + "pass\n" + closed


ENDLESS = {
    "literals compared": literals(400, "", "    if x == V: "),
    "literals matched": literals(300, "    match x:\n", "     case V: "),
    "nested loops": nested_loops(15),
    "nested generic calls": "x = [1]\nx = " + "list(map(lambda a: a, " * 20 + "x" + "))" * 20,
    "a long choice": "x = " + " or ".join(["1"] * 20_000),
}
REFUSED = {
    "a sum of 5000 terms": ("x = 0" + " + 1" * 5000, "too-much-work"),
    "a chain of signs": ("x = " + "-" * 1500 + "1", "too-much-work"),
    "a longer chain of signs": ("x = " + "-" * 50_000 + "1", "too-much-work"),
    "a chain of attributes": ("x = 1\nx" + ".real" * 3000, "too-much-work"),
    "a chain of calls": ("x = str\nx" + "()" * 3000, "too-much-work"),
    "nested lambdas": ("x = " + "lambda: " * 800 + "1", "too-much-work"),
    "nested choices": ("x = " + "1 if 1 else " * 1500 + "2", "too-much-work"),
    "a long elif": ("x = 1\nif x: pass\n" + "elif x: pass\n" * 3000, "too-much-work"),
    "more text than a cell has": ("#" * 300_000, "too-much-work"),
    "more bytes than a cell has": ("#" + "\N{EURO SIGN}" * 100_000, "too-much-work"),
    "deep brackets": (nested("(", ")", 5000), "syntax"),
    "a huge number": ("x = " + "9" * 200_000, "syntax"),
    "a null byte": ("x = 1\0", "syntax"),
    "half a surrogate pair": ("x = '\ud800'", "syntax"),
    "half a surrogate pair as a name": ("\udc80 = 1", "syntax"),
    "a byte order mark inside": ("x = 1\n\ufeffy = 2", "syntax"),
    "a vertical tab": ("x = 1\x0by = 2", "syntax"),
    "a next-line character": ("x = 1\x85y = 2", "syntax"),
    "a built-in in wide letters": ("\uff45\uff56\uff41\uff4c('1')", "unsafe-feature"),
    "a built-in in mathematical letters": ("\U0001d41e\U0001d42f\U0001d41a\U0001d425('1')", "unsafe-feature"),
    "an attribute with a wide letter": ("().__\uff43lass__", "unsafe-feature"),
    "a module in wide letters": ("import \uff4fs\n\uff4fs.system('true')", "ambient-authority"),
    "a hidden line after CRLF": ("x = 1\r\neval('1')\r\n", "unsafe-feature"),
    "a hidden line after CR": ("x = 1  # harmless\reval('1')", "unsafe-feature"),
    "a hidden line after a form feed": ("x = 1\n\x0ceval('1')", "unsafe-feature"),
    "a line after a false encoding": ("# -*- coding: utf-7 -*-\n# +AAo-x = 1\neval('1')", "unsafe-feature"),
}
FINE = {
    "brackets": nested("[", "]", 90),
    "a number of many digits": "x = 0x" + "f" * 100_000,
    "a long string": "x = '" + "a" * 200_000 + "'",
    "a long line": "x = [" + "1," * 10_000 + "]",
    "a name in a ligature": "\ufb01 = 1\nfi",
    "form feeds": "\x0cx = 1\n\x0c\nif 1:\n\x0c  y = 2",
    "line ends of Windows": "x = 1\r\nif x:\r\n    y = '''a\r\nb'''\r\n",
    "an encoding that is a lie": "# -*- coding: latin-1 -*-\nx = '\u00e9'\nx",
    "an encoding that is none": "# coding: rot13\nx = 1",
    "nested finally": nested_finally(19),
    "a type that grows": "x = 1\nwhile True:\n    x = (x,)\n",
    "deep annotations": "x: '" + "list[" * 300 + "int" + "]" * 300 + "'",
}


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    cache.build_cache(print)


async def ask(directory: Path, programs: dict[str, str], wall_seconds: float) -> dict[str, list[str]]:
    """The codes for each program, all asked in one session, which must go on with what it held before."""
    client = CheckerClient(CheckerSpawner(directory), profile="standard", wall_seconds=wall_seconds)
    found = {}
    try:
        await client.start()
        assert isinstance(await client.check(1, "before = 'kept'"), Accepted)
        await client.commit(1, ("before",))
        for name, text in programs.items():
            verdict = await client.check(2, text)
            found[name] = [d.code for d in verdict.diagnostics] if isinstance(verdict, Rejected) else []
            after = await client.check(2, "before")
            assert isinstance(after, Accepted), name
            assert after.last_type == "str", name
    finally:
        await client.close()
    return found


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_for_the_type_checker(tmp_path: Path, name: str) -> None:
    found = asyncio.run(ask(tmp_path, {name: ENDLESS[name]}, wall_seconds=2.0))
    assert found == {name: ["too-much-work"]}


def test_refused_with_its_code(tmp_path: Path) -> None:
    found = asyncio.run(ask(tmp_path, {name: text for name, (text, _) in REFUSED.items()}, wall_seconds=20.0))
    assert {name: codes[:1] for name, codes in found.items()} == {name: [code] for name, (_, code) in REFUSED.items()}


def test_odd_but_fine(tmp_path: Path) -> None:
    found = asyncio.run(ask(tmp_path, FINE, wall_seconds=20.0))
    assert found == {name: [] for name in FINE}
