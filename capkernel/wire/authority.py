"""One line that says what a cell may do: "may: read data/a.csv · write out/ · nothing else". For a person to read.

Rule 1: the line never says less than the plan; what does not fit, or is not known, is said in wider words.
Rule 2: text out of a cell is quoted or escaped, so no path can look like another part of the line.
Rule 3: the length is bounded.
"""

from __future__ import annotations

import unicodedata
from typing import Any, Final

from capkernel.wire.plan import VERBS, Plan, ScopeSite

MOST_PARTS: Final = 8
MOST_PATHS: Final = 3
MOST_CHARACTERS: Final = 60  # of one path
MOST_SCOPES: Final = 100  # in the data
_ANY_ROOT: Final = "any folder the policy allows"
_HERE: Final = "the notebook's folder"
_WORDS: Final = {"read_classified": "read classified", "write_classified": "write classified"}
_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+=@%~*{}[]()!$&:#")


def authority_line(plan: Plan) -> str:
    """The line; "" when the cell can do nothing beyond computing."""
    parts = [*_parts(plan.scopes), *_asks(plan)]
    if not parts:
        return ""
    rest = len(parts) - MOST_PARTS
    if rest > 0:
        parts = [*parts[:MOST_PARTS], f"and {rest} more"]
    return f"may: {' · '.join(parts)} · nothing else"


def authority_data(plan: Plan) -> dict[str, Any]:
    """The same for programs: `{"authority": line, "plan": {"scopes": [...], "sinks": [...]}}`."""
    scopes = [
        {
            "kind": site.kind, "argument": site.argument, "cell": site.cell,
            "uses": None if site.uses is None else [
                {"verb": use.verb, "paths": None if use.paths is None else list(use.paths)} for use in site.uses
            ],
        }
        for site in plan.scopes[:MOST_SCOPES]
    ]  # fmt: skip
    asks = [{"kind": site.kind, "argument": site.argument, "cell": site.cell} for site in plan.asks[:MOST_SCOPES]]
    said: dict[str, Any] = {"scopes": scopes, "sinks": list(plan.sinks), "asks": asks}
    if len(plan.scopes) > MOST_SCOPES:
        said["more"] = len(plan.scopes) - MOST_SCOPES
    return {"authority": authority_line(plan), "plan": said}


def _parts(sites: tuple[ScopeSite, ...]) -> list[str]:
    verbs: dict[str, list[str]] = {}  # target → verbs, in the order of the text
    for site in sites:
        if site.kind != "file_system":
            verbs.setdefault(_other(site), [])
            continue
        known = site.uses
        if known is None:
            targets = [(verb, _folder(site.argument)) for verb in VERBS]
        elif known:
            targets = [(use.verb, _target(site.argument, use.paths)) for use in known]
        else:
            targets = [("", _folder(site.argument))]
        for verb, target in targets:
            said = verbs.setdefault(target, [])
            if verb not in said:
                said.append(verb)
    return [_part(target, said) for target, said in verbs.items()]


def _asks(plan: Plan) -> list[str]:
    """What the cell can ask the person for, each once."""
    names = list(dict.fromkeys(site.argument for site in plan.asks if site.kind == "secret"))
    parts = []
    if None in names or len(names) > MOST_PATHS:
        parts.append("ask you for secrets")
    elif names:
        parts.append("ask you for the secret " + ", ".join(shown(name) for name in names if name is not None))
    if any(site.kind != "secret" for site in plan.asks):
        parts.append("ask you to release a secret")
    return parts


def _part(target: str, verbs: list[str]) -> str:
    named = [verb for verb in VERBS if verb in verbs]
    named += sorted(shown(verb) for verb in verbs if verb and verb not in VERBS)
    if not verbs:
        return target
    return f"{', '.join(_WORDS.get(verb, verb) for verb in named) or 'open'} {target}"


def _target(argument: str | None, paths: tuple[str, ...] | None) -> str:
    if not paths or argument is None or len(paths) > MOST_PATHS:
        return _folder(argument)
    if any(len(argument) + len(path) >= MOST_CHARACTERS for path in paths):
        return _folder(argument)  # cut, it would not say where
    folder = "" if argument in (".", "") else argument.rstrip("/") + "/"
    return ", ".join(shown(folder + path) if path != "." else _folder(argument) for path in paths)


def _folder(argument: str | None) -> str:
    if argument is None:
        return _ANY_ROOT
    return _HERE if argument in (".", "") else shown(argument.rstrip("/") + "/")


def _other(site: ScopeSite) -> str:
    what = {"exec": "run", "network": "reach"}.get(site.kind, f"use {shown(site.kind)}:")
    return f"{what} {'whatever the policy allows' if site.argument is None else shown(site.argument)}"


def shown(text: str) -> str:
    """Text out of a cell, cut, and quoted when it holds anything but the usual characters of a path."""
    cut = text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
    bare = cut.removesuffix("…")
    if bare and all(character in _SAFE or _is_letter(character) for character in bare):
        return cut
    return ascii(cut)


def _is_letter(character: str) -> bool:
    # Left to right only: a character that turns the direction of the line could make it read otherwise.
    return character.isalnum() and unicodedata.bidirectional(character) == "L"
