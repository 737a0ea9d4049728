"""The policy files that a session would find by itself: next to the notebook, and upwards.

Rule 1: what is found could have come with the notebook. Here it is only read; it grants nothing.
Rule 2: a name is opened once, following no link, never waiting, and read at most to MAX_FOUND_BYTES.

The search looks into the notebook's directory and its parents, and stops before the home directory, before `/`, and
where another file system begins: those are not the project's any more. The notebook's own directory is always looked
at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from capkernel.policy.errors import PolicyError
from capkernel.policy.load import FILE_NAMES, Source, read_source

MAX_FOUND_BYTES: Final = 65_536
"""Most bytes of a policy file that nobody named. Larger ones are named by the operator (--policy)."""


def directories_above(base: Path) -> Iterator[Path]:
    """The directories that are looked into, nearest first. base: canonical."""
    home = Path.home().resolve()
    yield base
    try:
        device = os.stat(base).st_dev
    except OSError:
        return
    for directory in base.parents if base != home else ():
        if directory in (home, Path(directory.anchor)):
            return
        try:
            if os.stat(directory).st_dev != device:
                return
        except OSError:
            return
        yield directory


def places_in(directory: Path) -> tuple[Path, ...]:
    """Where a policy file of this directory would be."""
    return tuple(directory / name for name in FILE_NAMES)


def read_found(place: Path) -> Source | PolicyError | None:
    """What lies there: its bytes, why they cannot be had, or None when there is nothing."""
    if not os.path.lexists(place):
        return None
    try:
        return read_source(place, follow=False, limit=MAX_FOUND_BYTES)
    except PolicyError as problem:
        return problem
