"""Repairs of names: a missing import, a close name, a name of the API that was taken, an annotation that is wrong."""

from __future__ import annotations

import ast
import builtins
import difflib
import re
from collections.abc import Iterable

from capkernel.checker.repairs.source import Repairs, Source, safe, unparsed, unsafe
from capkernel.diagnostics.model import Diagnostic, Edit, Span

# What people mean by a short name.
_MODULES = {
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    "sns": "seaborn",
    "dt": "datetime",
    "mpl": "matplotlib",
}
_PLAIN = frozenset(
    "math json re random itertools functools collections datetime statistics string textwrap io csv time sys operator "
    "typing dataclasses enum decimal fractions bisect heapq copy pprint hashlib base64 uuid calendar logging threading "
    "asyncio contextlib warnings unicodedata difflib zlib struct numbers cmath secrets abc types numpy pandas scipy "
    "os".split()
)
_MEMBERS = {
    name: module
    for module, members in {
        "collections": "Counter defaultdict namedtuple deque OrderedDict ChainMap",
        "dataclasses": "dataclass field asdict replace",
        "functools": "partial reduce lru_cache wraps cached_property total_ordering cmp_to_key",
        "itertools": "chain product permutations combinations groupby islice accumulate count cycle repeat pairwise",
        "math": "sqrt pi sin cos tan log log2 log10 floor ceil factorial gcd inf nan isclose prod comb exp",
        "typing": "Any Optional Union List Dict Tuple Set Callable Iterable Iterator TypedDict NamedTuple TypeVar",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "datetime": "datetime timedelta date timezone",
        "enum": "Enum IntEnum StrEnum Flag auto",
        "copy": "deepcopy",
        "pprint": "pprint",
        "pathlib": "PurePath PurePosixPath",
        "io": "StringIO BytesIO",
        "contextlib": "contextmanager suppress ExitStack",
        "abc": "ABC abstractmethod",
        "statistics": "mean median stdev",
        "operator": "itemgetter attrgetter",
        "textwrap": "dedent",
        "concurrent.futures": "ThreadPoolExecutor",
        "IPython.display": "Markdown HTML",
    }.items()
    for name in members.split()
}
_CLOSE = 0.79
_NEVER_MEANT = frozenset("open eval exec compile globals locals vars setattr delattr exit quit breakpoint help".split())


def closest(name: str, known: Iterable[str]) -> str:
    """The known name that `name` may be a slip of, "" when there is none."""
    candidates = [one for one in known if one != name and not one.startswith("_") and one not in _NEVER_MEANT]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=_CLOSE)
    if near:
        return near[0]
    folded = {one.lower().replace("_", ""): one for one in candidates}
    return folded.get(name.lower().replace("_", ""), "")


