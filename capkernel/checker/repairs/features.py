"""Repairs of reflection, dynamic code and magics: the ordinary way to write the same."""

from __future__ import annotations

import ast

from capkernel.checker.repairs.source import Repairs, Source, dotted, literal, safe, substituted, unparsed, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

_UNARY = {
    "__len__": "len", "__iter__": "iter", "__next__": "next", "__str__": "str", "__repr__": "repr", "__hash__": "hash",
    "__bool__": "bool", "__abs__": "abs", "__int__": "int", "__float__": "float", "__reversed__": "reversed",
    "__round__": "round", "__bytes__": "bytes", "__format__": "format", "__complex__": "complex", "__dir__": "dir",
}  # fmt: skip
_BINARY = {
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
    "__pow__": "**", "__and__": "&", "__or__": "|", "__xor__": "^", "__lshift__": "<<", "__rshift__": ">>",
    "__matmul__": "@", "__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">=",
}  # fmt: skip


def repairs(source: Source, diagnostic: Diagnostic) -> Repairs:
    if "`# mypy:`" in diagnostic.message:
        span = diagnostic.span
        start = len(source.lines[span.line - 1][: span.column].rstrip())
        end = len(source.lines[span.line - 1])
        yield from safe("delete the comment", Edit(Span(span.line, start, span.line, end), ""))
        return
    node = source.at(diagnostic.span)
    if node is None:
        return
    parent = source.parents.get(node)
    if isinstance(node, ast.Attribute):
        yield from _attribute(source, node, parent)
    name = source.at(diagnostic.span, ast.Name)
    if isinstance(name, ast.Name):
        yield from _name(source, name, source.parents.get(name))
    call = source.at(diagnostic.span, ast.Call)
    if isinstance(call, ast.Call):
        yield from _call(source, call)
    if isinstance(node, ast.keyword):
        yield from _class_keyword(source, node)
    if isinstance(node, ast.alias):
        statement = source.statement(node)
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            yield from safe("leave it out: this Python reads cells in one way", source.remove(statement))


