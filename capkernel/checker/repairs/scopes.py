"""Repairs of blocks and what they grant: the use goes into the block, and plain data comes out of it."""

from __future__ import annotations

import ast
import re

from capkernel.checker.repairs.source import INDENT, Repairs, Source, dotted, safe, unparsed, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

_ORIGIN = re.compile(r"cell (\d+), line (\d+)")
_MOVE = "use it inside the block"


def forged(source: Source, diagnostic: Diagnostic) -> Repairs:
    node = source.at(diagnostic.span)
    call = source.at(diagnostic.span, ast.Call)
    if isinstance(call, ast.Call):
        name = dotted(call.func).rpartition(".")[2]
        arguments = ", ".join(source.segment(one) for one in call.args)
        statement = source.statement(call)
        if not name and isinstance(call.func, ast.Subscript):
            name = dotted(call.func.value)
        if name == "Classified":
            yield from safe("`classify` makes a secret of plain data", source.replace(call, f"classify({arguments})"))
        elif name in ("FileSystem", "FileEntry", "Capability") and statement is not None:
            text = "fs" if name != "FileEntry" else f"fs.access({arguments or repr('.')})"
            root = arguments if name == "FileSystem" and arguments else '"."'
            edits = source.wrap(statement, f"with request_file_system({root}) as fs:", (source.replace(call, text),))
            if edits is not None:
                yield from unsafe("ask for it", *edits)
    owner = source.statement(node) if node is not None else None
    if isinstance(owner, ast.ClassDef):
        base = [one for one in owner.bases if one is node or source.span(one) == diagnostic.span] or owner.bases[:1]
        kept = [unparsed(one) for one in owner.bases if one not in base]
        line = source.lines[owner.lineno - 1]
        colon = line.index(":") if ":" in line else len(line)
        margin = source.margin(owner) if not owner.decorator_list else line[: len(line) - len(line.lstrip())]
        header = f"{margin}class {owner.name}" + (f"({', '.join(kept)})" if kept else "")
        yield from unsafe(
            "hold it in a field: values of this class are granted, never made",
            Edit(Span(owner.lineno, 0, owner.lineno, colon), header),
        )


def outside_with(source: Source, diagnostic: Diagnostic) -> Repairs:
    name = source.at(diagnostic.span, ast.Name, ast.Attribute)
    call = source.parents.get(name) if name is not None else None
    statement = source.statement(name) if name is not None else None
    if statement is None or not isinstance(name, ast.expr):
        return
    if not isinstance(call, ast.Call) or call.func is not name:
        if isinstance(statement, (ast.Expr, ast.Assign)):
            yield from unsafe("open the block where it is used", source.remove(statement))
        return
    asked = source.segment(call)
    outer: ast.AST = call
    parent = source.parents.get(call)
    if isinstance(parent, ast.Attribute) and parent.attr == "__enter__":
        outer = source.parents.get(parent) or call
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "enter_context":
        outer = parent
    if isinstance(statement, ast.Assign) and statement.value is outer and isinstance(statement.targets[0], ast.Name):
        yield from _rest_of_block(source, statement, f"with {asked} as {statement.targets[0].id}:")
        return
    if isinstance(statement, ast.Return) and statement.value is outer:
        yield from unsafe(
            "return data out of the block",
            *(source.wrap(statement, f"with {asked} as fs:", (source.replace(outer, "fs.root"),)) or ()),
        )
        return
    fresh = source.fresh("fs", "files")
    edits = source.wrap(statement, f"with {asked} as {fresh}:", (source.replace(outer, fresh),))
    if edits is not None:
        yield from safe("open a block around it", *edits)
    if isinstance(statement, ast.Expr):
        yield from unsafe("open the block where it is used", source.remove(statement))


