"""Ambient authority in library members, and code that has no types: judged where a cell uses them."""

from __future__ import annotations

import ast

from mypy.nodes import FuncDef, MypyFile, OverloadedFuncDef, TypeInfo
from mypy.types import AnyType, Type, get_proper_type

from capkernel.checker.captures.known import Context, Imported, View
from capkernel.checker.captures.paths import possible_path as path_of  # what it may be is judged
from capkernel.checker.captures.types import API, instances
from capkernel.checker.subset.imports import WHAT, is_hidden_module
from capkernel.checker.subset.report import Report
from capkernel.checker.tables import ambient

_TEXT = ("builtins.str", "pathlib.Path", "pathlib.PurePath", "pathlib.PurePosixPath")
_WRITERS = ("save", "savez", "savez_compressed", "savetxt", "savefig", "imsave")


class AmbientRule:
    """Judges one node at a time; the walk over the cell is `rules`."""

    def __init__(self, context: Context, view: View, report: Report) -> None:
        self._context = context
        self._view = view
        self._report = report

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            self._attribute(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self._name(node)
        elif isinstance(node, ast.Call):
            self._call(node)

    def _name(self, node: ast.Name) -> None:
        path = path_of(node, self._context, self._view)
        if not path or path.startswith(("builtins.", API)):
            return
        self._member(node, path)
        if path in ambient().partial and not isinstance(self._context.parents.get(node), ast.Attribute):
            self._report.ambient(
                node,
                f"the module `{path}` is passed on as a value, with everything in it",
                ambient().partial_advice[path],
            )

    def _attribute(self, node: ast.Attribute) -> None:
        base = path_of(node.value, self._context, self._view)
        if not base or base.startswith(API):
            return
        path = f"{base}.{node.attr}"
        table = ambient()
        if self._member(node, path):
            return
        if not self._is_module(node.value, base):
            return
        if not isinstance(node.ctx, ast.Load):
            self._report.add(
                "unsafe-feature",
                node,
                f"`{path}` belongs to the module `{base}`, which every cell shares",
                help="keep your own value in a name of your own",
            )
        elif node.attr.startswith("_") and not node.attr.startswith("__"):
            self._report.add(
                "unsafe-feature", node, f"`{path}` is private to its module", help="use the public name that wraps it"
            )
        elif is_hidden_module(base, node.attr):
            self._report.ambient(node, f"`{path}` is the module `{node.attr}` by another way", "code")
        elif path in table.partial and not isinstance(self._context.parents.get(node), ast.Attribute):
            self._report.ambient(
                node, f"the module `{path}` is passed on as a value, with everything in it", table.partial_advice[path]
            )

    def _member(self, node: ast.AST, path: str) -> bool:
        key = ambient().member(path)
        if key is None and path in ambient().refused_modules and "." in path:
            key = ambient().refused_modules[path]
        if key is None:
            return False
        self._report.ambient(node, f"`{path}` {WHAT.get(key, 'reaches outside the session')}", key)
        return True

    def _is_module(self, node: ast.expr, base: str) -> bool:
        resolved = self._context.resolve(node)
        if resolved is not None and isinstance(resolved.symbol, MypyFile):
            return True
        if resolved is not None and isinstance(resolved.symbol, (TypeInfo, FuncDef, OverloadedFuncDef)):
            return False
        # A module without type information is `Any`; what `import` binds is a module all the same.
        if isinstance(node, ast.Name):
            entry = self._view.lookup(node.id)
            if entry is not None and isinstance(entry.known, Imported) and entry.known.path == base:
                proper = get_proper_type(resolved.type) if resolved is not None and resolved.type is not None else None
                return isinstance(proper, AnyType)
        return False

    # ── functions that take a path ───────────────────────────────────────────────────────────────────────────────────

    def _call(self, node: ast.Call) -> None:
        table = ambient()
        self._literal_getattr(node)
        path = path_of(node.func, self._context, self._view)
        if path in table.path_functions:
            argument = self._path_argument(node, table.path_functions[path])
            if argument is not None:
                name = path.rpartition(".")[2]
                key = "write" if name in _WRITERS else "table"
                self._report.ambient(argument, f"`{name}` opens this path without asking for it", key)
        elif not path and isinstance(node.func, ast.Attribute) and node.func.attr in table.path_methods:
            owner = self._context.type_of(node.func.value)
            if owner is None or not any(info.fullname.startswith(table.path_owners) for info in instances(owner)):
                return
            argument = self._path_argument(node, 0)
            if argument is not None:
                self._report.ambient(
                    argument, f"`.{node.func.attr}` writes to this path without asking for it", "write"
                )

    def _literal_getattr(self, node: ast.Call) -> None:
        if not (isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1):
            return
        name = node.args[1]
        base = path_of(node.args[0], self._context, self._view)
        if base and isinstance(name, ast.Constant) and isinstance(name.value, str):
            self._member(node, f"{base}.{name.value}")

    def _path_argument(self, node: ast.Call, position: int) -> ast.expr | None:
        """The argument that is a path, when its type says that it is one."""
        candidates: list[ast.expr] = list(node.args[position : position + 1])
        candidates += [keyword.value for keyword in node.keywords if keyword.arg in ambient().path_keywords]
        for argument in candidates:
            if _is_path(self._context.type_of(argument)):
                return argument
        return None


def _is_path(typ: Type | None) -> bool:
    return typ is not None and any(info.fullname in _TEXT for info in instances(typ))
