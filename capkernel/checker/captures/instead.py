"""What to write instead of a function that `map` does not take: in words, and as code made of the cell's own names."""

from __future__ import annotations

import ast

from mypy.types import Type

from capkernel.checker.captures.known import Context, Function, Made
from capkernel.checker.captures.types import unsendable

Advice = tuple[str, str]
_IN_ITS_PLACE = "write what it is in its place: functions are sent by their names"
_MOST_CHARACTERS = 100
_CONVERTED = {
    "Counter": "dict", "OrderedDict": "dict", "defaultdict": "dict", "ChainMap": "dict", "mappingproxy": "dict",
    "MappingProxyType": "dict", "deque": "list", "PurePath": "str", "PurePosixPath": "str", "PureWindowsPath": "str",
}  # fmt: skip


def in_its_place(name: ast.Name, context: Context, made: Made | None) -> Advice:
    """A name of a partial or of a table of functions, in the body of a pure function."""
    if made is None:
        return "", ""
    return _IN_ITS_PLACE, f"secret.map(lambda x: {_put(_around(name, context), name, context, made)})"


def out_of_table(given: ast.expr, name: ast.Name, context: Context, made: Made) -> Advice:
    """`secret.map(table["a"])`: the function by its name where that is written in the table, else the table itself."""
    key = given.slice if isinstance(given, ast.Subscript) and given.value is name else None
    if isinstance(key, ast.Constant) and isinstance(made.value, ast.Dict):
        for one, value in zip(made.value.keys, made.value.values, strict=True):
            if isinstance(one, ast.Constant) and one.value == key.value and isinstance(value, (ast.Name, ast.Lambda)):
                return "give `map` the function by its name", f"secret.map({_text(value, made.context)})"
    return _IN_ITS_PLACE, f"secret.map(lambda x: {_put(given, name, context, made)}(x))"


def its_parts(name: ast.Name, context: Context, typ: Type | None) -> Advice:
    """A captured value of a class that the vault has no encoding for."""
    kind = unsendable(typ)
    converted = _CONVERTED.get(kind)
    if converted is not None:
        code = f"plain = {converted}({name.id})\nsecret.map(lambda x: ... plain ...)"
        return f"capture it as plain data: `{converted}(...)`", code
    parent = context.parents.get(name)
    field = parent.attr if isinstance(parent, ast.Attribute) else "field"
    code = f"{field} = {name.id}.{field}\nsecret.map(lambda x: ... {field} ...)"
    return "capture the fields that it needs: plain data is sent, values of classes are not", code


def as_plain(kind: str) -> str:
    """What a function can give in place of a value of a class that the vault has no encoding for."""
    converted = _CONVERTED.get(kind)
    return f"`{converted}(...)` of it" if converted is not None else "a tuple or a dict of its fields (`asdict(...)`)"


def without_decorator(function: Function, path: str) -> Advice:
    """A function that a decorator stands on, which is another function in its place."""
    name = function.name
    if path == "functools.singledispatch":
        return (
            "which function `singledispatch` takes is not in its source: choose by `isinstance`, in one function",
            f"def {name}_any(x):\n    if isinstance(x, int):\n        return ...\n    return ...\n"
            f"secret.map({name}_any)",
        )
    return "give `map` the function itself, without the decorator", f"def {name}_plain(x):\n    return ..."


def _put(around: ast.expr, name: ast.Name, context: Context, made: Made) -> str:
    """The text of an expression, with what a name was made of in its place."""
    text = _text(made.value, made.context)
    if len(text) > _MOST_CHARACTERS or "\n" in text:
        text = "{...}" if isinstance(made.value, ast.Dict) else "[...]"
    elif not isinstance(made.value, (ast.Name, ast.Attribute, ast.Call, ast.Dict, ast.List, ast.Tuple)):
        text = f"({text})"
    return text if around is name else text + _text(around, context).removeprefix(name.id)


def _text(node: ast.expr, context: Context) -> str:
    return ast.get_source_segment(context.cell.text, node) or ast.unparse(node)


def _around(name: ast.Name, context: Context) -> ast.expr:
    """The call or item that the name is used in."""
    current: ast.expr = name
    parent = context.parents.get(current)
    while (isinstance(parent, (ast.Subscript, ast.Attribute)) and parent.value is current) or (
        isinstance(parent, ast.Call) and parent.func is current
    ):
        assert isinstance(parent, ast.expr)
        current, parent = parent, context.parents.get(parent)
    return current