# ── attributes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _attribute(source: Source, node: ast.Attribute, parent: ast.AST | None) -> Repairs:
    base, name = source.segment(node.value), node.attr
    stored = not isinstance(node.ctx, ast.Load)
    if name == "__class__" and not stored:
        yield from safe("`type` gives the class", source.replace(node, f"type({base})"))
    if name == "__dict__" and not stored:
        edits = source.with_imports((source.replace(node, f"dataclasses.asdict({base})"),), "import dataclasses")
        yield from unsafe("make a dict of a dataclass", *edits)
    if isinstance(parent, ast.Call) and parent.func is node:
        arguments = [source.segment(one) for one in parent.args]
        if not parent.keywords:
            yield from _special(source, parent, base, name, arguments)
    module = dotted(node.value)
    if stored and module and isinstance(parent, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        yield from unsafe(
            "keep your own value in a name of your own", source.replace(node, source.fresh(f"my_{name}", name))
        )
    if name == "tb_lineno" or name.startswith(("tb_", "f_")):
        edits = source.with_imports(
            (source.replace(_outermost(source, node), "traceback.format_exc()"),), "import traceback"
        )
        yield from unsafe("take the text of the error", *edits)
    if name == "with_traceback" and isinstance(parent, ast.Call):
        yield from safe("the error carries its traceback by itself", source.replace(parent, base))


def _outermost(source: Source, node: ast.expr) -> ast.expr:
    parent = source.parents.get(node)
    while isinstance(parent, ast.Attribute):
        node, parent = parent, source.parents.get(parent)
    return node


def _special(source: Source, call: ast.Call, base: str, name: str, arguments: list[str]) -> Repairs:
    if name in _UNARY and not (arguments and name not in ("__format__", "__round__")):
        yield from safe("call the builtin", source.replace(call, f"{_UNARY[name]}({', '.join([base, *arguments])})"))
    elif name in _BINARY and len(arguments) == 1:
        text = f"{base} {_BINARY[name]} {arguments[0]}"
        alone = isinstance(source.parents.get(call), (ast.Expr, ast.Assign, ast.Return))
        yield from safe("use the operator", source.replace(call, text if alone else f"({text})"))
    elif name == "__contains__" and len(arguments) == 1:
        yield from safe("use `in`", source.replace(call, f"({arguments[0]} in {base})"))
    elif name == "__getitem__" and len(arguments) == 1:
        yield from safe("use the brackets", source.replace(call, f"{base}[{arguments[0]}]"))
    elif name == "__setitem__" and len(arguments) == 2:
        yield from safe("use the brackets", source.replace(call, f"{base}[{arguments[0]}] = {arguments[1]}"))
    elif name == "__delitem__" and len(arguments) == 1:
        yield from safe("use the brackets", source.replace(call, f"del {base}[{arguments[0]}]"))
    elif name == "__call__":
        yield from safe("call it", source.replace(call, f"{base}({', '.join(arguments)})"))
    elif name in ("__getattribute__", "__getattr__") and arguments and literal(call.args[-1]):
        target = base if len(arguments) == 1 else arguments[0]
        yield from safe("write the attribute", source.replace(call, f"{target}.{literal(call.args[-1])}"))
    elif name in ("__setattr__", "__delattr__"):
        own = [base, *arguments] if len(arguments) == (2 if name == "__setattr__" else 1) else arguments
        attribute = literal(call.args[-2 if name == "__setattr__" else -1])
        if attribute and attribute.isidentifier():
            text = f"{own[0]}.{attribute} = {own[-1]}" if name == "__setattr__" else f"del {own[0]}.{attribute}"
            yield from safe("write it as an assignment", source.replace(call, text))


# ── builtins ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _name(source: Source, node: ast.Name, parent: ast.AST | None) -> Repairs:
    name = node.id
    call = parent if isinstance(parent, ast.Call) and parent.func is node else None
    arguments = [] if call is None else [source.segment(one) for one in call.args]
    if name in ("globals", "locals") and call is not None:
        yield from _namespace(source, call)
    elif name == "vars" and len(arguments) == 1 and call is not None:
        edits = source.with_imports(
            (source.replace(call, f"dataclasses.asdict({arguments[0]})"),), "import dataclasses"
        )
        yield from unsafe("make a dict of a dataclass", *edits)
    elif name == "eval" and call is not None:
        text = literal(call.args[0]) if call.args else None
        if text is not None and _is_expression(text):
            yield from safe("write the expression", source.replace(call, f"({text})"))
        elif arguments:
            edits = source.with_imports((source.replace(call, f"ast.literal_eval({arguments[0]})"),), "import ast")
            yield from unsafe("`ast.literal_eval` reads numbers, texts, lists and dicts, and runs nothing", *edits)
    elif name == "exec" and call is not None:
        text = literal(call.args[0]) if call.args else None
        statement = source.statement(call)
        if text and isinstance(statement, ast.Expr) and source.is_alone(statement):
            lines = text.strip("\n").split("\n")
            margin = source.margin(statement)
            yield from safe(
                "write the statements", Edit(source.whole_lines(statement), "\n".join(margin + line for line in lines))
            )
    elif name == "__import__" and call is not None:
        module = literal(call.args[0]) if call.args else None
        if module and all(part.isidentifier() for part in module.split(".")):
            top = module.split(".")[0]
            edits = source.with_imports((source.replace(call, top),), f"import {module}")
            yield from safe("import it by name", *edits)
    elif name in ("exit", "quit"):
        target = source.replace(call if call is not None else node, 'raise RuntimeError("stop here")')
        yield from unsafe("stop the cell with an exception", target)
    elif name == "help" and call is not None and arguments:
        yield from unsafe("print its documentation", source.replace(call, f"print({arguments[0]}.__doc__)"))
    if name in ("setattr", "delattr") and call is not None and len(call.args) >= 2:
        attribute, around = literal(call.args[1]), source.parents.get(call)
        if attribute is not None and attribute.isidentifier() and isinstance(around, ast.Expr):
            text = (
                f"{arguments[0]}.{attribute} = {arguments[2]}"
                if len(arguments) == 3
                else f"del {arguments[0]}.{attribute}"
            )
            yield from safe("write it as an assignment", source.replace(call, text))
        elif isinstance(around, ast.Expr) and len(arguments) == 3:
            yield from unsafe(
                "keep the data in a dict", source.replace(call, f"{arguments[0]}[{arguments[1]}] = {arguments[2]}")
            )


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _namespace(source: Source, call: ast.Call) -> Repairs:
    parent = source.parents.get(call)
    if isinstance(parent, ast.Subscript) and parent.value is call:
        key = literal(parent.slice)
        if key is not None and key.isidentifier():
            yield from safe("write the name", source.replace(parent, key))
    elif isinstance(parent, ast.Attribute):
        outer = source.parents.get(parent)
        if isinstance(outer, ast.Call) and parent.attr in ("get", "pop", "setdefault") and outer.args:
            key = literal(outer.args[0])
            if key is not None and key.isidentifier():
                yield from safe("write the name", source.replace(outer, key))
    elif isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.In):
        key = literal(parent.left)
        if key is not None and key in source.names:
            yield from safe(f"`{key}` is a name of the session", source.replace(parent, "True"))
        elif key is not None:
            yield from unsafe(f"`{key}` is no name of the session so far", source.replace(parent, "False"))


