"""Looking at a session's objects without running their code, for completion and help.

Rule 1: an instance of a class that a cell defined is only read: its dictionary, and the dictionaries of its classes.
No property, `__getattr__`, `__dir__`, `__repr__` or `__len__` of it is called. Instances of library classes are asked
as IPython asks them; so a frame completes its columns.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

import IPython.core.completer
import IPython.core.completerlib
import IPython.core.guarded_eval

# Seen without types: their names are to be replaced, which their stubs do not foresee.
completer: Any = IPython.core.completer
completerlib: Any = IPython.core.completerlib
guarded_eval: Any = IPython.core.guarded_eval

_MOST_KEYS = 2000
_roots: set[str] = set()

_mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_dict_of: Callable[[type], MappingProxyType[str, Any]] = type.__dict__["__dict__"].__get__


def is_of_session(value: object) -> bool:
    """Whether one of the classes of `value` was defined in a cell."""
    return any(_dict_of(kind).get("__module__") == "__main__" for kind in _mro_of(type(value)))


def static_names(value: object) -> list[str]:
    """What `dir` would say, from the dictionaries alone."""
    names: set[str] = set(_own(value))
    for kind in _mro_of(type(value)):
        names.update(_dict_of(kind))
    return sorted(name for name in names if isinstance(name, str))


def static_attribute(value: object, name: str) -> Any:
    """The attribute as it is stored (a property is the property). Raises KeyError."""
    own = _own(value)
    if name in own:
        return own[name]
    for kind in _mro_of(type(value)):
        found = _dict_of(kind)
        if name in found:
            return found[name]
    raise KeyError(name)


def teach_completer() -> None:
    """Make IPython's completer look this way in this process."""
    stock_dir, stock_method = completer.dir2, completer.get_real_method
    stock_arguments = completer.IPCompleter._default_arguments
    stock_can_call = guarded_eval.EvaluationPolicy.can_call

    def names(value: Any) -> list[str]:
        return static_names(value) if is_of_session(value) else list(stock_dir(value))

    def method(value: Any, name: str) -> Any:
        return None if is_of_session(value) else stock_method(value, name)

    def arguments(self: Any, value: Any) -> list[str]:
        return [] if is_of_session(value) else list(stock_arguments(self, value))

    def can_call(self: Any, function: Any) -> bool:
        if is_of_session(function):  # to ask what a call of it returns is to ask the object
            raise guarded_eval.GuardRejection("a call of an object of the session is not looked into")
        return bool(stock_can_call(self, function))

    completerlib.get_root_modules = root_modules
    completer.dir2 = names
    completer.get_real_method = method
    completer.IPCompleter._default_arguments = arguments
    guarded_eval.EvaluationPolicy.can_call = can_call


def root_modules() -> list[str]:
    """What `import` could name. IPython's own looks into every directory, and keeps what it finds in a profile."""
    if not _roots:
        _roots.update(
            sys.builtin_module_names, sys.stdlib_module_names, (found.name for found in pkgutil.iter_modules())
        )
    return sorted(name for name in _roots if not name.startswith("_"))


def keys_of(names: Iterable[str], namespace: Mapping[str, Any]) -> list[str]:
    """Columns or keys that are texts, of the first of these that is a frame or a dict and has any."""
    for name in names:
        value = namespace.get(name)
        kind = type(value)
        if kind is dict:
            found: Any = value
        elif kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] in ("pandas", "polars"):
            found = getattr(value, "columns", ())
        else:
            continue
        keys = [key for key in islice(found, _MOST_KEYS) if type(key) is str]
        if keys:
            return keys
    return []


def describe(path: str, namespace: Mapping[str, Any]) -> tuple[bool, str | None]:
    """Follow a dotted name. `(True, text)` when an instance of a session's class is on the way or at its end, with what
    there is to say of it, or None; `(False, None)` when IPython may look by itself."""
    first, *rest = path.split(".")
    if first not in namespace:
        return False, None
    value, met = namespace[first], False
    for name in rest:
        met = met or is_of_session(value)
        if not met:
            try:
                value = inspect.getattr_static(value, name)
            except AttributeError:
                return False, None
            continue
        try:
            value = static_attribute(value, name)
        except KeyError:
            return True, None
    if not met and not is_of_session(value):
        return False, None
    return True, _text(path, value)


def documentation(fullname: str) -> str:
    """The docstring of a definition in a module that is loaded; "" when it has none. Nothing is imported."""
    parts = fullname.split(".")
    for length in range(len(parts), 0, -1):
        module = sys.modules.get(".".join(parts[:length]))
        if type(module) is ModuleType and module.__name__ != "__main__":
            return _documented(module, parts[length:])
    return ""


def _documented(value: Any, names: list[str]) -> str:
    for name in names:
        try:
            value = inspect.getattr_static(value, name)
        except AttributeError:
            return ""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if is_of_session(value):
        return ""
    text = inspect.getattr_static(value, "__doc__", None)
    if type(text) is not str:
        text = getattr(value, "__doc__", None)  # of a builtin it is computed
    return inspect.cleandoc(text) if type(text) is str else ""


def _own(value: object) -> Mapping[str, Any]:
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def _text(path: str, value: Any) -> str:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        return f"Property: {path}\nDocstring: {_doc(value.fget)}"
    if type(value) is FunctionType:
        return f"Signature: {path}{inspect.signature(value)}\nDocstring: {_doc(value)}"
    return f"Type: {type(value).__name__}\nDocstring: {_doc(type(value))}"


def _doc(value: Any) -> str:
    if isinstance(value, type):
        found = _dict_of(value).get("__doc__")
    elif type(value) is FunctionType:
        found = value.__doc__
    else:
        found = None
    return inspect.cleandoc(found) if type(found) is str else "none"
