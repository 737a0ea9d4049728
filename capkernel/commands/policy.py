"""`capkernel policy`: trust, untrust, show, lint, init, import-tacit, explain.

Rule 1: a policy file is read once per command; what is shown, checked and trusted are the same bytes.
Rule 2: nothing of the directory runs.
Rule 3: text of a file is shown with control characters made visible.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from capkernel.commands import import_tacit, tracked
from capkernel.commands.secure_output import problem_ambient
from capkernel.policy import trust
from capkernel.policy.defaults import CLASSIFIED, PROTECTED
from capkernel.policy.discover import MAX_FOUND_BYTES, directories_above, places_in
from capkernel.policy.errors import PolicyError
from capkernel.policy.keys import KEYS, RISKS, STARTING_FILE
from capkernel.policy.load import FILE_NAMES, Parsed, default_policy, parse, policy_from, read_source
from capkernel.policy.model import Policy, PolicyFile
from capkernel.policy.narrow import narrow
from capkernel.policy.paths import PathRules, is_below
from capkernel.policy.resolve import Resolved, all_keys, resolve_ambient

OK, FAILED, USAGE = 0, 1, 2


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `capkernel policy` and its own commands."""
    policy = commands.add_parser("policy", help="look into, check and trust the file that says what sessions may do")
    which = policy.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
        parser = which.add_parser(name, help=words, description=words)
        parser.set_defaults(run=run)
        return parser

    add("trust", _trust, "let a policy file grant, as long as it has exactly its present content").add_argument(
        "file", type=Path
    )
    add("untrust", _untrust, "take that back").add_argument("file", type=Path)
    show = add("show", _show, "what a session in a directory may do, and where each entry comes from")
    show.add_argument("directory", type=Path, nargs="?", help="the notebook's directory (default: this one)")
    show.add_argument("--policy", type=Path, help="as if the kernel were started with --policy FILE")
    show.add_argument("--json", action="store_true")
    lint = add("lint", _lint, "mistakes in a policy file, and what in it is risky")
    lint.add_argument("file", type=Path, nargs="?", help="default: the nearest one from this directory upwards")
    lint.add_argument("--json", action="store_true")
    init = add("init", _init, "write a commented policy file to start from")
    init.add_argument("directory", type=Path, nargs="?", default=Path())
    tacit = add("import-tacit", import_tacit.run, "TACIT's JSON configuration as a policy file; says what is lost")
    tacit.add_argument("file", type=Path)
    tacit.add_argument("--out", type=Path, help="where to write it (default: the terminal); never overwrites")
    explain = add("explain", _explain, "what a key of the policy means, and who may set it")
    explain.add_argument("key", nargs="?")
    explain.add_argument("--json", action="store_true")


# ── trust ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _trust(arguments: argparse.Namespace) -> int:
    place = trust.canonical_place(arguments.file)
    if place.name not in FILE_NAMES:
        return _fail(f"{_plain(place)}: only {' and '.join(FILE_NAMES)} are looked for, so only they can be trusted")
    try:
        source = read_source(place, follow=False, limit=MAX_FOUND_BYTES)  # as it will be found
        parsed = parse(source)
        policy_from(parsed)
        trust.trust(trust.directory_ambient(), source)
    except (PolicyError, trust.TrustError) as problem:
        return _fail(f"not trusted: {_plain(problem)}")
    wider = narrow(default_policy(place.parent), parsed).refused
    for key in sorted(parsed.stated):
        mark = "grants" if key in wider else "says"
        print(f"  {mark} {key} = {_plain(json.dumps(_value_of(parsed.said, key)))}")
    print(f"trusted: {_plain(place)}\n  sha256 {source.sha256}\nIt counts until the file changes.")
    for warning in _warnings(parsed):
        print(f"  warning: {_plain(warning.text())}")
    return OK


def _untrust(arguments: argparse.Namespace) -> int:
    place = trust.canonical_place(arguments.file)
    try:
        known = trust.untrust(trust.directory_ambient(), place)
    except trust.TrustError as problem:
        return _fail(_plain(problem))
    if not known:
        return _fail(f"{_plain(place)} was not trusted")
    print(f"not trusted any more: {_plain(place)}")
    return OK


