"""Library functions that take a path, as values: which names of the session hold one, and which helpers pass one on.

`pandas.read_csv("a.csv")` is refused where it stands. So is the same call through a name, an item, a choice, a partial
or a helper. What gets past this meets the sandbox, which opens nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from capkernel.checker.captures.known import FUNCTIONS, Context, Function, View
from capkernel.checker.captures.path_arguments import may_name_a_path
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.scopes import parameters_of
from capkernel.checker.captures.types import instances
from capkernel.checker.tables import ambient

_LISTS_OF_TEXT = ("pandas.core.series.Series", "pandas.core.indexes.base.Index", "pandas.Series", "pandas.Index")


class Openers:
    """What one cell knows of such functions. `earlier`: session names that hold one, with its path."""

    def __init__(self, earlier: Mapping[str, str]) -> None:
        self._earlier = earlier
        self.here: dict[str, str] = {}

    def path_of(self, node: ast.expr, context: Context, view: View) -> str:
        """The path of the function that `node` is when it takes a path, else ""."""
        path = path_of(node, context, view)
        return path if path in ambient().path_functions else ""

    def hold(self, node: ast.expr, path: str, context: Context) -> None:
        """`node` stands in a value that a name of the session gets."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            if isinstance(current, FUNCTIONS):
                return  # it is called in there, not held
            current = context.parents.get(current)
        targets = current.targets if isinstance(current, ast.Assign) else []
        if isinstance(current, ast.AnnAssign):
            targets = [current.target]
        for target in targets:
            if isinstance(target, ast.Name):
                owner = context.scopes.owner(target)
                if owner is None or owner.kind == "module":
                    self.here[target.id] = path

    def called(self, function: ast.expr, context: Context, view: View) -> str:
        """The path of such a function when calling `function` may call it."""
        if isinstance(function, ast.Attribute):
            return ""  # a method of what holds it: `readers.get("csv")`
        root = function
        while isinstance(root, (ast.Subscript, ast.Attribute, ast.Call)):
            if isinstance(root, ast.Call):
                if not isinstance(root.func, ast.Attribute):
                    break
                root = root.func
            root = root.value
        if isinstance(root, ast.Name):
            owner = context.scopes.owner(root)
            if owner is not None and owner.kind != "module":
                return ""
            held = self.here.get(root.id, "")
            return held or ("" if owner is not None else self._earlier.get(root.id, ""))
        inside = (part for part in ast.walk(root) if isinstance(part, (ast.Name, ast.Attribute)))
        return next((path for part in inside if (path := self.path_of(part, context, view))), "")

    def passed_on(self, node: ast.Call, context: Context, view: View) -> tuple[ast.expr | None, str]:
        """The argument of a helper that is a path, and that its body gives to such a function."""
        if not isinstance(node.func, ast.Name):
            return None, ""
        owner = context.scopes.owner(node.func)
        entry = view.lookup(node.func.id) if owner is None or owner.kind == "module" else None
        if entry is None or not isinstance(entry.known, Function):
            return None, ""
        helper = entry.known
        names = [argument.arg for argument in helper.node.args.posonlyargs + helper.node.args.args]
        given = dict(zip(names, node.args, strict=False)) | {one.arg: one.value for one in node.keywords if one.arg}
        if not any(may_name_a_path(context.type_of(argument)) for argument in given.values()):
            return None, ""
        for name, path in self._opened_parameters(helper, view):
            argument = given.get(name)
            if argument is not None and path_among([argument], context) is not None:
                return argument, path
        return None, ""

    def _opened_parameters(self, helper: Function, view: View) -> Iterable[tuple[str, str]]:
        parameters = {argument.arg for argument in parameters_of(helper.node)}
        for inner in ast.walk(helper.node):
            if not isinstance(inner, ast.Call):
                continue
            first = inner.args[0] if inner.args else None
            if not isinstance(first, ast.Name) or first.id not in parameters:
                continue
            if helper.context.scopes.owner(first) is helper.scope:
                path = self.path_of(inner.func, helper.context, view)
                if path and ambient().path_functions[path] == 0:
                    yield first.id, path


def path_among(arguments: Iterable[ast.expr], context: Context) -> ast.expr | None:
    """The first argument that is a path, or a list of paths, as far as its type tells."""
    return next((one for one in arguments if may_name_a_path(context.type_of(one)) or _is_written_out(one)), None)


def _is_written_out(node: ast.expr) -> bool:
    # What a list of text is typed as depends on what it is handed to.
    return isinstance(node, (ast.List, ast.Tuple)) and any(
        isinstance(item, ast.Constant) and isinstance(item.value, str) for item in node.elts
    )


def is_of_texts(node: ast.expr, context: Context) -> bool:
    """Whether it is a column, whose values may be text."""
    typ = context.type_of(node)
    return typ is not None and any(info.fullname in _LISTS_OF_TEXT for info in instances(typ))
