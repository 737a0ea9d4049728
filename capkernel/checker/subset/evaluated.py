"""Text that a library runs or follows out of the checker's sight: annotations written as text, and names that
`functools.wraps` copies.

An annotation may be a text; `typing`, `functools.singledispatch`, `inspect` and many libraries evaluate it later. So a
text that would do more there than name a type is refused where it stands, whoever evaluates it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from capkernel.checker.subset.report import Report, show
from capkernel.wire.syntax import walk

# What names a type computes nothing: names, attributes, `X[...]`, `A | B`, and plain constants.
_DOES = (
    ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda, ast.JoinedStr, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
_COPIES = {"wraps": 1, "update_wrapper": 2}  # how many arguments there are before the names of attributes


def check_annotation(annotation: ast.expr | None, report: Report) -> None:
    """Refuse texts in `annotation` that do something when they are evaluated."""
    for place, text in [] if annotation is None else _texts(annotation):
        if _does_something(text):
            report.add(
                "unsafe-feature",
                place,
                "this annotation is a text with code in it, which runs when the text is evaluated",
                help="an annotation names a type",
                fix=show("x: list[int]"),
            )


def _texts(annotation: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    """The texts in it that stand for types, and where."""
    parts: list[ast.expr] = []
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        yield annotation, annotation.value
    elif isinstance(annotation, (ast.Tuple, ast.List)):
        parts = annotation.elts
    elif isinstance(annotation, ast.BinOp):
        parts = [annotation.left, annotation.right]
    elif isinstance(annotation, ast.Subscript):
        held, inner = annotation.value, annotation.slice
        name = held.attr if isinstance(held, ast.Attribute) else held.id if isinstance(held, ast.Name) else ""
        parts = [inner]
        if name == "Annotated" and isinstance(inner, ast.Tuple):
            parts = inner.elts[:1]
        elif name in ("Annotated", "Literal"):
            parts = []
    for part in parts:
        yield from _texts(part)


def _does_something(text: str) -> bool:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # evaluated, it does nothing either
    does = any(isinstance(node, _DOES) for node in walk(tree))
    return does or any(_does_something(inner) for _, inner in _texts(tree.body))


def check_copied_names(node: ast.Call, name: str, report: Report) -> None:
    """Refuse `functools.wraps(f, assigned=...)`: it sets any attribute, named by a text."""
    if name not in _COPIES:
        return
    spread = any(isinstance(argument, ast.Starred) for argument in node.args)
    named = any(keyword.arg in (None, "assigned", "updated") for keyword in node.keywords)
    if spread or named or len(node.args) > _COPIES[name]:
        report.add(
            "unsafe-feature",
            node,
            f"`{name}` sets attributes that the checker cannot see when it is told their names",
            help="leave the names out: name, module and documentation are copied",
            fix=show("@functools.wraps(f)"),
        )


def check_evaluation(node: ast.Call, report: Report) -> None:
    """Refuse `eval_str=`, with which `inspect` runs annotations that are texts."""
    for keyword in node.keywords:
        if keyword.arg == "eval_str" and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
            report.add(
                "unsafe-feature",
                keyword,
                "`eval_str` runs the text of annotations",
                help="leave it out: the annotations are then given as they are written",
            )
