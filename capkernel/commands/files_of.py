"""The files that arguments of a command name: files, folders, patterns.

A folder stands for the notebooks in it and below, and for those scripts that have cells (`# %%`); what begins with a
dot, copies of checkpoints and the libraries of virtual environments are passed over. A named file is taken as it is.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_NEVER: Final = frozenset(("node_modules", "__pycache__", "site-packages"))
_PATTERN: Final = frozenset("*?[")
_LOOKED_AT: Final = 1024 * 1024  # bytes of a script, for the first marker of a cell


def expanded(paths: Iterable[Path]) -> list[Path]:
    """The files of `paths`, each once, in the order named, those of a folder or a pattern by name.

    What names nothing stays in the list, so that it is reported.
    """
    found: dict[Path, None] = {}
    for path in paths:
        for one in _of(path):
            found[one] = None
    return list(found)


def _of(path: Path) -> Iterator[Path]:
    if path.is_dir():
        inside = list(_below(path))
        yield from inside or [path]
    elif not path.exists() and _PATTERN & set(str(path)):
        matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
        for match in matches:
            if match.is_dir() or any(parent.is_symlink() for parent in match.parents):
                continue
            if match.suffix == ".ipynb" or (match.suffix == ".py" and _has_cells(match)):
                yield match
        if not matches:
            yield path
    else:
        yield path


def _below(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _NEVER and not (here / name / "pyvenv.cfg").exists()
        )
        for name in sorted(files):
            path = here / name
            if name.startswith(".") or path.is_symlink():
                continue
            if path.suffix == ".ipynb" or (path.suffix == ".py" and _has_cells(path)):
                yield path


def _has_cells(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return any(line.startswith((b"# %%", b"#%%")) for line in file.read(_LOOKED_AT).splitlines())
    except OSError:
        return True  # it is reported as unreadable


def module_beside(folder: Path, path: str) -> bytes | None:
    """The text of a local module, for the checker: a regular file in `folder` or below, of bounded size."""
    place = folder / path
    try:
        real = place.resolve(strict=True)
        if not real.is_relative_to(folder.resolve()) or not real.is_file() or real.stat().st_size > _LOOKED_AT:
            return None
        return real.read_bytes()
    except OSError:
        return None
