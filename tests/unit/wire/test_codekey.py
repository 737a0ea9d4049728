"""The key of a code object is the same wherever the cell is compiled, and differs between functions."""

from __future__ import annotations

import pytest

from capkernel.wire.codekey import cell_filename, cell_of, code_key
from capkernel.wire.plan import CodeKey

CELL = """
f, g = (lambda x: x + 1), (lambda x: x + 1)
def outer(k):
    def inner(x):
        return x + k
    return inner
"""


def keys(text: str, cell: int) -> dict[str, list[CodeKey | None]]:
    found: dict[str, list[CodeKey | None]] = {}
    waiting = [compile(text, cell_filename(cell), "exec")]
    while waiting:
        code = waiting.pop()
        found.setdefault(code.co_name, []).append(code_key(code))
        waiting += [item for item in code.co_consts if hasattr(item, "co_code")]
    return found


def test_two_compilations_agree() -> None:
    assert keys(CELL, 3) == keys(CELL, 3)


def test_the_key_at_run_time_is_the_key_of_the_compiled_code() -> None:
    space: dict[str, object] = {}
    exec(compile(CELL, cell_filename(3), "exec"), space)
    inner = space["outer"](1)  # type: ignore[operator]
    assert code_key(inner.__code__) in keys(CELL, 3)["inner"]


def test_two_lambdas_on_one_line_have_two_keys() -> None:
    first, second = keys(CELL, 3)["<lambda>"]
    assert first is not None
    assert second is not None
    assert first != second
    assert first.line == second.line == 2


def test_another_cell_is_another_key() -> None:
    assert keys(CELL, 3)["inner"] != keys(CELL, 4)["inner"]


@pytest.mark.parametrize("name", ["<stdin>", "cell 3", "<cell 3> ", "<cell -1>", "<cell 12345678901>", "<cell >"])
def test_other_file_names_are_no_cells(name: str) -> None:
    assert cell_of(name) is None
    assert code_key(compile("1", name, "eval")) is None


def test_cell_names_go_both_ways() -> None:
    assert cell_of(cell_filename(42)) == 42