def _rest_of_block(source: Source, statement: ast.stmt, header: str) -> Repairs:
    body = source.body_of(statement)
    rest = body[body.index(statement) + 1 :]
    if not all(source.is_alone(one) for one in body[body.index(statement) :]):
        return
    margin, span = source.margin(statement), source.whole_lines(statement)
    if not rest:
        yield from safe("open a block", Edit(span, f"{margin}{header}\n{margin}{INDENT}pass"))
        return
    last = rest[-1].end_lineno or rest[-1].lineno
    lines = source.lines[span.end_line : last]
    new = [f"{margin}{header}", *(INDENT + line if line.strip() else line for line in lines)]
    yield from safe(
        "open a block around its uses", Edit(Span(span.line, 0, last, len(source.lines[last - 1])), "\n".join(new))
    )


# ── what would leave its block ───────────────────────────────────────────────────────────────────────────────────────


def escaped(source: Source, diagnostic: Diagnostic) -> Repairs:
    node = source.at(diagnostic.span)
    if node is None:
        return
    if "is used after the block" in diagnostic.message:
        yield from _used_after(source, diagnostic, node)
    else:
        yield from _let_out(source, diagnostic, node)


def _used_after(source: Source, diagnostic: Diagnostic, node: ast.AST) -> Repairs:
    statement = source.statement(node)
    found = _ORIGIN.match(diagnostic.captured[-1].origin) if diagnostic.captured else None
    if statement is None or found is None or not isinstance(node, ast.expr):
        return
    cell, line = int(found[1]), int(found[2])
    top: ast.stmt = statement
    if cell == diagnostic.cell:
        block = _block_at(source.module, line)
        if block is None:
            return
        while top not in source.body_of(block) and isinstance(source.parents.get(top), ast.stmt):
            parent = source.parents[top]
            assert isinstance(parent, ast.stmt)
            top = parent
        yield from _moved_into(source, block, top)
        return
    earlier = source.earlier(cell)
    try:
        module = ast.parse(earlier)
    except SyntaxError:
        return
    block = _block_at(module, line)
    if block is None or not source.is_alone(top):
        return
    header = "with " + ", ".join(unparsed(item) for item in block.items) + ":"
    name = node.id if isinstance(node, ast.Name) else ""
    needed = _bindings(block, name)
    text = [part for one in needed for part in unparsed(one).split("\n")]
    edits = source.wrap(top, header, before=tuple(text))
    if edits is not None:
        yield from unsafe("open the block again", *edits)


def _block_at(module: ast.AST | None, line: int) -> ast.With | None:
    for node in ast.walk(module or ast.Module([], [])):
        if isinstance(node, ast.With) and any(item.context_expr.lineno == line for item in node.items):
            return node
    return None


def _bindings(block: ast.With, name: str) -> list[ast.stmt]:
    """The statements of the block that bind `name`, and what they need of the block."""
    wanted, found = {name}, []
    for statement in reversed(block.body):
        stored = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        stored |= {statement.name} if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else set()
        if stored & wanted:
            found.append(statement)
            wanted |= {
                one.id for one in ast.walk(statement) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
            }
    return found[::-1]


def _moved_into(source: Source, block: ast.With, statement: ast.stmt) -> Repairs:
    """The statement as the last one of the block."""
    if not source.is_alone(statement) or block.body[0].lineno == block.lineno:
        return
    if source.parents.get(block) is not source.parents.get(statement):
        return
    end = max(one.end_lineno or one.lineno for one in block.body)
    margin, inner = source.margin(statement), source.margin(block.body[-1])
    lines = source.text_of(source.whole_lines(statement))
    moved = [inner + line.removeprefix(margin) if line.strip() else line for line in lines]
    at = Span(end + 1, 0, end + 1, 0)
    yield from unsafe(_MOVE, Edit(at, "\n".join(moved) + "\n"), source.remove(statement))
    # What stands between may be needed first.
    body = source.body_of(block)
    between = body[body.index(block) + 1 : body.index(statement) + 1] if block in body and statement in body else []
    if len(between) > 1 and all(source.is_alone(one) for one in between):
        last = between[-1].end_lineno or between[-1].lineno
        following = source.lines[end:last]
        text = [inner + line.removeprefix(margin) if line.strip() else line for line in following]
        yield from unsafe(_MOVE, Edit(Span(end + 1, 0, last, len(source.lines[last - 1])), "\n".join(text)))


