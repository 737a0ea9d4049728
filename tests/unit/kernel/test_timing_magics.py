"""`%time` and `%timeit`: what stands behind them is the cell's code, line for line."""

from __future__ import annotations

import pytest

from capkernel.diagnostics import Diagnostic, Span
from capkernel.diagnostics.source_lines import source_lines
from capkernel.kernel.cell_text import CellTexts, as_typed
from capkernel.wire.worker import Timed

TEXTS = CellTexts()


@pytest.mark.parametrize(
    ("raw", "text", "timed"),
    [
        ("%time f()", "f()\n", Timed(1, 1)),
        ("x = 1\n%timeit -n 10 -r3 f(x)", "x = 1\nf(x)\n", Timed(2, 2, True, 10, 3)),
        ("for i in y:\n    %time f(i)", "for i in y:\n    f(i)\n", Timed(2, 2)),
        ("%%time\na = 1\na", "# %%time\na = 1\na\n", Timed(2, 3)),
        ("%%timeit -n 5 b = 2\nb + 1", "b = 2\nb + 1\n", Timed(2, 2, True, 5)),
    ],
)
def test_the_magic_is_taken_off(raw: str, text: str, timed: Timed) -> None:
    found = TEXTS.checked(raw, 1)
    assert found.text == text
    assert found.timed == (timed,)


@pytest.mark.parametrize(
    "raw", ["%timeit -o f()", "%time", "x = %time f()", "%time --no-raise-error f()", "%%time\n%%bash\nls"]
)
def test_others_stay_magics_and_are_refused(raw: str) -> None:
    found = TEXTS.checked(raw, 1)
    assert "get_ipython()" in found.text
    assert not found.timed


@pytest.mark.parametrize(("raw", "line"), [("x = 1\n  \n!ls -l", 3), ("%%bash\nls\nls", 1), ("if x:\n    %cd y", 2)])
def test_a_refused_magic_is_shown_as_it_was_typed(raw: str, line: int) -> None:
    text = TEXTS.checked_text(raw, 1)
    said = (Diagnostic("unsafe-magic", "no", 1, Span(line, 0, line, 3)),)
    shown, [found] = as_typed(raw, text, said)
    typed = raw.splitlines()[line - 1]
    assert shown.splitlines()[line - 1] == typed
    assert typed[found.span.column : found.span.end_column] == typed.strip()


@pytest.mark.parametrize(
    "raw", ["0\r\r%time", "0\r\r%time 1", "%%time\r1\rx = 2\r", "%%timeit x = 1\r\nx", "a = 1\r%timeit a\r\n%time a"]
)
def test_lines_end_where_python_ends_them(raw: str) -> None:
    found = TEXTS.checked(raw, 1)
    last = len(source_lines(found.text))
    assert all(1 <= timed.line <= timed.end_line <= last for timed in found.timed)
