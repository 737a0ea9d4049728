"""What a path is by its name: classified, protected, or neither.

Rule 1: a match is final. A path is classified when it or any directory above it matches, each tried as a file and as
a directory. Negation works only inside the list it stands in, and never against the defaults.
Rule 2: patterns with a slash are anchored at the policy's directory, and in other roots at the root; the narrower root
a cell asks for is never an anchor, so asking for it changes nothing.
Rule 3: a path under no anchor is classified and protected: nothing is known about it.

Paths here are absolute and canonical (links resolved); this module opens nothing. What a file is by its *identity*
(another hard link, a link's target) is the broker's part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from capkernel.policy.defaults import CLASSIFIED, PROTECTED
from capkernel.policy.model import Policy
from capkernel.policy.patterns import PatternSet, absolute_patterns, fold, relative_patterns

_COPY_SUFFIXES = (
    "~", ".bak", ".backup", ".orig", ".old", ".save", ".tmp", ".swp", ".swo", ".swn", ".swx",
    "___jb_tmp___", "___jb_old___",
)  # fmt: skip
_NUMBERED = re.compile(r"(\.~\d+~|\.save\.\d+|\.bak\.?\d+)$", re.IGNORECASE)
_CHECKPOINT = re.compile(r"-checkpoint(?=\.[^.]*$|$)", re.IGNORECASE)
_MAX_COPIES = 4


def originals(name: str) -> Iterator[str]:
    """The names of which `name` may be an editor's copy, backup or swap file: `.x.swp`, `#x#`, `x.bak~` → `x`."""
    seen = {name}
    level = [name]
    for _ in range(_MAX_COPIES):
        following: list[str] = []
        for current in level:
            for candidate in _one_step(current):
                if candidate and candidate not in seen:
                    seen.add(candidate)
                    following.append(candidate)
                    yield candidate
        level = following


def _one_step(name: str) -> Iterator[str]:
    for suffix in _COPY_SUFFIXES:
        if name[-len(suffix) :].lower() == suffix and len(name) > len(suffix):
            stem = name[: -len(suffix)]
            yield stem
            if suffix.startswith(".sw") and stem.startswith("."):
                yield stem[1:]
    numbered = _NUMBERED.search(name)
    if numbered:
        yield name[: numbered.start()]
    if len(name) > 2 and name.startswith("#") and name.endswith("#"):
        yield name[1:-1]
    if len(name) > 2 and name.startswith(".#"):
        yield name[2:]
    checkpoint = _CHECKPOINT.search(name)
    if checkpoint:
        yield name[: checkpoint.start()] + name[checkpoint.end() :]


class PathRules:
    """The path rules of one policy. Thread-safe: nothing changes after construction but a cache."""

    def __init__(self, policy: Policy) -> None:
        base = str(policy.base_dir.resolve())
        roots = [str(root.resolve()) for root in policy.root_paths()]
        self._anchors = [base, *(root for root in roots if not is_below(root, base))]
        self._roots = roots
        self._defaults = PatternSet(CLASSIFIED)
        self._listed = PatternSet(relative_patterns(policy.files.classified))
        self._absolute = PatternSet(absolute_patterns(policy.files.classified, Path.home(), base))
        unprotected = {fold(name) for name in policy.files.unprotect}
        self._protected = tuple(fold(name) for name in PROTECTED if fold(name) not in unprotected)
        self._known = lru_cache(maxsize=65_536)(self._leaf_matches)

    def is_classified(self, path: str) -> bool:
        """Whether the policy calls this path a secret."""
        if not self._absolute.empty and self._matches("absolute", path.strip("/")):
            return True
        inside = False
        for anchor in self._anchors:
            relative = below(path, anchor)
            if relative is not None:
                inside = True
                if self._matches("anchored", relative):
                    return True
        return not inside

    def protected_by(self, path: str) -> str | None:
        """The entry of `defaults.PROTECTED` that keeps this path from being written, or None."""
        inside = False
        for root in self._roots:
            relative = below(path, root)
            if relative is None:
                continue
            inside = True
            for part in fold(relative).split("/"):
                for entry in self._protected:
                    if fnmatchcase(part, entry):
                        return entry
        return None if inside else "everything outside of the roots"

    def relative_to_root(self, path: str) -> str:
        """The path as it is written down in the audit and in origins: below the innermost root, never the host's."""
        candidates = [relative for root in self._roots if (relative := below(path, root)) is not None]
        return min(candidates, key=len) or "." if candidates else "(outside)"

    def _matches(self, sets: str, relative: str) -> bool:
        parts = relative.split("/")
        return any(self._known(sets, "/".join(parts[:end])) for end in range(1, len(parts) + 1)) if relative else False

    def _leaf_matches(self, sets: str, relative: str) -> bool:
        chosen = (self._absolute,) if sets == "absolute" else (self._defaults, self._listed)
        *parents, leaf = relative.split("/")
        for name in (leaf, *originals(leaf)):
            homes = [parents]
            if parents and parents[-1] == ".ipynb_checkpoints":
                homes.append(parents[:-1])  # where the original of a Jupyter checkpoint lives
            for home in homes:
                path = "/".join([*home, name])
                for patterns in chosen:
                    if not patterns.empty and (patterns.matches(path) or patterns.matches(path + "/")):
                        return True
        return False


def below(path: str, directory: str) -> str | None:
    """`path` relative to `directory` ("" when they are the same), or None when it is not inside."""
    if path == directory:
        return ""
    prefix = directory.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def is_below(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or inside it. Whole parts are compared: `/data-private` is not below `/data`."""
    return below(path, directory) is not None
