"""The one transformation of a cell: IPython's syntax into Python, done once, here, for checker and worker alike.

Rule 1: the text returned is the text that is checked and the text that runs.
Rule 2: a text that would change if it were transformed again is refused: it would mean two things.
Rule 3: the work is bounded, as it is done in the kernel: the transformer reads the cell anew for each magic in it.
Rule 4: a text that holds nothing the transformer looks for is not given to it: it would come back as it is. What is not
certainly so is given to it; a test compares the two.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel and IPython leave their methods without annotations)
from __future__ import annotations

import ast
import re

from IPython.core.inputtransformer2 import TransformerManager
from msgspec.structs import replace

from capkernel.diagnostics import Diagnostic, Span
from capkernel.diagnostics.source_lines import source_lines
from capkernel.kernel.timing_magics import Expanded, expand

_MOST_CHARACTERS = 256 * 1024  # as the checker: `checker.session.MOST_BYTES`
_MOST_READ = 800_000  # characters, of all passes over one cell together: a second or two
_LINE_COST = 4  # characters: what a line costs beside those in it
_MAX_EXPRESSION = 20_000
_MAX_ASKED = 32 * 1024  # characters; whether a text is complete is asked at a keyboard
_HELP = re.compile(
    r"get_ipython\(\)\.run_line_magic\('pinfo(?P<more>2?)', '(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*){0,20})'\)\n*"
)
# What IPython's transformer may change, and more: each of its transformations begins with one of these. `x != y` and
# `x % y` are not among them. Lines end here with a line feed alone, where the transformer splits at much else.
_MAY_CHANGE = re.compile(
    r"""
    \?                                                 # help
    | !(?!=)                                           # commands
    | ^[^\S\n]*% | =[\s\\]*%                            # magics
    | ^[^\S\n]*(?:[,;/]|>>>|\.\.\.|In\ |\[nav|\[ins)    # calls without brackets, prompts
    | \A\s | ^[^\S\n]+$                                # the whole indented, lines of blanks
    | [\r\v\f\x1c-\x1e\x85\u2028\u2029]                  # other ends of lines
    """,
    re.MULTILINE | re.VERBOSE,
)


class CellRefused(Exception):
    """The cell has no one text."""

    def __init__(self, diagnostic: Diagnostic, text: str) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic
        self.text = text


class _TooMuchWork(Exception):
    """The transformer has read more than it may."""


class _BoundedTransformer(TransformerManager):
    """IPython's, for one cell: it stops after `_MOST_READ` characters. A pass per magic, each over the whole cell."""

    def __init__(self) -> None:
        super().__init__()
        self._left = _MOST_READ

    def do_one_token_transform(self, lines: list[str]) -> tuple[bool, list[str]]:
        self._left -= sum(map(len, lines)) + _LINE_COST * len(lines)
        if self._left < 0:
            raise _TooMuchWork
        done: tuple[bool, list[str]] = super().do_one_token_transform(lines)
        return done


class CellTexts:
    """Reads cells."""

    def checked_text(self, raw: str, cell: int) -> str:
        """The Python text of a cell. Raises CellRefused."""
        return self.checked(raw, cell).text

    def checked(self, raw: str, cell: int) -> Expanded:
        """The same, and which lines of it are timed."""
        if len(raw) > _MOST_CHARACTERS:
            raise _refused(
                cell, "", "too-much-work", f"the cell is longer than {_MOST_CHARACTERS // 1024} KiB",
                "read large data from a file",
            )  # fmt: skip
        if "\0" in raw or not _is_utf8(raw):
            raise _refused(
                cell, "", "syntax", "the cell holds characters that are not text (NUL, half a surrogate pair)"
            )
        try:
            expanded = expand(_transformed(raw), _transformed)
            text = expanded.text
            stable = _transformed(text) == text
        except (_TooMuchWork, RecursionError, MemoryError, RuntimeError):  # RuntimeError: after 500 magics
            raise _refused(
                cell, "", "too-much-work", "the cell has too many lines of IPython syntax (`%`, `!`, `?`) for its size",
                "split the cell",
            ) from None  # fmt: skip
        if not stable:
            raise _refused(
                cell, text, "unstable-text", "the cell still holds IPython syntax after it was transformed",
                "write prompts, magics and indentation once: a prompt inside a prompt means two things",
            )  # fmt: skip
        return expanded

    def completeness(self, raw: str) -> tuple[str, int | None]:
        """`complete`, `incomplete`, `invalid` or `unknown`, and the indentation of the next line."""
        if len(raw) > _MAX_ASKED:
            return "unknown", None
        try:
            status, indent = _BoundedTransformer().check_complete(raw)
        except (_TooMuchWork, RuntimeError, MemoryError, OverflowError, ValueError, SyntaxError):
            return "unknown", None  # nested too deep to be compiled, or too much of it
        return status, indent


def _transformed(text: str) -> str:
    whole = text if text.endswith("\n") else text + "\n"
    if not _MAY_CHANGE.search(whole):
        return whole
    try:
        done: str = _BoundedTransformer().transform_cell(text)
    except SyntaxError:
        # Not to be transformed, so it stays as it is; the checker says what is wrong with it.
        return whole
    return done


def help_wanted(text: str) -> tuple[str, int] | None:
    """The dotted name and the level of detail (0 or 1) when the cell is nothing but `name?` or `name??`.

    Such a cell runs nothing: the name is looked up, as the help key does.
    """
    found = _HELP.fullmatch(text)
    return None if found is None else (found["name"], len(found["more"]) and 1)


def as_typed(raw: str, text: str, diagnostics: tuple[Diagnostic, ...]) -> tuple[str, tuple[Diagnostic, ...]]:
    """For showing a refusal: refused magics as the person wrote them, each marked as a whole line."""
    if not any(found.code == "unsafe-magic" for found in diagnostics):
        return text, diagnostics
    typed, made = source_lines(raw.strip("\n")), source_lines(text.removesuffix("\n"))
    if typed and typed[0].startswith("%%"):
        typed = typed[:1]
    if len(typed) != len(made):
        return text, diagnostics
    lines = [line if "get_ipython()." in new else new for line, new in zip(typed, made, strict=True)]
    placed = []
    for found in diagnostics:
        number = found.span.line
        if found.code == "unsafe-magic" and 1 <= number <= len(lines) and lines[number - 1] != made[number - 1]:
            line = lines[number - 1].rstrip()
            start = len(line) - len(line.lstrip())
            found = replace(found, span=Span(number, start, number, len(line)))
        placed.append(found)
    return "\n".join(lines), tuple(placed)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _refused(cell: int, text: str, code: str, message: str, hint: str = "") -> CellRefused:
    first = text.splitlines()[0] if text else ""
    span = Span(1, 0, 1, len(first))
    return CellRefused(Diagnostic(code=code, message=message, cell=cell, span=span, help=hint), text)


def not_an_expression(text: object) -> str:
    """Why this is not one expression that can be checked as a cell and binds nothing; "" when it is."""
    if not isinstance(text, str) or len(text) > _MAX_EXPRESSION:
        return f"an expression is a text of at most {_MAX_EXPRESSION} characters"
    try:
        text.encode("utf-8")
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        return f"this is not one Python expression ({type(problem).__name__})"
    if any(isinstance(node, ast.NamedExpr) for node in ast.walk(tree)):
        return "an expression beside a cell binds no names: write it in the cell"
    if any(isinstance(node, ast.Await) for node in ast.walk(tree)):
        return "an expression beside a cell does not wait: write it in the cell"
    return ""
