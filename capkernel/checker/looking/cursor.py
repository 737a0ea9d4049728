"""What stands at the cursor of an unfinished text, found without parsing it; and texts that do parse, to type it in.

All places are characters, as the Jupyter protocol counts them.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

HOLE = "ǀhere"  # an attribute that no class has: it marks the expression before it in the tree

_OPEN = {"(": ")", "[": "]", "{": "}"}
_QUOTES = ("'''", '"""', "'", '"')
_PREFIX = re.compile(r"(?i)\b(?:[rbuft]|rb|br|rf|fr|rt|tr)\Z")
_NESTS = sys.version_info >= (3, 12)  # a field may hold the quotes of its string (PEP 701)
_IMPORT = re.compile(r"\s*(?:from\s+(?P<module>[\w.]+)\s+import\s+[(\w\s,]*|(?:import|from)\s+[\w.,\s]*)\Z")
_TRY = re.compile(r"\s*try\s*:")
_NAME = re.compile(r"(?<![\w.\"'])[^\W\d]\w*")
_DEEPEST, _LONGEST, _MOST_NAMES = 8, 2000, 32  # brackets or fields, characters and names around what is looked at
_MAGIC = re.compile(r"[ \t]*(?:%|!|\?)|.*\?\s*\Z")


@dataclass(frozen=True)
class Target:
    """`begin:end` is the word at the cursor, of which `word` is the part before it. `owner`: the expression before its
    dot, "" for none. `callee`: the expression whose call the cursor stands in, "" for none. `module`: of a `from`
    import, whose members the word names; None elsewhere. `line`: where the statement begins."""

    word: str
    begin: int
    end: int
    line: int
    owner: str = ""
    owner_begin: int = 0
    callee: str = ""
    module: str | None = None


@dataclass(frozen=True)
class Text:
    """The cursor stands in a text, which begins with `word` (what of it stands before the cursor). `names`: of what it
    is given to, or may be a key of, the innermost brackets first."""

    word: str
    names: tuple[str, ...]


@dataclass
class _Scan:
    """The text before the cursor, read once: strings (but for the fields of formatted ones) and comments skipped,
    brackets paired."""

    stack: list[int] = field(default_factory=list)  # open brackets
    opened_by: dict[int, int] = field(default_factory=dict)  # closing bracket → its opening one
    strings: dict[int, int] = field(default_factory=dict)  # end → begin, with its prefix
    line: int = 0  # where the logical line begins
    inside: bool = False  # in a string or a comment
    depth: int = 0  # fields inside of fields
    begun: int = -1  # where the content of the string begins that the text ends in

    @classmethod
    def of(cls, text: str) -> _Scan:
        scan = cls()
        scan._code(text, 0, "")
        return scan

    def _code(self, text: str, at: int, quote: str) -> int:
        """Read code to the end of `text`: -1. With the `quote` of a formatted string, to the end of the field that
        begins here, or of a line or string that ends too early: the place behind it."""
        size = len(text)
        while at < size:
            character = text[at]
            if quote and not self.stack and _ends_field(text, at):
                return at
            if quote and ((character == "\n" and len(quote) == 1) or (not _NESTS and text.startswith(quote, at))):
                return at
            if character == "#" and not quote:
                end = text.find("\n", at)
                if end < 0:
                    self.inside = True
                    return -1
                at = end
            elif character in "'\"":
                at = self._string(text, at)
                if at < 0:
                    return -1
            else:
                if character in _OPEN:
                    self.stack.append(at)
                elif character in ")]}" and self.stack:
                    self.opened_by[at] = self.stack.pop()
                elif character == "\\":
                    at += 1
                elif character == "\n" and not self.stack and not quote:
                    self.line = at + 1
                at += 1
        return -1

    def _string(self, text: str, at: int) -> int:
        """The place behind the string that begins here; -1 when the text ends in it. Its fields are read as code."""
        found = _PREFIX.search(text, max(0, at - 2), at)
        begin = at if found is None else found.start()
        formatted = found is not None and found[0].lower().strip("r") in ("f", "t")
        quote = next(quote for quote in _QUOTES if text.startswith(quote, at))
        at = content = at + len(quote)
        fields = 0  # one inside the other: how a field is formatted may hold a field
        while at < len(text):
            if text[at] == "\\":
                at += 2
            elif text.startswith(quote, at):
                at += len(quote)
                self.strings[at] = begin
                return at
            elif text[at] == "\n" and len(quote) == 1:
                break  # it does not end on its line: what follows is code again
            elif formatted and text[at] == "{" and (fields or not text.startswith("{{", at)):
                fields += 1
                at = self._field(text, at + 1, quote)
                if at < 0:
                    return -1
            elif fields and text[at] == "}":
                fields -= 1
                at += 1
            else:
                at += 2 if text.startswith("{{", at) else 1
        if at >= len(text):
            self.inside, self.begun = True, content
            return -1
        return at

    def _field(self, text: str, at: int, quote: str) -> int:
        if self.depth >= _DEEPEST:
            self.inside = True
            return -1
        around, self.stack = self.stack, []
        self.depth += 1
        at = self._code(text, at, quote)
        self.depth -= 1
        if at >= 0:
            self.stack = around
        return at


def _ends_field(text: str, at: int) -> bool:
    """Whether the expression of a field ends here: with the field, or where it says how it is formatted."""
    return text[at] in "}:" or (text[at] == "!" and not text.startswith("!=", at))


