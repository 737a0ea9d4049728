"""Classified patterns: gitignore syntax, read so that a mistake is an error and doubt means classified.

Rule 1: a pattern that could never match is an error, not a pattern: it would look like protection and be none.
Rule 2: names are compared as written, and NFC-normalised and case-folded: the second can only add matches.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from pathspec import GitIgnoreSpec

_GLOB = "*?[\\"


def problem_with(pattern: str) -> str | None:
    """Why this is no usable pattern, or None."""
    body = pattern.removeprefix("!")
    if "\n" in pattern or "\0" in pattern:
        return "a pattern is one line without NUL"
    if not body.strip():
        return "an empty pattern matches nothing"
    if body.startswith("#"):
        return "a pattern starting with '#' is a comment in gitignore syntax; write '\\\\#' for the character"
    if ".." in body.split("/"):
        return "a pattern cannot climb with '..'; use an absolute path"
    if "//" in body or "/./" in body:
        return "a pattern with '//' or '/./' matches nothing"
    try:
        compiled = list(_compile([_tidy(pattern)]).patterns)
    except ValueError:
        return "not a gitignore pattern"
    if not compiled or compiled[0].include is None:
        return "this pattern matches nothing (an unclosed '['?)"
    return None


def fold(text: str) -> str:
    """The form in which names are compared without case and Unicode composition."""
    if text.isascii():
        return text.lower()  # the same, at a fraction of the price
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def plain(text: str) -> str:
    """A path as the patterns' regular expressions can read it: `.` in them does not match a line break."""
    return text.replace("\n", "_")


class PatternSet:
    """One list of patterns, in order; a later negation takes back what an earlier pattern of the same list matched."""

    def __init__(self, patterns: Iterable[str]) -> None:
        lines = [_tidy(pattern) for pattern in patterns]
        self._raw = _compile(lines)
        self._folded = _compile([fold(line) for line in lines])
        positive = [line for line in lines if not line.startswith("!")]
        self._folded_positive = _compile([fold(line) for line in positive])
        self._needed = _needed_texts(positive)
        self._needed_folded = _needed_texts([fold(line) for line in positive])
        self.empty = not lines

    def may_match(self, text: str, folded: str) -> bool:
        """False only when `matches` is False for every part of `text`. Far cheaper.

        text: one path, or many with NUL between, after `plain`. folded: `fold` of it.
        """
        for needed in self._needed_folded:
            if needed in folded:
                return True
        # What composes with a neighbour is another text when it is folded.
        return not text.isascii() and any(needed in text for needed in self._needed)

    def matches(self, path: str) -> bool:
        """Whether this very path (relative, `/` at the end for a directory) matches; ancestors are not looked at."""
        path = plain(path)
        written = self._raw.check_file(path).include
        if written is True:
            return True
        folded = fold(path)
        if self._folded.check_file(folded).include is True:
            return True
        # A negation counts only for the spelling it names: `!PUBLIC.key` says nothing about `public.key`.
        return written is None and self._folded_positive.check_file(folded).include is True


def absolute_patterns(patterns: Iterable[str], home: Path, base: str) -> list[str]:
    """What is to be matched against whole paths: `/x` and `~/x`, as written and with links resolved.

    Also patterns below `base` that lead through a link (`data/x.csv` where `data` links to `real`), resolved: the file
    has the other name too.
    """
    found: list[str] = []
    for pattern in patterns:
        sign, body = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
        body = body.removeprefix("./")
        if body.startswith("~/"):
            body = _escape(str(home)) + body[1:]
        if body.startswith("/"):
            found.append(sign + body)
        elif "/" in body.rstrip("/"):
            body = _escape(base.rstrip("/")) + "/" + body
        else:
            continue
        resolved = _resolve_literal_part(body)
        if resolved != body:
            found.append(sign + resolved)
    return found


def relative_patterns(patterns: Iterable[str]) -> list[str]:
    """All but the `~/` ones. `/x` stays in: in gitignore syntax it also means x in the anchor's directory."""
    return [pattern for pattern in patterns if not pattern.removeprefix("!").startswith("~/")]


def _resolve_literal_part(pattern: str) -> str:
    parts = pattern.split("/")
    literal = 0
    while literal < len(parts) and not any(mark in parts[literal] for mark in _GLOB):
        literal += 1
    # Backslashes end the literal part: what they escape stays a pattern.
    head, rest = "/".join(parts[:literal]), parts[literal:]
    directory = "/" if pattern.endswith("/") and not rest else ""
    resolved = _escape(os.path.realpath(head or "/"))
    return "/".join([resolved.rstrip("/"), *rest]) + directory


def _escape(path: str) -> str:
    return "".join("\\" + character if character in _GLOB else character for character in path)


def _tidy(pattern: str) -> str:
    sign, body = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
    while body.startswith("./"):
        body = "/" + body[2:]  # git would match nothing; the author means "here"
    return sign + body


def _needed_texts(lines: list[str]) -> tuple[str, ...]:
    """Texts of which every path that one of these patterns matches holds one; the shortest that say it."""
    found: set[str] = set()
    for line in lines:
        # What follows a class or an escape is left alone; git takes white space at the end away.
        body = line.split("[")[0].split("\\")[0]
        runs = [run.strip() for run in body.replace("*", "/").replace("?", "/").split("/")]
        found.add(max(runs, key=len))  # "" for a pattern that names nothing: it is in every text
    return tuple(one for one in sorted(found, key=len) if not any(two in one for two in found if two != one))


def _compile(lines: list[str]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(lines, backend="simple")
