"""Repairs of files opened without asking: the same read or write through a `request_file_system` block.

The statement goes into a block of its own, and the call in it becomes one on `fs`. Text that a library wants as a file
is handed on in memory.
"""

from __future__ import annotations

import ast
import re

from capkernel.checker.repairs import file_secrets
from capkernel.checker.repairs.file_secrets import after_it, is_always_secret
from capkernel.checker.repairs.source import Repairs, Source, dotted, literal, unparsed, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

_WORDS = "go through a file capability"
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LIKE_A_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH", re.IGNORECASE)
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Assert, ast.Raise)
_READ_METHODS = {"read": "read()", "read_text": "read()", "readlines": "read_lines()", "read_bytes": "read_bytes()"}
_BINARY = frozenset(
    ("read_parquet", "read_excel", "read_feather", "read_orc", "read_stata", "read_sas", "imread", "open", "Image")
)
_TEXT_WRITERS = frozenset(("to_csv", "to_json", "to_html", "to_latex", "to_markdown", "to_xml", "to_string"))


def repairs(source: Source, diagnostic: Diagnostic) -> Repairs:
    found = source.at(diagnostic.span, ast.expr)
    if isinstance(found, ast.Call):  # a call at this place whose function is meant
        found = source.at(diagnostic.span, ast.Attribute, ast.Name) or found
    if not isinstance(found, ast.expr):
        return
    node: ast.expr = found
    yield from _path_argument(source, node)
    name = dotted(node)
    call = source.parents.get(node)
    if isinstance(call, ast.Call) and call.func is node:
        yield from _without_pickles(source, call)
    if isinstance(call, ast.Call) and call.func is node:
        yield from _opened(source, call, name)
        yield from _path_object(source, call, name)
        yield from _os_call(source, call, name)
    yield from _environment(source, node, name)
    yield from _typed_secret(source, node, name)


def _without_pickles(source: Source, call: ast.Call) -> Repairs:
    """Arrays of numbers need no pickles."""
    kept = [one for one in call.keywords if one.arg != "allow_pickle"]
    if len(kept) < len(call.keywords):
        text = unparsed(ast.Call(call.func, call.args, kept))
        yield from unsafe("read plain arrays: a pickle is a program", source.replace(call, text))


def _place(path: ast.expr | None) -> tuple[str, str]:
    """The root to ask for and the path below it, both as code."""
    text = literal(path)
    if text is None or not text:
        return '"."', "." if path is None else unparsed(path)
    folder, slash, name = text.rpartition("/")
    if not slash:
        return '"."', unparsed(ast.Constant(text))
    return '"' + (folder or "/") + '"', f'"{name}"'


def _header(root: str) -> str:
    return f"with request_file_system({root}) as fs:"


def _in_block(source: Source, expression: ast.AST, text: str, root: str, *imports: str) -> Repairs:
    statement = source.statement(expression)
    if not isinstance(statement, _SIMPLE):
        yield from _before(source, expression, text, root, *imports)
        return
    edits = source.wrap(statement, _header(root), (source.replace(expression, text),))
    if edits is not None:
        yield from unsafe(_WORDS, *source.with_imports(edits, *imports))


def _before(source: Source, expression: ast.AST, text: str, root: str, *imports: str) -> Repairs:
    """Read before a statement with a body of its own, and use the result in it."""
    statement = source.statement(expression)
    if statement is None or isinstance(statement, (ast.With, ast.FunctionDef, ast.ClassDef)):
        return
    name = source.fresh("content", "found")
    edits = (source.insert_before(statement, _header(root), f"    {name} = {text}"), source.replace(expression, name))
    yield from unsafe(_WORDS, *source.with_imports(edits, *imports))


