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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from capkernel.policy.defaults import CLASSIFIED, PROTECTED
from capkernel.policy.model import Policy
from capkernel.policy.patterns import PatternSet, absolute_patterns, fold, plain, relative_patterns

_COPY_SUFFIXES = (
    "~", ".bak", ".backup", ".orig", ".old", ".save", ".tmp", ".swp", ".swo", ".swn", ".swx",
    "___jb_tmp___", "___jb_old___",
)  # fmt: skip
_NUMBERED = re.compile(r"(\.~\d+~|\.save\.\d+|\.bak\.?\d+)$", re.IGNORECASE)
_CHECKPOINT = re.compile(r"-checkpoint(?=\.[^.]*$|$)", re.IGNORECASE)
_CHECKPOINTS = "-checkpoint"
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


@dataclass(frozen=True)
class _Patterns:
    """One list of patterns with the directories at which its anchored ones start; `absolute` sees whole paths."""

    anchors: tuple[str, ...]
    anchored: PatternSet
    absolute: PatternSet


class PathRules:
    """The path rules of one policy. Thread-safe: nothing changes after construction but a cache."""

    def __init__(self, policy: Policy) -> None:
        base = str(policy.base_dir.resolve())
        roots = [str(root.resolve()) for root in policy.root_paths()]
        self._roots = roots
        defaults = _Patterns(_anchors(base, roots), PatternSet(CLASSIFIED), PatternSet(()))
        lists = [(base, policy.files.classified), *((str(more.base.resolve()), more.patterns) for more in policy.added)]
        self._lists = (defaults, *(_patterns(start, patterns, roots) for start, patterns in lists))
        # The last list is no list of secrets: it says which origins need more before they are shown in a page.
        self._all = (*self._lists, _patterns(base, policy.viewer.high, roots))
        unprotected = {fold(name) for name in policy.files.unprotect}
        self._protected = tuple(fold(name) for name in PROTECTED if fold(name) not in unprotected)
        self._known = lru_cache(maxsize=65_536)(self._leaf_matches)
        self.is_classified = lru_cache(maxsize=65_536)(self._is_classified)
        self.protected_by = lru_cache(maxsize=65_536)(self._protected_by)
        self.relative_to_root = lru_cache(maxsize=4_096)(self._relative_to_root)

    def classified_among(self, directory: str, names: Sequence[str]) -> set[str]:
        """Which entries of a directory are secret. For a directory that is not classified itself."""
        text = plain("\0".join(names))
        folded = fold(text)
        if _CHECKPOINTS in folded or any(self._may_hold(patterns, directory, text, folded) for patterns in self._lists):
            return {name for name in names if self.is_classified(f"{directory.rstrip('/')}/{name}")}
        return set()

    def _may_hold(self, patterns: _Patterns, directory: str, text: str, folded: str) -> bool:
        above = plain(directory)
        if not patterns.absolute.empty and patterns.absolute.may_match(f"{above}\0{text}", f"{fold(above)}\0{folded}"):
            return True
        if patterns.anchored.empty:
            return False
        inside = [relative for anchor in patterns.anchors if (relative := below(above, plain(anchor))) is not None]
        if not inside:
            return True  # under no anchor nothing is known
        return any(patterns.anchored.may_match(f"{one}\0{text}", f"{fold(one)}\0{folded}") for one in inside)

    def _is_classified(self, path: str) -> bool:
        """Whether the policy calls this path a secret."""
        for number, patterns in enumerate(self._lists):
            if not patterns.absolute.empty and self._matches(number, True, path.strip("/")):
                return True
            if patterns.anchored.empty:
                continue
            for anchor in patterns.anchors:
                relative = below(path, anchor)
                if relative is not None and self._matches(number, False, relative):
                    return True
        return all(below(path, anchor) is None for anchor in self._lists[0].anchors)  # there, nothing is known

    def is_high(self, origin: str) -> bool:
        """Whether `[viewer] high` means this origin (`file:PATH`, as `relative_to_root` writes it, or another text).

        Which root a file was in is not written down, so it may have been in any of them.
        """
        number = len(self._lists)
        patterns = self._all[number]
        kind, _, path = origin.partition(":")
        if kind != "file":
            return patterns.anchored.matches(origin)
        if path == "(outside)":
            return not (patterns.anchored.empty and patterns.absolute.empty)
        for whole in (f"{root.rstrip('/')}/{path}" for root in self._roots):
            if not patterns.absolute.empty and self._matches(number, True, whole.strip("/")):
                return True
            inside = [relative for anchor in patterns.anchors if (relative := below(whole, anchor)) is not None]
            if any(self._matches(number, False, relative) for relative in inside):
                return True
        return False

    def in_roots(self, path: str) -> bool:
        """Whether a canonical path lies in the roots as they were when the session began."""
        return any(is_below(path, root) for root in self._roots)

    def _protected_by(self, path: str) -> str | None:
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

    def _relative_to_root(self, path: str) -> str:
        """The path as it is written down in the audit and in origins: below the innermost root, never the host's."""
        candidates = [relative for root in self._roots if (relative := below(path, root)) is not None]
        return min(candidates, key=len) or "." if candidates else "(outside)"

    def _matches(self, number: int, absolute: bool, relative: str) -> bool:
        parts = relative.split("/")
        ends = range(1, len(parts) + 1)
        return any(self._known(number, absolute, "/".join(parts[:end])) for end in ends) if relative else False

    def _leaf_matches(self, number: int, absolute: bool, relative: str) -> bool:
        chosen = self._all[number].absolute if absolute else self._all[number].anchored
        text = plain(relative)
        folded = fold(text)
        if _CHECKPOINTS not in folded and not chosen.may_match(text, folded):
            return False  # what it may be a copy of is a part of its name, but for a checkpoint
        *parents, leaf = relative.split("/")
        for name in (leaf, *originals(leaf)):
            homes = [parents]
            if parents and parents[-1] == ".ipynb_checkpoints":
                homes.append(parents[:-1])  # where the original of a Jupyter checkpoint lives
            for home in homes:
                path = "/".join([*home, name])
                if chosen.matches(path) or chosen.matches(path + "/"):
                    return True
        return False


def _anchors(base: str, roots: list[str]) -> tuple[str, ...]:
    return (base, *(root for root in roots if not is_below(root, base)))


def _patterns(base: str, patterns: tuple[str, ...], roots: list[str]) -> _Patterns:
    absolute = absolute_patterns(patterns, Path.home(), base)
    return _Patterns(_anchors(base, roots), PatternSet(relative_patterns(patterns)), PatternSet(absolute))


def below(path: str, directory: str) -> str | None:
    """`path` relative to `directory` ("" when they are the same), or None when it is not inside."""
    if path == directory:
        return ""
    prefix = directory.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def is_below(path: str, directory: str) -> bool:
    """Whether `path` is `directory` or inside it. Whole parts are compared: `/data-private` is not below `/data`."""
    return below(path, directory) is not None