# ── show ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(arguments: argparse.Namespace) -> int:
    if arguments.policy is not None and arguments.directory is not None:
        return _fail("show takes a directory or --policy FILE, not both")
    base = arguments.directory or Path()
    if not base.is_dir():
        return _fail(f"{_plain(base)}: there is no such directory")
    named = arguments.policy
    if named is None and os.environ.get("CAPKERNEL_POLICY"):
        named = Path(os.environ["CAPKERNEL_POLICY"])
        if not named.is_absolute():
            return _fail("CAPKERNEL_POLICY must be an absolute path")
    try:
        found = resolve_ambient(base, named)
    except PolicyError as problem:
        return _fail(f"no session would start: {_plain(problem)}", FAILED)
    if arguments.json:
        print(json.dumps(_as_json(found), indent=1))
    else:
        for line in _as_lines(found):
            print(line)
    return OK


def _as_json(found: Resolved) -> dict[str, Any]:
    policy = found.policy
    return {
        "base": str(policy.base_dir),
        "source": None if policy.source is None else str(policy.source),
        "entries": {key: {"value": _effective(policy, key), "from": found.origin[key]} for key in all_keys()},
        "notices": [*([policy.notice] if policy.notice else []), *found.notices],
    }


def _as_lines(found: Resolved) -> Iterator[str]:
    policy = found.policy
    source = "the defaults" if policy.source is None else str(policy.source)
    yield f"policy: {_plain(source)}"
    entries = [(key, json.dumps(_effective(policy, key)), found.origin[key]) for key in all_keys()]
    width = max(len(key) for key, _, _ in entries)
    for key, value, origin in entries:
        yield f"  {key:<{width}}  {_plain(value)}  ({_plain(origin)})"
    yield f"  built in: {len(CLASSIFIED)} classified patterns, {len(PROTECTED)} protected names"
    for notice in [*([policy.notice] if policy.notice else []), *found.notices]:
        yield f"note: {_plain(notice)}"


def _effective(policy: Policy, key: str) -> Any:
    if key == "files.roots":
        return [os.path.realpath(root) for root in policy.root_paths()]
    value = _value_of(policy, key)
    if key == "files.classified":
        return [*value, *(pattern for added in policy.added for pattern in added.patterns)]
    return value


def _value_of(holder: Policy | PolicyFile, key: str) -> Any:
    value: Any = holder
    for part in key.split("."):
        value = getattr(value, part)
    return msgspec.to_builtins(value)


