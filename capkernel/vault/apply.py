"""From checked source to a result: build the functions of a bundle, apply the entry, encode what it returns.

Runs in a job's own process only: what happens here may loop, crash or exhaust memory.

Names are bound as the plan says and in no other way: captured data by value, modules by import, library functions by
qualified name, session functions by key (cycles allowed). Each function has a namespace of its own with the ordinary
builtins. Annotations are not evaluated; defaults and decorators are, with the names bound as they are at the call.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import operator
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from capkernel.vault.inside import API, InsideClassified, wrap
from capkernel.wire.codekey import cell_filename, cell_of
from capkernel.wire.plan import CodeKey, FreeName, PureFunction
from capkernel.wire.values import decode, encode
from capkernel.wire.vault import FunctionBundle, function_id

_FLAGS = annotations.compiler_flag  # the feature object that the import above binds


class BadBundle(Exception):
    """The kernel sent a function that cannot be built: a name without a value, an unknown table entry."""


def run(bundle: FunctionBundle, argument: bytes, captured: bytes, held: Mapping[str, bytes], *, flat: bool) -> bytes:
    """The encoded result of the bundle's function on the argument. Raises whatever the function raises.

    `held` gives the encoded values of the captured handles.
    """
    opened: dict[str, InsideClassified] = {}

    def classified(handle: str) -> InsideClassified:
        if handle not in opened:
            opened[handle] = wrap(decode(held[handle]))
        return opened[handle]

    function = build(bundle, decode(captured, classified=classified))
    result = function(decode(argument))
    if flat:
        if type(result) is not InsideClassified:
            raise TypeError("flat_map needs a function that returns a Classified")
        result = result._value  # type: ignore[attr-defined]
    return encode(result)


def build(bundle: FunctionBundle, captured: object) -> Callable[[Any], Any]:
    """The callable that the bundle's entry names."""
    if bundle.entry is None:
        designated = _callable(table_entry(bundle.table))
    else:
        designated = _Builder(bundle, captured).function(bundle.entry)
    return designated if not bundle.made else _made(bundle, designated, captured)


_FACTORIES = {
    "operator.itemgetter": operator.itemgetter,
    "operator.attrgetter": operator.attrgetter,
    "operator.methodcaller": operator.methodcaller,
}


def _made(bundle: FunctionBundle, designated: Callable[..., Any], captured: object) -> Callable[[Any], Any]:
    """`functools.partial` of what is designated, or the getter that it makes, with the arguments that were sent."""
    applied = captured.get("applied") if isinstance(captured, dict) else None
    if not isinstance(applied, dict) or set(applied) != {"arguments", "keywords"}:
        raise BadBundle("a function without the arguments it is made with")
    arguments, keywords = applied["arguments"], applied["keywords"]
    if not isinstance(arguments, list) or not isinstance(keywords, dict):
        raise BadBundle("arguments of another shape")
    if bundle.made == "partial":
        return functools.partial(designated, *arguments, **keywords)
    if bundle.table not in _FACTORIES:
        raise BadBundle("a function that makes none")
    if bundle.table != "operator.itemgetter":
        names = arguments if bundle.table == "operator.attrgetter" else arguments[:1]
        if not names or not all(isinstance(name, str) and not _is_hidden(name) for name in names):
            raise BadBundle("a member that no checked function names")
    return _callable(_FACTORIES[bundle.table](*arguments, **keywords))


def _is_hidden(path: str) -> bool:
    return any(not name.isidentifier() or name.startswith("_") for name in path.split("."))


def table_entry(name: str) -> Any:
    """The library object with this qualified name: "builtins.len", "json.loads", "collections.abc.Mapping"."""
    parts = name.split(".")
    if len(parts) < 2 or any(not part.isidentifier() or part.startswith("__") for part in parts):
        raise BadBundle("a table entry without a qualified name")
    found: Any = importlib.import_module(parts[0])
    path = parts[0]
    for part in parts[1:]:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(path)
    return found


