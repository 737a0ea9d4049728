"""The name of a library thing as a cell writes it ("numpy.sum"), whatever alias it goes through."""

from __future__ import annotations

import ast

from mypy.nodes import MypyFile, Var
from mypy.types import AnyType, get_proper_type

from capkernel.checker.captures.known import Context, Imported, View
from capkernel.checker.captures.reexports import own_path
from capkernel.checker.captures.types import API, is_session_module
from capkernel.checker.tables import ambient


def path_of(node: ast.expr, context: Context, view: View) -> str:
    """ "numpy.sum" for `np.sum`, "builtins.len" for `len`; "" for what is a value of the session."""
    known = view.certain.get(node)
    if known is None:
        known = view.certain[node] = _path_of(node, context, view)
    return known


def _path_of(node: ast.expr, context: Context, view: View) -> str:
    if isinstance(node, ast.Attribute):
        base = path_of(node.value, context, view)
        if not base or base.startswith(API):
            return ""
        return _own(f"{base}.{node.attr}", node, context)
    if isinstance(node, ast.Call):
        return _by_getattr(node, context, view)
    if not isinstance(node, ast.Name):
        return ""
    owner = context.scopes.owner(node)
    if owner is not None and owner.kind != "module":
        bindings = owner.bindings[node.id]
        return _own(bindings[0].path, node, context) if len(bindings) == 1 else ""
    entry = view.lookup(node.id)
    if entry is None:
        return symbol_path(node, context)
    if isinstance(entry.known, Imported):
        return _own(entry.known.path, node, context) if entry.certain else ""
    resolved = context.resolve(node)
    # `m = json` makes `m` another name of the module, to mypy as well.
    return resolved.symbol.fullname if resolved is not None and isinstance(resolved.symbol, MypyFile) else ""


def _by_getattr(node: ast.Call, context: Context, view: View) -> str:
    """`getattr(numpy, "sum")` is `numpy.sum`."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1):
        return ""
    name = node.args[1]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return ""
    base = path_of(node.args[0], context, view)
    return own_path(f"{base}.{name.value}") if base and not base.startswith(API) else ""


def _own(path: str, node: ast.expr, context: Context) -> str:
    """The path under the name of the module that it belongs to, when another one only imported it."""
    if "." not in path or path == "os.path":
        return path
    resolved = context.resolve(node)
    symbol = None if resolved is None else resolved.symbol
    if isinstance(symbol, MypyFile):
        return symbol.fullname
    typ = None if resolved is None or resolved.type is None else get_proper_type(resolved.type)
    if symbol is None or (isinstance(symbol, Var) and (typ is None or isinstance(typ, AnyType))):
        return own_path(path)
    return path


def possible_path(node: ast.expr, context: Context, view: View) -> str:
    """The path of what an expression may be: a name that is bound in more than one way may be each of its imports.

    For refusing. What is only possible is no reason to allow anything.
    """
    known = view.possible.get(node)
    if known is None:
        known = view.possible[node] = _possible_path(node, context, view)
    return known


def _possible_path(node: ast.expr, context: Context, view: View) -> str:
    if isinstance(node, ast.Attribute):
        base = possible_path(node.value, context, view)
        return "" if not base or base.startswith(API) else _own(f"{base}.{node.attr}", node, context)
    certain = path_of(node, context, view)
    if certain or not isinstance(node, ast.Name):
        return certain
    owner = context.scopes.owner(node)
    if owner is not None and owner.kind != "module":
        paths = owner.paths_of(node.id)
    else:
        paths = context.scopes.module.paths_of(node.id)
        entry = view.lookup(node.id)
        if entry is not None:
            paths = [*paths, *(known.path for known in entry.known_ways if isinstance(known, Imported))]
    return next((path for path in paths if ambient().reaches(path)), paths[0] if paths else "")


def symbol_path(node: ast.expr, context: Context) -> str:
    """The path that mypy knows a name by; "" for a value, or a name of a cell."""
    if isinstance(node, ast.Name) and node.id == "super":
        return "builtins.super"  # to mypy a part of what follows; no cell may bind the name
    resolved = context.resolve(node)
    if resolved is None:
        return ""
    if isinstance(resolved.symbol, MypyFile):
        return resolved.symbol.fullname
    module, _, _name = resolved.fullname.rpartition(".")
    if not module or is_session_module(resolved.fullname):
        return ""
    if isinstance(resolved.symbol, Var) and resolved.symbol.fullname.startswith("capkernel.checker.notebook"):
        return ""
    if resolved.fullname == "capkernel.checker.notebook.display":
        return "display"
    return resolved.fullname
