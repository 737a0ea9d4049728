"""Completion and help by static type, and the list of what the session holds."""

from __future__ import annotations

import ast
import keyword
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.nodes import MypyFile, SymbolNode, Var
from mypy.types import Type

from capkernel.checker.engine import CellBlocked, Checked, Engine
from capkernel.checker.looking import members
from capkernel.checker.looking.cursor import HOLE, Target, candidates, target_at
from capkernel.checker.protocol import (
    Complete,
    Completed,
    Describe,
    Described,
    KnownName,
    KnownNames,
    ListNames,
    Match,
)
from capkernel.checker.symbols import Binding
from capkernel.checker.tables import subset
from capkernel.checker.typed_cell import Resolved
from capkernel.wire.codekey import cell_filename
from capkernel.wire.local_names import BEFORE_NAME, LocalNames, plain_name
from capkernel.wire.local_renaming import rename

_NO_CELL = 0  # no cell has this number
_MOST_MATCHES = 2000
_MOST_SIGNED = 80  # matches that are shown with their signatures
_MOST_NAMES = 5000
_MOST_TEXT = 64 * 1024  # characters of a text that is looked at
_MOST_DOC = 4000


@dataclass(frozen=True)
class _Found:
    """An expression of the text, typed."""

    node: ast.expr
    tree: ast.Module
    checked: Checked
    resolved: Resolved


