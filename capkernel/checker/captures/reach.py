"""What a pure function reaches, what is wrong with it, and small questions about its syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from mypy.nodes import TypeInfo
from mypy.types import Type

from capkernel.checker.captures.known import Class, Context, Entry, Function, is_module
from capkernel.checker.captures.types import instances, is_session_module
from capkernel.wire.plan import FreeName

MUTATING = frozenset(
    (
        "append",
        "extend",
        "insert",
        "add",
        "update",
        "pop",
        "remove",
        "clear",
        "setdefault",
        "popitem",
        "discard",
        "sort",
        "reverse",
        "appendleft",
        "popleft",
        "extendleft",
        "rotate",
        "fill",
        "put",
        "resize",
        "itemset",
        "difference_update",
        "intersection_update",
        "symmetric_difference_update",
        "subtract",
        "move_to_end",
        "partition_inplace",
    )
)
CHANGED_IN_PLACE = frozenset(
    (
        "builtins.list",
        "builtins.dict",
        "builtins.set",
        "builtins.bytearray",
        "collections.deque",
        "collections.Counter",
        "numpy.ndarray",
    )
)
"""Types whose `x += y` changes the object that `x` names."""
MUTATING_FUNCTIONS = frozenset(
    (
        "heapq.heappush",
        "heapq.heappop",
        "heapq.heapify",
        "heapq.heapreplace",
        "heapq.heappushpop",
        "bisect.insort",
        "bisect.insort_left",
        "bisect.insort_right",
        "operator.setitem",
        "operator.delitem",
        "operator.iadd",
        "operator.iconcat",
        "operator.iand",
        "operator.imul",
        "operator.ior",
        "operator.isub",
        "operator.ixor",
        "builtins.next",
        "numpy.put",
        "numpy.copyto",
        "numpy.place",
        "numpy.putmask",
        "numpy.put_along_axis",
        "numpy.fill_diagonal",
    )
)
UNSENDABLE = "can be sent to the vault"  # how a refusal ends: `captures `p`, and no `Point` ...`
# Of the API, what a pure function may name.
PURE_API = frozenset(("classify", "dotenv", "json_field", "Classified"))


@dataclass(frozen=True)
class Violation:
    """Why a function is not pure: where, and what it captures or does."""

    node: ast.AST
    context: Context
    message: str
    name: str = ""  # what is captured
    type: str = ""
    origin: str = ""
    via: str = ""  # the session function it happens in, when it is not the one given to map
    help: str = ""  # where the usual one does not fit
    fix: str = ""  # code that shows what to write


@dataclass(eq=False)
class Reach:
    """Everything one pure function reaches, and what is wrong with it."""

    violations: list[Violation] = field(default_factory=list)
    functions: dict[ast.AST, tuple[Function | Class, dict[str, FreeName]]] = field(default_factory=dict)
    classes: dict[TypeInfo, Class] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    targets: dict[str, ast.AST] = field(
        default_factory=dict
    )  # what a FreeName of kind "function" points at, by its target

    def pointer(self, name: str, node: ast.AST) -> FreeName:
        """A free name that stands for a session function or class; its key is filled in when the plan is made."""
        target = str(len(self.targets))
        self.targets[target] = node
        return FreeName(name, "function", target)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that run: annotations do not."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "ctx"):
            continue
        if isinstance(value, ast.AST):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.AST))


def root_of(node: ast.expr) -> ast.Name | None:
    """The name that an attribute, item or slice chain starts from."""
    current = node
    while isinstance(current, (ast.Attribute, ast.Subscript, ast.Starred)):
        current = current.value
    return current if isinstance(current, ast.Name) else None


def first_name(node: ast.expr) -> ast.Name | None:
    """The name at the start of a chain of attributes, items and calls."""
    current = node
    while isinstance(current, (ast.Attribute, ast.Subscript, ast.Call)):
        current = current.func if isinstance(current, ast.Call) else current.value
    return current if isinstance(current, ast.Name) else None


def stored_root_of(node: ast.AST) -> ast.Name | None:
    """The name whose object `node` stores into, when it does."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        return root_of(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr in MUTATING or any(keyword.arg == "inplace" for keyword in node.keywords):
        return root_of(node.func.value)
    return None


# Methods that the language and libraries call by name on whatever they are given: `**x`, `json.dump(data, x)`.
_BY_LIBRARIES = frozenset(
    """
    keys items values get copy update append extend read readline readlines readinto read1 write writelines close flush
    seek tell send throw default encode iterencode decode utcoffset dst tzname fromutc isoformat hexdigest digest
    """.split()
)


def may_be_called(method: Function, attributes: set[str], definition: Class) -> bool:
    node = method.node
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    if method.name.startswith("__") or method.name in _BY_LIBRARIES:
        return True  # called by syntax, by a library, or under a mangled name
    if definition.info is not None and any(
        method.name in base.names for base in definition.info.mro[1:] if not is_session_module(base.module_name)
    ):
        return True  # it overrides a method that the library's own ones call
    # Anything but a plain method may run when an attribute is read, also through a format string.
    return bool(node.decorator_list) or method.name in attributes


def is_accessor(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "getter", "deleter")


def is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return is_literal(node.operand)
    if isinstance(node, ast.Tuple):
        return all(is_literal(item) for item in node.elts)
    return isinstance(node, ast.Constant)


def has_no_target(node: ast.Call) -> bool:
    if node.args:
        return False
    return not any(keyword.arg in (None, "path_or_buf", "path", "buf", "path_or_buffer") for keyword in node.keywords)


def count_of_inputs(typ: Type | None) -> int:
    """How many arguments a numpy ufunc reads: it writes into those that follow. Without end for anything else."""
    found = None if typ is None else next(instances(typ), None)
    digits = "" if found is None else found.name.partition("_UFunc_Nin")[2][:1]
    return int(digits) if digits else 10_000


def is_named(node: ast.expr, name: str) -> bool:
    """Whether `node` is this name, or an attribute of this name."""
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)


def is_plain_text_call(node: ast.Call, method: str) -> bool:
    """`df.query("a > 1")` without an outer name, and `df.sample(random_state=1)`: these compute with the frame."""
    if method == "sample":
        return any(keyword.arg == "random_state" and is_literal(keyword.value) for keyword in node.keywords)
    if method not in ("query", "eval") or not node.args:
        return False
    text = node.args[0]
    return isinstance(text, ast.Constant) and isinstance(text.value, str) and "@" not in text.value


def is_module_name(context: Context, node: ast.expr) -> bool:
    resolved = context.resolve(node)
    return resolved is not None and is_module(resolved.symbol)


def is_member_base(node: ast.expr, context: Context) -> bool:
    parent = context.parents.get(node)
    return isinstance(parent, ast.Attribute)


def origin_of(entry: Entry) -> str:
    return f"cell {entry.cell}, line {entry.line}"
