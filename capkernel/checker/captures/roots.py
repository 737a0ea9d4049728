"""Of which block a capability is, and which path it names: followed back from where it is used to where it was granted.

Rule 1: a block is named only where the value can have come from no other: every binding of the name is followed, and
one that is not understood makes the answer unknown.
Rule 2: a path is named only where it is literal from the root of the block on.
"""

from __future__ import annotations

import ast
from typing import Final

from capkernel.checker.captures.known import Context
from capkernel.checker.captures.scope_sites import SiteKey, entering_block, granting_call, key_of
from capkernel.checker.captures.scopes import Scope
from capkernel.wire.plan import plain_path
from capkernel.wire.syntax import literal_text

Root = tuple[frozenset[SiteKey] | None, str | None]
"""The blocks that a value can only come from (None: not certain), and its path if it is literal."""
UNKNOWN: Final[Root] = (None, None)

_LONGEST: Final = 1000
_DEEPEST: Final = 20
_BOUNDARIES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)


class Roots:
    """Of one piece of source."""

    def __init__(self, context: Context, rebound: frozenset[str] | None) -> None:
        """rebound: names of the session that functions bind; None when any may be."""
        self._context = context
        self._rebound = rebound
        # Asked for at every use of a name, and the same for all of them.
        self._of_names: dict[tuple[Scope, str, int], Root] = {}
        self._binding: dict[tuple[Scope, str], tuple[set[ast.AST], set[ast.AST]]] = {}
        self._nonlocals: dict[Scope, set[str]] = {}

    def of(self, node: ast.expr) -> Root:
        return self._of(node, 0)

    def _of(self, node: ast.expr, depth: int) -> Root:
        if depth > _DEEPEST:
            return UNKNOWN
        if isinstance(node, ast.Name):
            return self._of_name(node, depth)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("access", "subtree"):
                sites, base = self._of(node.func.value, depth + 1)
                alone = len(node.args) == 1 and not node.keywords
                base = "." if sites is None and node.func.attr == "access" else base
                return sites, joined(base, literal(node.args[0])) if alone else None
            if node.func.attr == "read_only" and not node.args and not node.keywords:
                return self._of(node.func.value, depth + 1)
            if node.func.attr == "walk":
                return self._of(node.func.value, depth + 1)[0], None
            granted = node.args[0] if len(node.args) == 1 else None
            if (
                isinstance(granted, ast.Call)
                and granting_call(granted, self._context) is not None
                and entering_block(granted, self._context) is not None
            ):
                return frozenset((key_of(granted, self._context),)), "."
        if isinstance(node, ast.Subscript):
            listed = node.value
            if isinstance(listed, ast.Attribute) and listed.attr == "children":
                return self._of(listed.value, depth + 1)[0], None
        return UNKNOWN

    def _of_name(self, node: ast.Name, depth: int) -> Root:
        scopes = self._context.scopes
        owner = scopes.owner(node) if node in scopes.standing else None
        if owner is None or owner.kind not in ("module", "function", "comprehension"):
            return UNKNOWN
        if owner.kind == "module" and (self._rebound is None or node.id in self._rebound):
            return UNKNOWN
        if owner not in self._nonlocals:
            self._nonlocals[owner] = {name for inner in owner.walk() for name in inner.nonlocals}
        if node.id in self._nonlocals[owner]:
            return UNKNOWN
        inside = self._around(node, owner)
        if inside is not None:
            return frozenset((inside,)), "."
        key = (owner, node.id, depth)
        if key not in self._of_names:
            self._of_names[key] = self._of_bindings(owner, node.id, depth)
        return self._of_names[key]

    def _of_bindings(self, owner: Scope, name: str, depth: int) -> Root:
        """The same for what the name may have been bound to."""
        sites: set[SiteKey] = set()
        paths: set[str | None] = set()
        for binding in owner.bindings.get(name, ()):
            if binding.how == "del":
                continue
            if binding.how != "assignment":
                return UNKNOWN
            if binding.value is not None:
                found, path = self._of(binding.value, depth + 1)
            else:
                found, path = self._of_target(binding.node, depth)
            if found is None:
                return UNKNOWN
            sites |= found
            paths.add(path)
        if not sites:
            return UNKNOWN
        return frozenset(sites), paths.pop() if len(paths) == 1 else None

    def _around(self, node: ast.Name, owner: Scope) -> SiteKey | None:
        """The block around `node` whose capability the name is: the one that binds it, when nothing inside does again
        and no function stands between."""
        bound, rebinding = self._bound(owner, node.id)
        child: ast.AST = node
        current = self._context.parents.get(node)
        while current is not None and not isinstance(current, _BOUNDARIES):
            if isinstance(current, (ast.With, ast.AsyncWith)) and isinstance(child, ast.stmt):
                if current in rebinding:
                    return None
                mine = [item.context_expr for item in current.items if item.optional_vars in bound]
                if mine:
                    call = mine[0]
                    if len(mine) > 1 or not isinstance(call, ast.Call) or not granting_call(call, self._context):
                        return None
                    return key_of(call, self._context)
            child, current = current, self._context.parents.get(current)
        return None

    def _bound(self, owner: Scope, name: str) -> tuple[set[ast.AST], set[ast.AST]]:
        """What binds the name, and the blocks in whose bodies that stands."""
        known = self._binding.get((owner, name))
        if known is not None:
            return known
        bound = {binding.node for binding in owner.bindings.get(name, ())}
        blocks: set[ast.AST] = set()
        for node in bound:
            child, current = node, self._context.parents.get(node)
            while current is not None:
                if isinstance(current, (ast.With, ast.AsyncWith)) and isinstance(child, ast.stmt):
                    blocks.add(current)
                child, current = current, self._context.parents.get(current)
        self._binding[owner, name] = bound, blocks
        return bound, blocks

    def _of_target(self, target: ast.AST, depth: int) -> Root:
        parent = self._context.parents.get(target)
        if isinstance(parent, ast.withitem) and parent.optional_vars is target:
            call = parent.context_expr
            if isinstance(call, ast.Call) and granting_call(call, self._context) is not None:
                return frozenset((key_of(call, self._context),)), "."
            return UNKNOWN
        if isinstance(parent, (ast.For, ast.comprehension)) and parent.target is target:
            iterated = parent.iter
            if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Attribute):
                if iterated.func.attr == "walk":
                    return self._of(iterated.func.value, depth + 1)[0], None
            elif isinstance(iterated, ast.Attribute) and iterated.attr == "children":
                return self._of(iterated.value, depth + 1)[0], None
        return UNKNOWN


def joined(base: str | None, path: str | None) -> str | None:
    """A literal path in a directory that is itself literal. `..` could mean another place there than it seems."""
    if base is None or path is None:
        return None
    return path if base == "." else None if ".." in f"{base}/{path}".split("/") else plain_path(f"{base}/{path}")


def literal(node: ast.expr) -> str | None:
    text = literal_text(node)
    # An absolute path is relative to an absolute root, which only the broker knows how to read.
    return None if text is None or text.startswith("/") or len(text) > _LONGEST else plain_path(text)
