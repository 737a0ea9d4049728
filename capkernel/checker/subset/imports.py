"""What a cell may import. A module with a pure part imports freely; its ambient members are refused where used."""

from __future__ import annotations

import ast

from capkernel.checker.subset.report import Report
from capkernel.checker.tables import ambient

HIDDEN_MODULES = frozenset(
    ("os", "sys", "subprocess", "socket", "ctypes", "importlib", "builtins", "shutil", "pickle", "gc")
)

# `annotations`, which the engine follows, and features that every Python has by now: importing those does nothing.
_FUTURES = frozenset(
    "annotations division print_function absolute_import unicode_literals generators nested_scopes with_statement "
    "generator_stop".split()
)

WHAT = {
    "cast": "makes a type the checker cannot verify",
    "reflection": "leads into the interpreter",
    "interpreter": "leads into the interpreter",
    "code": "leads to code the checker cannot see",
    "environment": "reads the environment of the process",
    "command": "runs a command outside the session",
    "process": "reaches processes",
    "file": "reaches files without asking for them",
    "network": "reaches the network without asking for it",
}
"""What a refused member does, by its key of advice."""


def is_hidden_module(module: str, name: str) -> bool:
    """Whether `module.name` is a way round to a module of authority that another one happens to have imported."""
    return name in HIDDEN_MODULES and f"{module}.{name}" not in ("os.sys",) and module not in ("IPython",)


def check_import(node: ast.Import, report: Report) -> None:
    for alias in node.names:
        _check_module(alias.name, alias, report)


def check_import_from(node: ast.ImportFrom, report: Report) -> None:
    module = node.module or ""
    if node.level:
        report.add(
            "unsafe-import",
            node,
            "a cell is in no package, so it has nothing to import relatively",
            help="import the module by its full name",
        )
        return
    if module == "__future__":
        for alias in node.names:
            if alias.name not in _FUTURES:
                report.add(
                    "unsafe-feature",
                    alias,
                    f"`from __future__ import {alias.name}` would change how later cells are read",
                    help="import only `annotations`, and what has long been part of the language, from `__future__`",
                )
        return
    if not _check_module(module, node, report):
        return
    for alias in node.names:
        _check_member(module, alias, report)


def _check_module(module: str, node: ast.AST, report: Report) -> bool:
    if any(part.startswith("_") for part in module.split(".")):
        report.add(
            "unsafe-import",
            node,
            f"`{module}` is a private module",
            help="import the public module that wraps it",
        )
        return False
    key = ambient().refused_module(module)
    if key is None:
        return True
    report.ambient(node, f"`{module}` only reaches outside the session", key, "unsafe-import")
    return False


def _check_member(module: str, alias: ast.alias, report: Report) -> None:
    name = alias.name
    if name == "*":
        if module in ambient().partial:
            report.ambient(
                alias, f"`from {module} import *` would bring ambient members", ambient().partial_advice[module]
            )
        return
    path = f"{module}.{name}"
    key = ambient().refused_module(path)
    if key is not None:
        report.ambient(alias, f"`{path}` only reaches outside the session", key, "unsafe-import")
    elif name.startswith("_") and name != "__version__":
        report.add(
            "unsafe-import", alias, f"`{path}` is private to its module", help="import the public name that wraps it"
        )
    elif is_hidden_module(module, name):
        report.ambient(alias, f"`{path}` is the module `{name}` by another way", "code")
    else:
        member = ambient().member(path)
        if member is not None:
            report.ambient(alias, f"`{path}` {WHAT.get(member, 'reaches outside the session')}", member)
