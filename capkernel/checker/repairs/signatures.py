"""Repairs of functions whose types are not said, or said wrongly: the annotation that the body itself shows.

What a function returns is asked of the checker: with an annotation that nothing fits, it says what it found instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from capkernel.checker.repairs.source import Repairs, Source, unsafe
from capkernel.diagnostics.edits import apply_edits
from capkernel.diagnostics.model import Diagnostic, Edit, Span

Function = ast.FunctionDef | ast.AsyncFunctionDef

_ANY = "from typing import Any"
_NOTHING_FITS = "type[None]"
_GOT = re.compile(r"\((?:got|actual type) `([^`]+)`")
_OF_CONSTANTS = {bool: "bool", int: "int", float: "float", complex: "complex", str: "str", bytes: "bytes"}


def annotated(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Annotate a function: parameters by defaults and by calls in the cell, the result by what is returned."""
    node = _function(source, diagnostic)
    if node is None:
        return
    for unknown in ("object", "Any"):
        edits = list(_parameters(source, node, unknown))
        if unknown == "Any" and not any("Any" in edit.text for edit in edits):
            return
        text = "say what it takes and returns" if edits else "say what it returns"
        result = "" if node.returns is not None else _result(source, node, edits)
        if not result and node.returns is None and unknown == "Any":
            result = "Any"  # it comes out of what is not known
        annotation = _after_parameters(source, node, result) if result else None
        made = edits if annotation is None else [*edits, annotation]
        yield from unsafe(text, *_with_imports(source, made))


def returned(source: Source, diagnostic: Diagnostic) -> Repairs:
    """The annotation says something else than what is returned."""
    node = source.at(diagnostic.span)
    function = None if node is None else source.enclosing(node, ast.FunctionDef, ast.AsyncFunctionDef)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function.returns is None:
        return
    found = _result(source, function, [])
    if found:
        edits = _with_imports(source, [source.replace(function.returns, found)])
        yield from unsafe(f"say that it returns `{found}`", *edits)


def falls_through(source: Source, diagnostic: Diagnostic) -> Repairs:
    """A function that may end without a `return` returns None then."""
    node = _function(source, diagnostic)
    if node is None or node.returns is None or not source.is_alone(node.body[-1]):
        return
    last = node.body[-1]
    line = last.end_lineno or last.lineno
    end = len(source.lines[line - 1])
    margin = source.margin(node.body[0])
    yield from unsafe(
        "say that it may return None",
        source.replace(node.returns, f"{source.segment(node.returns)} | None"),
        Edit(Span(line, end, line, end), f"\n{margin}return None"),
    )


def _function(source: Source, diagnostic: Diagnostic) -> Function | None:
    node = source.at(diagnostic.span, ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node
    called = re.match(r"Call to untyped function `(\w+)`", diagnostic.message)
    for one in ast.walk(source.module or ast.Module([], [])):
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and (
            one.name == called[1] if called else one.lineno == diagnostic.span.line
        ):
            return one
    return None


def _with_imports(source: Source, edits: list[Edit]) -> tuple[Edit, ...]:
    texts = " ".join(edit.text for edit in edits)
    lines = [_ANY] if re.search(r"\bAny\b", texts) and "Any" not in source.names else []
    wanted = [name for name in ("Awaitable", "Callable", "Iterator") if re.search(rf"\b{name}\[", texts)]
    lines += [f"from collections.abc import {name}" for name in wanted if name not in source.names]
    return source.with_imports(tuple(edits), *lines)


# ── parameters ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _parameters(source: Source, node: Function, unknown: str) -> Iterator[Edit]:
    arguments = node.args
    places = [*arguments.posonlyargs, *arguments.args]
    defaults: dict[ast.arg, ast.expr | None] = dict(zip(reversed(places), reversed(arguments.defaults), strict=False))
    defaults |= dict(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    bound = places[:1] if isinstance(source.parents.get(node), ast.ClassDef) and not _is_static(node) else []
    for index, one in enumerate([*places, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]):
        if one is None or one.annotation is not None or one in bound:
            continue
        default = defaults.get(one)
        typ = _of_value(default) or _of_calls(source, node, one.arg, index - len(bound)) or unknown
        span = source.span(one)
        if default is None:
            yield Edit(Span(span.end_line, span.end_column, span.end_line, span.end_column), f": {typ}")
        else:
            start = source.span(default)
            yield Edit(Span(span.end_line, span.end_column, start.line, start.column), f": {typ} = ")


def _is_static(node: Function) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list)


def _of_value(value: ast.expr | None) -> str:
    """The type that a literal has, "" when it says nothing."""
    if isinstance(value, ast.UnaryOp):
        return _of_value(value.operand)
    if isinstance(value, ast.Constant):
        return _OF_CONSTANTS.get(type(value.value), "")
    return "str" if isinstance(value, ast.JoinedStr) else ""


def _of_calls(source: Source, node: Function, name: str, index: int) -> str:
    """What the calls in the cell give to a parameter, when they agree on it."""
    found: set[str] = set()
    for call in ast.walk(source.module or ast.Module([], [])):
        if not isinstance(call, ast.Call):
            continue
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called != node.name:
            continue
        given = next((one.value for one in call.keywords if one.arg == name), None)
        if given is None and 0 <= index < len(call.args):
            given = call.args[index]
        if given is not None:
            found.add(_of_value(given))
    return found.pop() if len(found) == 1 else ""


# ── the result ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _result(source: Source, node: Function, edits: list[Edit]) -> str:
    """The type of what the body returns or yields, "" when it does not say."""
    own = list(_own(node.body))
    yields = [one for one in own if isinstance(one, (ast.Yield, ast.YieldFrom))]
    values = [one for one in own if isinstance(one, ast.Return) and one.value is not None]
    if not values and not yields:
        return "None"
    if isinstance(node, ast.AsyncFunctionDef) and yields:
        return ""
    wrong = f"Iterator[{_NOTHING_FITS}]" if yields else _NOTHING_FITS
    if node.returns is not None:
        question = [*edits, source.replace(node.returns, wrong)]
    else:
        annotation = _after_parameters(source, node, wrong)
        if annotation is None:
            return ""
        question = [*edits, annotation]
    first, last = node.lineno, node.end_lineno or node.lineno
    try:
        text = apply_edits(source.text, _with_imports(source, question))
    except ValueError:
        return ""
    shift = text.count("\n") - source.text.count("\n")
    found: list[str] = []
    for said in source.ask(text):
        got = _GOT.search(said.message)
        if got and first <= said.span.line - shift <= last and _NOTHING_FITS in said.message:
            found += [got[1]] if got[1] not in found else []
    if not found:
        return ""
    typ = " | ".join(found)
    return f"Iterator[{typ}]" if yields else typ


def _own(body: list[ast.stmt]) -> Iterator[ast.AST]:
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(node))


def _after_parameters(source: Source, node: Function, returns: str) -> Edit | None:
    """` -> T` behind the closing parenthesis of the parameters."""
    inside = [one for one in ast.walk(node.args) if hasattr(one, "lineno")]
    if inside:
        ends = [source.span(one) for one in inside]
        line, column = max((end.end_line, end.end_column) for end in ends)
    else:
        line = node.lineno
        column = source.lines[line - 1].find("(", source.span(node).column)
    while 0 < line <= len(source.lines) and column >= 0:
        closing = source.lines[line - 1].find(")", column)
        if closing >= 0:
            return Edit(Span(line, closing + 1, line, closing + 1), f" -> {returns}")
        line, column = line + 1, 0
    return None
