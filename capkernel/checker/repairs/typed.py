"""Repairs of what the type checker refuses in `strict`: a value that may be None, of another type, or not bound.

Each is tried with a check; so a candidate need only be likely, never sure.
"""

from __future__ import annotations

import ast
import re

from capkernel.checker.repairs.source import Repairs, Source, dotted, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

_ANY = "from typing import Any"
_CONVERSIONS = ("int", "float", "str", "bool", "list", "tuple", "set", "dict", "bytes")
_EXPECTED = re.compile(r"expected (?:type )?`([^`]+)`")
_GIVEN = re.compile(r"(?:incompatible type|\(got|Invalid index type) `([^`]+)`")
_OPERANDS = re.compile(r"Unsupported (?:left )?operand types? for (\S+) \(`([^`]+)`(?: and `([^`]+)`)?\)")
_EMPTY = {"int": "0", "float": "0.0", "str": '""', "list": "[]", "dict": "{}", "bool": "False", "set": "set()"}
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Assert, ast.Raise)
_SAY = "say that it is there: the cell stops when it is not"


def not_none(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Say that it is there before it is used; a look-up gets a default."""
    if "None" not in diagnostic.message:
        return
    for node in _suspects(source, diagnostic):
        if _is_get(node):
            assert isinstance(node, ast.Call)
            default = next((_EMPTY[name] for name in _EMPTY if f"`{name}`" in diagnostic.message), "")
            if default:
                text = f"{source.segment(node.func)}({source.segment(node.args[0])}, {default})"
                yield from unsafe("with a value for the keys that are not there", source.replace(node, text))
        statement = source.statement(node)
        if statement is None or not source.is_alone(statement):
            continue
        if isinstance(node, ast.Name):
            yield from unsafe(_SAY, source.insert_before(statement, f"assert {node.id} is not None"))
        elif isinstance(statement, _SIMPLE) and source.enclosing(node, ast.Lambda, ast.comprehension) is None:
            name = source.fresh("found", "value")
            before = source.insert_before(statement, f"{name} = {source.segment(node)}", f"assert {name} is not None")
            yield from unsafe(_SAY, before, source.replace(node, name))


def narrowed(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Say which of its types it has here."""
    union = re.match(r"Item `([^`]+)` of `([^`]+)` has no attribute", diagnostic.message)
    if union:
        rest = [one for one in union[2].split(" | ") if one != union[1]]
    else:
        other = _OPERANDS.match(diagnostic.message)
        rest = [one for one in (other[2], other[3]) if one and one != "object"] if other else []
        if not other or "object" not in (other[2], other[3]):
            return
    yield from _asserted(source, diagnostic, rest)


def member(source: Source, diagnostic: Diagnostic) -> Repairs:
    """A method of text, lists or dicts, called on what may be anything."""
    found = re.match(r"`object` has no attribute `(\w+)`", diagnostic.message)
    for kind in (str, list, dict):
        if found and hasattr(kind, found[1]):
            yield from _asserted(source, diagnostic, [kind.__name__])


def _asserted(source: Source, diagnostic: Diagnostic, rest: list[str]) -> Repairs:
    classes = [one.partition("[")[0] for one in rest]
    if not classes or not all(re.fullmatch(r"[^\W\d][\w.]*", one) for one in classes) or "None" in classes:
        return
    wanted = classes[0] if len(classes) == 1 else f"({', '.join(classes)})"
    for node in _suspects(source, diagnostic):
        statement = source.statement(node)
        if isinstance(node, ast.Name) and statement is not None and source.is_alone(statement):
            yield from unsafe(
                "say what it is here: the cell stops when it is something else",
                source.insert_before(statement, f"assert isinstance({node.id}, {wanted})"),
            )


def converted(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Make the expected type of it."""
    expected = _EXPECTED.search(diagnostic.message)
    given = _GIVEN.search(diagnostic.message)
    node = source.at(diagnostic.span, ast.expr)
    if isinstance(node, ast.Subscript) and diagnostic.message.startswith("Invalid index"):
        node = node.slice
    if not expected or not isinstance(node, ast.expr):
        return
    if given and "None" in given[1].split(" | "):
        return
    names = [one.partition("[")[0] for one in expected[1].split(" | ")]
    for name in [one for one in names if one in _CONVERSIONS][:1]:
        yield from unsafe(f"make it `{name}`", source.replace(node, f"{name}({source.segment(node)})"))


def operands(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Both sides of an operator in one type."""
    found = _OPERANDS.match(diagnostic.message)
    node = source.at(diagnostic.span, ast.BinOp, ast.AugAssign)
    at = source.at(diagnostic.span)
    if node is None and at is not None:  # it is said of the right side
        node = source.enclosing(at, ast.BinOp, ast.AugAssign)
    if not found or not isinstance(node, (ast.BinOp, ast.AugAssign)) or not found[3]:
        return
    left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
    sides = [(left, found[2], found[3]), (right, found[3], found[2])]
    # A literal is what was meant; the other side is made of its type. Text goes with text.
    sides.sort(key=lambda side: (isinstance(side[0], ast.Constant), side[2] != "str"))
    for side, _own, other in sides:
        if other in _CONVERSIONS and not (isinstance(node, ast.AugAssign) and side is left):
            yield from unsafe(f"make it `{other}`", source.replace(side, f"{other}({source.segment(side)})"))


def compared(source: Source, diagnostic: Diagnostic) -> Repairs:
    """A comparison that is never true: the sides in one type."""
    found = re.search(r"left operand type: `([^`]+)`, right operand type: `([^`]+)`", diagnostic.message)
    node = source.at(diagnostic.span, ast.Compare)
    if not found or not isinstance(node, ast.Compare) or len(node.comparators) != 1:
        return
    for side, other in ((node.left, found[2]), (node.comparators[0], found[1])):
        if other in _CONVERSIONS and not isinstance(side, ast.Constant):
            yield from unsafe(f"compare as `{other}`", source.replace(side, f"{other}({source.segment(side)})"))


def overloads(source: Source, diagnostic: Diagnostic) -> Repairs:
    """`range(n / 2)`: a whole number."""
    call = source.at(diagnostic.span, ast.Call)
    if not isinstance(call, ast.Call) or "`float`" not in diagnostic.message or dotted(call.func) != "range":
        return
    for argument in call.args:
        if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Div):
            text = f"{source.segment(argument.left)} // {source.segment(argument.right)}"
            yield from unsafe("divide without a rest", source.replace(argument, text))
    for argument in call.args:
        if not isinstance(argument, ast.Constant):
            yield from unsafe("make it `int`", source.replace(argument, f"int({source.segment(argument)})"))


def containers(source: Source, diagnostic: Diagnostic) -> Repairs:
    """What the annotation says is in it, is not: the annotation of what is in it."""
    statement = _statement(source, diagnostic)
    pairs = re.findall(r"`([^`]+)`", diagnostic.message)
    if isinstance(statement, ast.AnnAssign) and len(pairs) in (2, 4):
        half = len(pairs) // 2
        old = source.segment(statement.annotation)
        for join in (False, True):
            new = old
            for got, wanted in zip(pairs[:half], pairs[half:], strict=True):
                text = f"{wanted} | {got}" if join else got
                if got != wanted:
                    new = re.sub(rf"(?<=[\[,\s]){re.escape(wanted)}(?=[\],])", text, new)
            if new != old:
                yield from unsafe("annotate it with what is in it", source.replace(statement.annotation, new))
    yield from converted(source, diagnostic)


def empty(source: Source, diagnostic: Diagnostic) -> Repairs:
    """An empty container, of which nothing says what will be in it."""
    found = re.search(r"for `(\w+)` \(hint: `\w+: (\w+)\[(.+?)\] = ", diagnostic.message)
    statement = _statement(source, diagnostic)
    if not found or not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return
    typ = f"{found[2]}[{found[3].replace('<type>', 'Any')}]"
    target = statement.targets[0]
    edits = source.with_imports((source.replace(target, f"{target.id}: {typ}"),), *_any(source))
    yield from unsafe("say what may be in it", *edits)


def arguments(source: Source, diagnostic: Diagnostic) -> Repairs:
    """`list` as a type, without what is in it."""
    node = source.at(diagnostic.span, ast.Name, ast.Attribute)
    if not isinstance(node, ast.expr):
        return
    name = dotted(node).rpartition(".")[2]
    inside = {
        "dict": "Any, Any", "defaultdict": "Any, Any", "Mapping": "Any, Any", "tuple": "Any, ...",
        "Callable": "..., Any", "Dict": "Any, Any", "Tuple": "Any, ...", "Generator": "Any, Any, Any",
    }.get(name, "Any")  # fmt: skip
    edits = source.with_imports((source.replace(node, f"{source.segment(node)}[{inside}]"),), *_any(source))
    yield from unsafe("say what is in it", *edits)


def maybe_unbound(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Bind the name before the branches, for the case that none of them does."""
    found = re.match(r"Name `(\w+)` may be undefined", diagnostic.message)
    reader = _statement(source, diagnostic)
    if not found or reader is None or source.module is None:
        return
    name = found[1]
    scope = source.enclosing(reader, ast.FunctionDef, ast.AsyncFunctionDef) or source.module
    values = [
        one.value
        for one in ast.walk(scope)
        if isinstance(one, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in one.targets)
    ]
    branch = next(
        (
            one
            for one in getattr(scope, "body", [])
            if any(isinstance(to, ast.Name) and to.id == name and isinstance(to.ctx, ast.Store) for to in ast.walk(one))
        ),
        None,
    )
    if branch is None or not source.is_alone(branch):
        return
    kinds = {_kind(one) for one in values}
    likely = [_EMPTY[one] for one in kinds if one in _EMPTY]
    for value in dict.fromkeys([*likely, "None", "0", '""']):
        yield from unsafe(
            "bind it before, for the case that no branch does", source.insert_before(branch, f"{name} = {value}")
        )


def any_returned(source: Source, diagnostic: Diagnostic) -> Repairs:
    """`return json.loads(text)`: say what it is."""
    typ = re.search(r"declared to return `([^`]+)`", diagnostic.message)
    statement = _statement(source, diagnostic)
    if not typ or not isinstance(statement, ast.Return) or statement.value is None or not source.is_alone(statement):
        return
    function = source.enclosing(statement, ast.FunctionDef, ast.AsyncFunctionDef)
    annotation = getattr(function, "returns", None)
    said = source.segment(annotation) if isinstance(annotation, ast.expr) else typ[1]
    name = source.fresh("result", "returned")
    yield from unsafe(
        "say what it is",
        source.insert_before(statement, f"{name}: {said} = {source.segment(statement.value)}"),
        source.replace(statement.value, name),
    )


def other_cases(source: Source, diagnostic: Diagnostic) -> Repairs:
    """A `match` that does nothing for what it does not name: say so."""
    node = source.at(diagnostic.span, ast.Match) or _statement(source, diagnostic)
    if not isinstance(node, ast.Match) or not source.is_alone(node):
        return
    last = node.end_lineno or node.lineno
    end = len(source.lines[last - 1])
    first = source.lines[node.cases[0].pattern.lineno - 1]
    margin = first[: len(first) - len(first.lstrip())]
    text = f"\n{margin}case _:\n{margin}    pass"
    yield from unsafe("say that nothing is done for the others", Edit(Span(last, end, last, end), text))


def called(source: Source, diagnostic: Diagnostic) -> Repairs:
    """`if ready:` of a function: its answer was meant."""
    node = source.at(diagnostic.span, ast.Name, ast.Attribute)
    if isinstance(node, ast.expr):
        yield from unsafe("call it", source.replace(node, f"{source.segment(node)}()"))


def unpacked(source: Source, diagnostic: Diagnostic) -> Repairs:
    """More values than names: the rest gets a name, too."""
    statement = _statement(source, diagnostic)
    if "Too many values to unpack" not in diagnostic.message or not isinstance(statement, ast.Assign):
        return
    target = statement.targets[0]
    if isinstance(target, (ast.Tuple, ast.List)) and target.elts:
        last = source.span(target.elts[-1])
        end = Span(last.end_line, last.end_column, last.end_line, last.end_column)
        yield from unsafe("take the rest, too", Edit(end, f", *{source.fresh('rest', 'others')}"))


def bound_again(source: Source, diagnostic: Diagnostic) -> Repairs:
    """A name that has a type already: bind it without an annotation."""
    statement = _statement(source, diagnostic)
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        text = f"{source.segment(statement.target)} = {source.segment(statement.value)}"
        yield from unsafe("bind it without a new annotation", source.replace(statement, text))


def for_its_effect(source: Source, diagnostic: Diagnostic) -> Repairs:
    """`x = f()` of a function that returns nothing: call it."""
    statement = _statement(source, diagnostic)
    if isinstance(statement, ast.Assign):
        yield from unsafe("call it for what it does", source.replace(statement, source.segment(statement.value)))


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _any(source: Source) -> list[str]:
    return [] if "Any" in source.names else [_ANY]


def _statement(source: Source, diagnostic: Diagnostic) -> ast.stmt | None:
    node = source.at(diagnostic.span)
    return None if node is None else source.statement(node)


def _suspects(source: Source, diagnostic: Diagnostic) -> list[ast.expr]:
    """The parts of the refused expression that the message can mean, the likeliest first."""
    node = source.at(diagnostic.span, ast.expr) or source.at(diagnostic.span)
    if isinstance(node, ast.Return):
        node = node.value
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return [node.value]
    if isinstance(node, ast.BinOp):
        return [one for one in (node.left, node.right) if not isinstance(one, ast.Constant)]
    if isinstance(node, ast.AugAssign):
        return [node.value]
    if isinstance(node, ast.Compare):
        return [one for one in (node.left, *node.comparators) if not isinstance(one, ast.Constant)]
    return [node] if isinstance(node, ast.expr) else []


def _is_get(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        and len(node.args) == 1 and not node.keywords
    )  # fmt: skip


def _kind(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return type(value.value).__name__
    return {"JoinedStr": "str", "List": "list", "ListComp": "list", "Dict": "dict", "DictComp": "dict"}.get(
        type(value).__name__, ""
    )
