"""Read a policy file: TOML or JSON, once, whole. What is unknown or of a wrong type is an error that names its line.

Only a file that a launcher names grants anything. A file that merely lies next to the notebook could come with the
notebook, so `discovered` only says where it is.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from capkernel.policy.defaults import PROTECTED
from capkernel.policy.errors import PolicyError
from capkernel.policy.model import Files, Limits, Policy, PolicyFile, Sandbox, expand_home
from capkernel.policy.patterns import problem_with

FILE_NAMES: Final = ("capkernel.toml", "capkernel.json")
MAX_BYTES: Final = 1_048_576
_SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {"files": Files, "limits": Limits, "sandbox": Sandbox}
_AT = re.compile(r"\(at line (\d+), column \d+\)")
_FIELD = re.compile(r" - at `\$([^`]*)`")


def load_policy(path: Path | str) -> Policy:
    """The policy in the file at `path` (`.toml` or `.json`). Raises PolicyError with the line where it can be told."""
    file = Path(os.path.abspath(path))
    text = _read(file)
    if file.suffix not in (".toml", ".json"):
        raise PolicyError(file, None, "a policy file is named *.toml or *.json")
    raw = _parse_toml(file, text) if file.suffix == ".toml" else _parse_json(file, text)
    _check_keys(file, text, raw)
    try:
        said = msgspec.convert(raw, PolicyFile)
    except msgspec.ValidationError as problem:
        raise _wrong_value(file, text, str(problem)) from None
    _check_values(file, text, said)
    # Without a word about roots the default holds, with its exception; roots that are written are the operator's word.
    files, notice = (said.files, "") if "roots" in raw.get("files", {}) else _without_home(said.files, file.parent)
    if not files.roots and not notice:
        notice = f"the policy {file.name} lists no roots: add files.roots"
    return Policy(said.profile, files, said.limits, said.sandbox, file.parent, file, notice)


def default_policy(base_dir: Path | str) -> Policy:
    """What holds without a policy file: the files of the notebook's directory, unless that is `/` or the home."""
    base = Path(os.path.abspath(base_dir))
    said = PolicyFile()
    files, notice = _without_home(said.files, base)
    return Policy(said.profile, files, said.limits, said.sandbox, base, None, notice)


def discovered(base_dir: Path | str) -> Path | None:
    """The policy file next to the notebook or above it, which is not trusted and grants nothing. Nothing is read."""
    base = Path(os.path.abspath(base_dir))
    for directory in (base, *base.parents):
        for name in FILE_NAMES:
            if os.path.lexists(directory / name):
                return directory / name
    return None


def _without_home(files: Files, base: Path) -> tuple[Files, str]:
    resolved = base.resolve()
    home = Path.home().resolve()
    if resolved == home or resolved in home.parents:
        what = "the home directory" if resolved == home else "a directory above the home directory"
        if resolved.parent == resolved:
            what = "the root of the file system"
        notice = f"the notebook's directory is {what}, so no files are granted: work in a project directory of its own"
        return msgspec.structs.replace(files, roots=()), notice
    if resolved.parent == resolved:
        notice = "the notebook's directory is the root of the file system, so no files are granted: "
        return msgspec.structs.replace(files, roots=()), notice + "work in a project directory of its own"
    return files, ""


