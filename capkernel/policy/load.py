"""Read a policy file: TOML or JSON, once, whole. What is unknown or of a wrong type is an error that names its line.

Rule 1: the bytes are read once; what is hashed for the trust store and what is parsed are the same bytes.
Rule 2: `parse` never raises for what a file contains: an untrusted one must not keep a session from starting. What is
wrong is a problem in its result, and a wrong entry counts as not written.

What a file may grant is decided elsewhere: `load_policy` is for the operator's own word, `resolve` for all others.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, get_type_hints

import msgspec

from capkernel.policy import approvable
from capkernel.policy.defaults import PROTECTED
from capkernel.policy.errors import PolicyError
from capkernel.policy.model import (
    Approvals,
    Files,
    Limits,
    Output,
    Policy,
    PolicyFile,
    Records,
    Sandbox,
    Viewer,
    expand_home,
)
from capkernel.policy.patterns import problem_with

FILE_NAMES: Final = ("capkernel.toml", "capkernel.json")
MAX_BYTES: Final = 1_048_576
MAX_PROBLEMS: Final = 20
"""Most that is told of one file, or of one list in it: finding a line costs a walk through the text."""
_SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "files": Files, "limits": Limits, "sandbox": Sandbox, "records": Records, "output": Output,
    "viewer": Viewer, "approvals": Approvals,
}  # fmt: skip
_AT = re.compile(r"\(at line (\d+), column \d+\)")
_FIELD = re.compile(r" - at `\$([^`]*)`")


@dataclass(frozen=True)
class Source:
    """The bytes of a policy file, read once. file: absolute path."""

    file: Path
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Parsed:
    """What a policy file says.

    said: the sound entries, defaults elsewhere. stated: dotted keys of the entries that the file has and that are
    sound. problems: all that is wrong, in the order of the file where that is known. text: for finding lines.
    """

    file: Path
    said: PolicyFile
    stated: frozenset[str]
    problems: tuple[PolicyError, ...]
    text: str = ""

    def line(self, key: str, value: str | None = None) -> int | None:
        """The 1-based line of a dotted key, or of a text in its value. None when it is not found."""
        return _line_of(self.text, tuple(key.split(".")), value)


def load_policy(path: Path | str) -> Policy:
    """The policy in the file at `path` (`.toml` or `.json`). Raises PolicyError with the line where it can be told."""
    return policy_from(parse(read_source(Path(os.path.abspath(path)))))


def policy_from(parsed: Parsed) -> Policy:
    """The policy of a file in full force. Raises PolicyError when anything in it is wrong."""
    if parsed.problems:
        raise parsed.problems[0]
    said, file = parsed.said, parsed.file
    # Without a word about roots the default holds, with its exception; roots that are written are the operator's word.
    files, notice = (said.files, "") if "files.roots" in parsed.stated else _without_home(said.files, file.parent)
    if not files.roots and not notice:
        notice = f"the policy {file.name} lists no roots: add files.roots"
    return Policy(
        said.profile, files, said.limits, said.sandbox, file.parent, file, notice,
        records=said.records, output=said.output, viewer=said.viewer, approvals=said.approvals, secrets=said.secrets,
    )  # fmt: skip


def default_policy(base_dir: Path | str) -> Policy:
    """What holds without a policy file: the files of the notebook's directory, unless that is `/` or the home."""
    base = Path(os.path.abspath(base_dir))
    said = PolicyFile()
    files, notice = _without_home(said.files, base)
    return Policy(said.profile, files, said.limits, said.sandbox, base, None, notice, records=said.records)


def parse(source: Source) -> Parsed:
    """All that the file says, and all that is wrong with it."""
    file = source.file
    empty = Parsed(file, PolicyFile(), frozenset(), ())
    try:
        text = source.data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = source.data.count(b"\n", 0, problem.start) + 1
        return _broken(empty, PolicyError(file, line, "not UTF-8 text"))
    try:
        if file.suffix not in (".toml", ".json"):
            raise PolicyError(file, None, "a policy file is named *.toml or *.json")
        raw = _parse_toml(file, text) if file.suffix == ".toml" else _parse_json(file, text)
    except PolicyError as problem:
        return _broken(empty, problem)
    problems: list[PolicyError] = []
    sound = dict(_sound_entries(file, text, raw, problems))
    said = _assemble(sound)
    bad: set[str] = set()
    for key, wrong in _check_values(file, text, said):
        bad.add(key)
        problems.append(wrong)
    if bad:
        # Of a list of secrets the sound patterns stay: a slip in one must not uncover what the others name.
        kept = {key: tuple(pattern for pattern in patterns if problem_with(pattern) is None)
                for key, patterns in _pattern_lists(said) if key in sound}  # fmt: skip
        sound = {key: kept.get(key, value) for key, value in sound.items() if key not in bad or key in kept}
        said = _assemble(sound)
    return Parsed(file, said, frozenset(sound), tuple(problems), text)


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