class Looker:
    """Answers for one session. Every answer is found in a text that is typed as a cell and forgotten."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def answer(self, question: Complete | Describe | ListNames) -> Completed | Described | KnownNames:
        """The answer. Nothing found is an answer, too."""
        if isinstance(question, ListNames):
            return self._names(question)
        if len(question.text) > _MOST_TEXT or not 0 <= question.cursor <= len(question.text):
            return _nothing(question)
        target = target_at(question.text, question.cursor)
        if target is None:
            return _nothing(question)
        try:
            if isinstance(question, Complete):
                return self._complete(question, target)
            return self._describe(question, target)
        except RecursionError:
            return _nothing(question)

    # ── completion ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _complete(self, question: Complete, target: Target) -> Completed:
        if target.module is not None:
            wanted = self._engine.members(target.module) if target.module else ()
            return self._matches(question, target, dict.fromkeys(wanted), kinds=False)
        if target.owner:
            return self._matches(question, target, self._members_at(question, target))
        found: dict[str, SymbolNode | None] = dict.fromkeys(self._parameters(question, target))
        answer = self._matches(question, target, found, kinds=False, ending="=", kind="param")
        named = self._matches(question, target, self._names_in_reach(question.text, question.names))
        matches = (*answer.matches, *named.matches)
        return Completed(question.cell, matches[:_MOST_MATCHES], target.begin, question.cursor)

    def _members_at(self, question: Complete, target: Target) -> Mapping[str, SymbolNode | None]:
        local = question.names.aliases.get(target.owner, "")
        if local and ":" not in local:
            return dict.fromkeys(question.names.exports.get(local, {}))
        end = target.owner_begin + len(target.owner)
        found = self._typed(question.text, target, target.owner, target.owner_begin, end, question.names)
        if found is None:
            return {}
        if isinstance(found.resolved.symbol, MypyFile):
            return members.members_of_module(found.resolved.symbol, set(self._engine.modules))
        return {} if found.resolved.type is None else members.members_of(found.resolved.type)

    def _parameters(self, question: Complete, target: Target) -> list[str]:
        if not target.callee:
            return []
        found = self._typed(question.text, target, target.callee, -1, -1, question.names)
        if found is None or found.resolved.type is None:
            return []
        return list(dict.fromkeys(members.parameters(found.resolved.type)))

    def _names_in_reach(self, text: str, names: LocalNames) -> dict[str, SymbolNode | None]:
        found: dict[str, SymbolNode | None] = dict.fromkeys(_bound_in(text))
        found.update(dict.fromkeys(names.aliases))
        for name, binding in self._engine.table.items():
            if BEFORE_NAME not in name:
                found[name] = binding.node
        table = subset()
        refused = table.code | table.namespaces | table.interactive | table.files
        for name in (*self._engine.globals_set, *self._engine.names_of_every_session() - refused):
            found.setdefault(name, None)
        found.update(dict.fromkeys(word for word in keyword.kwlist if word not in found))
        return found

    def _matches(
        self,
        question: Complete,
        target: Target,
        found: Mapping[str, SymbolNode | None],
        *,
        kinds: bool = True,
        ending: str = "",
        kind: str = "",
    ) -> Completed:
        hidden = not target.word.startswith("_")
        names = [name for name in found if name.startswith(target.word) and not (hidden and name.startswith("_"))][
            :_MOST_MATCHES
        ]
        names.sort(key=str.lower)
        signed = kinds and len(names) <= _MOST_SIGNED
        matches = tuple(
            Match(
                name + ending,
                kind or (members.kind_of(found[name]) if kinds and found[name] is not None else ""),
                self._signature(found[name]) if signed else "",
            )
            for name in names
        )
        return Completed(question.cell, matches, target.begin, question.cursor)

    def _signature(self, node: SymbolNode | None) -> str:
        typ = members.bound(node)
        if typ is None:
            return ""
        found = members.signatures(typ, "", self._engine.options)
        return found[0] if found and members.kind_of(node) != "class" else ""

    # ── help ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _describe(self, question: Describe, target: Target) -> Described:
        text, names = question.text, question.names
        if target.begin == target.end and target.callee:
            name = target.callee
            found = self._typed(text, target, name, -1, -1, names)
        else:
            begin = target.owner_begin if target.owner else target.begin
            name = text[begin : target.end]
            if target.begin == target.end or not name:
                return _unknown(question)
            found = self._typed(text, target, name, begin, target.end, names)
        if found is not None and (members.is_known(found.resolved.type) or _is_module(found.resolved)):
            return self._said(question, name, found)
        return self._bound_here(question, name)

    def _said(self, question: Describe, name: str, found: _Found) -> Described:
        symbol, typ = found.resolved.symbol, found.resolved.type
        short = name.rpartition(".")[2]
        lines = () if typ is None else members.signatures(typ, short, self._engine.options)
        module = isinstance(symbol, MypyFile)
        return Described(
            question.cell,
            name=name,
            static_type="module" if module else self._engine.describe(typ),
            signatures=lines,
            fullname=_outside(symbol.fullname if module and symbol is not None else members.defined_at(symbol, typ)),
            documentation=_documentation(found.tree, short),
            label="plain" if module else members.label_of(typ),
            standing=self._standing(found, typ),
        )

    def _bound_here(self, question: Describe, name: str) -> Described:
        """A name where it is bound: its type after the text."""
        checked = self._check(question.text, question.names) if name.isidentifier() else None
        if checked is None:
            return _unknown(question)
        binding = checked.names.get(name)
        self._engine.forget(checked)
        if binding is None or not (members.is_known(binding.type) or not isinstance(binding.node, Var)):
            return _unknown(question)
        lines = () if binding.type is None else members.signatures(binding.type, name, self._engine.options)
        return Described(
            question.cell, name=name, static_type=self._engine.describe_binding(binding), signatures=lines,
            documentation=_documentation(checked.typed.module, name), label=members.label_of(binding.type),
            standing=_granted(checked.typed.module, name) if members.is_capability(binding.type) else "",
        )  # fmt: skip

    def _standing(self, found: _Found, typ: Type | None) -> str:
        """Whether a capability is live where it stands, and why; "" for what is none."""
        if not members.is_capability(typ):
            return ""
        root = found.node
        while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name):
            return ""
        blocks = [node for node in _around(found.tree, found.node) if isinstance(node, (ast.With, ast.AsyncWith))]
        for block in reversed(blocks):
            if root.id in _named_by(block):
                return _live(block)
        functions = [node for node in _around(found.tree, found.node) if isinstance(node, _FUNCTIONS)]
        if any(root.id in {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)} for node in functions):
            return "live as long as what the caller hands in: the block that granted it is the caller's"
        earlier = self._engine.table.get(root.id)
        if earlier is not None and root.id not in _stored_in(found.tree):
            return f"dead: the block of cell {earlier.cell} that granted it has ended; ask again in a `with` block"
        if blocks:
            return f"live at most until the block that begins on line {blocks[-1].lineno} ends"
        return "dead here: the block that granted it has ended; use it inside the block"

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _names(self, question: ListNames) -> KnownNames:
        found = sorted((name, binding) for name, binding in self._engine.table.items() if not name.startswith("_"))
        return KnownNames(
            question.cell, tuple(self._known(name, binding) for name, binding in found[:_MOST_NAMES]), len(found)
        )

    def _known(self, name: str, binding: Binding) -> KnownName:
        typ = binding.type
        standing = (
            f"dead: the block of cell {binding.cell} that granted it has ended" if members.is_capability(typ) else ""
        )
        return KnownName(
            plain_name(name), self._engine.describe_binding(binding), binding.cell, members.label_of(typ), standing
        )

    # ── typing a text ────────────────────────────────────────────────────────────────────────────────────────────────

    def _typed(
        self, text: str, target: Target, expression: str, begin: int, end: int, names: LocalNames
    ) -> _Found | None:
        """The expression in the first text around it in which mypy knows something of it."""
        for candidate in candidates(text, target, expression, begin, end):
            checked = self._check(candidate, names)
            if checked is None:
                continue
            node = next((one for one in _holes(checked.typed.module)), None)
            resolved = None if node is None else checked.typed.resolve(node)
            tree = checked.typed.module
            self._engine.forget(checked)
            if node is not None and resolved is not None and (members.is_known(resolved.type) or _is_module(resolved)):
                return _Found(node, tree, checked, resolved)
        return None

    def _check(self, text: str, names: LocalNames) -> Checked | None:
        """The text as a cell; None when it cannot be one. The caller forgets it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = ast.parse(text, cell_filename(_NO_CELL))
            renamed = rename(module, names)
            return self._engine.check(_NO_CELL, text, renamed.tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError, CellBlocked):
            return None


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _nothing(question: Complete | Describe) -> Completed | Described:
    return _unknown(question) if isinstance(question, Describe) else _no_match(question)


