"""What an untrusted file may do: make a policy narrower.

Rule 1: for every policy p and every file f, narrow(p, f) allows nothing that p does not allow. An entry without a rule
here is not applied at all.
Rule 2: roots are compared with links resolved, and kept resolved: a link that came with the file widens nothing.
Rule 3: patterns become a list of their own, so a negation in it takes nothing back from another list.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from capkernel.policy.approvable import WIDENING
from capkernel.policy.load import Parsed
from capkernel.policy.model import Limits, PatternList, Policy, expand_home
from capkernel.policy.paths import is_below

# From the widest to the narrowest.
_PROFILES: Final = ("relaxed", "standard", "strict")
_LEVELS: Final = ("none", "partial", "standard", "full")
_CLASSIFIED_WRITE: Final = (True, "new", False)
MAX_PATTERNS: Final = 64
MAX_ROOTS: Final = 64
MAX_PATTERN: Final = 256
MAX_STARS: Final = 2
"""Per pattern, beside one part `**`: each `*` multiplies what one comparison with a hostile name may cost."""


@dataclass(frozen=True)
class Narrowed:
    """policy: the narrower one. applied: keys that narrowed. refused: keys that ask for more, or have no rule.

    dropped: how many patterns were too many or too costly.
    """

    policy: Policy
    applied: tuple[str, ...]
    refused: tuple[str, ...]
    dropped: int = 0


def narrow(policy: Policy, asked: Parsed, *, bounded: bool = True) -> Narrowed:
    """`policy` with what `asked` makes narrower in it. What is wrong in `asked` counts as not written.

    bounded: drop patterns that could make the kernel slow. Not for what the person has written or trusted.
    """
    dropped = 0
    if bounded:
        patterns = asked.said.files.classified
        cheap = tuple(pattern for pattern in patterns[:MAX_PATTERNS] if _cheap(pattern))
        dropped = len(patterns) - len(cheap)
        # Fewer roots are narrower.
        files = msgspec.structs.replace(asked.said.files, classified=cheap, roots=asked.said.files.roots[:MAX_ROOTS])
        asked = replace(asked, said=msgspec.structs.replace(asked.said, files=files))
    applied: list[str] = []
    refused: list[str] = []
    for key in sorted(asked.stated):
        narrower = _one(policy, asked, key)
        if isinstance(narrower, Policy):
            policy = narrower
            applied.append(key)
        elif narrower:
            refused.append(key)
    return Narrowed(policy, tuple(applied), tuple(refused), dropped)


def _one(policy: Policy, asked: Parsed, key: str) -> Policy | bool:
    """The policy narrowed by one entry, or whether the entry asks for more than the policy allows."""
    said = asked.said
    section, _, name = key.partition(".")
    if key == "profile":
        step = _PROFILES.index(said.profile) - _PROFILES.index(policy.profile)
        return replace(policy, profile=said.profile) if step > 0 else step < 0
    if key == "sandbox.minimum":
        step = _LEVELS.index(said.sandbox.minimum) - _LEVELS.index(policy.sandbox.minimum)
        sandbox = msgspec.structs.replace(policy.sandbox, minimum=said.sandbox.minimum)
        return replace(policy, sandbox=sandbox) if step > 0 else step < 0
    if key == "files.classified_write":
        step = _position(said.files.classified_write) - _position(policy.files.classified_write)
        files = msgspec.structs.replace(policy.files, classified_write=said.files.classified_write)
        return replace(policy, files=files) if step > 0 else step < 0
    if key == "files.hide_classified_names":
        if said.files.hide_classified_names and not policy.files.hide_classified_names:
            return replace(policy, files=msgspec.structs.replace(policy.files, hide_classified_names=True))
        return policy.files.hide_classified_names and not said.files.hide_classified_names
    if key == "output.active":
        if policy.output.active and not said.output.active:
            return replace(policy, output=msgspec.structs.replace(policy.output, active=False))
        return said.output.active and not policy.output.active
    if key == "files.memory":
        return said.files.memory != policy.files.memory
    if key == "files.classified":
        return _patterns(policy, asked)
    if section == "viewer":
        # Patterns of another file would start at another directory: what it calls high makes every value so.
        wanted = said.viewer.pairing if name == "pairing" else bool(said.viewer.high)
        if wanted and not policy.viewer.pairing:
            return replace(policy, viewer=msgspec.structs.replace(policy.viewer, pairing=True))
        return name == "pairing" and policy.viewer.pairing and not wanted
    if key == "files.roots":
        return _roots(policy, asked)
    if key == "files.unprotect":
        return not set(said.files.unprotect) <= set(policy.files.unprotect)
    if key == "approvals.ask":
        added = set(said.approvals.ask) - set(policy.approvals.ask)
        more = sorted(added - WIDENING)
        asking = msgspec.structs.replace(policy.approvals, ask=(*policy.approvals.ask, *more))
        return replace(policy, approvals=asking) if more else bool(added)
    if key == "approvals.declassify":
        if policy.approvals.declassify and not said.approvals.declassify:
            return replace(policy, approvals=msgspec.structs.replace(policy.approvals, declassify=False))
        return said.approvals.declassify and not policy.approvals.declassify
    if section == "limits" and name in Limits.__struct_fields__:
        limit, present = getattr(said.limits, name), getattr(policy.limits, name)
        if limit < present:
            return replace(policy, limits=msgspec.structs.replace(policy.limits, **{name: limit}))
        return bool(limit > present)
    return True


def _position(mode: object) -> int:
    return next(number for number, known in enumerate(_CLASSIFIED_WRITE) if known is mode or known == mode)


def _patterns(policy: Policy, asked: Parsed) -> Policy | bool:
    patterns = asked.said.files.classified
    if all(pattern.startswith("!") for pattern in patterns):
        return bool(patterns)  # negations only: they have nothing of their own list to take back
    return replace(policy, added=(*policy.added, PatternList(asked.file.parent, patterns)))


def _cheap(pattern: str) -> bool:
    parts = pattern.removeprefix("!").split("/")
    stars = sum(part.count("*") for part in parts if part != "**")
    return len(pattern) <= MAX_PATTERN and stars <= MAX_STARS and parts.count("**") <= 1


def _roots(policy: Policy, asked: Parsed) -> Policy | bool:
    present = [os.path.realpath(root) for root in policy.root_paths()]
    wanted = [os.path.realpath(asked.file.parent / expand_home(root)) for root in asked.said.files.roots]
    # The intersection of two sets of trees: of every pair where one holds the other, the inner one.
    common = {inner for a in present for b in wanted for inner in _inner(a, b)}
    common = {root for root in common if not any(other != root and is_below(root, other) for other in common)}
    if common == set(present):
        return not all(any(is_below(b, a) for a in present) for b in wanted)
    base = os.path.realpath(policy.base_dir)
    roots = tuple(_written(root, base) for root in sorted(common))
    notice = policy.notice if roots else policy.notice or f"{asked.file.name} leaves no root of the policy's over"
    return replace(policy, files=msgspec.structs.replace(policy.files, roots=roots), notice=notice)


def _inner(a: str, b: str) -> tuple[str, ...]:
    if is_below(b, a):
        return (b,)
    return (a,) if is_below(a, b) else ()


def _written(root: str, base: str) -> str:
    # "./" in front: a directory named "~" must not become the home directory.
    if root == base:
        return "."
    return "./" + os.path.relpath(root, base) if is_below(root, base) else str(Path(root))
