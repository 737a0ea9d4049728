"""Repairs of functions given to `map` that are not pure: what they may not do is done before, after, or not at all."""

from __future__ import annotations

import ast
import re

from capkernel.checker.repairs.source import Edits, Repairs, Source, dotted, literal, names_in, safe, unparsed, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span


def repairs(source: Source, diagnostic: Diagnostic) -> Repairs:
    node = source.at(diagnostic.span)
    if isinstance(node, ast.Expr):
        node = node.value
    if not isinstance(node, ast.AST):
        return
    message = diagnostic.message
    if "direct call" in message or "exactly one function" in message:
        yield from _directly(source, node)
        return
    call = _map_call(source, node)
    given = call.args[0] if call is not None and call.args else None
    inside = given is not None and node is not given and any(one is node for one in ast.walk(given))
    if call is not None and isinstance(given, ast.expr) and not inside:
        yield from _given(source, call, given, diagnostic)
    yield from _in_its_place(source, diagnostic, node if given is None else given)
    if isinstance(given, ast.Lambda) and not _is_of_functions(diagnostic):
        yield from _in_lambda(source, call, given, node)
    yield from _in_definition(source, diagnostic)
    if isinstance(given, ast.Lambda) and call is not None:
        yield from _shown(source, call, given)


def _map_call(source: Source, node: ast.AST) -> ast.Call | None:
    """The innermost `map` around, or at, `node`."""
    current: ast.AST | None = node
    while current is not None:
        if (
            isinstance(current, ast.Call)
            and isinstance(current.func, ast.Attribute)
            and current.func.attr in ("map", "flat_map")
        ):
            return current
        current = source.parents.get(current)
    return None


# ── what a name of functions is ──────────────────────────────────────────────────────────────────────────────────────

_PLACE = re.compile(r"cell (\d+), line (\d+)")


def _is_of_functions(diagnostic: Diagnostic) -> bool:
    """Whether it is about a function in another shape than one that is sent: an effect is not what is wrong with it."""
    return any(word in diagnostic.message for word in ("is decorated", "is taken out of")) or any(
        one.type.startswith(("partial[", "Callable")) or "[Callable" in one.type or ", Callable" in one.type
        for one in diagnostic.captured
    )


def _in_its_place(source: Source, diagnostic: Diagnostic, around: ast.AST) -> Repairs:
    """A partial or a table of functions, by what it was bound to; a function out of a table by its own name."""
    if not _is_of_functions(diagnostic):
        return
    for one in diagnostic.captured:
        place = _PLACE.fullmatch(one.origin)
        value = None if place is None else _bound_to(source, diagnostic, one.name, int(place[1]), int(place[2]))
        used = [n for n in ast.walk(around) if isinstance(n, ast.Name) and n.id == one.name]
        if value is None or len(used) != 1:
            continue
        item = source.parents.get(used[0])
        key = item.slice if isinstance(item, ast.Subscript) and item.value is used[0] else None
        if isinstance(key, ast.Constant) and isinstance(value, ast.Dict):
            for name, function in zip(value.keys, value.values, strict=True):
                if isinstance(name, ast.Constant) and name.value == key.value and item is not None:
                    text = unparsed(function)
                    named = text if isinstance(function, ast.Name) else f"({text})"
                    yield from unsafe("by its name", source.replace(item, text if item is around else named))
        text = unparsed(value)
        text = f"({text})" if isinstance(value, (ast.Lambda, ast.IfExp)) else text
        edit = source.replace(used[0], text)
        if isinstance(around, ast.Lambda):
            yield from unsafe("write what it is in its place", edit)
        elif isinstance(around, ast.expr) and item is not None:
            rest = source.segment(around).removeprefix(one.name)
            yield from unsafe("write what it is in its place", source.replace(around, f"lambda x: {text}{rest}(x)"))


def _bound_to(source: Source, diagnostic: Diagnostic, name: str, cell: int, line: int) -> ast.expr | None:
    """What the one assignment in that line of that cell gives to `name`."""
    module = source.module
    if cell != diagnostic.cell:
        try:
            module = ast.parse(source.earlier(cell))
        except (SyntaxError, ValueError, RecursionError):
            return None
    for node in [] if module is None else ast.walk(module):
        if isinstance(node, ast.Assign) and node.lineno == line:
            named = [one for one in node.targets if isinstance(one, ast.Name) and one.id == name]
            if named:
                return node.value
    return None


