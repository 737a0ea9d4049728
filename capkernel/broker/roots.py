"""The root that a cell asks for: a directory within the policy's roots.

Rule 1: the word of the cell chooses among the operator's roots, as text; what it is granted is decided by an open below
the chosen root, and by where that led.
"""

from __future__ import annotations

import os

from capkernel.broker.confine import Escape, canonical_path, checked_path, open_beneath, open_directory_ambient
from capkernel.broker.places import Places
from capkernel.policy.decision import Denied
from capkernel.policy.model import Policy
from capkernel.policy.paths import PathRules, below, is_below


class Roots:
    """The roots of one session. base_dir: what a relative word starts at."""

    def __init__(self, policy: Policy, base_dir: str, rules: PathRules, places: Places) -> None:
        self._policy = policy
        self._base_dir = base_dir
        self._rules = rules
        self._places = places

    def open(self, argument: str) -> tuple[int | None, Denied | None]:
        """A place descriptor of the root, or why there is none. Raises EffectError for what can be no path, OSError."""
        if not self._policy.files.roots:
            return None, Denied(self._policy.notice or "the policy lists no roots: add files.roots")
        absolute = argument.startswith("/")
        asked = argument if absolute else os.path.join(self._base_dir, checked_path(argument))
        if absolute:
            checked_path(argument.lstrip("/"))
        if self._places.hide_names and self._places.meets_classified("/", asked):
            # Whether it is there must not show, and nothing in it can be told.
            return None, Denied("the root is a classified path, and the policy hides their names: ask for one above it")
        # As text only, to choose among the operator's roots; the open below is what decides.
        wanted = os.path.realpath(asked)
        for root in self._policy.root_paths():
            top = os.path.realpath(root)
            rest = below(wanted, top)
            if rest is None:
                continue
            parent = open_directory_ambient(top)
            try:
                if canonical_path(parent) != top:
                    continue
                fd = open_beneath(parent, rest or ".", os.O_PATH | os.O_DIRECTORY)
            except Escape:
                continue
            finally:
                os.close(parent)
            try:
                path, excluded = self._places.judge_directory(fd)
            except BaseException:
                os.close(fd)
                raise
            if excluded is None and is_below(path, top) and self._rules.in_roots(path):
                return fd, None
            os.close(fd)
            if excluded is not None:
                return None, Denied(f"no file is granted here: {excluded}")
        roots = ", ".join(repr(root) for root in self._policy.files.roots)
        return None, Denied(
            f"the root is outside of what the policy allows ({roots}): ask for a directory within, "
            "or have it added to files.roots"
        )