def read_source(file: Path, *, follow: bool = True, limit: int = MAX_BYTES) -> Source:
    """The bytes of a regular file, opened once; never waits on a pipe. Raises PolicyError when there are none.

    follow: whether the last part may be a link. limit: most bytes.
    """
    flags = os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        with open(file, "rb", opener=lambda name, how: os.open(name, how | flags)) as found:
            if not stat.S_ISREG(os.fstat(found.fileno()).st_mode):
                raise PolicyError(file, None, "a policy is a regular file")
            data = found.read(limit + 1)
    except OSError as problem:
        if not follow and problem.errno == errno.ELOOP:
            raise PolicyError(file, None, "is a link, and a policy is a regular file") from None
        raise PolicyError(file, None, f"cannot be read: {os.strerror(problem.errno or 0)}") from None
    if len(data) > limit:
        raise PolicyError(file, None, f"a policy has at most {limit} bytes")
    return Source(file, data)


def _broken(parsed: Parsed, problem: PolicyError) -> Parsed:
    return replace(parsed, problems=(problem,))


def _parse_toml(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        found = _AT.search(str(problem))
        line = int(found[1]) if found else text.count("\n") + 1 if "end of document" in str(problem) else None
        raise PolicyError(file, line, f"not TOML: {_AT.sub('', str(problem)).strip()}") from None
    except RecursionError:
        raise PolicyError(file, None, "not TOML: nested too deeply") from None
    except ValueError:  # a number of thousands of digits
        raise PolicyError(file, None, "not TOML: a number too long to be read") from None


def _parse_json(file: Path, text: str) -> dict[str, Any]:
    try:
        raw = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as problem:
        raise PolicyError(file, problem.lineno, f"not JSON: {problem.msg}") from None
    except _Twice as problem:
        raise PolicyError(file, None, f"the key {problem.args[0]!r} stands twice in one object") from None
    except RecursionError:
        raise PolicyError(file, None, "not JSON: nested too deeply") from None
    except ValueError:
        raise PolicyError(file, None, "not JSON: a number too long to be read") from None
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


def _sound_entries(
    file: Path, text: str, raw: dict[str, Any], problems: list[PolicyError]
) -> Iterator[tuple[str, Any]]:
    """Dotted key and converted value of every entry that is known and of the right type."""
    for key, value in raw.items():
        if len(problems) >= MAX_PROBLEMS and key not in PolicyFile.__struct_fields__:
            continue
        if key not in PolicyFile.__struct_fields__:
            problems.append(PolicyError(file, _line_of(text, (key,)), _unknown(key, "", PolicyFile.__struct_fields__)))
            continue
        section = _SECTIONS.get(key)
        if section is None:
            yield from _converted(file, text, (key,), value, _types(PolicyFile)[key], problems)
            continue
        if not isinstance(value, dict):
            problem = f"[{key}] is a table of keys and values"
            problems.append(PolicyError(file, _line_of(text, (key,)), problem))
            continue
        for inner, entry in value.items():
            if len(problems) >= MAX_PROBLEMS and inner not in section.__struct_fields__:
                continue
            if inner not in section.__struct_fields__:
                problem = _unknown(inner, f" in [{key}]", section.__struct_fields__)
                problems.append(PolicyError(file, _line_of(text, (key, inner)), problem))
                continue
            yield from _converted(file, text, (key, inner), entry, _types(section)[inner], problems)


def _converted(
    file: Path, text: str, keys: tuple[str, ...], value: Any, kind: Any, problems: list[PolicyError]
) -> Iterator[tuple[str, Any]]:
    try:
        made = msgspec.convert(value, kind)
    except (ValueError, OverflowError) as problem:  # msgspec.ValidationError is a ValueError
        problems.append(_wrong_value(file, text, keys, str(problem)))
        return
    if not all(_is_text(entry) for entry in (made if isinstance(made, tuple) else (made,)) if isinstance(entry, str)):
        problems.append(PolicyError(file, _line_of(text, keys), f"{'.'.join(keys)}: not Unicode text"))
        return
    yield ".".join(keys), made


@cache
def _types(section: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(section, include_extras=True)


def _assemble(sound: dict[str, Any]) -> PolicyFile:
    top = {key: value for key, value in sound.items() if "." not in key}
    for name, section in _SECTIONS.items():
        inner = {key.partition(".")[2]: value for key, value in sound.items() if key.startswith(name + ".")}
        top[name] = section(**inner)
    return PolicyFile(**top)


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _unknown(key: str, where: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    if close:
        return f"unknown key {key!r}{where}; did you mean {close[0]!r}?"
    homes = [name for name, section in _SECTIONS.items() if key in section.__struct_fields__]
    if homes:
        return f"unknown key {key!r}{where}; it belongs in [{homes[0]}]"
    return f"unknown key {key!r}{where}; known are {', '.join(names)}"


def _wrong_value(file: Path, text: str, keys: tuple[str, ...], problem: str) -> PolicyError:
    said = _FIELD.sub("", problem) or "not a value that can be read"
    if "enum value" in said:
        allowed = {"profile": "strict, standard or relaxed", "minimum": "full, standard, partial or none"}
        said = f"expected {allowed.get(keys[-1], 'another value')}"
        if keys[-1] == "classified_write":
            said = 'expected "new", true or false'
    return PolicyError(file, _line_of(text, keys), f"{'.'.join(keys)}: {said[0].lower()}{said[1:]}")


def _check_values(file: Path, text: str, said: PolicyFile) -> Iterator[tuple[str, PolicyError]]:
    """What is of the right type and wrong nevertheless: dotted key and problem."""
    for key, patterns in _pattern_lists(said):
        for pattern, problem in islice(_bad_patterns(patterns), MAX_PROBLEMS):
            line = _line_of(text, tuple(key.split(".")), pattern)
            yield key, PolicyError(file, line, f"{key}: {pattern!r}: {problem}")
    key = "files.unprotect"
    for entry in islice((entry for entry in said.files.unprotect if entry not in PROTECTED), MAX_PROBLEMS):
        close = difflib.get_close_matches(entry, PROTECTED, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(PROTECTED)}"
        line = _line_of(text, ("files", "unprotect"), entry)
        yield key, PolicyError(file, line, f"{key}: {entry!r} is not a protected name{hint}")
    key = "files.roots"
    for root in islice((root for root in said.files.roots if _is_no_root(file, root)), MAX_PROBLEMS):
        line = _line_of(text, ("files", "roots"), root)
        if not root or "\0" in root:
            yield key, PolicyError(file, line, f"{key}: a root is the path of a directory")
        else:
            yield key, PolicyError(file, line, f"{key}: '/' is not a root; name the directories that cells may use")
    key = "approvals.ask"
    for name in islice((name for name in said.approvals.ask if approvable.problem_with(name)), MAX_PROBLEMS):
        line = _line_of(text, ("approvals", "ask"), name)
        yield key, PolicyError(file, line, f"{key}: {approvable.problem_with(name)}")
    key = "output.secure_file"
    if "\0" in said.output.secure_file or said.output.secure_file.endswith(("/", "/.", "/..")):
        line = _line_of(text, ("output", "secure_file"))
        yield key, PolicyError(file, line, f"{key}: the path of a file, such as '~/capkernel-secrets.txt'")


def _pattern_lists(said: PolicyFile) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("files.classified", said.files.classified), ("viewer.high", said.viewer.high)


def _bad_patterns(patterns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        problem = problem_with(pattern)
        if problem:
            yield pattern, problem


def _is_no_root(file: Path, root: str) -> bool:
    return not root or "\0" in root or os.path.realpath(file.parent / expand_home(root)) == "/"


def _line_of(text: str, keys: tuple[str, ...], value: str | None = None) -> int | None:
    """The 1-based line on which a key (or, from there on, a value of it) stands. A search: None when not found."""
    lines = ["" if line.lstrip().startswith("#") else line for line in text.splitlines()]
    start = 0
    for key in keys:
        word = re.escape(key)
        stands = re.compile(
            rf"""^\s*\[\s*{word}\s*[\].]"""  # [key], or [key.inner]
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
