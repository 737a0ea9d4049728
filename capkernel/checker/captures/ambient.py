"""Ambient authority in library members, and code that has no types: judged where a cell uses them."""

from __future__ import annotations

import ast
import builtins
import codecs
import os
import sys

from mypy.nodes import FuncDef, MypyFile, OverloadedFuncDef, TypeInfo
from mypy.types import AnyType, Type, get_proper_type

from capkernel.checker.captures.known import Context, Imported, View
from capkernel.checker.captures.openers import Openers, is_of_texts, path_among
from capkernel.checker.captures.path_arguments import opened_argument
from capkernel.checker.captures.paths import possible_path as path_of  # what it may be is judged
from capkernel.checker.captures.reexports import has_source
from capkernel.checker.captures.types import API, instances, is_any, is_exception
from capkernel.checker.subset.imports import WHAT, is_hidden_module
from capkernel.checker.subset.report import Report
from capkernel.checker.tables import ambient

_TEXT = ("builtins.str", "pathlib.Path", "pathlib.PurePath", "pathlib.PurePosixPath")
_WRITERS = ("save", "savez", "savez_compressed", "savetxt", "savefig", "imsave")


# Modules of which a member is known by its name, whatever value it is reached through; with no names, every member.
REACHED = {
    "os": frozenset(dir(os)), "sys": frozenset(dir(sys)), "codecs": frozenset(dir(codecs)),
    "builtins": frozenset(dir(builtins)), "subprocess": frozenset[str](), "ctypes": frozenset[str](),
    "importlib": frozenset[str](), "shutil": frozenset[str](),
}  # fmt: skip


