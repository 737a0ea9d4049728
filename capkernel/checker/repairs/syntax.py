"""Repairs of text that is not Python, from what Python says of it. Each is tried, so a wrong guess is never offered."""

from __future__ import annotations

import re

from capkernel.checker.repairs.source import Repairs, Source, safe, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

_CLOSING = {"(": ")", "[": "]", "{": "}"}


def repairs(source: Source, diagnostic: Diagnostic) -> Repairs:
    message, span = diagnostic.message, diagnostic.span
    if not 1 <= span.line <= len(source.lines):
        return
    line = source.lines[span.line - 1]
    whole = Span(span.line, 0, span.line, len(line))
    code = _without_comment(line)
    here = Span(span.line, span.column, span.line, span.column)
    if "expected `:`" in message:
        yield from safe("end the line with a colon", Edit(Span(span.line, len(code), span.line, len(code)), ":"))
        yield from safe("put a colon here", Edit(here, ":"))
    if "Missing parentheses in call to `" in message:
        name = message.split("`")[1]
        found = re.match(rf"(\s*){name}\s+(.*)$", code)
        if found:
            yield from safe(
                f"call `{name}`", Edit(Span(span.line, 0, span.line, len(code)), f"{found[1]}{name}({found[2]})")
            )
    if "`==`" in message and "=" in code:
        fixed = re.sub(r"(?<![=!<>:])=(?!=)", "==", code, count=1)
        yield from safe("compare with `==`", Edit(Span(span.line, 0, span.line, len(code)), fixed))
    if "unterminated string literal" in message and span.column < len(line):
        quote = line[span.column] if line[span.column] in "'\"" else '"'
        for end in dict.fromkeys((_before_closing(line), len(line))):
            yield from safe("close the string", Edit(Span(span.line, end, span.line, end), quote))
    if "unterminated triple-quoted" in message:
        quote = line[span.column : span.column + 3]
        last = len(source.lines)
        yield from safe("close the string", Edit(Span(last, len(source.lines[-1]), last, len(source.lines[-1])), quote))
    if "was never closed" in message and message.split("`")[1] in _CLOSING:
        closing = _CLOSING[message.split("`")[1]]
        ends = [len(code), len(code.rstrip(":"))]
        for end in dict.fromkeys(ends):
            yield from safe(f"close it with `{closing}`", Edit(Span(span.line, end, span.line, end), closing))
        last = max((n for n, one in enumerate(source.lines, 1) if one.strip()), default=1)
        yield from safe(
            f"close it with `{closing}`",
            Edit(Span(last, len(source.lines[last - 1]), last, len(source.lines[last - 1])), closing),
        )
    if message.startswith("unmatched") or "does not match opening" in message:
        yield from safe(
            "delete the bracket that closes nothing", Edit(Span(span.line, span.column, span.line, span.column + 1), "")
        )
    if message == "unexpected indent":
        before = source.lines[span.line - 2] if span.line > 1 else ""
        margin = before[: len(before) - len(before.lstrip())]
        yield from safe(
            "begin the line where the one above begins",
            Edit(Span(span.line, 0, span.line, len(line) - len(line.lstrip())), margin),
        )
    if "unindent does not match" in message:
        margins = [one[: len(one) - len(one.lstrip())] for one in source.lines[: span.line - 1] if one.strip()]
        own = len(line) - len(line.lstrip())
        for margin in sorted(set(margins), key=lambda text: abs(len(text) - own))[:2]:
            yield from unsafe("begin the line where its block begins", Edit(Span(span.line, 0, span.line, own), margin))
    if message.startswith("expected an indented block"):
        owner = re.search(r"on line (\d+)", message)
        header = source.lines[int(owner[1]) - 1] if owner and int(owner[1]) <= len(source.lines) else ""
        margin = header[: len(header) - len(header.lstrip())] + "    "
        if line.strip() and owner and span.line > int(owner[1]):
            yield from safe(
                "indent the body", Edit(Span(span.line, 0, span.line, len(line) - len(line.lstrip())), margin)
            )
        if owner:
            after = int(owner[1]) + 1
            yield from unsafe("write a body, here an empty one", Edit(Span(after, 0, after, 0), f"{margin}pass\n"))
    if message.startswith(("`return` outside", "`yield` outside")):
        fixed = re.sub(r"^(\s*)(return|yield)\b\s*", r"\1", code)
        yield from safe(
            "a cell shows its last expression by itself",
            Edit(Span(span.line, 0, span.line, len(code)), fixed or "pass"),
        )
    if re.match(r"`?(break|continue)`? .*(outside|not properly in) loop", message):
        yield from unsafe(
            "there is no loop to leave",
            Edit(Span(span.line, len(code) - len(code.lstrip()), span.line, len(code)), "pass"),
        )
    if "leading zeros" in message:
        yield from safe(
            "a number has no leading zeros",
            Edit(Span(span.line, 0, span.line, len(code)), re.sub(r"\b0+(\d)", r"\1", code)),
        )
    if message.startswith("invalid character"):
        typographic = str.maketrans(
            {
                "“": '"',
                "”": '"',
                "‘": "'",
                "’": "'",
                "–": "-",
                "−": "-",
                "×": "*",
                "≤": "<=",
                "≥": ">=",
                "≠": "!=",
                "，": ",",
                "（": "(",
                "）": ")",
            }
        )
        yield from safe("write it in ASCII", Edit(whole, line.translate(typographic)))
    if message.startswith("invalid non-printable character"):
        yield from safe(
            "delete the character that is not seen", Edit(whole, "".join(c if c.isprintable() else " " for c in line))
        )
    if message.startswith("positional argument follows keyword argument"):
        return
    yield from _invalid(span, code)


def _invalid(span: Span, code: str) -> Repairs:
    line = Span(span.line, 0, span.line, len(code))
    for wrong, right, words in (
        (r"\belse\s+if\b", "elif", "Python says `elif`"),
        (r"\+\+\s*$", " += 1", "Python counts with `+= 1`"),
        (r"(\w)\s*\+\+\s*;?$", r"\1 += 1", "Python counts with `+= 1`"),
        (r"&&", "and", "Python says `and`"),
        (r"\|\|", "or", "Python says `or`"),
        (r"!(?=\w)", "not ", "Python says `not`"),
        (r"\bnull\b", "None", "Python says `None`"),
        (r"^(\s*)(?:let|var|const)\s+", r"\1", "a name needs no declaration"),
        (r"\bfunction\s+(\w+\(.*\))\s*\{?$", r"def \1:", "Python says `def`"),
        (r"=>", ": ", "a function in an expression is a `lambda`"),
        (r"^>>>\s?", "", "leave out the prompt"),
    ):
        fixed = re.sub(wrong, right, code)
        if fixed != code:
            yield from safe(words, Edit(line, fixed))
    if re.match(r"\s*(if|for|while|def|class|else|elif|try|except|with|finally)\b", code) and not code.endswith(":"):
        yield from safe("end the line with a colon", Edit(Span(span.line, len(code), span.line, len(code)), ":"))
    found = re.search(r"([\w\"'\])])\s+([\w\"'\[(])", code[: span.column + 40])
    if found:
        at = found.end(1)
        yield from unsafe("put a comma between them", Edit(Span(span.line, at, span.line, at), ","))


def _without_comment(line: str) -> str:
    quote = ""
    for at, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#":
            return line[:at].rstrip()
    return line.rstrip()


def _before_closing(line: str) -> int:
    end = len(line.rstrip())
    while end and line[end - 1] in ")]},:":
        end -= 1
    return end
