"""The code cells of a file, without running anything: notebooks (.ipynb) and scripts in percent format (.py).

Rule 1: a file is read whole or not at all, and only a regular file of bounded size: no pipe, no device.
"""

from __future__ import annotations

import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MOST_BYTES: Final = 64 * 1024 * 1024
MOST_CELLS: Final = 10_000
_MARKER: Final = re.compile(r"#[ \t]*%%(?P<rest>.*)")
_NO_CODE: Final = re.compile(r"\[(?:markdown|md|raw)\]")
_TAGS: Final = re.compile(r"tags=(?P<list>\[[^\]]*\])")


class Unreadable(Exception):
    """The file holds no cells that could be checked. The text is one line for the person."""


@dataclass(frozen=True)
class Cell:
    """One code cell. `index` counts code cells from 1; `line` is the line of the file before its first, for scripts."""

    index: int
    source: str
    tags: tuple[str, ...] = ()
    line: int | None = None


def cells_of(path: Path) -> list[Cell]:
    """The code cells with something in them, in order. Raises Unreadable."""
    if path.suffix not in (".ipynb", ".py"):
        raise Unreadable("not a notebook (.ipynb) or a script (.py)")
    text = _read(path)
    cells = _of_notebook(text) if path.suffix == ".ipynb" else _of_script(text)
    if len(cells) > MOST_CELLS:
        raise Unreadable(f"more than {MOST_CELLS:,} cells")
    return cells


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise Unreadable("a folder without notebooks, and without scripts that have `# %%` cells")
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("not a regular file")
        if status.st_size > MOST_BYTES:
            raise Unreadable(f"larger than {MOST_BYTES // (1024 * 1024)} MiB")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise Unreadable(f"cannot be read: {why}") from None


def _of_notebook(text: str) -> list[Cell]:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("not a notebook: it is not JSON") from None
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4 or not isinstance(notebook.get("cells"), list):
        raise Unreadable("not a notebook of format 4")
    found: list[Cell] = []
    for position, cell in enumerate(notebook["cells"], 1):
        if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
            raise Unreadable(f"not a notebook: its cell {position} is not one")
        if cell["cell_type"] != "code":
            continue
        source = _text(cell.get("source"))
        if source is None:
            raise Unreadable(f"not a notebook: the source of its cell {position} is not text")
        if source.strip():
            metadata = cell.get("metadata")
            tags = metadata.get("tags") if isinstance(metadata, dict) else None
            found.append(Cell(len(found) + 1, source, _tags(tags)))
    return found


def _text(source: Any) -> str | None:
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    return source if isinstance(source, str) else None


def _tags(tags: Any) -> tuple[str, ...]:
    return tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else ()


def _of_script(text: str) -> list[Cell]:
    """Cells begin at `# %%` lines; what stands before the first is a cell, too."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: list[Cell] = []
    start, is_code = 0, True
    tags: tuple[str, ...] = ()

    def add(end: int) -> None:
        source = "\n".join(lines[start:end]).rstrip("\n")
        if is_code and source.strip():
            found.append(Cell(len(found) + 1, source, tags, start))

    for number, line in enumerate(lines):
        marker = _MARKER.fullmatch(line)
        if marker is not None:
            add(number)
            start, is_code = number + 1, _NO_CODE.search(marker["rest"]) is None
            tags = _tags_of(marker["rest"])
    add(len(lines))
    return found


def _tags_of(rest: str) -> tuple[str, ...]:
    found = _TAGS.search(rest)
    if found is None:
        return ()
    try:
        return _tags(json.loads(found["list"]))
    except ValueError:
        return ()
