"""parse(checked) == parse(executed) for timed cells: around the statements that were checked there is only timing."""

from __future__ import annotations

import ast
import warnings

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from untimed import untimed

from capkernel.kernel.cell_text import CellRefused, CellTexts
from capkernel.wire.worker import Timed
from capkernel.worker.timing import with_timing

TEXTS = CellTexts()

GOOD = st.sampled_from(
    [
        "x = 1", "x", "x; y", "x;", "a = 1; b = 2", "x  # why", "f(1)", "'text'; ", "for i in x: i", "if x: y", "pass",
        "with a: b", "def f(): return 1", "class C: pass", "lambda: x", "x: int = 1", "import a", "from a import *",
        "del x", "await g()", "async def g(): pass", "...", "x += 1", "assert x", "raise x", "x = y = 1", "f'{x!r}'",
        "é = 'é'", "𝐱 = 1", "x = '\u2028'", "x = '%time y'", "print('%timeit x')", "while x: break", "(yield)", "{x}",
        "-1", "~x", "[i for i in x]",
    ]
)  # fmt: skip
ODD = st.sampled_from(
    [
        "x = '''", "'''", "[1,", "]", "(", ")", "x \\", "+ 1", "x\x0c", "%time x", "%timeit x", "!ls", "%who", "x?",
        "-p 3 x", "-n", "-o x", "--x", "-x", "", " ", "return 1", "global x", "match x:", "try: x", "else: x",
        "get_ipython().run_line_magic('time', 'x')", "get_ipython().run_line_magic('timeit', '')", "  y = 1",
    ]
)  # fmt: skip
MAGICS = st.sampled_from(
    [
        "%time ", "%time ", "%time ", "%timeit ", "%timeit -n 2 ", "%timeit -r3 -n 1 ", "%timeit -q -c ",
        "%timeit\t-n1 ", "%time\t", "%time", "% time ", "%timeit -n x ", "%time -n 2 ",
        "%timeit -p 2 ", "%timeit -n 0 ",
    ]
)  # fmt: skip
CELL_MAGICS = st.sampled_from(
    [
        "%%time", "%%time ", "%%time x = 0", "%%timeit", "%%timeit -n 2 ", "%%timeit -n2 -r 3 x = 0",
        "%%timeit x = 0; y = 1",
        "\n%%time", "%%timeit -o", "%%timeit  -q # x", "%%time\n%%timeit", "%%time\n%%time x", "%%time if x: y",
    ]
)  # fmt: skip
HEADS = st.sampled_from(
    ["if x:", "for i in y:", "while x:", "def f():", "async def g():", "with a as b:", "class C:", "try:", "match x:"]
)
TAILS = {"if x:": "else:", "for i in y:": "else:", "try:": "except E:", "while x:": "else:"}


@st.composite
def blocks(draw: st.DrawFn, depth: int = 0) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 9))
        if kind < 5:
            lines.append(draw(MAGICS) + draw(GOOD))
        elif kind < 8 or depth == 2:
            lines.append(draw(GOOD if kind else ODD))
        else:
            head = draw(HEADS)
            inner = [f"    {line}" for line in draw(blocks(depth + 1))]
            if head == "match x:":
                inner = ["    case 1:", *(f"    {line}" for line in inner)]
            lines += [head, *inner]
            if head in TAILS:
                lines += [TAILS[head], *(f"    {line}" for line in draw(blocks(depth + 1)))]
    return lines


@st.composite
def cells(draw: st.DrawFn) -> str:
    lines = draw(blocks())
    if draw(st.integers(0, 5)) == 0:
        lines.insert(draw(st.integers(0, len(lines))), draw(ODD))
    if draw(st.booleans()):
        lines.insert(0, draw(CELL_MAGICS))
    return draw(st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", "\r", "\n\n"])).join(lines)


CELLS = cells()
PROFILE = settings(
    max_examples=1000, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def parsed(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def dump(tree: ast.AST) -> str:
    return ast.dump(tree, include_attributes=True)


def checked(raw: str) -> tuple[str, tuple[Timed, ...]] | None:
    """The text that is checked and what of it is timed; None where there is no such cell or it does not parse."""
    try:
        found = TEXTS.checked(raw, 1)
    except CellRefused:
        return None
    return (found.text, found.timed) if parsed(found.text) is not None else None


@PROFILE
@given(raw=CELLS)
def test_around_what_was_checked_there_is_only_timing(raw: str) -> None:
    cell = checked(raw)
    if cell is None or not cell[1]:
        return
    text, timed = cell
    tree, executed = parsed(text), parsed(text)
    assert tree is not None
    assert executed is not None
    left, once, often = untimed(with_timing(executed, timed))
    assert dump(left) == dump(tree)
    assert once + often <= len(timed)
    starts = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)}
    real = [part for part in timed if any(part.line <= line <= part.end_line for line in starts)]
    assert (once, often) == (sum(not part.many for part in real), sum(part.many for part in real))


@PROFILE
@given(raw=CELLS)
def test_what_is_timed_is_text_of_the_cell(raw: str) -> None:
    """Nothing is checked that the person did not write: without blanks, the text is the cell's but for the magics."""
    cell = checked(raw)
    if cell is None or not cell[1]:
        return
    for line in cell[0].splitlines():
        written = "".join(line.split())
        assert written in "".join(raw.split()) or "get_ipython" in line or line.startswith("# %%"), line


def test_enough_of_the_generated_cells_are_timed() -> None:
    """A property that skips nearly everything proves nothing."""
    once = often = nested = total = 0

    @PROFILE
    @given(raw=CELLS)
    def count(raw: str) -> None:
        nonlocal once, often, nested, total
        total += 1
        cell = checked(raw)
        if cell is not None:
            once += any(not part.many for part in cell[1])
            often += any(part.many for part in cell[1])
            nested += len(cell[1]) > 1

    count()
    assert total >= 1000
    assert once > total * 0.1, once
    assert often > total * 0.1, often
    assert nested > total * 0.05, nested


def test_the_properties_see_what_is_not_timing() -> None:
    timed = (Timed(1, 1), Timed(2, 2, True))
    tree = with_timing(ast.parse("x\ny = 2\n"), timed)
    assert dump(untimed(tree)[0]) == dump(ast.parse("x\ny = 2\n"))
    tree = with_timing(ast.parse("x\ny = 2\n"), timed)
    tree.body.insert(1, ast.parse("more()").body[0])
    assert dump(untimed(tree)[0]) != dump(ast.parse("x\ny = 2\n"))