# ── the function that is given ───────────────────────────────────────────────────────────────────────────────────────


def _given(source: Source, call: ast.Call, given: ast.expr, diagnostic: Diagnostic) -> Repairs:
    assert isinstance(call.func, ast.Attribute)
    name = dotted(given)
    owner = source.segment(call.func.value)
    if name in ("print", "display"):
        yield from safe("show it: a Classified shows as its mask", source.replace(call, f"{name}({owner})"))
    if isinstance(given, ast.Call):
        function = dotted(given.func).rpartition(".")[2]
        texts = [literal(one) for one in given.args]
        arguments = [source.segment(one) for one in given.args]
        if function == "partial" and arguments:
            if not isinstance(given.args[0], (ast.Name, ast.Attribute)):
                arguments[0] = f"({arguments[0]})"
            rest = [*arguments[1:], "x", *(f"{k.arg}={source.segment(k.value)}" for k in given.keywords if k.arg)]
            yield from safe(
                "write it as a lambda", source.replace(given, f"lambda x: {arguments[0]}({', '.join(rest)})")
            )
        elif function == "itemgetter" and len(arguments) == 1:
            yield from safe("write it as a lambda", source.replace(given, f"lambda x: x[{arguments[0]}]"))
        elif function == "attrgetter" and texts and texts[0]:
            yield from safe("write it as a lambda", source.replace(given, f"lambda x: x.{texts[0]}"))
        elif function == "methodcaller" and texts and texts[0]:
            yield from safe(
                "write it as a lambda", source.replace(given, f"lambda x: x.{texts[0]}({', '.join(arguments[1:])})")
            )
    if isinstance(given, ast.IfExp):
        test, first, second = (source.segment(one) for one in (given.test, given.body, given.orelse))
        choice = f"lambda x: {first}(x) if {test} else {second}(x)"
        yield from safe("choose inside the function", source.replace(given, choice))
    if isinstance(given, (ast.Name, ast.Attribute)) and "can be sent" not in diagnostic.message:
        yield from safe("write it as a lambda", source.replace(given, f"lambda x: {source.segment(given)}(x)"))
        if isinstance(given, ast.Attribute):
            yield from safe("write it as a lambda", source.replace(given, f"lambda x: x.{given.attr}()"))


def _directly(source: Source, node: ast.AST) -> Repairs:
    """`Classified.map(secret, f)`, `getattr(secret, "map")(f)`, `methodcaller("map", f)(secret)` as `secret.map(f)`."""
    outer = source.parents.get(node)
    call = node if isinstance(node, ast.Call) else None
    applied = outer if isinstance(outer, ast.Call) and outer.func is node else None
    words = "call it directly"
    yield from _shown_directly(source, node, applied or call)
    if isinstance(node, ast.Attribute) and applied is not None and len(applied.args) == 2:
        yield from safe(
            words,
            source.replace(
                applied, f"{source.segment(applied.args[0])}.{node.attr}({source.segment(applied.args[1])})"
            ),
        )
    if call is None:
        if isinstance(node, ast.Attribute) and isinstance(outer, ast.Call):
            # `map(secret.map, functions)`: nothing says which function it will get.
            assigned = source.statement(node)
            if (
                isinstance(assigned, ast.Expr)
                and dotted(outer.func) in ("map", "functools.partial", "partial")
                and len(outer.args) == 2
            ):
                functions = outer.args[1]
                if isinstance(functions, (ast.List, ast.Tuple)):
                    made = ", ".join(f"{source.segment(node)}({source.segment(one)})" for one in functions.elts)
                    yield from safe(words, source.replace(outer, f"[{made}]"))
        return
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("map", "flat_map")
        and dotted(call.func.value).endswith("Classified")
        and len(call.args) == 2
    ):
        yield from safe(
            words,
            source.replace(call, f"{source.segment(call.args[0])}.{call.func.attr}({source.segment(call.args[1])})"),
        )
    elif isinstance(call.func, ast.Attribute) and call.func.attr in ("map", "flat_map"):
        first = call.args[0] if call.args else call.keywords[0].value if call.keywords else None
        first = first.value if isinstance(first, ast.Starred) else first
        if isinstance(first, (ast.List, ast.Tuple)) and len(first.elts) == 1:
            first = first.elts[0]
        if first is not None:
            yield from safe(
                "give it one function", source.replace(call, f"{source.segment(call.func)}({source.segment(first)})")
            )
    if applied is not None and len(applied.args) == 1 and call.args:
        name = dotted(call.func).rpartition(".")[2]
        given = source.segment(applied.args[0])
        if name == "getattr" and literal(call.args[1]):
            yield from safe(
                words, source.replace(applied, f"{source.segment(call.args[0])}.{literal(call.args[1])}({given})")
            )
        if name == "methodcaller" and len(call.args) == 2:
            yield from safe(
                words, source.replace(applied, f"{given}.{literal(call.args[0])}({source.segment(call.args[1])})")
            )
        if name == "partial" and len(call.args) == 2:
            yield from safe(
                words,
                source.replace(
                    applied, f"{source.segment(call.args[1])}.{dotted(call.args[0]).rpartition('.')[2]}({given})"
                ),
            )