# ── open ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _opened(source: Source, call: ast.Call, name: str) -> Repairs:
    if name not in ("open", "io.open", "codecs.open", "os.open", "gzip.open") or not call.args:
        return
    root, path = _place(call.args[0])
    mode = (
        literal(call.args[1])
        if len(call.args) > 1
        else next((literal(k.value) for k in call.keywords if k.arg == "mode"), "r")
    )
    mode = mode or "r"
    entry = f"fs.access({path})"
    is_secret = is_always_secret(literal(call.args[0]))
    parent = source.parents.get(call)
    outer = source.parents.get(parent) if isinstance(parent, ast.Attribute) else None
    if isinstance(parent, ast.withitem):
        yield from (_with_secret if is_secret else _with_open)(source, parent, entry, root, mode)
        return
    if is_secret:
        return
    if isinstance(parent, ast.Attribute) and isinstance(outer, ast.Call):
        method = parent.attr
        arguments = ", ".join(source.segment(one) for one in outer.args)
        if method in _READ_METHODS:
            reading = "read_bytes()" if "b" in mode else _READ_METHODS[method]
            yield from _in_block(source, outer, f"{entry}.{reading}", root)
        elif method == "write":
            yield from _in_block(source, outer, f"{entry}.{_writing(mode)}({arguments})", root)
        return
    if isinstance(parent, ast.Call) and dotted(parent.func) == "json.load":
        yield from _in_block(source, parent, f"json.loads({entry}.read())", root)
    if isinstance(parent, ast.Call) and dotted(parent.func) == "json.dump" and len(parent.args) > 1:
        yield from _in_block(source, parent, f"{entry}.write(json.dumps({source.segment(parent.args[0])}))", root)
    if isinstance(parent, (ast.For, ast.comprehension)) or (
        isinstance(parent, ast.Call) and dotted(parent.func).startswith(("csv.", "list", "enumerate", "len"))
    ):
        yield from _in_block(source, call, f"{entry}.read_lines()", root)
    if "w" not in mode and "a" not in mode:
        wrapped = f"io.BytesIO({entry}.read_bytes())" if "b" in mode else f"io.StringIO({entry}.read())"
        yield from _in_block(source, call, wrapped, root, "import io")
    else:
        yield from _in_block(source, call, "io.BytesIO()" if "b" in mode else "io.StringIO()", root, "import io")


def _with_open(source: Source, item: ast.withitem, entry: str, root: str, mode: str) -> Repairs:
    block = source.parents.get(item)
    target = item.optional_vars
    if not isinstance(block, ast.With) or not isinstance(target, ast.Name) or len(block.items) != 1:
        return
    if not source.is_alone(block) or block.body[0].lineno == block.lineno:
        return
    span, margin = source.whole_lines(block), source.margin(block)
    start = source.first_line(block.body[0])
    body = source.text_of(Span(start, 0, span.end_line, 0))
    inner = source.margin(block.body[0])
    name = target.id
    uses = [
        node
        for statement in block.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name
    ]
    writes = any(letter in mode for letter in "wax+")
    if not writes:
        edits = [edit for use in uses if (edit := _read_use(source, use, entry, mode)) is not None]
        header = Edit(Span(block.lineno, 0, start, 0), f"{margin}{_header(root)}\n")
        if len(edits) == len(uses):
            yield from unsafe(_WORDS, header, *edits)
        made = f"io.BytesIO({entry}.read_bytes())" if "b" in mode else f"io.StringIO({entry}.read())"
        lines = [f"{margin}{_header(root)}", f"{inner}{name} = {made}", *body]
        yield from unsafe(_WORDS, *source.with_imports((Edit(span, "\n".join(lines)),), "import io"))
        return
    single = [
        source.parents.get(source.parents[use]) for use in uses if isinstance(source.parents.get(use), ast.Attribute)
    ]
    if (
        len(uses) == 1
        and isinstance(single[0] if single else None, ast.Call)
        and len(block.body) == 1
        and isinstance(block.body[0], ast.Expr)
    ):
        written = single[0]
        assert isinstance(written, ast.Call)
        arguments = ", ".join(source.segment(one) for one in written.args)
        text = f"{margin}{_header(root)}\n{inner}{entry}.{_writing(mode)}({arguments})"
        if dotted(written.func) == f"{name}.write":
            yield from unsafe(_WORDS, Edit(span, text))
    made = "io.BytesIO()" if "b" in mode else "io.StringIO()"
    ending = f"{inner}{entry}.{_writing(mode)}({name}.getvalue())"
    lines = [f"{margin}{_header(root)}", f"{inner}{name} = {made}", *body, ending]
    yield from unsafe(_WORDS, *source.with_imports((Edit(span, "\n".join(lines)),), "import io"))


def _with_secret(source: Source, item: ast.withitem, entry: str, root: str, mode: str) -> Repairs:
    """`with open(".env") as f:` and all that is done with `f`: it is read."""
    block, target = source.parents.get(item), item.optional_vars
    if not isinstance(block, ast.With) or not isinstance(target, ast.Name) or len(block.items) != 1 or mode != "r":
        return
    if not source.is_alone(block) or block.body[0].lineno == block.lineno:
        return
    inside = [node for statement in block.body for node in ast.walk(statement)]
    uses = [node for node in inside if isinstance(node, ast.Name) and node.id == target.id]
    edits = []
    for use in uses:
        parent = source.parents.get(use)
        call = source.parents.get(parent) if isinstance(parent, ast.Attribute) else parent
        if not isinstance(call, ast.Call) or call.keywords:
            return
        if isinstance(parent, ast.Attribute) and not call.args and parent.attr in ("read", "readlines"):
            whole, rest = after_it(source, call)
            more = ".map(str.splitlines)" if parent.attr == "readlines" else ""
            more += f".map(lambda text: text{rest})" if rest else ""
            edits.append(source.replace(whole, f"{entry}.read_classified(){more}"))
        elif call.args == [use] and dotted(call.func) == "json.load":
            edits.append(source.replace(call, f"{entry}.read_classified().map(json.loads)"))
        else:
            return
    header = Edit(
        Span(block.lineno, 0, source.first_line(block.body[0]), 0), f"{source.margin(block)}{_header(root)}\n"
    )
    yield from unsafe(file_secrets.WORDS, header, *edits)


