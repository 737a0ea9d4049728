"""One session's checker: the order of the questions, and what an accepted cell leaves behind.

Rule 1: a cell is refused unless every step said yes. A step that cannot answer refuses (`too-much-work`).
Rule 2: a refusal, or a crash, changes nothing.
Rule 3: an internal error of mypy is not an answer: it propagates, and the process that runs this ends.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)

from capkernel.checker.comments import Comments, comments_of
from capkernel.checker.dependants import Dependants
from capkernel.checker.engine import CellBlocked, Checked, Engine
from capkernel.checker.findings import blocked, findings
from capkernel.checker.profiles import Profile
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.repairs import offer
from capkernel.checker.repairs.causes import with_causes
from capkernel.checker.scan import scan
from capkernel.checker.typed_cell import TypedCell
from capkernel.diagnostics.model import Diagnostic, Span
from capkernel.wire.codekey import cell_filename
from capkernel.wire.local_imports import Problem
from capkernel.wire.local_names import NO_NAMES, LocalNames
from capkernel.wire.local_renaming import rename
from capkernel.wire.plan import Plan

MOST_BYTES = 256 * 1024
MOST_WARNINGS = 10  # of one cell; the rest is counted
_TEXTS_KEPT = 64
_NAMES_KEPT = 500


class Verdict(Protocol):
    """What the capture checker says of a typed cell."""

    @property
    def diagnostics(self) -> list[Diagnostic]: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def facts(self) -> Any: ...


class Captures(Protocol):
    """The capture checker: what earlier cells left is its own state."""

    def check(self, cell: TypedCell, /) -> Verdict: ...
    def commit(
        self, facts: Any, bound: frozenset[str], deleted: frozenset[str], /, *, raised: bool = False
    ) -> None: ...


Subset = Callable[[ast.Module, int, str], list[Diagnostic]]


class CheckerSession:
    """Judges cells one after the other. `check` then `commit` or `discard`, in any interleaving of cells."""

    def __init__(self, engine: Engine, profile: Profile, check_subset: Subset, captures: Captures) -> None:
        self._engine = engine
        self._profile = profile
        self._check_subset = check_subset
        self._captures = captures
        self._dependants = Dependants()
        self._accepted: dict[int, tuple[Checked, Any]] = {}
        self._refused_names: dict[str, int] = {}  # and the cell that would have bound each
        self._texts: dict[int, str] = {}  # of the last cells, for repairs that open a block again

    def check(self, cell: int, text: str, names: LocalNames = NO_NAMES, *, trial: bool = False) -> Accepted | Rejected:
        """The verdict on `text` as cell number `cell`. Changes nothing that a later check could see, but for the help
        that a later cell gets when it misses a name of this one. `names`: what it means by names of local modules.
        `trial`: it will not run, and does not even change that."""
        self.discard(cell)
        module = parse(cell, text)
        verdict = self._verdict(cell, text, module, names)
        if isinstance(verdict, Accepted):
            return verdict
        try:
            return Rejected(cell, self._with_help(verdict, text, module, names, trial))
        except RecursionError:
            return verdict  # it stands without help
        except Exception:  # a bug of mypy, at the text of a repair
            return Rejected(cell, verdict.diagnostics, parting=True)

    def _with_help(
        self, verdict: Rejected, text: str, module: ast.Module | Diagnostic, names: LocalNames, trial: bool
    ) -> tuple[Diagnostic, ...]:
        cell = verdict.cell
        if names.exports:
            module = parse(cell, text)  # a repair is one of the text, in whose words the person wrote it
        tree = None if isinstance(module, Diagnostic) else module
        known = frozenset(self._engine.table) | frozenset(self._engine.globals_set)
        judge = partial(self._against, cell, names)
        found = with_causes(verdict.diagnostics, self._refused_names)
        if not trial:
            self._remember_refused(cell, tree)
        return offer(found, text, tree, judge, known, self._earlier, self._engine.members)

    def _earlier(self, cell: int) -> str:
        return self._texts.get(cell, "")

    def _remember_refused(self, cell: int, tree: ast.Module | None) -> None:
        """What a refused cell would have bound: a later cell that misses it is told which cell to repair."""
        if tree is not None:
            self._refused_names.update(dict.fromkeys(scan(tree).bound, cell))
        while len(self._refused_names) > _NAMES_KEPT:
            del self._refused_names[next(iter(self._refused_names))]

    def _verdict(self, cell: int, text: str, module: ast.Module | Diagnostic, names: LocalNames) -> Accepted | Rejected:
        if isinstance(module, Diagnostic):
            return Rejected(cell, (module,))
        try:
            renamed = rename(module, names)
            if renamed.problems:
                return Rejected(cell, tuple(_misused(cell, text, problem) for problem in renamed.problems))
            return self._judge(cell, text, module)
        except RecursionError:
            return Rejected(cell, (_too_deep(cell),))

    def _against(self, cell: int, names: LocalNames, text: str) -> tuple[tuple[Diagnostic, ...], int]:
        """The refusals and the number of warnings that stand against a repaired text. Leaves nothing behind."""
        verdict = self._verdict(cell, text, parse(cell, text), names)
        if isinstance(verdict, Rejected):
            return verdict.diagnostics, 0
        self.discard(cell)
        return (), len(verdict.warnings) + verdict.more

    def _judge(self, cell: int, text: str, module: ast.Module) -> Accepted | Rejected:
        comments = comments_of(text)
        refused = _settings(cell, comments) + self._check_subset(module, cell, text)
        if any(diagnostic.severity == "error" for diagnostic in refused):
            return _rejected(cell, refused)
        try:
            checked = self._engine.check(cell, text, module)
        except CellBlocked as block:
            return _rejected(cell, blocked(TypedCell(cell, text, module), block.errors) or [_stopped(cell)])
        try:
            said = [*refused, *findings(checked, comments, self._profile)]
            said += self._dependants.broken_by(checked, self._engine, self._profile)
            verdict = self._captures.check(checked.typed)
            said += verdict.diagnostics
            if any(diagnostic.severity == "error" for diagnostic in said):
                self._engine.forget(checked)
                return _rejected(cell, said)
        except BaseException:
            self._engine.forget(checked)
            raise
        self._accepted[cell] = (checked, verdict.facts)
        names = {name: self._engine.describe_binding(binding) for name, binding in checked.names.items()}
        last_type = self._engine.describe(checked.last_type)
        more = max(len(said) - MOST_WARNINGS, 0)
        return Accepted(cell, verdict.plan, tuple(said[:MOST_WARNINGS]), names, last_type, more)

    def commit(self, cell: int, bound: frozenset[str], deleted: frozenset[str], *, raised: bool = False) -> None:
        """The accepted cell ran. Raises KeyError for a cell that was not accepted."""
        checked, facts = self._accepted.pop(cell)
        self._texts[cell] = checked.typed.text
        while len(self._texts) > _TEXTS_KEPT:
            del self._texts[next(iter(self._texts))]
        self._engine.commit(checked, sorted(bound), sorted(deleted), raised=raised)
        self._dependants.commit(checked, bound, deleted)
        for name in bound:
            self._refused_names.pop(name, None)
        self._captures.commit(facts, bound, deleted, raised=raised)

    def discard(self, cell: int) -> None:
        """The accepted cell did not run, or is asked about again."""
        known = self._accepted.pop(cell, None)
        if known is not None:
            self._engine.forget(known[0])


def parse(cell: int, text: str) -> ast.Module | Diagnostic:
    """Python's tree for `text`, exactly as the worker will compile it, or why there is none."""
    problem = _unfit(cell, text)
    if problem is not None:
        return problem
    filename = cell_filename(cell)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a cell is no news for the kernel's log
            module = ast.parse(text, filename)
            # What only the compiler refuses: `return` outside a function, `nonlocal` without a scope around.
            compile(module, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        return _syntax(cell, error)
    except (RecursionError, MemoryError):
        return _too_deep(cell)
    except ValueError:
        return _no_text(cell, "the text holds what Python cannot read")
    return module


def _unfit(cell: int, text: str) -> Diagnostic | None:
    if len(text) > MOST_BYTES:
        return _too_long(cell)
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return _no_text(cell, "the text holds half of a surrogate pair, which is no character")
    if size > MOST_BYTES:
        return _too_long(cell)
    if "\0" in text:
        return _no_text(cell, "the text holds a null byte")
    return None


def _too_long(cell: int) -> Diagnostic:
    return Diagnostic(
        "too-much-work", f"the cell is longer than {MOST_BYTES // 1024} KiB", cell, Span(1, 0, 1, 1),
        help="read large data from a file",
    )  # fmt: skip


def _no_text(cell: int, message: str) -> Diagnostic:
    return Diagnostic("syntax", message, cell, Span(1, 0, 1, 1))


def _too_deep(cell: int) -> Diagnostic:
    return Diagnostic(
        "too-much-work", "an expression of this cell is nested too deep to be checked", cell, Span(1, 0, 1, 1),
        help="name the parts of it, on lines of their own",
    )  # fmt: skip


def _misused(cell: int, text: str, problem: Problem) -> Diagnostic:
    """What a text says of a local module and cannot mean."""
    span = TypedCell(cell, text, ast.Module([], [])).span(problem.node)
    return Diagnostic(problem.code, problem.why, cell, span, help=problem.help)


def _stopped(cell: int) -> Diagnostic:
    return Diagnostic("not-understood", "the type checker could not read this cell", cell, Span(1, 0, 1, 1))


def _syntax(cell: int, error: SyntaxError) -> Diagnostic:
    line = max(error.lineno or 1, 1)
    column = max((error.offset or 1) - 1, 0)
    end_line, end_column = error.end_lineno or line, (error.end_offset or 0) - 1
    if (end_line, end_column) <= (line, column):
        end_line, end_column = line, column + 1
    message = (error.msg or "invalid syntax").replace("'", "`")
    return Diagnostic("syntax", message, cell, Span(line, column, end_line, end_column))


def _settings(cell: int, comments: Comments) -> list[Diagnostic]:
    return [
        Diagnostic(
            "unsafe-feature", "`# mypy:` comments are refused: a cell does not set how it is checked", cell,
            Span(line, column, line, end_column), help="delete the comment; the profile decides what refuses",
        )
        for line, column, end_column in comments.settings
    ]  # fmt: skip


def _rejected(cell: int, said: list[Diagnostic]) -> Rejected:
    # What would only have been a warning does not explain a refusal.
    return Rejected(cell, tuple(diagnostic for diagnostic in said if diagnostic.severity == "error"))
