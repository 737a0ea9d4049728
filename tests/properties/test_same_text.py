"""parse(checked) == parse(executed): the tree a worker compiles is the tree of the text the checker was asked about."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from capkernel.kernel import cell_text
from capkernel.kernel.cell_text import CellRefused, CellTexts
from capkernel.wire.frames import encode
from capkernel.wire.worker import Execute

PROBE = Path(__file__).parents[1] / "support" / "compile_probe.py"
TEXTS = CellTexts()

LINES = st.sampled_from(
    [
        "x = 1",
        "y = x",
        "x",
        "print(x)",
        "def f(a):",
        "    return a",
        "class C:",
        "    z = 1",
        "if x:",
        "    pass",
        "else:",
        "%matplotlib inline",
        "%who",
        "%time x",
        "%%time",
        "%%bash",
        "!ls",
        "!!ls",
        "files = !ls",
        "a = %who",
        "x?",
        "?x",
        "x??",
        ">>> x = 1",
        "... y = 2",
        ">>> >>> x = 1",
        "In [1]: x = 1",
        "   ...: y = 2",
        "In [2]: >>> x",
        ",f a b",
        ";f a",
        "/f a",
        "  indented = 1",
        "\tx = 2",
        " \t x = 3",
        "\fx = 4",
        "x = 5\r",
        "x = '\r'",
        "\x0bx = 6",
        "x\x1c= 7",
        "x = '\u2028'",
        "\u2028x = 8",
        "\ufeffx = 9",
        "\u00a0x = 1",
        "ﬁ = 1",
        "ﬀ.ﬁ = 2",
        "µ = 3",
        "ªª = 4",
        "𝐱 = 5",
        "é = 'é'",
        "日本 = 1",
        's = """',
        "%who",
        "!ls",
        ">>> q",
        '"""',
        "s = '''",
        "'''",
        "# %who",
        "# comment",
        "x = 1 \\",
        "  + 2",
        "(",
        ")",
        "[1,",
        "]",
        "await g()",
        "async with a as b: pass",
        "x; y;",
        "x;",
        "lambda: (yield)",
        "from __future__ import annotations",
        "from __future__ import barry_as_FLUFL",
        "# -*- coding: latin-1 -*-",
        "y = x % 2",
        "y = '%d' % x",
        "y = x !=y",
        "y = \\",
        "z(a= %who)",
        "  .head()",
        "(x",
        "  ,y)",
        "Index = x",
        "[inside, y]",
        "match x:",
        "    case 1: pass",
        "",
        " ",
        "\x0c",
        "f'{x!r}'",
        "f'{%who}'",
        "x = f'''",
        "{x}",
        "global x",
        "return 1",
        "del x",
        "0xfor x in y",
        "1if x else 2",
        "get_ipython().run_line_magic('who', '')",
        "%",
        "%%",
        "!",
        "?",
        "\\",
        "\\\r",
        "\r\r",
        "x=1\r\ny=2",
    ]
)
CELLS = st.one_of(
    st.lists(LINES, min_size=1, max_size=6).map("\n".join),
    st.lists(LINES, min_size=1, max_size=5).map("\r\n".join),
    st.text(alphabet=st.sampled_from(" \t\n\r\f\x0b\x1c\u2028>.%!?,;/\\'\"()x=1#:éﬁ"), max_size=40),
    st.text(max_size=30),
)


class Probe:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(PROBE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def compiled(self, cell: Execute) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(encode(cell).hex() + "\n")
        self._process.stdin.flush()
        found: list[str] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    started = Probe()
    yield started
    started.close()


def parsed(text: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.dump(ast.parse(text), include_attributes=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def test_the_probe_would_see_a_second_transformation(probe: Probe) -> None:
    """What stock ipykernel does to a text: transform it once more. The probe must tell the difference."""
    twice = TransformerManager().transform_cell("x = 1\n" + ">>> y")
    assert parsed("y = 2") not in (None, probe.compiled(Execute(1, 7, "x = 1", "x = 1\n"))[0])
    assert twice  # a text that is not transformed again in the worker arrives as it is:
    [seen] = probe.compiled(Execute(1, 8, "%who", "z = '%who'\n"))
    assert seen == f"<cell 8> {parsed('z = ' + repr('%who') + chr(10))}"


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=CELLS)
def test_parse_checked_is_parse_executed(probe: Probe, raw: str) -> None:
    try:
        text = TEXTS.checked_text(raw, 5)
    except CellRefused:
        return
    assert TEXTS.checked_text(text, 5) == text
    expected = parsed(text)
    if expected is None or raw.isspace() or not raw:
        return  # the checker refuses what does not parse; a blank cell runs nothing
    assert probe.compiled(Execute(1, 5, raw, text)) == [f"<cell 5> {expected}"]


def test_enough_of_the_generated_cells_reach_the_comparison() -> None:
    """A property that skips nearly everything proves nothing."""
    reached = total = 0

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(raw=CELLS)
    def count(raw: str) -> None:
        nonlocal reached, total
        total += 1
        try:
            reached += parsed(TEXTS.checked_text(raw, 5)) is not None and bool(raw.strip())
        except CellRefused:
            return

    count()
    assert reached > total * 0.15


@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=CELLS)
def test_a_text_that_the_transformer_does_not_see_would_come_back_as_it_is(raw: str) -> None:
    """The shortcut and the transformer, on the same texts."""
    whole = raw if raw.endswith("\n") else raw + "\n"
    if cell_text._MAY_CHANGE.search(whole):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            transformed = TransformerManager().transform_cell(raw)
        except SyntaxError:
            return  # such a text stays as it is either way
    assert transformed == whole


def test_the_shortcut_is_taken_for_ordinary_cells_and_not_for_ipython_syntax() -> None:
    plain = "import a as b\nif x % 2 != 1:\n    y = (b\n         .c[0])\n\nf'{y:>3}'"
    assert not cell_text._MAY_CHANGE.search(plain)
    for raw in ("x?", "!ls", "a = !ls", "%who", "a = %who", "a = \\\n  %who", ",f a", "/f a", ">>> x", " x", "x\n \ny"):
        assert cell_text._MAY_CHANGE.search(raw), raw
