"""Walking Python's syntax trees: what `ast.iter_child_nodes` and `ast.walk` do, in a third of the time.

A check walks the tree of its cell a dozen times, so this is a good part of what it costs.

Rule 1: nothing is left out but `Load`, `Store` and `Del`: they have no parts and no place, and are read where they are
(`node.ctx`). A test compares with `ast`.
"""

from __future__ import annotations

import ast
from typing import Any

# Fields that hold no node in any version of Python; every other field is looked at.
_PLAIN = frozenset("ctx id attr kind level module asname type_comment simple conversion is_async lineno tag".split())

_fields: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: ()}  # its value is no node


def children(node: ast.AST) -> list[ast.AST]:
    """The direct parts of a node, in the order of `ast.iter_child_nodes`."""
    found: list[ast.AST] = []
    names = _fields.get(type(node))
    for name in names if names is not None else _fields_of(node):
        value = getattr(node, name, None)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    found.append(item)  # noqa: PERF401  (a comprehension for every field is slower)
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """The node and everything in it, in the order of `ast.walk`: parents first, level by level."""
    found = [node]
    for parent in found:  # grows while it is read
        names = _fields.get(type(parent))
        for name in names if names is not None else _fields_of(parent):
            value = getattr(parent, name, None)
            if isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.AST):
                        found.append(item)  # noqa: PERF401
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def literal_text(node: ast.AST) -> str | None:
    """The text that a literal writes; None for what is no literal text, and for one with half a surrogate pair in it:
    that is no Unicode, so it names nothing, and no message could carry it."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    return None if without_text(node.value) else node.value


def without_text(text: str) -> bool:
    """Whether it holds half a surrogate pair."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _fields_of(node: ast.AST) -> tuple[str, ...]:
    kind = type(node)
    if kind not in _fields:
        _fields[kind] = tuple(name for name in kind._fields if name not in _PLAIN)
    return _fields[kind]


class Visitor:
    """`ast.NodeVisitor`: a method `visit_KIND` for every kind of node that needs one, looked up once for each class."""

    _methods: dict[type[ast.AST], Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._methods = {}

    def visit(self, node: ast.AST) -> None:
        kind = type(node)
        if kind in self._methods:
            method = self._methods[kind]
        else:
            method = self._methods[kind] = getattr(type(self), f"visit_{kind.__name__}", None)
        if method is None:
            self.generic_visit(node)
        else:
            method(self, node)

    def generic_visit(self, node: ast.AST) -> None:
        """Visit the parts of a node that needs no method."""
        for child in children(node):
            self.visit(child)
