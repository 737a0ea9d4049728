"""`capkernel policy import-tacit FILE`: TACIT's JSON configuration as a capkernel.toml.

Rule 1: nothing gets wider on the way, and nothing is lost without a word: a key is taken over, or named with why not.
Rule 2: the result is read by the policy's own parser before it is written.
Rule 3: values of keys that are not taken over are never printed: one of them is an API key.

Keys and their meaning: TACIT's README, version 0.2.2 (github.com/lampepfl/tacit).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from capkernel.policy.errors import PolicyError
from capkernel.policy.load import Source, parse, policy_from, read_source
from capkernel.policy.patterns import problem_with

OK, FAILED, USAGE = 0, 1, 2
_MAX_SECONDS: Final = 86_400
_NO_COMMANDS: Final = "cells run no commands in this version, so there is nothing to allow"
_LOST: Final[dict[str, str]] = {
    "libraryJarPath": "the API is part of capkernel; there is no library file",
    "quiet": "the kernel prints nothing of its own; `capkernel audit` shows what happened",
    "sessionEnabled": "a kernel is one session; Jupyter starts and ends it",
    "libraryConfig.strictMode": _NO_COMMANDS,
    "libraryConfig.commandPermissions": _NO_COMMANDS,
    "libraryConfig.networkPermissions": "cells have no network in this version, so there is nothing to allow",
    "libraryConfig.llm": "cells ask no model in this version; its key is not copied: keep it where it is, or remove it",
}


class NotTacit(Exception):
    """The file cannot be taken over. The text says why, without values."""


@dataclass
class Imported:
    """sections: section → key → value, for the policy file. lost: (key, why), in the order of the file."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: list[tuple[str, str]] = field(default_factory=list)

    def put(self, section: str, key: str, value: Any) -> None:
        self.sections.setdefault(section, {})[key] = value

    def toml(self, name: str) -> str:
        """The policy file, with what was lost as comments."""
        lines = [f"# Made from {name}, a configuration of TACIT. It grants nothing before you trust it:"]
        lines += ["#   capkernel policy trust capkernel.toml"]
        if self.lost:
            lines += ["#", "# Not taken over:", *(f"#   {key}: {why}" for key, why in self.lost)]
        for section, entries in self.sections.items():
            # A string of JSON is one of TOML, and so are lists of them, numbers and truth values.
            lines += ["", f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in entries.items())]
        return "\n".join(lines) + "\n"


def imported(text: str) -> Imported:
    """What a configuration says, in our words. Raises NotTacit."""
    try:
        said = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        raise NotTacit("it is not JSON") from None
    if not isinstance(said, dict):
        raise NotTacit("a configuration of TACIT is an object: { ... }")
    made = Imported()
    for key, value in said.items():
        if key == "libraryConfig":
            if value is None:
                continue
            if not isinstance(value, dict):
                raise NotTacit("libraryConfig must be an object")
            for inner, deep in value.items():
                _one(made, f"libraryConfig.{inner}", deep)
        else:
            _one(made, key, value)
    return made


def _one(made: Imported, key: str, value: Any) -> None:
    if value is None:
        return  # unset, as TACIT reads it
    match key:
        case "recordPath":
            if _typed(key, value, str):
                made.put("records", "keep", True)
                made.lost.append((key, "records are kept, in capkernel's own directory (docs/audit.md)"))
        case "executionTimeoutMs":
            if _typed(key, value, int) <= 0:
                raise NotTacit(f"{key} must be a positive number of milliseconds")
            made.put("limits", "cell_seconds", min(value / 1000, _MAX_SECONDS))
            if value > _MAX_SECONDS * 1000:
                made.lost.append((key, f"at most {_MAX_SECONDS} seconds"))
        case "safeMode":
            if not _typed(key, value, bool):
                made.lost.append((key, "what a cell may be written with is always checked; it cannot be switched off"))
        case "libraryConfig.allowedRoots":
            made.put("files", "roots", _roots(made, key, _texts(key, value)))
        case "libraryConfig.classifiedPaths":
            made.put("files", "classified", _patterns(made, key, _texts(key, value)))
            made.lost.append((key, "it only adds: capkernel's own list of secret places always holds"))
        case "libraryConfig.classifiedWrite":
            made.put("files", "classified_write", _typed(key, value, bool))
        case "libraryConfig.secureOutput":
            if _typed(key, value, str):
                made.put("output", "secure_file", value)
                made.lost.append(
                    (key, "it counts only outside of the roots and the notebook's directory: move it there")
                )
        case _:
            known = _LOST.get(key)
            made.lost.append((_shown(key), known or "TACIT 0.2.2 has no such key; capkernel cannot say what it meant"))


def _roots(made: Imported, key: str, roots: list[str]) -> list[str]:
    kept = [root for root in roots if root and os.path.normpath(root).strip("/")]
    if len(kept) != len(roots):
        made.lost.append((key, "`/` and empty texts are no roots: name the directories that cells may use"))
    return kept


def _patterns(made: Imported, key: str, patterns: list[str]) -> list[str]:
    """TACIT's globs as gitignore patterns. Each matches at least what it matched there."""
    kept: list[str] = []
    for pattern in patterns:
        for one in _without_braces(pattern):
            written = "\\" + one if one[:1] in ("!", "#") else one  # these mean themselves in TACIT
            if problem_with(written):
                made.lost.append((key, f"an entry matches nothing: {_shown(pattern)!r}"))
            elif written not in kept:
                kept.append(written)
    return kept


def _without_braces(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`, which gitignore has no other word for. At most 64; then the braces become `*`."""
    done, todo = [], [pattern]
    while todo:
        current = todo.pop(0)
        found = re.search(r"\{([^{}]*)\}", current)
        if found is None:
            done.append(current)
        else:
            todo += [current[: found.start()] + part + current[found.end() :] for part in found[1].split(",")]
        if len(done) + len(todo) > 64:
            return [re.sub(r"\{.*\}", "*", pattern)]
    return done


def _texts(key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise NotTacit(f"{key} must be a list of texts")
    return value


def _typed(key: str, value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise NotTacit(f"{key} must be of the type {kind.__name__}")
    return value


def _shown(text: object) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))[:200]


def run(arguments: argparse.Namespace) -> int:
    """The command. Prints the policy, or writes it to `--out`; what was lost goes to the error stream."""
    try:
        source = read_source(Path(os.path.abspath(arguments.file)))
        made = imported(source.data.decode("utf-8"))
        text = made.toml(_shown(arguments.file.name))
        policy_from(parse(Source(Path(os.path.abspath("capkernel.toml")), text.encode())))
    except (PolicyError, NotTacit, UnicodeError) as problem:
        why = "it is not UTF-8" if isinstance(problem, UnicodeError) else str(problem)
        print(f"{_shown(arguments.file)}: {_shown(why)}", file=sys.stderr)
        return USAGE
    if arguments.out is None:
        print(text, end="")
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(arguments.out, flags, 0o644), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as problem:
            print(f"{_shown(arguments.out)}: {os.strerror(problem.errno or 0)}", file=sys.stderr)
            return FAILED
    for key, why in made.lost:
        print(f"not taken over: {key}: {why}", file=sys.stderr)
    return OK
