"""From what mypy found to what the person reads: which errors stop the cell, which warn, which are noise.

Rule 1: a profile can make an error of mypy a warning. It cannot touch a rule of ours (`unbound-name`,
`capability-forge`).
Rule 2: the cause comes first, and what only follows from it is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy import message_registry
from mypy.errors import ErrorInfo
from mypy.nodes import TypeInfo

from capkernel.checker.comments import Comments
from capkernel.checker.engine import Checked
from capkernel.checker.messages import plain
from capkernel.checker.mypy_plugin import CAPABILITY_FORGE
from capkernel.checker.pending import TooEarly
from capkernel.checker.profiles import Profile
from capkernel.checker.scan import GONE, Read
from capkernel.checker.typed_cell import TypedCell
from capkernel.diagnostics.model import Diagnostic, Note, Severity, Span
from capkernel.wire.syntax import children, walk

OURS = frozenset((CAPABILITY_FORGE.code,))

# Top-level `async for` and `async with` are what a notebook has; Python itself has accepted the cell by now.
_NOTEBOOK_IDIOMS = frozenset(
    (message_registry.ASYNC_FOR_OUTSIDE_COROUTINE, message_registry.ASYNC_WITH_OUTSIDE_COROUTINE)
)
# Said because of another error, or because a name is not there.
_FOLLOW_UPS = frozenset(("has-type", "used-before-def"))
_NAME_CODES = frozenset(("name-defined", "used-before-def", "misc", "has-type"))


@dataclass(frozen=True)
class _Raw:
    error: ErrorInfo
    code: str


def findings(checked: Checked, comments: Comments, profile: Profile) -> list[Diagnostic]:
    """All diagnostics of mypy and of the name rule for one cell: errors in the order of the text, then warnings."""
    cell = checked.typed
    found = [_unbound(cell, read, checked) for read in _first_of_each(checked.unbound)]
    unbound_places = {_start(read.node) for read in checked.unbound}
    found += [_too_early(cell, early) for early in checked.early]
    places = _Places(cell)
    told_by_us = {raw.error.line for raw in _errors(checked) if raw.code in OURS}
    for raw in _errors(checked):
        error, code = raw.error, raw.code
        if code in _NAME_CODES and (error.line, error.column) in unbound_places:
            continue
        if code not in OURS and (
            code in profile.silent or error.line in told_by_us or _is_ignored(raw, comments, profile)
        ):
            continue
        found.append(_diagnostic(cell, error, code, _severity(raw, profile, places)))
    found += [_diagnostic(cell, note, "reveal-type", "warning") for note in _revealed(checked)]
    return _causes_first(found)


def blocked(cell: TypedCell, errors: Iterable[ErrorInfo]) -> list[Diagnostic]:
    """What mypy stopped at before it could type anything."""
    return [
        _diagnostic(cell, error, error.code.code if error.code else "syntax", "error")
        for error in errors
        if error.severity == "error"
    ]


def _errors(checked: Checked) -> Iterator[_Raw]:
    for error in checked.errors:
        # Below line 1 are the statements the engine added; what is wrong there is said elsewhere too.
        if error.severity == "error" and error.line >= 1 and error.message not in _NOTEBOOK_IDIOMS:
            yield _Raw(error, error.code.code if error.code else "misc")


def _is_ignored(raw: _Raw, comments: Comments, profile: Profile) -> bool:
    if not profile.honours_ignores or raw.code == "assignment":
        return False
    return any(comments.ignores_code(line, raw.code) for line in {*raw.error.origin_span, raw.error.line})


def _revealed(checked: Checked) -> list[ErrorInfo]:
    return [
        error
        for error in checked.errors
        if error.severity == "note" and error.line >= 1 and error.message.startswith("Revealed ")
    ]


def _severity(raw: _Raw, profile: Profile, places: _Places) -> Severity:
    if raw.code in OURS:
        return "error"
    if not profile.refuses(raw.code):
        return "warning"
    if profile.refusing is None:
        return "error"
    # The profile refuses what is certain; these two codes are so only in their plain form.
    if raw.code == "call-arg":
        return "error" if places.is_plain_call(raw.error) else "warning"
    if raw.code == "assignment":
        return "error" if places.is_own_annotation(raw.error) else "warning"
    return "error"


class _Places:
    """What stands in the tree at the place of an error."""

    def __init__(self, cell: TypedCell) -> None:
        self._cell = cell
        self._own: set[tuple[int, int]] | None = None

    def is_plain_call(self, error: ErrorInfo) -> bool:
        """No `*args` or `**kwargs` in it, and the callee is not a named tuple, whose defaults mypy may not know."""
        calls = [
            node
            for node in walk(self._cell.module)
            if isinstance(node, ast.Call) and _start(node) == (error.line, error.column)
        ]
        return bool(calls) and all(self._has_known_arguments(call) for call in calls)

    def _has_known_arguments(self, call: ast.Call) -> bool:
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return False
        if any(keyword.arg is None for keyword in call.keywords):
            return False
        callee = self._cell.resolve(call.func)
        return callee is not None and not (isinstance(callee.symbol, TypeInfo) and callee.symbol.is_named_tuple)

    def is_own_annotation(self, error: ErrorInfo) -> bool:
        """The value goes to a name that its own scope annotates."""
        if self._own is None:
            self._own = set(_annotated_values(self._cell.module.body))
        return (error.line, error.column) in self._own


def _annotated_values(body: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    statements = list(_scope(body))
    annotated = {
        node.target.id for node in statements if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in statements:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _annotated_values(node.body)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            # `x: int = None` is how many people write "not yet"; it goes wrong nowhere by itself.
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                yield _start(node.value)
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id in annotated for target in node.targets
        ):
            yield _start(node.value)


def _scope(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements of one scope, nested blocks included, nested scopes not entered."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            yield from _scope(children(node))


def _unbound(cell: TypedCell, read: Read, checked: Checked) -> Diagnostic:
    name = read.name
    if read.states & GONE:
        message, help_text = f"`{name}` is deleted before this reads it", "move the `del` behind the last use"
    elif name in checked.names:
        message, help_text = f"`{name}` is read before the cell binds it", "bind it above this line"
    else:
        message = f"`{name}` is not bound"
        help_text = "bind it in this cell, or run the cell that does"
    return Diagnostic("unbound-name", message, cell.number, cell.span(read.node), help=help_text)


def _too_early(cell: TypedCell, early: TooEarly) -> Diagnostic:
    """A call of a function that reads what is not bound yet."""
    called, reader = early.way[0], early.way[-1]
    steps = [f"`{step.name}`{'' if step.cell == cell.number else f' of cell {step.cell}'}" for step in early.way]
    way = f"it calls {', which calls '.join(steps[1:])}, which reads" if steps[1:] else "it reads"
    there = TypedCell(reader.cell, reader.text, ast.Module([], []))
    return Diagnostic(
        "unbound-name",
        f"`{called.name}` cannot be called yet: {way} `{early.missing}`, which is not bound",
        cell.number,
        cell.span(early.call),
        notes=(Note(f"`{reader.name}` reads it here", reader.cell, there.span(early.read)),),
        help=f"bind `{early.missing}` first, in this cell above this line or in one that runs before",
    )


def _first_of_each(reads: Iterable[Read]) -> list[Read]:
    first: dict[str, Read] = {}
    for read in reads:
        first.setdefault(read.name, read)
    return list(first.values())


def _diagnostic(cell: TypedCell, error: ErrorInfo, code: str, severity: Severity) -> Diagnostic:
    help_text = "it must be bound by the time this runs" if code == "name-defined" else ""
    return Diagnostic(code, plain(error.message), cell.number, _span(cell, error), severity, help=help_text)


def _span(cell: TypedCell, error: ErrorInfo) -> Span:
    line, column = error.line, max(error.column, 0)
    end_line, end_column = error.end_line, error.end_column
    if end_line < line or (end_line == line and end_column <= column):
        end_line, end_column = line, column + 1
    return cell.span_at(line, column, end_line, end_column)


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _causes_first(found: list[Diagnostic]) -> list[Diagnostic]:
    errors = [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    others = {diagnostic.span.line for diagnostic in errors if diagnostic.code != "no-any-return"}
    # What is wrong with a value is why nothing is known of it.
    errors = [one for one in errors if one.code != "no-any-return" or one.span.line not in others]
    lines = {diagnostic.span.line for diagnostic in errors}
    kept = [
        diagnostic
        for diagnostic in found
        if diagnostic.severity == "warning" and diagnostic.span.line not in lines
        and not (errors and diagnostic.code in _FOLLOW_UPS)
    ]  # fmt: skip
    # One line of the cell gets one line of each kind: ten ways of saying that two bases do not fit are one finding.
    first = {(diagnostic.span.line, diagnostic.code): diagnostic for diagnostic in sorted(kept, key=_order)[::-1]}
    # What is said at one place need not be said again at the next: the same words have the same cause.
    said = {
        (diagnostic.code, diagnostic.message): diagnostic for diagnostic in sorted(first.values(), key=_order)[::-1]
    }
    return sorted(errors, key=_order) + sorted(said.values(), key=_order)


def _order(diagnostic: Diagnostic) -> tuple[int, int, int]:
    # An unbound name, or a forged capability, is a cause of others on its line.
    return diagnostic.span.line, diagnostic.code not in ("unbound-name", *OURS), diagnostic.span.column