def _writing(mode: str) -> str:
    return "append" if "a" in mode else "write_bytes" if "b" in mode else "write"


def _read_use(source: Source, use: ast.Name, entry: str, mode: str) -> Edit | None:
    parent = source.parents.get(use)
    call = source.parents.get(parent) if isinstance(parent, ast.Attribute) else None
    if (
        isinstance(parent, ast.Attribute)
        and isinstance(call, ast.Call)
        and not call.args
        and parent.attr in ("read", "readlines")
    ):
        reading = "read_bytes()" if "b" in mode else _READ_METHODS[parent.attr]
        return source.replace(call, f"{entry}.{reading}")
    if isinstance(parent, (ast.For, ast.comprehension)):
        return source.replace(use, f"{entry}.read_lines()")
    if isinstance(parent, ast.Call) and dotted(parent.func) == "json.load":
        return source.replace(parent, f"json.loads({entry}.read())")
    if isinstance(parent, ast.Call) and dotted(parent.func).startswith("csv."):
        return source.replace(use, f"{entry}.read_lines()")
    return None


# ── pathlib, os ──────────────────────────────────────────────────────────────────────────────────────────────────────

_OF_A_PATH = {
    "read_text": "read()", "read_bytes": "read_bytes()", "exists": "exists", "is_dir": "is_directory",
    "mkdir": "mkdir()", "iterdir": "children", "write_text": "write({})", "write_bytes": "write_bytes({})",
    "touch": 'write("")', "is_file": "exists",
}  # fmt: skip


def _path_object(source: Source, call: ast.Call, name: str) -> Repairs:
    if name not in ("Path", "pathlib.Path", "PosixPath", "pathlib.PosixPath"):
        return
    method = source.parents.get(call)
    outer = source.parents.get(method) if isinstance(method, ast.Attribute) else None
    if (
        isinstance(method, ast.Attribute)
        and isinstance(outer, ast.Call)
        and method.attr in _OF_A_PATH
        and len(call.args) == 1
    ):
        if method.attr.startswith(("read_", "write_")) and is_always_secret(literal(call.args[0])):
            return
        root, path = _place(call.args[0])
        arguments = ", ".join(source.segment(one) for one in outer.args)
        yield from _in_block(source, outer, f"fs.access({path})." + _OF_A_PATH[method.attr].format(arguments), root)
    else:
        pure = name.replace("PosixPath", "PurePosixPath") if "Posix" in name else name.replace("Path", "PurePath")
        yield from unsafe("a path that is only a name", source.replace(call.func, pure))


_OF_OS = {
    "os.path.exists": "fs.access({}).exists", "os.path.isfile": "fs.access({}).exists",
    "os.path.isdir": "fs.access({}).is_directory",
    "os.path.getsize": "fs.access({}).size", "os.listdir": "[entry.name for entry in fs.access({}).children]",
    "os.scandir": "fs.access({}).children", "os.makedirs": "fs.access({}).mkdir()", "os.mkdir": "fs.access({}).mkdir()",
    "os.stat": "fs.access({}).size",
}  # fmt: skip


def _os_call(source: Source, call: ast.Call, name: str) -> Repairs:
    short = name if name.startswith("os.") else f"os.path.{name}" if f"os.path.{name}" in _OF_OS else f"os.{name}"
    if short in _OF_OS:
        path = call.args[0] if call.args else ast.Constant(".")
        yield from _in_block(source, call, _OF_OS[short].format(unparsed(path)), '"."')
    if short in ("os.getcwd", "os.path.abspath", "os.path.realpath", "os.path.expanduser"):
        text = source.segment(call.args[0]) if call.args else '"."'
        yield from unsafe("paths are relative to the root that is asked for", source.replace(call, text))