def _let_out(source: Source, diagnostic: Diagnostic, node: ast.AST) -> Repairs:
    """Plain data in place of the capability."""
    name = diagnostic.captured[-1].name if diagnostic.captured else ""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Lambda) and not inner.args.args:
            yield from unsafe("take the result now", source.replace(inner, source.segment(inner.body)))
    parent = source.parents.get(node)
    if isinstance(parent, ast.withitem) and parent.optional_vars is node:
        fresh = source.fresh("fs", "files")
        yield from unsafe("bind it to a plain name", source.replace(node, fresh))
        function = source.enclosing(node, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, ast.Name) and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in function.body:
                if isinstance(statement, (ast.Global, ast.Nonlocal)) and statement.names == [node.id]:
                    yield from unsafe("keep it local", source.remove(statement))
    if isinstance(node, ast.Call):
        yield from _call_now(source, node)
    region = (
        node if any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node)) else source.statement(node)
    )
    for inner in ast.walk(region) if region is not None else ():
        if (
            isinstance(inner, ast.Attribute)
            and inner.attr == "children"
            and not isinstance(source.parents.get(inner), (ast.For, ast.comprehension))
        ):
            yield from unsafe(
                "let the names out", source.replace(inner, f"[entry.path for entry in {source.segment(inner)}]")
            )
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and inner.func.attr == "access"
            and not isinstance(source.parents.get(inner), ast.Attribute)
        ):
            yield from unsafe("let the text out", source.replace(inner, f"{source.segment(inner)}.read()"))
    data = "path" if diagnostic.captured and diagnostic.captured[-1].type == "FileEntry" else "root"
    for inner in ast.walk(region) if region is not None else ():
        if (
            isinstance(inner, ast.Name)
            and isinstance(inner.ctx, ast.Load)
            and inner.id == name
            and not isinstance(source.parents.get(inner), ast.Attribute)
        ):
            yield from unsafe("let plain data out", source.replace(inner, f"{name}.{data}"))
    yield from _other_names(source, region, name)


def _other_names(source: Source, region: ast.AST | None, name: str) -> Repairs:
    """An entry of the block under a name of its own."""
    for inner in ast.walk(region) if region is not None else ():
        if (
            isinstance(inner, ast.Name)
            and isinstance(inner.ctx, ast.Load)
            and inner.id != name
            and not isinstance(source.parents.get(inner), (ast.Attribute, ast.Call))
        ):
            yield from unsafe("let plain data out", source.replace(inner, f"{inner.id}.path"))
    if isinstance(region, ast.Call):
        for argument in region.args:
            if isinstance(argument, ast.Name) and argument.id != name:
                yield from unsafe("let plain data out", source.replace(argument, f"{argument.id}.path"))


def _call_now(source: Source, node: ast.Call) -> Repairs:
    """`Thread(target=work, args=(fs,))` as `work(fs)`; `create_task(work(fs))` as `await work(fs)`."""
    name = dotted(node.func).rpartition(".")[2]
    if name in ("Thread", "Timer"):
        keywords = {one.arg: one.value for one in node.keywords}
        target = keywords.get("target") or (node.args[1] if name == "Timer" and len(node.args) > 1 else None)
        arguments = keywords.get("args")
        if target is not None:
            given = (
                [source.segment(one) for one in arguments.elts] if isinstance(arguments, (ast.Tuple, ast.List)) else []
            )
            whole: ast.AST = node
            started = source.parents.get(node)
            if isinstance(started, ast.Attribute) and started.attr == "start":
                whole = source.parents.get(started) or node
            text = source.segment(target) if isinstance(target, ast.Name) else f"({source.segment(target)})"
            yield from unsafe("do it in the block", source.replace(whole, f"{text}({', '.join(given)})"))
    if name in ("create_task", "ensure_future") and node.args:
        yield from unsafe("wait for it in the block", source.replace(node, f"await {source.segment(node.args[0])}"))
    if name == "submit" and node.args:
        rest = ", ".join(source.segment(one) for one in node.args[1:])
        yield from unsafe("do it in the block", source.replace(node, f"{source.segment(node.args[0])}({rest})"))