# ── calls, classes ───────────────────────────────────────────────────────────────────────────────────────────────────


def _call(source: Source, call: ast.Call) -> Repairs:
    name = dotted(call.func)
    arguments = [source.segment(one) for one in call.args]
    if name == "getattr" and len(call.args) >= 2:
        attribute = literal(call.args[1])
        if attribute == "__class__":
            yield from safe("`type` gives the class", source.replace(call, f"type({arguments[0]})"))
        elif attribute is None:
            yield from unsafe("keep the data in a dict", source.replace(call, f"{arguments[0]}[{arguments[1]}]"))
    elif name == "type" and len(call.args) == 3:
        yield from _class_statement(source, call)
    elif name.rpartition(".")[2] in ("attrgetter", "methodcaller"):
        names = [literal(one) for one in call.args]
        if names and names[0] == "__class__" and len(names) == 1:
            yield from safe("`type` gives the class", source.replace(call, "type"))
        if names and names[0] in _UNARY:
            yield from safe("name the builtin", source.replace(call, _UNARY[names[0] or ""]))
        if len(arguments) == 1 and names[0] is None:
            yield from unsafe("look it up in a dict", source.replace(call, f"lambda row: row[{arguments[0]}]"))
    for keyword in call.keywords:
        if keyword.arg and keyword.arg.startswith("__"):
            start = source.span(keyword)
            yield from unsafe(
                "use an ordinary name",
                Edit(
                    Span(start.line, start.column, start.line, start.column + len(keyword.arg)), keyword.arg.strip("_")
                ),
            )


def _class_statement(source: Source, call: ast.Call) -> Repairs:
    name, bases, body = call.args
    statement = source.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call or not source.is_alone(statement):
        return
    target = statement.targets[0]
    if not isinstance(target, ast.Name) or not isinstance(bases, ast.Tuple) or not isinstance(body, ast.Dict):
        return
    del name
    margin = source.margin(statement)
    inherited = ", ".join(unparsed(base) for base in bases.elts)
    lines = [f"class {target.id}({inherited}):" if inherited else f"class {target.id}:"]
    for key, value in zip(body.keys, body.values, strict=True):
        attribute = literal(key)
        if attribute is None or not attribute.isidentifier():
            return
        if isinstance(value, ast.Lambda):
            lines += [f"    def {attribute}({unparsed(value.args)}):", f"        return {unparsed(value.body)}"]
        else:
            lines.append(f"    {attribute} = {unparsed(value)}")
    lines += ["    pass"] if len(lines) == 1 else []
    text = "\n".join(f"{margin}{line}" for line in lines)
    yield from safe("write a `class` statement", Edit(source.whole_lines(statement), text))