class _Builder:
    """The functions of one bundle, each built once."""

    def __init__(self, bundle: FunctionBundle, captured: object) -> None:
        if not isinstance(captured, dict) or not set(captured) <= {"globals", "closure", "closures", "applied"}:
            raise BadBundle("captured data of another shape")
        self.entry = bundle.entry
        self.globals: dict[str, Any] = captured.get("globals", {})
        self.closure: dict[str, Any] = captured.get("closure", {})
        self.closures: dict[str, dict[str, Any]] = captured.get("closures", {})
        self.sources = {item.key: item for item in bundle.functions}
        self.built: dict[CodeKey, Callable[..., Any]] = {}
        self.late: dict[CodeKey, list[tuple[dict[str, Any], str]]] = {}  # functions of a cycle: bound when built

    def function(self, key: CodeKey) -> Callable[..., Any]:
        source = self.sources.get(key)
        if source is None:
            raise BadBundle("a function that is not in the bundle")
        self.late[key] = []
        space: dict[str, Any] = {"__builtins__": builtins, "__name__": "__main__"}
        for free in source.free:
            if free.kind == "function":
                self._bind_function(space, free)
            else:
                space[free.name] = self._value(source.key, free)
        made = _compiled(source, space)
        self.built[key] = made
        for waiting, name in self.late.pop(key):
            waiting[name] = made
        return made

    def _bind_function(self, space: dict[str, Any], free: FreeName) -> None:
        key = free.function
        if key is None:
            raise BadBundle("a free name without its function")
        if key in self.built:
            space[free.name] = self.built[key]
        elif key in self.late:  # being built further up: a cycle
            self.late[key].append((space, free.name))
        else:
            space[free.name] = self.function(key)

    def _value(self, key: CodeKey, free: FreeName) -> Any:
        if free.kind in ("data", "classified"):
            own = self.closure if key == self.entry else self.closures.get(function_id(key), {})
            for names in (own, self.globals):
                if free.name in names:
                    return names[free.name]
            raise BadBundle("a captured name without a value")
        if free.kind == "module":
            return importlib.import_module(free.target)
        if free.kind == "table":
            return table_entry(free.target)
        if free.kind == "api":
            name = free.target.rpartition(".")[2]
            if name in API:
                return API[name]
            raise BadBundle("an API name that a function in the vault cannot use")
        raise BadBundle("an unknown kind of free name")


def _compiled(source: PureFunction, space: dict[str, Any]) -> Callable[..., Any]:
    """Run the definition in its namespace. Line numbers are those of the cell, for the place of a failure."""
    file = cell_filename(source.key.cell)
    if source.kind == "lambda":
        tree: ast.Expression | ast.Module = ast.parse(f"({source.source}\n)", file, "eval")
    elif source.kind == "def":
        tree = ast.parse(source.source, file, "exec")
    else:
        raise BadBundle("an unknown kind of function")
    ast.increment_lineno(tree, source.key.line - 1)
    code = compile(tree, file, "eval" if source.kind == "lambda" else "exec", _FLAGS, dont_inherit=True)
    made: Any = eval(code, space)  # noqa: S307 — the checked source, in a process made for it
    if source.kind == "def":
        made = space[source.name]
    return _callable(made)


def _callable(made: Any) -> Callable[..., Any]:
    if not callable(made):
        raise BadBundle("an entry that is no function")
    function: Callable[..., Any] = made
    return function


def failure_of(problem: BaseException) -> tuple[str, str]:
    """The name of the exception's type, and the innermost place of it in a cell. Never its text."""
    name = type.__getattribute__(type(problem), "__name__")
    safe = name[:100] if isinstance(name, str) and name.isidentifier() else "Exception"
    return safe, _place(problem.__traceback__)


def _place(traceback: TracebackType | None) -> str:
    place = ""
    while traceback is not None:
        cell = cell_of(traceback.tb_frame.f_code.co_filename)
        if cell is not None:
            place = f"cell {cell}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