def unbound(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Bring the name in, or read the one that was meant."""
    found = re.match(r"(?:Name )?`([^`]+)`", diagnostic.message)
    if not found or source.module is None:
        return
    name = found[1]
    if "is deleted before" in diagnostic.message:
        yield from _move_del(source, name)
        return
    if "read before the cell binds it" in diagnostic.message:
        yield from _move_binding(source, name, diagnostic)
    if name in _MODULES:
        yield from safe(
            f"import it: `{name}` is what everybody calls `{_MODULES[name]}`",
            source.import_edit(f"import {_MODULES[name]} as {name}"),
        )
    near = closest(name, known_names(source))
    if near and len(name) > 2:
        yield from unsafe(f"read `{near}`", *_renamed(source, name, near))
    if name in _PLAIN and _is_base(source, name):
        yield from safe("import it", source.import_edit(f"import {name}"))
    if name in _MEMBERS:
        yield from safe("import it", source.import_edit(f"from {_MEMBERS[name]} import {name}"))
    if name in _PLAIN:
        yield from safe("import it", source.import_edit(f"import {name}"))
    if name in ("true", "false", "null", "none", "undefined"):
        right = {"true": "True", "false": "False"}.get(name, "None")
        yield from safe(f"Python says `{right}`", *_renamed(source, name, right))
    if name == "self" or not near:
        yield from _quoted(source, diagnostic, name)


def known_names(source: Source) -> set[str]:
    from capkernel import api

    bound = (
        {node.id for node in ast.walk(source.module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        if source.module
        else set()
    )
    if source.module:
        bound |= {
            n.name
            for n in ast.walk(source.module)
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        bound |= {
            (a.asname or a.name).split(".")[0]
            for n in ast.walk(source.module)
            if isinstance(n, (ast.Import, ast.ImportFrom))
            for a in n.names
        }
        bound |= {n.arg for n in ast.walk(source.module) if isinstance(n, ast.arg)}
    return set(source.names) | bound | set(api.__all__) | {one for one in dir(builtins) if not one.startswith("_")}


def _is_base(source: Source, name: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
        for node in ast.walk(source.module or ast.Module([], []))
    )


def _renamed(source: Source, old: str, new: str) -> list[Edit]:
    return [
        source.replace(node, new)
        for node in ast.walk(source.module or ast.Module([], []))
        if isinstance(node, ast.Name) and node.id == old
    ]


def _quoted(source: Source, diagnostic: Diagnostic, name: str) -> Repairs:
    # `data[name]`, `f(mode=fast)`: a word that was meant as a text.
    node = source.at(diagnostic.span, ast.Name)
    parent = None if node is None else source.parents.get(node)
    if node is not None and isinstance(parent, ast.Subscript) and parent.slice is node:
        yield from unsafe("quote the key", source.replace(node, f'"{name}"'))


def _move_del(source: Source, name: str) -> Repairs:
    assert source.module is not None
    for statement in ast.walk(source.module):
        if isinstance(statement, ast.Delete) and [unparsed(one) for one in statement.targets] == [name]:
            end = len(source.lines)
            tail = "" if source.lines[-1] == "" else "\n"
            if source.parents.get(statement) is source.module and statement is not source.module.body[-1]:
                yield from unsafe(
                    "delete it after its last use",
                    source.remove(statement),
                    Edit(Span(end, len(source.lines[-1]), end, len(source.lines[-1])), f"{tail}del {name}\n"),
                )
            yield from unsafe("keep it", source.remove(statement))


def _move_binding(source: Source, name: str, diagnostic: Diagnostic) -> Repairs:
    assert source.module is not None
    reader = source.at(diagnostic.span)
    while reader is not None and source.parents.get(reader) is not source.module:
        reader = source.parents.get(reader)
    for statement in source.module.body:
        binds = any(
            (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name)
            or (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name)
            or (isinstance(node, ast.alias) and (node.asname or node.name) == name)
            for node in ast.walk(statement)
        )
        if binds and statement is not reader and isinstance(reader, ast.stmt) and source.is_alone(statement):
            lines = source.text_of(source.whole_lines(statement))
            start = source.first_line(reader)
            if statement.lineno > start:
                yield from unsafe(
                    "bind it first", Edit(Span(start, 0, start, 0), "\n".join(lines) + "\n"), source.remove(statement)
                )
            return


def attribute(source: Source, diagnostic: Diagnostic) -> Repairs:
    """The attribute that was meant, when the type checker knows a close one."""
    found = re.search(r"has no attribute `(\w+)`; maybe `(\w+)`", diagnostic.message)
    if not found:
        return
    node = source.at(diagnostic.span, ast.Attribute, ast.ImportFrom)
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name == found[1]:
                text = f"{found[2]} as {alias.asname or found[1]}" if alias.asname else found[2]
                yield from unsafe(
                    f"import `{found[2]}`", source.replace(alias, text), *_renamed(source, found[1], found[2])
                )
    if isinstance(node, ast.Attribute) and node.attr == found[1]:
        end = source.span(node)
        yield from unsafe(
            f"read `.{found[2]}`",
            Edit(Span(end.end_line, end.end_column - len(node.attr), end.end_line, end.end_column), found[2]),
        )


def call_argument(source: Source, diagnostic: Diagnostic) -> Repairs:
    """The keyword that was meant; without the arguments that are too many."""
    call = source.at(diagnostic.span, ast.Call)
    if not isinstance(call, ast.Call):
        return
    found = re.search(r"Unexpected keyword argument `(\w+)`", diagnostic.message)
    near = re.search(r"[Dd]id you mean `(\w+)`", diagnostic.message)
    for keyword in call.keywords:
        if found and keyword.arg is not None and keyword.arg == found[1]:
            if near:
                start = source.span(keyword)
                yield from unsafe(
                    f"say `{near[1]}=`",
                    Edit(Span(start.line, start.column, start.line, start.column + len(keyword.arg)), near[1]),
                )
            yield from unsafe(f"leave out `{keyword.arg}=`", source.replace(call, _call_without(call, keyword)))
    if diagnostic.message.startswith("Too many"):
        for count in range(len(call.args) - 1, -1, -1):
            shorter = ast.Call(call.func, call.args[:count], call.keywords)
            yield from unsafe("leave out what the function does not take", source.replace(call, unparsed(shorter)))


def _call_without(call: ast.Call, keyword: ast.keyword) -> str:
    return unparsed(ast.Call(call.func, call.args, [one for one in call.keywords if one is not keyword]))


def annotation(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Annotate the name with what it is given."""
    found = re.search(r"expression has type `([^`]+)`, variable has type `([^`]+)`", diagnostic.message)
    node = source.at(diagnostic.span)
    statement = None if node is None else source.statement(node)
    if not found or statement is None:
        return
    if isinstance(statement, ast.AnnAssign):
        said = f"{source.segment(statement.annotation)} | None" if found[1] == "None" else found[1]
        yield from unsafe("annotate it with what it is given", source.replace(statement.annotation, said))
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(target, ast.Name):
        for other in ast.walk(source.module or ast.Module([], [])):
            if isinstance(other, ast.AnnAssign) and isinstance(other.target, ast.Name) and other.target.id == target.id:
                yield from unsafe(
                    "let the name hold both", source.replace(other.annotation, f"{found[2]} | {found[1]}")
                )


def returns_none(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Annotate a function without results; arguments of unknown type are `object`."""
    node = source.at(diagnostic.span, ast.FunctionDef, ast.AsyncFunctionDef)
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    returned = [one for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
    line = source.lines[node.lineno - 1]
    header = re.match(r"(.*\))(\s*:.*)$", line)
    if header and not returned and node.returns is None:
        yield from safe(
            "it returns nothing", Edit(Span(node.lineno, len(header[1]), node.lineno, len(header[1])), " -> None")
        )


def redefined(source: Source, diagnostic: Diagnostic) -> Repairs:
    """Call it something else, everywhere in the cell."""
    found = re.match(r"`([^`]+)`", diagnostic.message)
    if not found or source.module is None:
        return
    name = found[1]
    new = source.fresh(f"{name}_", f"my_{name}")
    node = source.at(diagnostic.span)
    statement = None if node is None else source.statement(node)
    if isinstance(statement, ast.Delete):
        yield from safe("keep it: it is part of every session", source.remove(statement))
    edits: list[Edit] = []
    for one in ast.walk(source.module):
        if isinstance(one, ast.Name) and one.id == name:
            edits.append(source.replace(one, new))
        elif isinstance(one, ast.alias) and (one.asname or one.name) == name:
            edits.append(source.replace(one, f"{one.name} as {new}"))
        else:
            edits += _renamed_in(source, one, name, new)
    yield from safe(f"call it `{new}`", *edits)
    first = [edit for edit in edits if edit.span.line >= diagnostic.span.line]
    if first != edits:
        yield from safe(f"call it `{new}`", *first)


def _renamed_in(source: Source, node: ast.AST, name: str, new: str) -> list[Edit]:
    """Names that stand in the text of a node, not as a node of their own."""
    holds = (
        (isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name)
        or (isinstance(node, ast.arg) and node.arg == name)
        or (isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names)
        or (isinstance(node, ast.ExceptHandler) and node.name == name)
        or (isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name == name)
        or (isinstance(node, ast.MatchMapping) and node.rest == name)
        or getattr(node, "name", None) == name
    )
    if not holds:
        return []
    line = node.lineno  # type: ignore[attr-defined]
    start = source.span(node).column
    text = source.lines[line - 1]
    for found in re.finditer(rf"\b{re.escape(name)}\b", text):
        if found.start() >= start:
            return [Edit(Span(line, found.start(), line, found.end()), new)]
    return []


def mangled(source: Source, diagnostic: Diagnostic) -> Repairs:
    """One underscore less: inside a class two of them make another name."""
    found = re.match(r"`(__\w+)` inside a class", diagnostic.message)
    if found:
        new = source.fresh(found[1][1:], found[1].lstrip("_"))
        yield from unsafe(f"call it `{new}`", *_renamed(source, found[1], new))
