"""The own name of a thing that is reached through a module which only imported it: `json.codecs.open` is `codecs.open`.

mypy answers this for what a module offers. What it merely imported is in no stub, so the module's source is read:
never run, never imported, only parsed, and only its top-level imports are looked at.
"""

from __future__ import annotations

import ast
import importlib.machinery
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

_MOST_HOPS = 12
_MOST_BYTES = 2_000_000


def own_path(path: str) -> str:
    """Where `path` leads when it leaves the package it is written in; otherwise `path` itself."""
    current = found = path
    for _ in range(_MOST_HOPS):
        following = _hop(current)
        if following == current:
            break
        current = following
        if current.partition(".")[0] != found.partition(".")[0]:
            found = current
    return found


def has_source(path: str) -> bool:
    """Whether `path` is a module or package that is installed with its source."""
    return _origin(path) is not None


def _hop(path: str) -> str:
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        imports = _imports(module)
        if imports is None:
            continue
        name, rest = parts[count], parts[count + 1 :]
        target = imports.get(name)
        return path if target is None else ".".join([target, *rest])
    return path


@cache
def _imports(module: str) -> Mapping[str, str] | None:
    """What the top level of a module binds by imports; None when it is no module with source."""
    origin = _origin(module)
    if origin is None:
        return None
    path, is_package = origin
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    package = module if is_package else module.rpartition(".")[0]
    found: dict[str, str] = {}
    for statement in _top_level(tree.body):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                first = alias.name.partition(".")[0]
                found.setdefault(alias.asname or first, alias.name if alias.asname else first)
        elif isinstance(statement, ast.ImportFrom):
            source = _absolute(statement, package)
            for alias in statement.names:
                bound = alias.asname or alias.name
                target = f"{source}.{alias.name}"
                if source and alias.name != "*" and target != f"{module}.{bound}":
                    found.setdefault(bound, target)
    return found


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    todo = list(reversed(body))
    while todo:
        statement = todo.pop()
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            todo.extend(
                reversed([*statement.body, *getattr(statement, "orelse", ()), *getattr(statement, "finalbody", ())])
            )
            for handler in getattr(statement, "handlers", ()):
                todo.extend(handler.body)
        else:
            yield statement


def _absolute(statement: ast.ImportFrom, package: str) -> str:
    if not statement.level:
        return statement.module or ""
    parts = package.split(".")
    kept = parts[: len(parts) - statement.level + 1]
    return ".".join([*kept, *([statement.module] if statement.module else [])]) if kept else ""


@cache
def _origin(module: str) -> tuple[Path, bool] | None:
    parent, _, _ = module.rpartition(".")
    if parent:
        inside = _origin(parent)
        if inside is None or not inside[1]:
            return None
        places = [str(inside[0].parent)]
        spec = importlib.machinery.PathFinder.find_spec(module, places)
    else:
        spec = importlib.machinery.PathFinder.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin), spec.submodule_search_locations is not None