def _no_match(question: Complete) -> Completed:
    return Completed(question.cell, (), question.cursor, question.cursor)


def _unknown(question: Describe) -> Described:
    return Described(question.cell)


def _is_module(resolved: Resolved) -> bool:
    return isinstance(resolved.symbol, MypyFile)


def _outside(fullname: str) -> str:
    """Of a definition in a library; "" for one of a cell."""
    return "" if fullname.startswith("cell_") else fullname


def _holes(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == HOLE:
            yield node.value


def _around(tree: ast.AST, node: ast.AST) -> list[ast.AST]:
    """What stands around `node`, outermost first; only a block's body counts as inside it."""
    for child in ast.iter_child_nodes(tree):
        if child is node:
            return [tree]
        if isinstance(tree, (ast.With, ast.AsyncWith)) and isinstance(child, ast.withitem):
            if any(inner is node for inner in ast.walk(child)):
                return [node]
            continue
        inside = _around(child, node)
        if inside:
            return [tree, *inside]
    return []


def _granted(tree: ast.Module, name: str) -> str:
    """Of a capability where a text binds it."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, (ast.With, ast.AsyncWith))]
    return next((_live(block) for block in blocks if name in _named_by(block)), "live only inside a block")


def _live(block: ast.With | ast.AsyncWith) -> str:
    return f"live: granted by the block that begins on line {block.lineno}, until that block ends"


def _named_by(block: ast.With | ast.AsyncWith) -> set[str]:
    return {name.id for item in block.items for name in _names_in(item.optional_vars)}


def _names_in(node: ast.expr | None) -> Iterable[ast.Name]:
    return () if node is None else [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def _stored_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _documentation(tree: ast.Module, name: str) -> str:
    """Of a function or class that the text itself defines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
            return (ast.get_docstring(node) or "")[:_MOST_DOC]
    return ""


def _bound_in(text: str) -> list[str]:
    """Names that a text binds anywhere, as far as it can be read."""
    found: dict[str, None] = {}
    tree = _parsed(text)
    if tree is not None:
        for node in ast.walk(tree):
            found.update(dict.fromkeys(_bound_by(node)))
        return list(found)
    for line in text.split("\n"):  # it is being written: what can be said of each line by itself
        tree = _parsed(line.strip() + (" pass" if line.rstrip().endswith(":") else ""))
        for node in () if tree is None else ast.walk(tree):
            found.update(dict.fromkeys(_bound_by(node)))
    return list(found)


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bound_by(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.arg():
            return [node.arg]
        case ast.alias():
            return [(node.asname or node.name).partition(".")[0]]
        case ast.ExceptHandler(name=str()):
            return [node.name or ""]
        case _:
            return []