def target_at(text: str, cursor: int) -> Target | None:
    """What stands there; None inside a string, a comment or a number."""
    scan = _Scan.of(text[:cursor])
    if scan.inside:
        return None
    begin, end = cursor, cursor
    while begin and _is_word(text[begin - 1]):
        begin -= 1
    while end < len(text) and _is_word(text[end]):
        end += 1
    word = text[begin:cursor]
    if text[begin:end] and not text[begin:end].isidentifier():
        return None
    statement = text[scan.line : begin]
    imported = _IMPORT.match(statement)
    if imported is not None:
        return Target(word, begin, end, scan.line, module=imported["module"] or "")
    owner = ""
    owner_begin = begin
    dot = _before_blanks(text, begin, lines=bool(scan.stack))
    if dot and text[dot - 1] == ".":
        owner_begin = _primary(text, scan, dot - 1)
        owner = text[owner_begin : _before_blanks(text, dot - 1, lines=bool(scan.stack))].strip()
        if not owner or owner[-1] == "." or owner.isdecimal():
            return None
    callee = ""
    if scan.stack and text[scan.stack[-1]] == "(":
        opening = scan.stack[-1]
        callee = text[_primary(text, scan, opening) : opening].strip()
        if keyword.iskeyword(callee):
            callee = ""
    return Target(word, begin, end, scan.line, owner, owner_begin, callee)


def text_at(text: str, cursor: int) -> Text | None:
    """The text that the cursor stands in; None when it stands in none."""
    scan = _Scan.of(text[:cursor])
    if not scan.inside or scan.begun < 0:
        return None
    names: dict[str, None] = {}
    for bracket in reversed(scan.stack[-_DEEPEST:]):
        owner = text[_primary(text, scan, bracket) : bracket]
        beside = _NAME.findall(text[bracket + 1 : scan.begun][:_LONGEST])
        names.update(dict.fromkeys([*_NAME.findall(owner)[:1], *beside]))
    return Text(text[scan.begun : cursor], tuple(names)[:_MOST_NAMES])


def _primary(text: str, scan: _Scan, end: int) -> int:
    """Where the expression begins that ends before `end`: names, attributes, calls, items, a literal."""
    at, lines = end, bool(scan.stack)
    while True:
        last = _before_blanks(text, at, lines=lines)
        if last and last - 1 in scan.opened_by:
            at = scan.opened_by[last - 1]
            before = _before_blanks(text, at, lines=lines)
            called = before and text[last - 1] in ")]" and (_is_word(text[before - 1]) or before - 1 in scan.opened_by)
            if called and not _is_keyword_before(text, before):
                continue
            return at
        if last in scan.strings:
            return scan.strings[last]
        begin = last
        while begin and _is_word(text[begin - 1]):
            begin -= 1
        word = text[begin:last]
        if not word or (keyword.iskeyword(word) and word not in ("None", "True", "False")):
            return at
        at = begin
        dot = _before_blanks(text, begin, lines=lines)
        if not dot or text[dot - 1] != ".":
            return at
        at = dot - 1


def _is_keyword_before(text: str, end: int) -> bool:
    begin = end
    while begin and _is_word(text[begin - 1]):
        begin -= 1
    return keyword.iskeyword(text[begin:end])


def _before_blanks(text: str, at: int, *, lines: bool = False) -> int:
    """Before blanks, continued lines and, in brackets (`lines`), ends of lines."""
    while at:
        if text[at - 1] in " \t" or (lines and text[at - 1] == "\n"):
            at -= 1
        elif text.startswith("\\\n", at - 2) and at > 1:
            at -= 2
        else:
            break
    return at


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


def candidates(text: str, target: Target, expression: str, begin: int, end: int) -> Iterator[str]:
    """Texts in which HOLE stands as an attribute of `expression` (`text[begin:end]` where that stands there), the one
    that says most about it first: the whole text; what comes before its statement; nothing but it."""
    if text[begin:end].strip() == expression:
        yield _without_magics(f"{text[:end]}.{HOLE}{text[_after_dot(target, end) :]}")
    before, indent = text[: target.line], _indent(text[target.line :])
    yield f"{_without_magics(before)}{indent}({expression}).{HOLE}\n{_ends_of_try(before, indent)}"
    yield f"({expression}).{HOLE}\n"


def _after_dot(target: Target, end: int) -> int:
    """Behind the word when the expression is its owner: the word is what HOLE stands for."""
    return target.end if end <= target.begin and target.owner else end


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _ends_of_try(before: str, indent: str) -> str:
    """A `finally` for each `try` that is still open where `indent` is."""
    ends = []
    width = len(indent.expandtabs())
    for line in reversed(before.split("\n")):
        if not line.strip():
            continue
        own = _indent(line)
        if len(own.expandtabs()) < width:
            width = len(own.expandtabs())
            if _TRY.match(line):
                ends.append(f"{own}finally: pass\n")
        if not width:
            break
    return "".join(ends)


def _without_magics(text: str) -> str:
    """IPython's lines as `pass`: nobody asks about them, and Python cannot read them."""
    if not any(sign in text for sign in "%!?"):
        return text
    return "\n".join(_pass(line) if _MAGIC.match(line) else line for line in text.split("\n"))


def _pass(line: str) -> str:
    return f"{_indent(line)}pass"
