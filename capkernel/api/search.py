"""Searching text with a pattern that a cell gives. It runs in the worker, where a pattern that never ends costs this
cell its time and nobody else anything: an interrupt and the cell's time limit end it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from pathlib import PurePosixPath

_LINE_END = re.compile("\r\n|\r|\n")


@dataclass(frozen=True)
class GrepMatch:
    """One line that matched: the file's path relative to the root, the 1-based number, the line without its end."""

    file: str
    line_number: int
    line: str


def lines_of(text: str) -> list[str]:
    """The lines of a text without their ends, as a file opened as text has them."""
    lines = _LINE_END.split(text)
    if not lines[-1]:
        lines.pop()
    return lines


def matches_in(file: str, text: str, pattern: re.Pattern[str]) -> list[GrepMatch]:
    """The lines in which the pattern is found."""
    found = pattern.search
    return [GrepMatch(file, number, line) for number, line in enumerate(lines_of(text), 1) if found(line)]


def matching(paths: Iterable[str], glob: str) -> Iterator[str]:
    """The paths whose name matches; a pattern with slashes is matched against the end of the path."""
    while glob.startswith("**/"):
        glob = glob[3:]
    if "/" in glob:
        yield from (path for path in paths if PurePosixPath(path).match(glob))
    else:
        name = re.compile(translate(glob)).match
        yield from (path for path in paths if name(path.rpartition("/")[2]))


__all__ = ["GrepMatch", "lines_of", "matches_in", "matching"]