def _read(file: Path) -> str:
    try:
        with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise PolicyError(file, None, "a policy is a regular file")
            data = stream.read(MAX_BYTES + 1)
    except OSError as problem:
        raise PolicyError(file, None, f"cannot be read: {os.strerror(problem.errno or 0)}") from None
    if len(data) > MAX_BYTES:
        raise PolicyError(file, None, f"a policy has at most {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise PolicyError(file, data.count(b"\n", 0, problem.start) + 1, "not UTF-8 text") from None


def _parse_toml(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        found = _AT.search(str(problem))
        line = int(found[1]) if found else text.count("\n") + 1 if "end of document" in str(problem) else None
        raise PolicyError(file, line, f"not TOML: {_AT.sub('', str(problem)).strip()}") from None
    except RecursionError:
        raise PolicyError(file, None, "not TOML: nested too deeply") from None


def _parse_json(file: Path, text: str) -> dict[str, Any]:
    try:
        raw = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as problem:
        raise PolicyError(file, problem.lineno, f"not JSON: {problem.msg}") from None
    except _Twice as problem:
        raise PolicyError(file, None, f"the key {problem.args[0]!r} stands twice in one object") from None
    except RecursionError:
        raise PolicyError(file, None, "not JSON: nested too deeply") from None
    if not isinstance(raw, dict):
        raise PolicyError(file, 1, "a policy is a JSON object")
    return raw


class _Twice(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Twice(key)  # json keeps the last and forgets the first without a word
        made[key] = value
    return made


def _check_keys(file: Path, text: str, raw: dict[str, Any]) -> None:
    for key, value in raw.items():
        if key not in PolicyFile.__struct_fields__:
            raise PolicyError(file, _line_of(text, (key,)), _unknown(key, "", PolicyFile.__struct_fields__))
        section = _SECTIONS.get(key)
        if section is None:
            continue
        if not isinstance(value, dict):
            raise PolicyError(file, _line_of(text, (key,)), f"[{key}] is a table of keys and values")
        for inner in value:
            if inner not in section.__struct_fields__:
                problem = _unknown(inner, f" in [{key}]", section.__struct_fields__)
                raise PolicyError(file, _line_of(text, (key, inner)), problem)


def _unknown(key: str, where: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    if close:
        return f"unknown key {key!r}{where}; did you mean {close[0]!r}?"
    homes = [name for name, section in _SECTIONS.items() if key in section.__struct_fields__]
    if homes:
        return f"unknown key {key!r}{where}; it belongs in [{homes[0]}]"
    return f"unknown key {key!r}{where}; known are {', '.join(names)}"


def _wrong_value(file: Path, text: str, problem: str) -> PolicyError:
    field = _FIELD.search(problem)
    keys = tuple(re.findall(r"[A-Za-z_]+", field[1])) if field else ()
    said = _FIELD.sub("", problem)
    if "enum value" in said and keys:
        allowed = {"profile": "strict, standard or relaxed", "minimum": "full, standard, partial or none"}
        said = f"expected {allowed.get(keys[-1], 'another value')}"
        if keys[-1] == "classified_write":
            said = 'expected "new", true or false'
    return PolicyError(file, _line_of(text, keys), f"{'.'.join(keys) or 'the policy'}: {said[0].lower()}{said[1:]}")


def _check_values(file: Path, text: str, said: PolicyFile) -> None:
    for pattern in said.files.classified:
        problem = problem_with(pattern)
        if problem:
            line = _line_of(text, ("files", "classified"), pattern)
            raise PolicyError(file, line, f"files.classified: {pattern!r}: {problem}")
    for entry in said.files.unprotect:
        if entry not in PROTECTED:
            close = difflib.get_close_matches(entry, PROTECTED, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(PROTECTED)}"
            line = _line_of(text, ("files", "unprotect"), entry)
            raise PolicyError(file, line, f"files.unprotect: {entry!r} is not a protected name{hint}")
    for root in said.files.roots:
        line = _line_of(text, ("files", "roots"), root)
        if not root or "\0" in root:
            raise PolicyError(file, line, "files.roots: a root is the path of a directory")
        if os.path.realpath(file.parent / expand_home(root)) == "/":
            raise PolicyError(file, line, "files.roots: '/' is not a root; name the directories that cells may use")


def _line_of(text: str, keys: tuple[str, ...], value: str | None = None) -> int | None:
    """The 1-based line on which a key (or, from there on, a value of it) stands. A search: None when not found."""
    lines = ["" if line.lstrip().startswith("#") else line for line in text.splitlines()]
    start = 0
    for key in keys:
        word = re.escape(key)
        stands = re.compile(
            rf"""^\s*\[\s*{word}\s*\]"""  # [key]
            rf"""|"{word}"\s*:"""  # "key": in JSON
            rf"""|(^|[\s{{,."'])["']?{word}["']?\s*[=.]"""  # key =, or key. in a dotted name
        )
        found = next((number for number in range(start, len(lines)) if stands.search(lines[number])), None)
        if found is None:
            return None
        start = found
    if value is not None:
        for number in range(start, len(lines)):
            if json.dumps(value) in lines[number] or f"'{value}'" in lines[number]:
                return number + 1
    return start + 1 if keys else None