def _class_keyword(source: Source, keyword: ast.keyword) -> Repairs:
    owner = source.parents.get(keyword)
    if isinstance(owner, ast.ClassDef) and owner.body:
        line = owner.lineno
        text = source.lines[line - 1]
        kept = [unparsed(base) for base in owner.bases]
        kept += [f"{one.arg}={unparsed(one.value)}" for one in owner.keywords if one is not keyword and one.arg]
        margin = text[: len(text) - len(text.lstrip())]
        header = f"{margin}class {owner.name}({', '.join(kept)}):" if kept else f"{margin}class {owner.name}:"
        if text.rstrip().endswith(":") or ":" in text:
            rest = text[text.index(":", text.index(")") if ")" in text else 0) + 1 :]
            yield from unsafe("an ordinary class", Edit(Span(line, 0, line, len(text)), header + rest))
    elif isinstance(owner, ast.Call) and keyword.arg:
        start = source.span(keyword)
        new = keyword.arg.strip("_")
        yield from unsafe(
            "use an ordinary name",
            Edit(Span(start.line, start.column, start.line, start.column + len(keyword.arg)), new),
        )


# ── magics ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_NEEDLESS = frozenset(
    ("autoreload", "load_ext", "reload_ext", "cd", "pwd", "env", "set_env", "debug", "pdb", "matplotlib", "config")
)
_FS = 'with request_file_system(".") as fs:'


def magics(source: Source, diagnostic: Diagnostic) -> Repairs:
    node = source.at(diagnostic.span, ast.Call)
    statement = None if node is None else source.statement(node)
    if not isinstance(node, ast.Call) or statement is None or not source.is_alone(statement):
        return
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    texts = [literal(one) or "" for one in node.args] + ["", "", ""]
    if method == "run_line_magic" and texts[0] == "matplotlib":
        call = "get_ipython().run_line_magic('matplotlib', 'inline')"
        yield from safe(
            "figures are shown below the cell", Edit(source.whole_lines(statement), source.margin(statement) + call)
        )
    words = texts[0].split() if method in ("system", "getoutput") else [texts[0], *texts[1].split()]
    if not words:
        return  # a command that is computed
    if words[0] == "ls":
        folder = next((word for word in words[1:] if not word.startswith("-")), ".")
        yield from _through_files(source, node, statement, f'[entry.name for entry in fs.access("{folder}").children]')
    elif words[0] in ("cat", "head") and len(words) > 1:
        yield from _through_files(source, node, statement, f'fs.access("{words[-1]}").read()')
    elif words[0] == "writefile" and method == "run_cell_magic" and len(node.args) == 3:
        name, body = words[1] if len(words) > 1 else "", node.args[2]
        if name:
            yield from _through_files(source, node, statement, f'fs.access("{name}").write({unparsed(body)})')
    elif words[0] == "run" and len(words) == 2 and words[1].removesuffix(".py").isidentifier():
        line = f"{source.margin(statement)}from {words[1].removesuffix('.py')} import *"
        yield from unsafe(
            "import it: files beside the notebook are checked like cells", Edit(source.whole_lines(statement), line)
        )
    elif words[0] == "timeit" and method == "run_line_magic" and _is_expression(texts[1]):
        yield from unsafe("run it", source.replace(node, f"({texts[1]})"))
    elif words[0] == "prun" or (words[0] == "timeit" and method == "run_cell_magic"):
        code = texts[1]
        if _is_expression(code):
            yield from unsafe("run it", source.replace(node, f"({code})"))


def _through_files(source: Source, node: ast.Call, statement: ast.stmt, text: str) -> Repairs:
    inner = (source.replace(node, text),)
    edits = source.wrap(statement, _FS, inner)
    if edits is not None:
        yield from unsafe("go through a file capability", *edits)


__all__ = ["magics", "repairs", "substituted"]
