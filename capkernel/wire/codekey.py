"""The identity of a code object: where in which cell it was written.

Checker and worker compile the same text with the same interpreter, so both compute the same key; the kernel trusts only
the checker's. The first instructions (RESUME, MAKE_CELL, COPY_FREE_VARS) carry no column and do not count.
Where no instruction has a place (Python 3.12 gives `lambda: 1` none), what the code takes and returns stands for it:
two of these on one line with one key do the same.
"""

from __future__ import annotations

import inspect
import re
import zlib
from types import CodeType

from capkernel.wire.plan import CodeKey

# Cells below this have the number the person sees (`In [n]`); silent ones, which count nothing, are numbered from here.
FIRST_UNNUMBERED = 500_000_000
# Texts of local modules: nobody numbers them at all.
FIRST_MODULE = 900_000_000

_CELL_FILE = re.compile(r"<cell (\d{1,9})>")


def cell_filename(cell: int) -> str:
    """The file name under which cell `cell` is compiled, in every process."""
    return f"<cell {cell}>"


def cell_of(filename: str) -> int | None:
    """The cell number in a file name made by `cell_filename`, else None."""
    found = _CELL_FILE.fullmatch(filename)
    return int(found[1]) if found else None


def code_key(code: CodeType) -> CodeKey | None:
    """The key of a function compiled from a cell; None for code from anywhere else."""
    cell = cell_of(code.co_filename)
    if cell is None:
        return None
    starts: list[tuple[int, int]] = []
    ends: list[tuple[int, int]] = []
    for line, end_line, column, end_column in code.co_positions():
        if line is None or end_line is None or column is None or end_column is None or end_column == 0:
            continue
        starts.append((line, column))
        ends.append((end_line, end_column))
    if not starts:
        return CodeKey(cell, code.co_firstlineno, code.co_name, (0, 0, *_meaning(code)))
    start, end = min(starts), max(ends)
    return CodeKey(cell, code.co_firstlineno, code.co_name, (*start, *end))


def _meaning(code: CodeType) -> tuple[int, int]:
    """Checksums of a code object that does nothing but return a constant."""
    stars = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    takes = (code.co_varnames, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, stars)
    return zlib.crc32(repr(takes).encode()), zlib.crc32(code.co_code + repr(code.co_consts).encode())