def _environment(source: Source, node: ast.expr, name: str) -> Repairs:
    if not name.endswith(("environ", "getenv")):
        return
    outer: ast.AST = node
    parent = source.parents.get(outer)
    key = None
    if isinstance(parent, ast.Subscript):
        outer, key = parent, literal(parent.slice)
    elif isinstance(parent, ast.Call):
        outer, key = parent, literal(parent.args[0]) if parent.args else None
    elif isinstance(parent, ast.Attribute) and isinstance(source.parents.get(parent), ast.Call):
        outer = source.parents[parent]
        assert isinstance(outer, ast.Call)
        key = literal(outer.args[0]) if outer.args else None
    statement = source.statement(outer)
    if not isinstance(statement, _SIMPLE) or (isinstance(outer, ast.Subscript) and not isinstance(outer.ctx, ast.Load)):
        return
    if key is not None and _SECRET_NAME.fullmatch(key) and _LIKE_A_SECRET.search(key):
        yield from unsafe("ask for the secret", source.replace(outer, f'request_secret("{key}")'))
    text = 'fs.read_classified(".env")'
    if key is not None:
        text += f'.map(lambda text: text.split("{key}=")[1].splitlines()[0])'
    edits = source.wrap(statement, _header('"."'), (source.replace(outer, text),))
    if edits is not None:
        yield from unsafe("read it as a secret out of a file", *edits)


def _typed_secret(source: Source, node: ast.expr, name: str) -> Repairs:
    """A password that would be typed in the page: under the name that it is given."""
    call = source.parents.get(node)
    if name.rpartition(".")[2] not in ("getpass", "unix_getpass") or not isinstance(call, ast.Call):
        return
    statement = source.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    wanted = target.id.upper() if isinstance(target, ast.Name) else "PASSWORD"
    if _SECRET_NAME.fullmatch(wanted):
        yield from unsafe("ask for the secret", source.replace(call, f'request_secret("{wanted}")'))


# ── libraries that take a path ───────────────────────────────────────────────────────────────────────────────────────


def _path_argument(source: Source, node: ast.expr) -> Repairs:
    call = source.parents.get(node)
    call = source.parents.get(call) if isinstance(call, ast.keyword) else call
    if not isinstance(call, ast.Call) or call.func is node:
        return
    method = dotted(call.func).rpartition(".")[2] or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
    if "://" in (literal(node) or ""):
        return  # it is on the network
    if is_always_secret(literal(node)):
        return
    root, path = _place(node)
    yield from _open_file(source, node, method, root, path)
    if method in _TEXT_WRITERS and isinstance(call.func, ast.Attribute):
        rest = [source.segment(one) for one in call.args if one is not node]
        rest += [f"{k.arg}={source.segment(k.value)}" for k in call.keywords if k.arg and k.value is not node]
        text = f"fs.access({path}).write({source.segment(call.func)}({', '.join(rest)}))"
        yield from _in_block(source, call, text, root)
    elif method.startswith(("to_", "save", "imsave", "tofile")):
        statement = source.statement(call)
        if isinstance(statement, ast.Expr):
            made = source.fresh("made", "buffer")
            method_call = source.replace(node, made)
            if method == "tofile" and isinstance(call.func, ast.Attribute):
                text = f"fs.access({path}).write_bytes({source.segment(call.func.value)}.tobytes())"
                yield from _in_block(source, call, text, root)
            edits = source.wrap(
                statement,
                _header(root),
                (method_call,),
                (f"{made} = io.BytesIO()",),
                (f"fs.access({path}).write_bytes({made}.getvalue())",),
            )
            if edits is not None:
                yield from unsafe(_WORDS, *source.with_imports(edits, "import io"))
    else:
        content = (
            f"io.BytesIO(fs.access({path}).read_bytes())"
            if method in _BINARY
            else f"io.StringIO(fs.access({path}).read())"
        )
        yield from _in_block(source, node, content, root, "import io")
        yield from _in_block(source, node, f"io.BytesIO(fs.access({path}).read_bytes())", root, "import io")


def _open_file(source: Source, node: ast.expr, method: str, root: str, path: str) -> Repairs:
    """The library gets a file that is open for the time of the statement."""
    statement = source.statement(node)
    if not isinstance(statement, _SIMPLE):
        return
    writes = method.startswith(("to_", "save", "imsave", "tofile"))
    text = method in _TEXT_WRITERS or (not writes and method not in _BINARY)
    mode = ("" if text else '"rb"') if not writes else '"w"' if text else '"wb"'
    name = source.fresh("f", "file")
    header = f"with request_file_system({root}) as fs, fs.access({path}).open({mode}) as {name}:"
    edits = source.wrap(statement, header, (source.replace(node, name),))
    if edits is not None:
        yield from unsafe(_WORDS, *edits)
