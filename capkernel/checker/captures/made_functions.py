"""Functions that are made where they are given to `map`: `partial(f, 3)`, `itemgetter("a")`, `", ".join`.

What is shipped is the function that is named and the plain data it is given; the vault puts them together anew
(`vault.apply`). So the named function is judged like any other, and the data must be data.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from capkernel.checker.captures.known import Context, View
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.reach import MUTATING
from capkernel.checker.captures.types import instances
from capkernel.checker.tables import pure

_GETTERS = frozenset(("operator.itemgetter", "operator.attrgetter", "operator.methodcaller"))
_DATA = frozenset(
    [
        "re.Pattern",
        *(f"builtins.{name}" for name in ("str", "bytes", "int", "float", "list", "tuple", "dict", "set", "frozenset")),
    ]
)


@dataclass(frozen=True)
class MadeFunction:
    """`function`: the expression of what is applied; None when it is a library's, of the path `table`. `why`: it is not
    pure."""

    function: ast.expr | None
    table: str
    arguments: tuple[ast.expr, ...]
    names: tuple[str, ...] = ()  # of the arguments given by keyword, which come last
    why: str = ""


def made_function(given: ast.expr, context: Context, view: View) -> MadeFunction | None:
    """What an expression makes a function of; None when it makes none that can be taken apart."""
    if isinstance(given, ast.Call):
        return _of_call(given, context, view)
    if isinstance(given, ast.Attribute) and not path_of(given, context, view):
        return _of_data(given, context)
    return None


def _of_call(given: ast.Call, context: Context, view: View) -> MadeFunction | None:
    path = path_of(given.func, context, view)
    if path != "functools.partial" and path not in _GETTERS:
        return None
    if any(isinstance(one, ast.Starred) for one in given.args) or any(one.arg is None for one in given.keywords):
        return None
    keywords = tuple(one.value for one in given.keywords)
    names = tuple(one.arg or "" for one in given.keywords)
    if path == "functools.partial":
        if not given.args or isinstance(given.args[0], ast.Call):
            return None
        return MadeFunction(given.args[0], "", (*given.args[1:], *keywords), names)
    if not given.args:
        return None
    named = given.args if path == "operator.attrgetter" else given.args[:1]
    if path != "operator.itemgetter":
        for one in named:
            text = one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else ""
            parts = text.split(".")
            if not all(part.isidentifier() and not part.startswith("_") for part in parts):
                return None
            impure = [part for part in parts if part in pure().impure_methods]
            if impure:
                return MadeFunction(None, path, (), (), f"it uses `.{impure[0]}`, which is not known to be pure")
    return MadeFunction(None, path, (*given.args, *keywords), names)


def _of_data(given: ast.Attribute, context: Context) -> MadeFunction | None:
    """A method of text, a list, a dict: `", ".join`, `names.get`."""
    typ = context.type_of(given.value)
    owners = {info.fullname for info in instances(typ)} if typ is not None else set()
    if len(owners) != 1 or not owners <= _DATA or given.attr.startswith("_"):
        return None
    table = f"{owners.pop()}.{given.attr}"
    if given.attr in MUTATING:
        return MadeFunction(None, table, (), (), f"it writes to `{ast.unparse(given.value)}`, which it captures")
    return MadeFunction(None, table, (given.value,))
