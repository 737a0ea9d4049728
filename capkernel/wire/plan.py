"""What a checked cell may do: the checker writes it, the broker enforces it, the person reads one line of it.

Authority of a running cell = policy ∩ plan ∩ now (docs/design.md). A plan holds types, names and source text,
never values.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from capkernel.wire.types import ANY, TypeNode

VERBS: Final[tuple[str, ...]] = ("list", "read", "write", "read_classified", "write_classified")
"""What can be done with files. "list" is the names in a directory, and whether, what and how large something is."""

VERB_OF_METHOD: Final = {
    "children": "list",
    "exists": "list",
    "is_directory": "list",
    "is_classified": "list",
    "size": "list",
    "walk": "list",
    "files": "list",
    "read_bytes": "read",
    "read_many": "read",
    "open_read": "read",
    "may_write": "write",
    "may_create": "write",
    "create": "write",
    "delete": "write",
    "write": "write",
    "append": "write",
    "mkdir": "write",
    "read_classified": "read_classified",
    "read_classified_bytes": "read_classified",
    "write_classified": "write_classified",
}
"""The verb of each method that crosses to the broker (`wire.worker.Invoke`). `access`, `subtree` and `read_only` have
none: they do nothing yet; what is done with a file that is open was judged when it was opened."""


def plain_path(text: str) -> str:
    """A relative path without empty and `.` parts, "." for the root itself; as the broker writes a granted path."""
    return "/".join(part for part in text.split("/") if part not in ("", ".")) or "."


class CodeKey(msgspec.Struct, frozen=True, array_like=True):
    """Identity of a code object of a cell, computed alike by the checker and by the worker (`wire.codekey`)."""

    cell: int
    line: int  # co_firstlineno, 1-based
    name: str  # co_name
    span: tuple[int, int, int, int]  # smallest start and largest end of its instructions: line, column, line, column


Made = Literal["", "partial", "factory"]
"""How the function that is applied comes from the one that is designated: it itself; `functools.partial` of it, as of a
method bound to plain data; or what it returns (`operator.itemgetter("a")`)."""


class Span(msgspec.Struct, frozen=True, array_like=True):
    """A place in the checked text of a cell: 1-based lines, 0-based columns in characters, end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


class Use(msgspec.Struct, frozen=True, array_like=True):
    """What a cell can do through one block. `paths` is None when they are not all literal: any below the root."""

    verb: str  # one of `VERBS`
    paths: tuple[str, ...] | None = None  # as `plain_path` gives them


class ScopeSite(msgspec.Struct, frozen=True):
    """A `with request_*(...)` the cell can reach. None stands for what is not known, so for all the policy allows:
    an `argument` that is not literal, `uses` that nobody worked out."""

    kind: str  # "file_system"
    argument: str | None
    cell: int
    span: Span
    uses: tuple[Use, ...] | None = None


class AskSite(msgspec.Struct, frozen=True):
    """A place where the cell can ask the person for a secret ("secret") or for a secret's value ("declassify").
    `argument`: the name of the secret; None for what is not literal, and for a value."""

    kind: str
    argument: str | None
    cell: int
    span: Span


class FreeName(msgspec.Struct, frozen=True):
    """A name a pure function reads from outside itself, and what the vault is to put there."""

    name: str
    kind: str  # "data" (sent by value at the call) | "module" | "table" | "function" | "api" | "classified"
    target: str = ""  # module: "numpy"; table/api: the qualified name, e.g. "json.loads"
    function: CodeKey | None = None  # kind "function": another entry of the plan's `pure`
    type: TypeNode = ANY  # kind "data": what the value at the call must be


class PureFunction(msgspec.Struct, frozen=True):
    """The checked source of a function that `map` or `flat_map` may be given, or of what such a function needs.

    A class of the session that is used inside is of kind "def" too: its source is the whole class statement.
    """

    key: CodeKey
    kind: str  # "lambda" | "def"
    name: str
    source: str  # an expression for a lambda, a whole `def` for a def; dedented, exactly as checked
    free: tuple[FreeName, ...] = ()
    keeps_format: bool = False  # its result is its argument, stripped at most, with fixed text around it


class MaskSite(msgspec.Struct, frozen=True):
    """A call that makes a Classified value, and the static type its mask shows (`str` in `Classified[str](***)`).

    method: what is called ("map", "read_classified", "classify"). name: what its result is assigned to, "" for nothing
    that has a single name.
    """

    span: Span
    type: str
    method: str = ""
    name: str = ""


class Plan(msgspec.Struct, frozen=True):
    """Everything the kernel needs to know about an accepted cell."""

    scopes: tuple[ScopeSite, ...] = ()
    sinks: tuple[str, ...] = ()  # "write_classified" when the cell can write a classified file
    pure: tuple[PureFunction, ...] = ()
    tables: tuple[str, ...] = ()  # pure library functions handed to map directly: "builtins.len"
    masks: tuple[MaskSite, ...] = ()
    asks: tuple[AskSite, ...] = ()


NOTHING = Plan()
