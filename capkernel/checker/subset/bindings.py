"""Which names a cell may bind: not those of the API, nor, for the whole session, builtins that rules rely on."""

from __future__ import annotations

import ast

from capkernel.checker.captures.scopes import Binding, Scope
from capkernel.checker.subset.report import Report, api_names
from capkernel.checker.tables import subset


def check_bindings(root: Scope, report: Report) -> None:
    """Judge every binding of every scope of the cell."""
    table = subset()
    reserved = table.forbidden | table.fixed
    api = api_names()
    for scope in root.walk():
        for name, bindings in scope.bindings.items():
            if name in api:
                # A method or field called `classify` is reached through its object only: harmless.
                if scope.kind != "class":
                    _refuse(bindings[0], "is a name of the capability API", report)
            elif name in reserved:
                if scope.kind == "module":
                    _refuse(bindings[0], "is a builtin that the rules rely on", report)
            elif is_dunder(name):
                _check_dunder(scope, bindings[0], report)


def _refuse(binding: Binding, what: str, report: Report) -> None:
    report.add(
        "redefined-api",
        binding.node,
        f"`{binding.name}` {what} and cannot be bound by {_HOW[binding.how]}",
        help=f"choose another name, such as `{binding.name}_`",
    )


_HOW = {
    "assignment": "an assignment",
    "del": "`del`",
    "import": "an import",
    "global": "`global`",
    "nonlocal": "`nonlocal`",
    "except": "`except ... as`",
    "match": "a pattern",
    "parameter": "a parameter",
    "type parameter": "a type parameter",
    "def": "`def`",
    "class": "`class`",
}


def _check_dunder(scope: Scope, binding: Binding, report: Report) -> None:
    table = subset()
    name, node = binding.name, binding.node
    if scope.kind == "class":
        if name in table.method_dunders or name in table.class_data_dunders:
            if name == "__match_args__":
                _check_match_args(binding, report)
            return
    elif name in table.module_dunders:
        return
    report.add(
        "unsafe-feature",
        node,
        f"`{name}` has a meaning to the interpreter that the checker cannot follow",
        help="use an ordinary name, or one of the usual special methods",
    )


def _check_match_args(binding: Binding, report: Report) -> None:
    value = binding.value
    names = value.elts if isinstance(value, (ast.Tuple, ast.List)) else None
    for item in names if names is not None else [None]:
        if not (isinstance(item, ast.Constant) and isinstance(item.value, str)) or is_interpreter_attribute(item.value):
            report.add(
                "unsafe-feature",
                binding.node,
                "`__match_args__` names attributes that the checker cannot see",
                help="write a tuple of plain attribute names",
            )


def is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def is_interpreter_attribute(name: str) -> bool:
    """Whether an attribute of this name leads out of the language: dunders that are not harmless, frames, code."""
    if is_dunder(name):
        return name not in subset().readable_dunders
    return name in subset().frame_attributes