def _shown_directly(source: Source, node: ast.AST, whole: ast.Call | None) -> Repairs:
    """The same where what is mapped is `print`: the secret is printed, as its mask."""
    if whole is None:
        return
    parts = [one for one in ast.walk(whole) if isinstance(one, ast.Name) and one.id in ("print", "display")]
    owners = [
        one for call in ast.walk(whole) if isinstance(call, ast.Call) for one in call.args if isinstance(one, ast.Name)
    ]
    owners = [one for one in owners if one.id not in ("print", "display")]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owners = owners or [node.value]
    if len(parts) == 1 and owners:
        yield from safe(
            "show it: a Classified shows as its mask", source.replace(whole, f"{parts[0].id}({owners[0].id})")
        )


# ── inside a lambda ──────────────────────────────────────────────────────────────────────────────────────────────────


def _in_lambda(source: Source, map_call: ast.Call | None, given: ast.Lambda, node: ast.AST) -> Repairs:
    parameters = {one.arg for one in ast.walk(given.args) if isinstance(one, ast.arg)}
    bad = _effect(source, node)
    statement = source.statement(given)
    if isinstance(bad, ast.expr) and map_call is not None and statement is not None and source.is_alone(statement):
        bound = parameters | {one.arg for one in ast.walk(given) if isinstance(one, ast.arg)}
        bound |= {one.id for one in ast.walk(given) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        name = dotted(bad.func if isinstance(bad, ast.Call) else bad).rpartition(".")[2]
        if not names_in(bad) & bound and name not in ("print", "display", ""):
            fresh = source.fresh("now" if "time" in name or name == "now" else "before", "taken")
            line = f"{fresh} = {source.segment(bad)}"
            # To ask the person is an effect that they see: nobody does it for a cell unasked.
            offered = unsafe if name in ("request_secret", "request_declassify") else safe
            yield from offered(
                "do it before, and capture the result",
                source.insert_before(statement, line),
                source.replace(bad, fresh),
            )
    if isinstance(bad, ast.Call):
        parent = source.parents.get(bad)
        if isinstance(parent, ast.Tuple) and len(parent.elts) > 1:
            rest = [one for one in parent.elts if one is not bad]
            picked = source.parents.get(parent)
            if isinstance(picked, ast.Subscript) and len(rest) == 1:
                yield from unsafe("leave the effect out", source.replace(picked, source.segment(rest[0])))
            text = ", ".join(source.segment(one) for one in rest)
            yield from unsafe(
                "leave the effect out", source.replace(parent, f"({text},)" if len(rest) == 1 else f"({text})")
            )
        if isinstance(parent, ast.BoolOp):
            rest = [one for one in parent.values if one is not bad]
            yield from unsafe("leave the effect out", source.replace(parent, source.segment(rest[-1])))
        yield from _shown(source, map_call, given)
        yield from _outside(source, map_call, given)
        if bad.args:
            yield from unsafe("leave the effect out", source.replace(bad, source.segment(bad.args[-1])))
        if isinstance(bad.func, ast.Attribute) and not bad.args:
            yield from unsafe("leave the effect out", source.replace(bad, source.segment(bad.func.value)))


def _outside(source: Source, map_call: ast.Call | None, given: ast.Lambda) -> Repairs:
    """`secret.map(lambda s: out.append(s))` as `out.append(secret)`: done in the cell, with what stays classified."""
    body, parameters = given.body, given.args.args
    if map_call is None or not isinstance(map_call.func, ast.Attribute) or len(parameters) != 1:
        return
    if not isinstance(body, ast.Call) or body.keywords or not isinstance(source.statement(map_call), ast.Expr):
        return
    name, owner = parameters[0].arg, source.segment(map_call.func.value)
    if name in names_in(body.func):
        return
    texts = []
    for one in body.args:
        if isinstance(one, ast.Name) and one.id == name:
            texts.append(owner)
        elif name in names_in(one):
            texts.append(f"{owner}.map(lambda {name}: {source.segment(one)})")
        else:
            texts.append(source.segment(one))
    text = f"{source.segment(body.func)}({', '.join(texts)})"
    yield from unsafe("do it in the cell, with the secret as it is: classified", source.replace(map_call, text))


def _effect(source: Source, node: ast.AST) -> ast.AST:
    """The call that has the effect: the one of which `node` is the function, else the one around it."""
    current: ast.AST = node
    parent = source.parents.get(current)
    while isinstance(parent, (ast.Attribute, ast.Call)):
        if isinstance(parent, ast.Call) and parent.func is not current:
            if isinstance(current, ast.Call) and current is not node:
                break
            if dotted(parent.func) not in ("str", "float", "int", "repr"):
                current = parent
            break
        current, parent = parent, source.parents.get(parent)
    return current


def _shown(source: Source, map_call: ast.Call | None, given: ast.Lambda) -> Repairs:
    """`secret.map(lambda s: print(s))` as `print(secret)`."""
    body = given.body
    if map_call is None or not isinstance(map_call.func, ast.Attribute) or not isinstance(body, ast.Call):
        return
    owner = source.segment(map_call.func.value)
    if dotted(body.func) in ("print", "display") and body.args:
        parameters = given.args.args
        name = parameters[0].arg if len(parameters) == 1 else ""
        only = body.args[0]
        if isinstance(only, ast.Name) and only.id == name and len(body.args) == 1:
            yield from safe(
                "show it: a Classified shows as its mask", source.replace(map_call, f"{dotted(body.func)}({owner})")
            )
        elif len(body.args) == 1:
            inside = f"{owner}.map(lambda {unparsed(given.args)}: {source.segment(only)})"
            yield from safe(
                "show the result: a Classified shows as its mask",
                source.replace(map_call, f"{dotted(body.func)}({inside})"),
            )


# ── inside a `def` of the cell ───────────────────────────────────────────────────────────────────────────────────────


def _in_definition(source: Source, diagnostic: Diagnostic) -> Repairs:
    """The statement of the function that has the effect, left out or done before."""
    for note in diagnostic.notes:
        if note.span is None or note.cell != diagnostic.cell:
            continue
        node = source.at(note.span)
        statement = None if node is None else source.statement(node)
        if statement is None or isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            decorated = statement if isinstance(statement, ast.FunctionDef) else None
            if decorated is not None and decorated.decorator_list and source.is_alone(decorated):
                first, last = source.first_line(decorated), decorated.lineno
                yield from unsafe("without the decorator", Edit(Span(first, 0, last, 0), ""))
            continue
        returned = [one for one in ast.walk(statement) if isinstance(one, (ast.Return, ast.Yield))]
        if not returned:
            yield from unsafe("leave the effect out", source.remove(statement))
            yield from unsafe("leave the effect out", *_with_bindings(source, statement))
        if isinstance(statement, ast.Return) and isinstance(node, ast.AST):
            bad = _effect_in(source, node)
            function = source.enclosing(statement, ast.FunctionDef)
            if isinstance(bad, ast.Call) and isinstance(function, ast.FunctionDef):
                if not bad.args:
                    fresh = source.fresh("now", "before")
                    yield from safe(
                        "do it before, and capture the result",
                        source.insert_before(function, f"{fresh} = {source.segment(bad)}"),
                        source.replace(bad, fresh),
                    )
                else:
                    yield from unsafe("leave the effect out", source.replace(bad, source.segment(bad.args[-1])))


def _effect_in(source: Source, node: ast.AST) -> ast.AST:
    parent = source.parents.get(node)
    while isinstance(parent, ast.Attribute):
        node, parent = parent, source.parents.get(parent)
    return parent if isinstance(parent, ast.Call) and parent.func is node else node


def _with_bindings(source: Source, statement: ast.stmt) -> Edits:
    """The effect and the `global` or `nonlocal` it needs."""
    found = [source.remove(statement)]
    found += [source.remove(one) for one in source.body_of(statement) if isinstance(one, (ast.Global, ast.Nonlocal))]
    return tuple(edit for edit in found if edit is not None)