# ── lint ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Warning:
    line: int | None
    key: str
    problem: str

    def text(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        return f"{where}{self.key}: {self.problem}"


def _lint(arguments: argparse.Namespace) -> int:
    file = arguments.file or _nearest(Path())
    if file is None:
        return _fail("there is no policy file here or above: name one, or write one with `capkernel policy init`")
    try:
        parsed = parse(read_source(Path(os.path.abspath(file))))
    except PolicyError as problem:
        parsed = Parsed(Path(os.path.abspath(file)), PolicyFile(), frozenset(), (problem,))
    errors = [{"file": str(error.file), "line": error.line, "problem": error.problem} for error in parsed.problems]
    warnings = list(_warnings(parsed)) if parsed.text else []
    if arguments.json:
        said = [{"file": str(parsed.file), "line": w.line, "key": w.key, "problem": w.problem} for w in warnings]
        print(json.dumps({"errors": errors, "warnings": said}, indent=1))
        return FAILED if errors else OK
    for error in parsed.problems:
        print(f"error: {_plain(error)}")
    for warning in warnings:
        where = f"{parsed.file}:{warning.line}" if warning.line is not None else str(parsed.file)
        print(f"warning: {_plain(where)}: {_plain(warning.key)}: {_plain(warning.problem)}")
    print(f"{_plain(parsed.file)}: {len(errors)} errors, {len(warnings)} warnings")
    return FAILED if errors else OK


def _nearest(base: Path) -> Path | None:
    places = (place for at in directories_above(base.resolve()) for place in places_in(at))
    return next((place for place in places if os.path.lexists(place)), None)


def _warnings(parsed: Parsed) -> Iterator[_Warning]:
    """What is allowed, and worth a second look."""
    said, stated = parsed.said, parsed.stated
    if "files.roots" in stated:
        for root in said.files.roots:
            problem = _root_problem(parsed.file.parent, root)
            if problem:
                yield _Warning(parsed.line("files.roots", root), "files.roots", f"{root!r} {problem}")
    for entry in said.files.unprotect:
        line = parsed.line("files.unprotect", entry)
        yield _Warning(line, "files.unprotect", f"cells may write {entry}: {RISKS[entry]}")
    for pattern in said.files.classified:
        if pattern.startswith("!") and PathRules(default_policy(parsed.file.parent)).is_classified(
            str(parsed.file.parent.resolve() / pattern[1:].strip("/"))
        ):
            line = parsed.line("files.classified", pattern)
            yield _Warning(line, "files.classified", f"{pattern!r} takes nothing back: a built-in pattern matches too")
    if said.files.classified_write is True:
        line = parsed.line("files.classified_write")
        yield _Warning(line, "files.classified_write", "cells may replace any classified file within the roots")
    if said.profile == "relaxed":
        yield _Warning(parsed.line("profile"), "profile", "type errors are not refused")
    if said.sandbox.minimum in ("none", "partial"):
        what = "without isolation" if said.sandbox.minimum == "none" else "with part of the isolation"
        problem = f"sessions start {what}: native code in a cell may reach what you can reach"
        yield _Warning(parsed.line("sandbox.minimum"), "sandbox.minimum", problem)
    if said.output.secure_file and not parsed.problems:
        problem = problem_ambient(policy_from(parsed), None)
        where = "classified values that cells show go there in clear text, for whoever can read the file"
        told = f"nothing will go there: {problem}" if problem else where
        yield _Warning(parsed.line("output.secure_file"), "output.secure_file", told)
    if said.output.active:
        problem = "outputs may run scripts, which act as you in your Jupyter page"
        yield _Warning(parsed.line("output.active"), "output.active", problem)
    yield from _tracked(parsed)


def _root_problem(base: Path, root: str) -> str | None:
    place = (Path.home() / root[2:] if root.startswith("~/") else base / root).resolve()
    home = Path.home().resolve()
    if place == home:
        return "is the home directory: every file of yours, keys included"
    if is_below(str(home), str(place)):
        return "holds the home directory: every file of yours, keys included"
    if place.parent == Path(place.anchor):
        return "is a top-level directory of the machine: name what is needed in it"
    if not place.is_dir():
        return "is not a directory now"
    return None


def _tracked(parsed: Parsed) -> Iterator[_Warning]:
    try:
        policy = policy_from(Parsed(parsed.file, parsed.said, parsed.stated, ()))
    except PolicyError:
        return
    for words in tracked.warnings_ambient(parsed.file.parent.resolve(), PathRules(policy)):
        yield _Warning(None, "git", words)


# ── init, explain ────────────────────────────────────────────────────────────────────────────────────────────────────


def _init(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.directory
    if not directory.is_dir():
        return _fail(f"{_plain(directory)}: there is no such directory")
    for place in places_in(directory):
        if os.path.lexists(place):
            return _fail(f"{_plain(place)} is there already; it is not overwritten")
    place = directory / FILE_NAMES[0]
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(place, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(STARTING_FILE)
    except OSError as problem:
        return _fail(f"{_plain(place)}: {os.strerror(problem.errno or 0)}")
    print(f"{_plain(place)}: edit it, then `capkernel policy trust {_plain(place)}`")
    return OK


def _explain(arguments: argparse.Namespace) -> int:
    defaults = {key: _value_of(PolicyFile(), key) for key in all_keys()}
    if arguments.key is None:
        if arguments.json:
            print(json.dumps({key: _key_as_json(key, defaults[key]) for key in KEYS}, indent=1))
            return OK
        for key in KEYS:
            print(f"{key:<24} {json.dumps(defaults[key])}")
        return OK
    known = KEYS.get(arguments.key)
    if known is None:
        inside = [key for key in KEYS if key.startswith(arguments.key + ".") or key.endswith("." + arguments.key)]
        near = inside or difflib.get_close_matches(arguments.key, KEYS, n=1, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `capkernel policy explain` lists them"
        return _fail(f"{_plain(arguments.key)}: not a key of a policy{hint}")
    if arguments.json:
        print(json.dumps(_key_as_json(known.name, defaults[known.name]), indent=1))
        return OK
    print(f"{known.name}\n\n  {known.meaning}\n\n  type: {known.type}\n  default: {json.dumps(defaults[known.name])}")
    print(f"  who may set it: the operator (--policy, $CAPKERNEL_POLICY); {known.who}")
    if known.name == "files.unprotect":
        print("\n  protected names:")
        for name in PROTECTED:
            print(f"    {name:<18} {RISKS[name]}")
    if known.name == "files.classified":
        print("\n  built in, with their editor copies:\n    " + "  ".join(CLASSIFIED))
    return OK


def _key_as_json(name: str, default: Any) -> dict[str, Any]:
    key = KEYS[name]
    return {"key": name, "type": key.type, "default": default, "meaning": key.meaning, "who": key.who}


def _fail(words: str, code: int = USAGE) -> int:
    print(words, file=sys.stderr)
    return code


def _plain(text: object) -> str:
    """Text for a terminal: a file cannot move the cursor or hide a line."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))
