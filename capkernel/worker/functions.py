"""Which function a cell hands to `map`, and the plain data it captures.

What crosses is a reference (the place of a cell's function, or the qualified name of a library function) and values;
the kernel finds the checked source by itself. Nothing here decides whether the function is allowed.
"""

from __future__ import annotations

import dis
import functools
import operator
import re
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any
from weakref import WeakKeyDictionary

from capkernel.api.classified import Classified
from capkernel.wire.codekey import code_key
from capkernel.wire.plan import Made
from capkernel.wire.values import Unsendable, encode
from capkernel.wire.vault import function_id
from capkernel.wire.worker import FunctionRef

_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_BUILTIN = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, type(dict.fromkeys))


class Functions:
    """Describes functions of one session. `namespace` is the session's; `known` are names the kernel has by itself."""

    def __init__(self, namespace: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._known = known
        self._reads: WeakKeyDictionary[CodeType, frozenset[str]] = WeakKeyDictionary()

    def describe(self, function: Callable[..., Any]) -> tuple[FunctionRef, bytes]:
        """The reference and the captured data, a `wire.values` dict in the shape that `wire.vault.FunctionBundle` says.

        Raises TypeError, naming the capture, when the function or what it captures cannot be sent.
        """
        made, designated, arguments, keywords = _taken_apart(function)
        applied: dict[str, Any] = {}
        if made:
            applied = {"applied": {"arguments": list(arguments), "keywords": keywords}}
        if type(designated) is FunctionType:
            key = code_key(designated.__code__)
            if key is not None:
                return FunctionRef(key=key, made=made), self._captured(designated, applied)
        table = _qualified_name(designated) or _method_of_data(designated)
        if table is None:
            raise TypeError(
                f"map takes a function defined in a cell, or a library function by its name; got {_kind(function)}: "
                "write `lambda x: ...`"
            )
        try:
            data = encode({"globals": {}, "closure": {}, **applied})
        except Unsendable as problem:
            raise TypeError(f"`{table}` is given arguments that cannot be sent to the vault: {problem}") from None
        return FunctionRef(table=table, made=made), data

    def _captured(self, function: FunctionType, applied: dict[str, Any]) -> bytes:
        data: dict[str, Any] = {}
        closures: dict[str, dict[str, Any]] = {}  # by function
        seen: set[int] = set()
        waiting = [function]
        while waiting:
            current = waiting.pop()
            key = code_key(current.__code__)
            if id(current) in seen or key is None:
                continue
            seen.add(id(current))
            own: dict[str, Any] = {}
            for kind, name, value in self._free(current):
                if type(value) is FunctionType and code_key(value.__code__) is not None:
                    waiting.append(value)
                elif self._is_data(name, value):
                    (data if kind == "globals" else own)[name] = value
            place = function_id(key)
            if own and place in closures:
                raise TypeError(
                    f"`{function.__name__}` reaches two functions made at the same place (`{current.__name__}`), which "
                    "cannot be told apart in the vault"
                )
            if own or current is function:
                closures[place] = own
        entry = code_key(function.__code__)
        assert entry is not None
        closure = closures.pop(function_id(entry), {})
        captured = {"globals": data, "closure": closure, "closures": closures, **applied}
        if not closures:
            del captured["closures"]
        try:
            return encode(captured, handle_of=_handle)
        except Unsendable:
            bound = applied.get("applied", {})
            sent = dict(enumerate(bound.get("arguments", ()))) | bound.get("keywords", {})
            given = {f"argument {name}": value for name, value in sent.items()}
            raise self._culprit(function, [data, closure, *closures.values(), given]) from None

    def _free(self, function: FunctionType) -> list[tuple[str, str, Any]]:
        found = [
            ("globals", name, self._namespace[name])
            for name in self._globals_read(function.__code__)
            if name in self._namespace
        ]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                found.append(("closure", name, cell.cell_contents))
            except ValueError:  # not bound yet
                continue
        return found

    def _globals_read(self, code: CodeType) -> frozenset[str]:
        cached = self._reads.get(code)
        if cached is not None:
            return cached
        names: set[str] = set()
        waiting = [code]
        while waiting:
            current = waiting.pop()
            names.update(part.argval for part in dis.get_instructions(current) if part.opname in _READS)
            waiting += [constant for constant in current.co_consts if isinstance(constant, CodeType)]
        found = self._reads[code] = frozenset(names)
        return found

    def _is_data(self, name: str, value: Any) -> bool:
        if name in self._known and self._known[name] is value:
            return False
        # What has a name in a library is known to the kernel by that name.
        return not isinstance(value, ModuleType | type) and _qualified_name(value) is None

    def _culprit(self, function: FunctionType, captured: list[dict[str, Any]]) -> TypeError:
        for values in captured:
            for name, value in values.items():
                try:
                    encode(value, handle_of=_handle)
                except Unsendable as problem:
                    return TypeError(
                        f"`{function.__name__}` captures `{name}` ({_kind(value)}), which cannot be sent to the vault: "
                        f"{problem}"
                    )
        return TypeError(f"`{function.__name__}` captures more than can be sent to the vault")


_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_DATA = (str, bytes, int, float, list, tuple, dict, set, frozenset, re.Pattern)


def _taken_apart(function: Any) -> tuple[Made, Any, tuple[Any, ...], dict[str, Any]]:
    """How it is made, of what, with which arguments: a partial, a getter of `operator`, a method of plain data."""
    if type(function) is functools.partial:
        inner: Any = function.func
        owner = (inner.__self__,) if _method_of_data(inner) is not None else ()
        return "partial", inner, owner + function.args, dict(function.keywords)
    if type(function) in _GETTERS:
        maker, arguments = function.__reduce__()[:2]
        if type(maker) is functools.partial:  # with keywords
            return "factory", maker.func, maker.args + arguments, dict(maker.keywords)
        return "factory", maker, arguments, {}
    if _method_of_data(function) is not None:
        return "partial", function, (function.__self__,), {}
    return "", function, (), {}


def _method_of_data(function: Any) -> str | None:
    """`builtins.str.join` for `", ".join`."""
    owner = getattr(function, "__self__", None)
    if isinstance(function, BuiltinFunctionType) and type(owner) in _DATA:
        return f"{type(owner).__module__}.{type(owner).__name__}.{function.__name__}"
    return None


def _handle(value: object) -> str | None:
    return value._handle if type(value) is Classified else None


def _qualified_name(value: Any) -> str | None:
    """`json.loads`, `builtins.str.upper`, `numpy.sqrt`; None for what has no such name."""
    if isinstance(value, MethodDescriptorType | WrapperDescriptorType):
        return f"{value.__objclass__.__module__}.{value.__qualname__}"
    if isinstance(value, _BUILTIN):
        owner = getattr(value, "__self__", None)
        if isinstance(owner, type):
            return f"{owner.__module__}.{value.__qualname__}"
        if not isinstance(owner, ModuleType | None):
            return None  # bound to an object: `"abc".join`
    if type(value).__module__ == "numpy" and type(value).__name__ == "ufunc":
        return f"numpy.{value.__name__}"
    if not isinstance(value, (FunctionType, type, *_BUILTIN)) and not _is_library_callable(value):
        return None
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or module == "__main__":
        return None
    return f"{module}.{name}"


def _is_library_callable(value: Any) -> bool:
    # numpy's dispatchers are neither functions nor builtins, but carry a function's names.
    return type(value).__name__ == "_ArrayFunctionDispatcher" and type(value).__module__.startswith("numpy")


def _kind(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
