"""What the imports of a text mean, where they name modules beside the notebook.

Rule 1: a pure function of its arguments: no file, no import system, no state.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from capkernel.wire.local_names import LocalNames
from capkernel.wire.scope_bindings import ScopeBindings


@dataclass
class Problem:
    """What a text says of a local module and cannot mean. `why` is one line."""

    node: ast.AST
    why: str
    code: str = "unsafe-import"
    help: str = ""


def imported_modules(tree: ast.AST, module: str, package: bool) -> list[tuple[ast.stmt, str, tuple[str, ...]]]:
    """Every import of a text: the statement, the dotted module, and the names that may be submodules of it."""
    found: list[tuple[ast.stmt, str, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = absolute(node, module, package)
            if source:
                found.append((node, source, tuple(alias.name for alias in node.names if alias.name != "*")))
    return found


def absolute(node: ast.ImportFrom, module: str, package: bool) -> str:
    """The module that a `from` import names; "" when it climbs out of the package."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if module else []
    kept = len(parts) - node.level + package
    if not module or kept < 1:
        return ""
    return ".".join([*parts[:kept], *([node.module] if node.module else [])])


def exports_of(tree: ast.Module, names: LocalNames) -> dict[str, str]:
    """What other texts may import from the module `tree` is of. `names.exports` has what it imports itself."""
    local = LocalImports(names)
    own = all_bound(tree.body, local)
    exported = {name: f"{names.module}:{name}" for name in own}
    return {**local.found(tree.body), **exported}


class LocalImports:
    """What the imports of local modules bind."""

    def __init__(self, names: LocalNames) -> None:
        self._names = names
        self._roots = {module.partition(".")[0] for module in names.exports}

    def is_local(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Import):
            return all(alias.name.partition(".")[0] in self._roots for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            return self._source(node).partition(".")[0] in self._roots
        return False

    def _source(self, node: ast.ImportFrom) -> str:
        return absolute(node, self._names.module, self._names.package)

    def found(self, body: Iterable[ast.AST], problems: list[Problem] | None = None) -> dict[str, str]:
        """Name → what it is, of the imports of one scope."""
        found: dict[str, str] = {}
        for node in _of_one_scope(body):
            if isinstance(node, ast.Import) and self.is_local(node):
                for alias in node.names:
                    if alias.name not in self._names.exports:
                        _add(problems, node, f"there is no module `{alias.name}` beside the notebook")
                    elif alias.asname:
                        found[alias.asname] = alias.name
                    else:
                        root = alias.name.partition(".")[0]
                        found[root] = root
            elif isinstance(node, ast.ImportFrom) and self.is_local(node):
                source = self._source(node)
                if source not in self._names.exports:
                    _add(problems, node, f"there is no module `{source}` beside the notebook")
                    continue
                for alias in node.names:
                    if alias.name == "*":
                        exported = self._names.exports[source]
                        found |= {name: target for name, target in exported.items() if not name.startswith("_")}
                        continue
                    target = self.member(source, alias.name)
                    if target is None:
                        _add(problems, node, f"the local module `{source}` has no name `{alias.name}`")
                    else:
                        found[alias.asname or alias.name] = target
        return found

    def member(self, module: str, name: str) -> str | None:
        target = self._names.exports.get(module, {}).get(name)
        if target is None and f"{module}.{name}" in self._names.exports:
            return f"{module}.{name}"
        return target


def _add(problems: list[Problem] | None, node: ast.AST, why: str) -> None:
    if problems is not None:
        problems.append(
            Problem(node, why, help="write the name as the file has it; a file is read again when it changes")
        )


class OtherBindings(ScopeBindings):
    """What a scope binds otherwise than by importing local modules."""

    def __init__(self, body: Iterable[ast.AST], local: LocalImports) -> None:
        self._local = local
        super().__init__(body)

    def visit_Import(self, node: ast.Import) -> None:  # noqa: N802
        if not self._local.is_local(node):
            super().visit_Import(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: N802
        if not self._local.is_local(node):
            super().visit_ImportFrom(node)


def all_bound(body: Sequence[ast.AST], local: LocalImports) -> set[str]:
    """What the top level binds, or a function for it through `global`."""
    found = OtherBindings(body, local).bound
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = OtherBindings(node.body, local)
                found |= inner.globals & inner.bound
    return found


def _of_one_scope(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    todo = list(body)[::-1]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo.extend(list(ast.iter_child_nodes(node))[::-1])
