"""The repair of files opened without asking: one `request_file_system` block round what of the cell uses files.

Rule 1: a library gets an ordinary open file, so that it reads and writes the same bytes as it would by the path. What
it takes from the name of a path (a format, an ending that it adds) is written out. The one difference: a table is read
as text, in which a line end inside of a quoted field is `\\n`, whatever it was.
Rule 2: only what means the same is `safe`: paths that are known to stay below the notebook's folder, and calls whose
every argument has its place here. The rest is `unsafe`, or left to other repairs.
Rule 3: lines are moved by insertions at their beginning, never by writing them anew: what stands in them, and what
other repairs do to them, stays. The inside of a string over several lines is not moved.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, field

from capkernel.checker.repairs import file_secrets
from capkernel.checker.repairs.file_uses import Access, Uses
from capkernel.checker.repairs.source import INDENT, Edits, Repairs, Source, safe, unparsed, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

_WORDS = "go through a file capability"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_EVALUATED_ONCE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Assert, ast.Raise, ast.Delete,
                   ast.For, ast.AsyncFor, ast.If, ast.Match)  # fmt: skip
_INLINE_ONLY = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.While)


@dataclass
class _Block:
    """Lines that go into a `with`, from the line of `first`."""

    first: int
    last: int
    margin: str
    items: list[str]
    gone: tuple[int, ...] = ()  # lines whose place the header takes, and the closing of the file


@dataclass
class _Rewriting:
    blocks: list[_Block] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    is_safe: bool = True


class _Impossible(Exception):
    """The cell is left to other repairs."""


def repairs(source: Source, diagnostic: Diagnostic) -> Repairs:
    """The whole cell through one block; every refusal that it ends is offered the same."""
    if source.module is None:
        return
    uses = Uses(source, diagnostic.cell)
    accesses = [one for one in uses.accesses() if _can_move(source, one)]
    dropped = uses.without_imports(accesses)
    spans = [source.span(one.call) for one in accesses] + [source.span(alias) for alias, _ in dropped]
    spans += [source.span(alias) for alias in uses.statements_of(dropped)]
    if not accesses or not any(_covers(span, diagnostic.span) for span in spans):
        return
    try:
        rewriting = _rewritten(source, accesses, uses)
        edits = _laid_out(source, rewriting, list(dict.fromkeys(edit for _, edit in dropped)))
    except _Impossible:
        return
    offered = source.with_imports(edits, *sorted(rewriting.imports))
    words = _WORDS if not any(one.is_secret for one in accesses) else file_secrets.WORDS
    yield from (safe if rewriting.is_safe else unsafe)(words, *offered)


def _covers(outer: Span, inner: Span) -> bool:
    return (outer.line, outer.column) <= (inner.line, inner.column) and (inner.end_line, inner.end_column) <= (
        outer.end_line,
        outer.end_column,
    )


def _can_move(source: Source, access: Access) -> bool:
    statement = source.statement(access.call)
    if statement is None or source.enclosing(access.call, ast.Lambda) is not None:
        return False
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return False  # a decorator or a default
    return access.inline is not None or access.opened is not None


# ── what becomes of each use ─────────────────────────────────────────────────────────────────────────────────────────


def _rewritten(source: Source, accesses: list[Access], uses: Uses) -> _Rewriting:
    found = _Rewriting()
    groups: dict[ast.AST | None, list[Access]] = {}
    for access in accesses:
        groups.setdefault(source.enclosing(access.call, *_FUNCTIONS), []).append(access)
    names = _Names(uses)
    for owner, group in groups.items():
        _of_one_body(source, owner, group, names, found)
    return found


class _Names:
    """Names of open files: one for text and one for bytes, more only where a statement has two files open."""

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._taken: dict[tuple[bool, int], str] = {}
        self.fs = uses.free_name((), "fs", "files")

    def of(self, binary: bool, number: int) -> str:
        if (binary, number) not in self._taken:
            used = (*self._taken.values(), self.fs)
            wanted = ("data", "binary") if binary and self._taken else ("f", "g", "h", "file")
            self._taken[binary, number] = self._uses.free_name(used, *wanted)
        return self._taken[binary, number]


def _of_one_body(source: Source, owner: ast.AST | None, group: list[Access], names: _Names, found: _Rewriting) -> None:
    body: list[ast.stmt] = getattr(owner if owner is not None else source.module, "body", [])
    touched = [index for index, one in enumerate(body) if any(_is_below(source, access.call, one) for access in group)]
    if not touched:
        raise _Impossible
    first, last = body[touched[0]], body[touched[-1]]
    inner: list[_Block] = []
    by_statement: dict[ast.stmt, _Block] = {}
    opened_in_with: list[tuple[ast.With, Access]] = []
    for access in group:
        found.is_safe &= access.is_safe
        found.imports |= access.imports
        statement = source.statement(access.call)
        assert statement is not None
        item = source.parents.get(access.call)
        if access.opened is not None and isinstance(item, ast.withitem) and isinstance(statement, ast.With):
            opened_in_with.append((statement, access))
        elif access.opened is not None and access.assigned_name(source) and isinstance(statement, ast.Assign):
            block = _until_closed(source, statement, access, names.fs)
            closing = block.last
            last = max(last, _top(source, body, closing), key=body.index)
            inner.append(block)
        elif access.opened is not None and not _only_inline(source, access.call, statement):
            block_of = by_statement.get(statement)
            if block_of is None:
                block_of = _Block(*_lines(source, statement, statement), [])
                by_statement[statement] = block_of
                inner.append(block_of)
            name = names.of(access.is_binary, len(block_of.items))
            block_of.items.append(f"{access.opened.format(fs=names.fs)} as {name}")
            found.edits.append(source.replace(access.replaced, access.with_file.format(name)))
        elif access.inline is not None:
            found.imports |= access.inline_imports
            found.is_safe &= access.inline_is_safe
            found.edits.append(
                source.replace(access.inline_replaced or access.replaced, access.inline.format(fs=names.fs))
            )
        else:
            raise _Impossible
    request = f"request_file_system() as {names.fs}"
    if not inner and len(opened_in_with) == 1 and opened_in_with[0][0] is first is last and len(group) == 1:
        statement, access = opened_in_with[0]
        if statement.items[0].context_expr is access.call:
            found.edits.append(source.replace(access.call, f"{request}, {access.opened_with(names.fs)}"))
            return
    found.edits += [source.replace(one.call, one.opened_with(names.fs)) for _, one in opened_in_with]
    scope = _Block(*_lines(source, first, last), [request])
    if len(inner) == 1 and (inner[0].first, inner[0].last) == (scope.first, scope.last):
        inner[0].items.insert(0, request)
        found.blocks += inner
    else:
        found.blocks += [scope, *inner]


def _is_below(source: Source, node: ast.AST, statement: ast.stmt) -> bool:
    current: ast.AST | None = node
    while current is not None and current is not statement:
        current = source.parents.get(current)
    return current is statement


def _only_inline(source: Source, node: ast.expr, statement: ast.stmt) -> bool:
    """Whether it may be evaluated more than once, or in the head of a statement that cannot be moved into a block."""
    inside = source.enclosing(node, ast.stmt, *_INLINE_ONLY)
    return isinstance(inside, _INLINE_ONLY) or not isinstance(statement, _EVALUATED_ONCE)


def _lines(source: Source, first: ast.stmt, last: ast.stmt) -> tuple[int, int, str]:
    begins, ends = source.first_line(first), last.end_lineno or last.lineno
    if source.lines[begins - 1][: source.span(first).column if begins == first.lineno else 0].strip():
        raise _Impossible  # the line has another statement before it
    rest = source.lines[ends - 1][source.span(last).end_column :].strip()
    if rest and not rest.startswith("#"):
        raise _Impossible
    return begins, ends, source.margin(first)


def _until_closed(source: Source, statement: ast.Assign, access: Access, fs: str) -> _Block:
    """`f = open(…)`, the lines that use `f`, and its `close()`."""
    name = access.assigned_name(source)
    body = source.body_of(statement)
    after = body[body.index(statement) + 1 :]
    using = [one for one in after if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(one))]
    if not using or any(isinstance(n, ast.Name) and n.id == name for one in body if one not in after
                        and one is not statement for n in ast.walk(one)):  # fmt: skip
        raise _Impossible
    closes = [one for one in using if unparsed(one) == f"{name}.close()"]
    if closes and closes[0] is not using[-1]:
        raise _Impossible
    if using == closes:
        raise _Impossible
    begins, ends, margin = _lines(source, statement, statement)
    _lines(source, after[0], using[-1])
    last = using[-1].end_lineno or using[-1].lineno
    gone = (*range(begins, ends + 1), *((last,) if closes else ()))
    return _Block(begins, last, margin, [f"{access.opened_with(fs)} as {name}"], gone)


def _top(source: Source, body: list[ast.stmt], line: int) -> ast.stmt:
    return next(one for one in body if source.first_line(one) <= line <= (one.end_lineno or one.lineno))


# ── the lines of it ──────────────────────────────────────────────────────────────────────────────────────────────────


def _laid_out(source: Source, rewriting: _Rewriting, removed: list[Edit]) -> Edits:
    blocks = sorted(rewriting.blocks, key=lambda one: (one.first, -one.last))
    for a, b in itertools.combinations(blocks, 2):
        if a.first < b.first <= a.last < b.last:
            if not set(range(a.last + 1, b.last + 1)) <= set(b.gone):
                raise _Impossible
            a.last = b.last  # two files, closed one after the other
    gone = {line for one in blocks for line in one.gone}
    edits = [*rewriting.edits, *removed]
    kept = _inside_strings(source)
    for edit in edits:
        kept |= set(range(edit.span.line + 1, edit.span.end_line + (edit.span.end_column > 0)))
    kept |= {edit.span.line for edit in removed if not edit.text and edit.span.column == 0}
    for line, text in enumerate(source.lines, 1):
        around = [one for one in blocks if one.first <= line <= one.last]
        heads = "".join(
            f"{one.margin}{INDENT * depth}with {', '.join(one.items)}:\n"
            for depth, one in enumerate(around)
            if one.first == line
        )
        if line in gone:
            edits.append(Edit(_whole(source, line), heads))
        elif heads or (around and line not in kept and text.strip()):
            moved = INDENT * len(around) if line not in kept else ""
            edits.append(Edit(Span(line, 0, line, 0), heads + moved))
    return tuple(edits)


def _whole(source: Source, line: int) -> Span:
    return Span(line, 0, line + 1, 0) if line < len(source.lines) else Span(line, 0, line, len(source.lines[line - 1]))


def _inside_strings(source: Source) -> set[int]:
    """Lines whose beginning may be inside of a string."""
    found: set[int] = set()
    for node in ast.walk(source.module or ast.Module([], [])):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and (node.end_lineno or 0) > node.lineno:
            found |= set(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    return found
