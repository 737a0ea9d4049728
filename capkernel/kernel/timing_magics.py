"""`%time`, `%timeit` and their cell forms: the magic is taken off, and what it timed stands as ordinary code.

Rule 1: the text made here is checked and run like any other. That parts of it are timed is said beside it
(`wire.worker.Timed`) and changes nothing of what it means to the checker.
Rule 2: a magic with an option that is not listed here stays as it is, and is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from capkernel.diagnostics.source_lines import source_lines
from capkernel.wire.worker import Timed

_OPTION = re.compile(r"\s*-(?:([nr])\s*(\d{1,9})|p\s*\d+|[tcqv]+(?=\s|\Z))(?:\s+|\Z)")
_NAMES = ("time", "timeit")


@dataclass(frozen=True)
class Expanded:
    """Python text, as many lines as before, and which of them are timed."""

    text: str
    timed: tuple[Timed, ...] = ()


def expand(text: str, transform: Callable[[str], str]) -> Expanded:
    """`text` is what IPython's transformer made of a cell; `transform` is that transformer, for a cell magic's body."""
    if not any(f"_magic('{name}'" in text for name in _NAMES):
        return Expanded(text)
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Expanded(text)
    whole = _cell_magic(module)
    if whole is not None:
        return _cell(text, *whole, transform)
    lines = source_lines(text)
    timed = []
    for call, name, line in _line_magics(module, lines):
        loops, repeat, body = _options(name, line)
        if not body or body.startswith("-") or "\n" in body:
            continue
        number = call.lineno
        lines[number - 1] = lines[number - 1][: call.col_offset] + body
        timed.append(Timed(number, number, name == "timeit", loops, repeat))
    made = "\n".join(lines)
    return Expanded(made, tuple(timed)) if timed else Expanded(text)


def _cell(text: str, name: str, line: str, body: str, transform: Callable[[str], str]) -> Expanded:
    loops, repeat, setup = _options(name, line)
    if setup.startswith("-") or not body.strip() or "_magic(" in source_lines(made := transform(body))[0]:
        return Expanded(text)
    # IPython runs what stands behind `%%time` first; behind `%%timeit` it prepares each run. Here: before them all.
    inner = expand(made, transform) if name == "time" else Expanded(made)
    moved = [Timed(t.line + 1, t.end_line + 1, t.many, t.loops, t.repeat) for t in inner.timed]
    first = setup or f"# %%{name}"
    return Expanded(
        f"{first}\n{inner.text}",
        (Timed(2, len(source_lines(inner.text)), name == "timeit", loops, repeat), *moved),
    )


def _cell_magic(module: ast.Module) -> tuple[str, str, str] | None:
    if len(module.body) != 1:
        return None
    texts = _texts(module.body[0], "run_cell_magic")
    return (texts[0], texts[1], texts[2]) if len(texts) == 3 and texts[0] in _NAMES else None


def _line_magics(module: ast.Module, lines: list[str]) -> Iterator[tuple[ast.stmt, str, str]]:
    """Those that stand alone on one line."""
    for node in ast.walk(module):
        texts = _texts(node, "run_line_magic")
        if len(texts) != 2 or texts[0] not in _NAMES:
            continue
        assert isinstance(node, ast.Expr)
        line = lines[node.lineno - 1]
        alone = not line[: node.col_offset].strip() and node.end_col_offset == len(line.rstrip().encode())
        if alone and node.lineno == node.end_lineno:
            yield node, texts[0], texts[1]


def _texts(node: ast.AST, method: str) -> list[str]:
    """The literal arguments when a statement is `get_ipython().METHOD("...", ...)`, else nothing."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not (
        isinstance(call, ast.Call)
        and not call.keywords
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == method
        and isinstance(call.func.value, ast.Call)
        and isinstance(call.func.value.func, ast.Name)
        and call.func.value.func.id == "get_ipython"
    ):
        return []
    values = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    return [value for value in values if isinstance(value, str)] if len(values) == len(call.args) else []


def _options(name: str, line: str) -> tuple[int, int, str]:
    """Loops and repeats (0: not said) and the rest of a magic's line."""
    loops = repeat = 0
    while name == "timeit" and (found := _OPTION.match(line)) is not None:
        if found[1] == "n":
            loops = int(found[2])
        elif found[1] == "r":
            repeat = int(found[2])
        line = line[found.end() :]
    return loops, repeat, line.strip()
