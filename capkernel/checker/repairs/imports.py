"""Repairs of imports that only reach outside: what does the same inside, or the cell without them."""

from __future__ import annotations

import ast

from capkernel.checker.repairs.source import Edits, Repairs, Source, dotted, literal, safe, unparsed, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit

# module → the one that does the useful part of it here. Member names are the same, or in `_MEMBERS`.
_INSTEAD = {
    "pickle": "json",
    "cPickle": "json",
    "dill": "json",
    "cloudpickle": "json",
    "marshal": "json",
    "joblib": "json",
    "multiprocessing": "concurrent.futures",
    "concurrent.futures.process": "concurrent.futures",
    "posixpath": "os.path",
}
_MEMBERS = {
    "Pool": "ThreadPoolExecutor",
    "ProcessPoolExecutor": "ThreadPoolExecutor",
    "Path": "PurePath",
    "PosixPath": "PurePosixPath",
}
# Modules that public ones are made of.
_PUBLIC = {
    "_thread": "threading", "_io": "io", "_json": "json", "_collections": "collections", "_csv": "csv",
    "_datetime": "datetime", "_decimal": "decimal", "_random": "random", "_functools": "functools", "_heapq": "heapq",
    "_bisect": "bisect", "_operator": "operator", "_string": "string", "_struct": "struct", "_statistics": "statistics",
}  # fmt: skip
_FROM = {
    ("multiprocessing", "Pool"): "from concurrent.futures import ThreadPoolExecutor as Pool",
    (
        "concurrent.futures.process",
        "ProcessPoolExecutor",
    ): "from concurrent.futures import ThreadPoolExecutor as ProcessPoolExecutor",
    (
        "concurrent.futures",
        "ProcessPoolExecutor",
    ): "from concurrent.futures import ThreadPoolExecutor as ProcessPoolExecutor",
    ("pathlib", "Path"): "from pathlib import PurePath as Path",
    ("pathlib", "PosixPath"): "from pathlib import PurePosixPath as PosixPath",
    ("pickle", "dumps"): "from json import dumps",
    ("pickle", "loads"): "from json import loads",
    ("os", "urandom"): "from secrets import token_bytes as urandom",
    ("time", "clock"): "from time import perf_counter as clock",
}


def repairs(source: Source, diagnostic: Diagnostic) -> Repairs:
    node = source.at(diagnostic.span, ast.alias, ast.Import, ast.ImportFrom)
    statement = None if node is None else source.statement(node)
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from _member(source, diagnostic)
        return
    aliases = [one for one in statement.names if one is node] or statement.names
    module = statement.module or "" if isinstance(statement, ast.ImportFrom) else ""
    if module.split(".")[0] == "capkernel" or any(
        one.name.split(".")[0] == "capkernel" for one in aliases if not module
    ):
        yield from safe("the names of the API are there already", without(source, statement, statement.names))
    alias = aliases[0]
    if isinstance(statement, ast.ImportFrom):
        yield from _from(source, statement, module, alias)
    else:
        yield from _plain(source, statement, alias)
    if not (isinstance(statement, ast.ImportFrom) and statement.level):
        yield from unsafe("leave the import out", without(source, statement, aliases))


def _from(source: Source, statement: ast.ImportFrom, module: str, alias: ast.alias) -> Repairs:
    line = _FROM.get((module, alias.name))
    rest = [one for one in statement.names if one is not alias]
    if line is not None:
        name = alias.asname or alias.name
        line = f"{line.partition(' as ')[0]}" + (f" as {name}" if line.split()[-1] != name or " as " in line else "")
        kept = [] if not rest else [f"from {module} import {', '.join(map(unparsed, rest))}"]
        margin = source.margin(statement)
        if source.is_alone(statement):
            yield from unsafe(
                "import what does it here", Edit(source.span(statement), f"\n{margin}".join([*kept, line]))
            )
    if alias.name == "cast" and module in ("typing", "typing_extensions"):
        yield from safe(
            "use the value itself: a cast does nothing when the cell runs",
            *_uncast(source, alias.asname or "cast"),
            without(source, statement, [alias]),
        )


