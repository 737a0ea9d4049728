"""The policy of a session: what the operator named, or what was found and trusted, or the defaults.

Rule 1: a file that the operator named (--policy, $CAPKERNEL_POLICY) has full force, nothing else is looked for, and a
mistake in it is an error. So is one in a file whose exact content the person has trusted.
Rule 2: every other file that is found only narrows. It never grants, never fails a start, and is told in one line.
Rule 3: the search goes upwards and ends in the directory of the first trusted file. An untrusted one on the way does
not hide it, and does not take its place.
Rule 4: where a trusted file has changed or gone, what it narrowed still holds until it is trusted anew or untrusted.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from capkernel.policy import trust
from capkernel.policy.discover import directories_above, places_in, read_found
from capkernel.policy.errors import PolicyError
from capkernel.policy.load import Parsed, Source, default_policy, parse, policy_from, read_source
from capkernel.policy.model import Policy, PolicyFile
from capkernel.policy.narrow import Narrowed, narrow
from capkernel.policy.trust import TrustStore

MAX_TOLD: Final = 4
"""Most lines about untrusted files that a session shows."""


@dataclass(frozen=True)
class Resolved:
    """policy: what holds. origin: dotted key → where its value comes from, for people. files: policy files that were
    found or named. notices: one line each, without any text of an untrusted file."""

    policy: Policy
    origin: Mapping[str, str]
    files: tuple[Path, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass
class _Found:
    chosen: Source | None = None
    files: list[Path] = field(default_factory=list)
    narrowing: list[tuple[str, Source | PolicyError]] = field(default_factory=list)  # what it is, what it says
    notices: list[str] = field(default_factory=list)


def resolve_ambient(base: Path | str, named: Path | str | None = None) -> Resolved:
    """The policy of a session in the directory `base`. Raises PolicyError.

    Ambient authority: reads policy files around `base` and the trust store of the user.
    """
    return resolve(base, named, lambda: trust.read_store(trust.directory_ambient()))


def resolve(base: Path | str, named: Path | str | None, read_store: Callable[[], TrustStore]) -> Resolved:
    """The same with a store of the caller's."""
    if named is not None:
        parsed = parse(read_source(Path(os.path.abspath(named))))
        return Resolved(policy_from(parsed), _origins(parsed, str(parsed.file)), (parsed.file,))
    here = Path(os.path.realpath(base))
    found = _search(here, read_store())
    if found.chosen is None:
        policy, origin = default_policy(here), dict.fromkeys(all_keys(), "default")
    else:
        parsed = parse(found.chosen)
        policy, origin = policy_from(parsed), _origins(parsed, _shown(parsed.file, here), " (trusted)")
    for what, there in found.narrowing:
        policy = _narrowed(policy, what, there, here, origin, found.notices)
    told = found.notices[:MAX_TOLD]
    if len(found.notices) > MAX_TOLD:
        told.append(f"and {len(found.notices) - MAX_TOLD} more lines about policy files; `capkernel policy show`")
    return Resolved(policy, MappingProxyType(origin), tuple(found.files), tuple(told))


def all_keys() -> tuple[str, ...]:
    """Every dotted key of a policy."""
    keys: list[str] = []
    for name, default in zip(PolicyFile.__struct_fields__, PolicyFile.__struct_defaults__, strict=True):
        inner = default.__struct_fields__ if isinstance(default, msgspec.Struct) else None
        keys += [name] if inner is None else [f"{name}.{key}" for key in inner]
    return tuple(keys)


def _origins(parsed: Parsed, name: str, remark: str = "") -> dict[str, str]:
    return {key: _at(name, parsed, key) + remark if key in parsed.stated else "default" for key in all_keys()}


def _at(name: str, parsed: Parsed, key: str) -> str:
    line = parsed.line(key)
    return name if line is None else f"{name}:{line}"


def _search(base: Path, store: TrustStore) -> _Found:
    found = _Found()
    if store.problem:
        found.notices.append(store.problem)
    for directory in directories_above(base):
        for place in places_in(directory):
            _look(place, store, found)
        if found.chosen is not None:
            break
    return found


def _look(place: Path, store: TrustStore, found: _Found) -> None:
    there = read_found(place)
    entry = store.entry(place)
    if there is not None:
        found.files.append(place)
    if isinstance(there, Source) and store.trusts(there) and found.chosen is None:
        found.chosen = there
        return
    if isinstance(there, Source) and store.trusts(there):
        found.narrowing.append(("second", there))
        return
    if entry is not None:
        remembered = Source(place, entry.text.encode("utf-8"))
        found.narrowing.append(("gone" if there is None else "before", remembered))
    if there is not None:
        found.narrowing.append(("untrusted" if entry is None else "changed", there))


def _narrowed(
    policy: Policy,
    what: str,
    there: Source | PolicyError,
    base: Path,
    origin: dict[str, str],
    notices: list[str],
) -> Policy:
    name = _shown(there.file, base)
    if isinstance(there, PolicyError):
        notices.append(f"{name} {_WHY[what]} and cannot be read, so it grants nothing: {there.problem}")
        return policy
    try:
        asked = parse(there)
        result = narrow(policy, asked, bounded=what in _WHY)
    except Exception as problem:
        # Not foreseen. A file that grants nothing must not keep a session from starting; only the type is told.
        why = type(problem).__name__
        notices.append(f"{name} cannot be read ({why}), so it grants nothing")
        return policy
    for key in result.applied:
        by = f"narrowed by {_at(name, asked, key)} ({_KINDS[what]})"
        origin[key] = by if origin[key] == "default" or key == "files.roots" else f"{origin[key]}, {by}"
    told = _told(what, name, asked, result)
    if told:
        notices.append(told)
    return result.policy


_WHY: Final = {"untrusted": "is not trusted", "changed": "has changed since it was trusted"}
_KINDS: Final = {
    "untrusted": "not trusted",
    "changed": "changed since it was trusted",
    "second": "trusted, not the first of its directory",
    "before": "as it was trusted",
    "gone": "as it was trusted, now gone",
}


def _told(what: str, name: str, asked: Parsed, result: Narrowed) -> str:
    """One line about a file that only narrows. Names keys of ours, never text of the file."""
    quoted = shlex.quote(name)
    narrows = f"it narrows {', '.join(result.applied) or 'nothing'}"
    if what == "before":
        return ""  # the line about the file as it is now says so
    if what == "gone":
        return f"{name} was trusted and is gone; what it narrowed still holds until `capkernel policy untrust {quoted}`"
    if what == "second":
        return f"{name} is the second trusted policy of its directory, so it grants nothing; {narrows}"
    ignored = f" ({', '.join(result.refused)} ignored)" if result.refused else ""
    parts = [f"{name} {_WHY[what]}, so it grants nothing{ignored}", narrows]
    if result.dropped:
        parts.append(f"{result.dropped} of its patterns are too many or too costly, and not used")
    if what == "changed":
        parts.append("what it narrowed before still holds")
    if asked.problems:
        count = len(asked.problems)
        parts.append(f"it has {count} mistake{'s' if count > 1 else ''} (`capkernel policy lint {quoted}`)")
    return "; ".join(parts) + f". Read it, then `capkernel policy trust {quoted}`"


def _shown(file: Path, base: Path) -> str:
    """The path of a discovered file as seen from the notebook: never a directory name of the host."""
    return os.path.relpath(file, base)