class AmbientRule:
    """Judges one node at a time; the walk over the cell is `rules`."""

    def __init__(self, context: Context, view: View, report: Report, openers: Openers) -> None:
        self._context = context
        self._view = view
        self._report = report
        self._openers = openers

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            self._attribute(node)
            self._held(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self._name(node)
            self._held(node)
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
        if not base:
            self._of_a_value(node)
            return
        if base.startswith(API) or self._link(node.value):
            return  # or it is said of the module that it was reached through
        path = path_of(node, self._context, self._view)
        table = ambient()
        if self._refuse_link(node) or self._member(node, path) or not self._is_module(node.value, base):
            return
        if not isinstance(node.ctx, ast.Load):
            self._report.add(
                "unsafe-feature",
                node,
                f"`{path}` belongs to the module `{base}`, which every cell shares",
                help="keep your own value in a name of your own",
            )
        elif path in table.partial and not isinstance(self._context.parents.get(node), ast.Attribute):
            self._report.ambient(
                node, f"the module `{path}` is passed on as a value, with everything in it", table.partial_advice[path]
            )

    def _of_a_value(self, node: ast.Attribute) -> None:
        """Values that lead to modules: what failed in an `AttributeError`, and modules that were passed on."""
        inner = node.value
        typ = self._context.type_of(inner)
        if node.attr == "obj" and typ is not None and any(is_exception(info) for info in instances(typ)):
            self._refuse_failed_object(node)
        if not isinstance(inner, ast.Attribute) or not is_any(typ):
            return
        module = inner.attr.lstrip("_")  # libraries import modules under private names too
        path = f"{module}.{node.attr}"
        if module in REACHED and (node.attr in REACHED[module] or not REACHED[module]):
            key = ambient().member(path) or ambient().refused_module(path)
            if key is not None:
                self._report.ambient(node, f"`.{path}` {WHAT.get(key, 'reaches outside the session')}", key)

    def _refuse_failed_object(self, node: ast.expr) -> None:
        self._report.add(
            "unsafe-feature",
            node,
            "`.obj` of an exception is whatever object failed, without a type",
            help="name the object; `str(error)` says what was missing",
        )

    def _link(self, node: ast.expr) -> str:
        """ "hidden" or "private" when `node` is a module's own affair, under which another module may hide."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return ""
        base = path_of(node.value, self._context, self._view)
        if not base or base.startswith(API):
            return ""
        private = node.attr.startswith("_") and not node.attr.startswith("__")
        if not self._is_module(node.value, base):
            # Stubs leave out what a package has beside its interface; it is imported with the package, and there.
            unknown = private and isinstance(node.value, ast.Attribute) and is_any(self._context.type_of(node.value))
            return "private" if unknown and has_source(base) else ""
        if private:
            return "private"
        return "hidden" if is_hidden_module(base, node.attr) else ""

    def _refuse_link(self, node: ast.Attribute) -> bool:
        kind = self._link(node)
        written = f"{path_of(node.value, self._context, self._view)}.{node.attr}"
        if kind == "private":
            self._report.add(
                "unsafe-feature",
                node,
                f"`{written}` is private to its module",
                help="use the public name that wraps it",
            )
        elif kind == "hidden":
            self._report.ambient(node, f"`{written}` is the module `{node.attr}` by another way", "code")
        return bool(kind)

    def _member(self, node: ast.AST, path: str) -> bool:
        # What is refused as an import is refused as well when another module leads to it.
        key = ambient().member(path)
        if key is None and not path.startswith(("builtins.", "capkernel.")):
            key = ambient().refused_module(path)
        if key is None or self._is_plain_call(node, path):
            return False
        self._report.ambient(node, f"`{path}` {WHAT.get(key, 'reaches outside the session')}", key)
        return True

    def _is_plain_call(self, node: ast.AST, path: str) -> bool:
        """Whether what is refused as a value is called here, and only with what makes it harmless."""
        call = self._context.parents.get(node)
        allowed = ambient().plain_calls.get(path)
        if allowed is None or not isinstance(call, ast.Call) or call.func is not node:
            return False
        return (
            len(call.args) == 1
            and not isinstance(call.args[0], ast.Starred)
            and all(keyword.arg in allowed for keyword in call.keywords)
        )

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
        if path == "builtins.open":
            return  # refused by its name
        refused = table.member(path) is not None and not self._is_plain_call(node.func, path)
        if path in table.path_functions and not refused:
            argument = self._path_argument(node, table.path_functions[path])
            if argument is not None:
                self._opened(argument, path)
        elif not path and isinstance(node.func, ast.Attribute) and node.func.attr in table.path_methods:
            owner = self._context.type_of(node.func.value)
            if owner is None or not any(info.fullname.startswith(table.path_owners) for info in instances(owner)):
                return
            argument = self._path_argument(node, 0)
            if argument is not None:
                self._report.ambient(
                    argument, f"`.{node.func.attr}` writes to this path without asking for it", "write"
                )
        elif table.member(path) is None and table.refused_module(path) is None:
            argument = opened_argument(node, self._context)
            if argument is not None:
                name = path.rpartition(".")[2] or shown_function(node.func)
                self._report.ambient(argument, f"`{name}` opens this path without asking for it", "file")
            elif not path:
                self._held_is_called(node)

    # ── such a function as a value ───────────────────────────────────────────────────────────────────────────────────

    def _held(self, node: ast.Name | ast.Attribute) -> None:
        """A function that takes a path, handed over together with one: `map(pandas.read_csv, names)`."""
        parent = self._context.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            return
        path = self._openers.path_of(node, self._context, self._view)
        if not path:
            return
        self._openers.hold(node, path, self._context)
        if isinstance(parent, ast.keyword):
            parent = self._context.parents.get(parent)
        if not isinstance(parent, ast.Call):
            return
        argument = path_among([one for one in parent.args if one is not node], self._context)
        owner = parent.func.value if isinstance(parent.func, ast.Attribute) else None
        if argument is None and owner is not None and is_of_texts(owner, self._context):
            argument = node  # `names.apply(pandas.read_csv)`
        if argument is not None:
            self._opened(argument, path)

    def _held_is_called(self, node: ast.Call) -> None:
        """What is called may be such a function: a name, item or choice that holds one, or a helper that calls one."""
        path = self._openers.called(node.func, self._context, self._view)
        argument = path_among(node.args[:1], self._context) if path else None
        if argument is None:
            argument, path = self._openers.passed_on(node, self._context, self._view)
        if argument is not None:
            self._opened(argument, path)

    def _opened(self, argument: ast.expr, path: str) -> None:
        name = path.rpartition(".")[2]
        key = "write" if name in _WRITERS else "table"
        self._report.ambient(argument, f"`{name}` opens this path without asking for it", key)

    def _literal_getattr(self, node: ast.Call) -> None:
        if not (isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1):
            return
        name = node.args[1]
        path = path_of(node, self._context, self._view)
        if path:
            self._member(node, path)
        elif isinstance(name, ast.Constant) and name.value == "obj":
            typ = self._context.type_of(node.args[0])
            if typ is not None and any(is_exception(info) for info in instances(typ)):
                self._refuse_failed_object(node)

    def _path_argument(self, node: ast.Call, position: int) -> ast.expr | None:
        """The argument that is a path, when its type says that it is one."""
        candidates: list[ast.expr] = list(node.args[position : position + 1])
        candidates += [keyword.value for keyword in node.keywords if keyword.arg in ambient().path_keywords]
        for argument in candidates:
            if _is_path(self._context.type_of(argument)):
                return argument
        return None


def shown_function(node: ast.expr) -> str:
    """The last name of what is called."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "this call"


def _is_path(typ: Type | None) -> bool:
    return typ is not None and any(info.fullname in _TEXT for info in instances(typ))