def _plain(source: Source, statement: ast.Import, alias: ast.alias) -> Repairs:
    name = alias.asname or alias.name
    if alias.name in _PUBLIC:
        yield from unsafe(
            f"`{_PUBLIC[alias.name]}` is its public side", source.replace(alias, f"{_PUBLIC[alias.name]} as {name}")
        )
    uses = _uses(source, name)
    if alias.name == "builtins":
        yield from safe(
            "builtins are there by their plain names",
            *(source.replace(use, use.attr) for use in uses),
            without(source, statement, [alias]),
        )
    if alias.name == "gc" or alias.name in (
        "faulthandler",
        "tracemalloc",
        "pdb",
        "cProfile",
        "profile",
        "trace",
        "atexit",
        "resource",
        "signal",
    ):
        alone = [source.statement(use) for use in uses]
        if alone and all(isinstance(one, ast.Expr) for one in alone):
            yield from unsafe(
                "leave it out: nothing of it is needed here",
                *(source.remove(one) for one in dict.fromkeys(alone) if one),
                without(source, statement, [alias]),
            )
    if alias.name == "importlib" and uses:
        edits, modules = _imported_by_name(source, uses)
        if edits:
            yield from safe(
                "import it by name", *source.with_imports(edits, *modules), without(source, statement, [alias])
            )
    instead = _INSTEAD.get(alias.name)
    if instead is not None and uses:
        edits = tuple(source.replace(use, f"{instead}.{_MEMBERS.get(use.attr, use.attr)}") for use in uses)
        only = len(statement.names) == 1
        own = Edit(source.span(statement), f"import {instead}") if only else without(source, statement, [alias])
        added = () if only else (source.import_edit(f"import {instead}"),)
        yield from unsafe(f"use `{instead}`", *added, *edits, own)
    if alias.name == "inspect":
        edits = tuple(
            source.replace(source.parents[use], f"type({source.segment(call.args[0])})")
            for use in uses
            if isinstance(call := source.parents.get(use), ast.Call) and use.attr == "getmro" and call.args
        )
        if edits:
            yield from unsafe("take the class", *edits, without(source, statement, [alias]))


def _member(source: Source, diagnostic: Diagnostic) -> Repairs:
    node = source.at(diagnostic.span, ast.Attribute, ast.Name)
    if node is None:
        return
    name = dotted(node)
    parent = source.parents.get(node)
    call = parent if isinstance(parent, ast.Call) and parent.func is node else None
    if name.endswith("cast") and call is not None and len(call.args) == 2:
        yield from safe(
            "use the value itself: a cast does nothing when the cell runs",
            source.replace(call, source.segment(call.args[1])),
        )
    if name.endswith("urandom") and call is not None:
        yield from safe(
            "use `secrets`", *source.with_imports((source.replace(node, "secrets.token_bytes"),), "import secrets")
        )
    for old, new in (("ProcessPoolExecutor", "ThreadPoolExecutor"), ("FileHandler", "StreamHandler")):
        if name.endswith(old):
            if old == "FileHandler" and call is not None:
                base = name.removesuffix(old)
                yield from unsafe("log to the cell", source.replace(call, f"{base}{new}()"))
            else:
                yield from unsafe(f"use `{new}`", source.replace(node, name.removesuffix(old) + new))
    if "sys.stdin" in name:
        outer = source.parents.get(node)
        call_of = source.parents.get(outer) if isinstance(outer, ast.Attribute) else None
        if isinstance(call_of, ast.Call) and isinstance(outer, ast.Attribute) and outer.attr in ("read", "readline"):
            yield from unsafe("ask the person", source.replace(call_of, "input()"))


def _uses(source: Source, name: str) -> list[ast.Attribute]:
    """Where members of what is imported as `name` stand: `name.member`, `a.b.member` for a dotted one."""
    return [
        node
        for node in ast.walk(source.module or ast.Module([], []))
        if isinstance(node, ast.Attribute) and dotted(node.value) == name
    ]


def _uncast(source: Source, name: str) -> list[Edit]:
    return [
        source.replace(node, source.segment(node.args[1]))
        for node in ast.walk(source.module or ast.Module([], []))
        if isinstance(node, ast.Call) and dotted(node.func) == name and len(node.args) == 2
    ]


def _imported_by_name(source: Source, uses: list[ast.Attribute]) -> tuple[Edits, list[str]]:
    edits: list[Edit] = []
    modules: list[str] = []
    for use in uses:
        call = source.parents.get(use)
        module = literal(call.args[0]) if isinstance(call, ast.Call) and call.args else None
        if use.attr != "import_module" or module is None or not isinstance(call, ast.Call):
            return (), []
        edits.append(source.replace(call, module))
        modules.append(f"import {module}")
    return tuple(edits), modules


def without(source: Source, statement: ast.Import | ast.ImportFrom, aliases: list[ast.alias]) -> Edit | None:
    rest = [one for one in statement.names if one not in aliases]
    if not rest:
        return source.remove(statement)
    names = ", ".join(unparsed(one) for one in rest)
    if isinstance(statement, ast.Import):
        return Edit(source.span(statement), f"import {names}")
    return Edit(source.span(statement), f"from {statement.module} import {names}")
