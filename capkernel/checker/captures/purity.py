"""Rule P: a function given to `Classified.map` or `flat_map` is pure.

The rule is about reach, not about calls. Inside a pure function every value comes from the argument, from captured
plain data, from what the function made itself, or from a library name that the tables call pure; nothing among these
has authority, so calling a method or a parameter of them has no effect. It is enough that

Rule 1: every name and module member it mentions, in whatever position, is pure, a pure session function or class, plain
data, or a Classified handle; and the same holds for every session function and class that it reaches.
Rule 2: it names no method that the tables call impure, and stores into nothing that it did not make or get.
Rule 3: special methods of a reached class are called by syntax and by libraries, so all of them must be pure; ordinary
methods must be when their name is used anywhere in reach.

What is captured is taken by value at the call. The verdict is for the definitions as they are at that moment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from mypy.nodes import TypeInfo
from mypy.types import Type

from capkernel.checker.captures.known import FUNCTIONS, Class, Context, Data, Entry, Function, Imported, View, is_module
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.scopes import FunctionNode, Scope, parameters_of
from capkernel.checker.captures.types import (
    API,
    CLASSIFIED,
    Types,
    instances,
    is_callable,
    is_classified,
    session_classes,
    shown,
)
from capkernel.checker.tables import pure
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
_MUTATING_FUNCTIONS = frozenset(
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
    )
)
# Of the API, what a pure function may name.
_PURE_API = frozenset(("classify", "dotenv", "json_field", "Classified"))


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


class Purity:
    """Judges functions against one view of the session."""

    def __init__(self, view: View, types: Types, classes: dict[str, Class]) -> None:
        self._view = view
        self._types = types
        self._classes = classes
        self._mutated: dict[ast.AST, set[str]] = {}

    def judge(self, function: Function) -> Reach:
        """Everything `function` reaches. It is pure when there are no violations."""
        reach = Reach()
        self._function(function, reach, "")
        self._settle(reach)
        return reach

    def _settle(self, reach: Reach) -> None:
        # Methods become reachable when a class does or when a name is used; go on until nothing is new.
        judged: set[ast.AST] = set()
        changed = True
        while changed:
            changed = False
            for definition in list(reach.classes.values()):
                for method in definition.methods():
                    if method.node in judged or not _may_be_called(method, reach.attributes):
                        continue
                    judged.add(method.node)
                    changed = True
                    free = reach.functions[definition.node][1]
                    _Body(self, method, reach, f"{definition.node.name}.{method.name}", free).walk()

    # ── what a body asks for ─────────────────────────────────────────────────────────────────────────────────────────

    def _function(self, function: Function, reach: Reach, via: str) -> None:
        if function.node in reach.functions:
            return
        free: dict[str, FreeName] = {}
        reach.functions[function.node] = (function, free)
        body = _Body(self, function, reach, via, free)
        body.check_shape()
        body.walk()

    def reach_function(self, function: Function, reach: Reach) -> None:
        self._function(function, reach, function.name)

    def reach_class(self, definition: Class, reach: Reach) -> None:
        if definition.node in reach.functions:
            return
        free: dict[str, FreeName] = {}
        reach.functions[definition.node] = (definition, free)
        if definition.info is not None:
            reach.classes[definition.info] = definition
        _ClassBody(self, definition, reach, free).walk()

    def class_of(self, info: TypeInfo) -> Class | None:
        return self._classes.get(info.fullname)

    @property
    def view(self) -> View:
        return self._view

    @property
    def types(self) -> Types:
        return self._types

    def mutated_parameters(self, function: Function) -> set[str]:
        """Names of the parameters that the body stores into."""
        known = self._mutated.get(function.node)
        if known is None:
            self._mutated[function.node] = known = set()
            for node in ast.walk(function.node):
                root = _stored_root(node)
                if root is not None and function.context.scopes.owner(root) is function.scope:
                    known.add(root.id)
            known &= {argument.arg for argument in parameters_of(function.node)}
        return known


class _Walk:
    """Judges the names, attributes and stores of one piece of source."""

    def __init__(self, purity: Purity, context: Context, reach: Reach, via: str, free: dict[str, FreeName]) -> None:
        self.purity = purity
        self.context = context
        self.reach = reach
        self.via = via
        self.free = free
        self._targetless: set[ast.AST] = set()
        self._aliases: dict[str, str] = {}

    def is_own(self, scope: Scope | None) -> bool:
        raise NotImplementedError

    def refuse(self, node: ast.AST, message: str, name: str = "", typ: str = "", origin: str = "") -> None:
        self.reach.violations.append(Violation(node, self.context, message, name, typ, origin, self.via))

    def visit_all(self, nodes: list[ast.AST]) -> None:
        todo = list(nodes)
        while todo:
            node = todo.pop()
            self.visit(node)
            todo.extend(reversed(list(children(node))))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            self._expression_type(node)
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.Attribute):
            self._attribute(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            kind = "global" if isinstance(node, ast.Global) else "nonlocal"
            self.refuse(node, f"rebinds `{node.names[0]}` with `{kind}`", node.names[0])
        elif isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef)):
            self.refuse(node, "waits for something outside the vault")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        self._store(node)

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _name(self, node: ast.Name) -> None:
        owner = self.context.scopes.owner(node)
        if self.is_own(owner) or not isinstance(node.ctx, ast.Load):
            return
        if owner is not None and owner.kind != "module":
            self._enclosing(node, owner)
            return
        entry = self.purity.view.lookup(node.id)
        if entry is None:
            self._library(node)
        elif not entry.certain and isinstance(entry.known, (Function, Class)):
            self.refuse(node, f"uses `{node.id}`, which is bound in more than one way", node.id, "", _origin(entry))
        else:
            self._session(node, entry)

    def _enclosing(self, node: ast.Name, owner: Scope) -> None:
        """A name of the function around this one."""
        bindings = owner.bindings[node.id]
        if len(bindings) == 1 and isinstance(bindings[0].node, ast.FunctionDef):
            function = Function(bindings[0].node, self.context, node.id)
            self.free[node.id] = self.reach.pointer(node.id, function.node)
            self.purity.reach_function(function, self.reach)
        elif len(bindings) == 1 and bindings[0].path:
            self._path(node, bindings[0].path, node.id)
        else:
            self._data(
                node,
                self.context.type_of(node),
                f"cell {self.context.number}, line {getattr(bindings[0].node, 'lineno', 1)}",
            )

    def _session(self, node: ast.Name, entry: Entry) -> None:
        known = entry.known
        if isinstance(known, Function):
            self.free[node.id] = self.reach.pointer(node.id, known.node)
            self.purity.reach_function(known, self.reach)
        elif isinstance(known, Class):
            self.free[node.id] = self.reach.pointer(node.id, known.node)
            self.purity.reach_class(known, self.reach)
        elif isinstance(known, Imported):
            self._path(node, known.path, node.id)
        else:
            seen = self.context.type_of(node)
            # A function of an earlier cell reads what the name is now; both must be plain.
            current = known.type if entry.cell != self.context.number and entry.cell > self.context.number else seen
            typ = current if not self.purity.types.is_plain(current) else seen
            self._data(node, typ, _origin(entry))

    def _data(self, node: ast.Name, typ: Type | None, origin: str) -> None:
        if is_classified(typ):
            self.free[node.id] = FreeName(node.id, "classified")
            return
        if not self.purity.types.is_plain(typ) or is_callable(typ):
            self.refuse(node, f"captures `{node.id}`, which is not plain data", node.id, shown(typ), origin)
            return
        for info in session_classes(typ):
            self._reach_info(node, info)
        self.free[node.id] = FreeName(node.id, "data")

    def _library(self, node: ast.Name) -> None:
        path = path_of(node, self.context, self.purity.view)
        if path.startswith(API):
            name = path.rpartition(".")[2]
            if name not in _PURE_API:
                self.refuse(node, f"uses `{node.id}`, which acts outside the vault", node.id, "", "the capability API")
            self.free[node.id] = FreeName(node.id, "api", name)
        elif path:
            self._path(node, path, node.id)
        else:
            self.refuse(node, f"uses `{node.id}`, which cannot be verified", node.id, shown(self.context.type_of(node)))

    def _path(self, node: ast.expr, path: str, name: str) -> None:
        """A module or library name. `name` is the free name it came through, "" for an attribute of a module."""
        table = pure()
        if table.is_module(path) or (name and _is_module_name(self.context, node)):
            # A module may be named when all of its members that are used are pure; each is judged where it stands.
            if name:
                self.free[name] = FreeName(name, "module", path)
            if not _is_member_base(node, self.context):
                self.refuse(node, f"uses the module `{path}` as a value", path)
        elif table.is_pure(path):
            if name:
                self.free[name] = FreeName(name, "table", path)
        else:
            effect = table.effect(path)
            what = f" (effect: {effect})" if effect else ""
            shown_path = path.removeprefix("builtins.")
            self.refuse(
                node,
                f"uses `{shown_path}`, which is not known to be pure{what}",
                effect or shown_path,
                "effect" if effect else "",
            )

    # ── attributes and calls ─────────────────────────────────────────────────────────────────────────────────────────

    def _attribute(self, node: ast.Attribute) -> None:
        path = path_of(node, self.context, self.purity.view)
        if path:
            self._path(node, path, "")
            return
        self.reach.attributes.add(node.attr)
        base = self.context.type_of(node.value)
        if self._is_api_value(base):
            owner = next(iter(instances(base))).name if base is not None else ""
            if not (owner == "Classified" and node.attr in ("map", "flat_map", "zip")):
                root = _first_name(node)
                name = owner if root is None else root.id
                self.refuse(node, f"uses `{owner}.{node.attr}`, which acts outside the vault", name, shown(base))
            return
        table = pure()
        if node.attr in table.impure_methods and node not in self._targetless and not self._is_safe(base):
            self.refuse(node, f"calls `.{node.attr}`, which is not known to be pure")

    def _is_api_value(self, typ: Type | None) -> bool:
        return typ is not None and any(info.fullname.startswith(API) for info in instances(typ))

    def _is_safe(self, typ: Type | None) -> bool:
        classes = [] if typ is None else list(instances(typ))
        safe = pure().safe_owners
        return bool(classes) and all(
            (info.fullname.startswith(safe) and info.fullname != "builtins.object")
            or info.module_name.startswith("cell_")
            for info in classes
        )

    def _call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in pure().text_without_target and _has_no_target(node):
            self._targetless.add(function)
        if isinstance(function, ast.Name) and function.id in ("getattr", "hasattr") and len(node.args) > 1:
            name = node.args[1]
            text = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
            if not text:
                self.refuse(node, "reads an attribute with a computed name")
            elif path_of(node.args[0], self.context, self.purity.view):
                self.refuse(node, f"reads `.{text}` of a library by name", text)
            elif text in pure().impure_methods:
                self.refuse(node, f"reads `.{text}`, which is not known to be pure")
            self.reach.attributes.add(text)
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                # operator.methodcaller("show") names a method too
                self.reach.attributes.update(argument.value.split("."))
        self._passed(node)

    def _passed(self, node: ast.Call) -> None:
        """A captured object that is handed to something that stores into it."""
        function = node.func
        path = path_of(function, self.context, self.purity.view)
        if path in _MUTATING_FUNCTIONS and node.args:
            self._refuse_store(node.args[0], node)
            return
        if not isinstance(function, ast.Name):
            return
        owner = self.context.scopes.owner(function)
        known: object = None
        if owner is None or owner.kind == "module":
            entry = self.purity.view.lookup(function.id)
            known = entry.known if entry is not None else None
        if isinstance(known, Function):
            mutated = self.purity.mutated_parameters(known)
            names = [argument.arg for argument in known.node.args.posonlyargs + known.node.args.args]
            for name, argument in zip(names, node.args, strict=False):
                if name in mutated:
                    self._refuse_store(argument, node)
            for keyword in node.keywords:
                if keyword.arg in mutated:
                    self._refuse_store(keyword.value, node)

    # ── stores ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _store(self, node: ast.AST) -> None:
        root = _stored_root(node)
        if root is not None:
            self._refuse_store(root, node)

    def _refuse_store(self, value: ast.expr, node: ast.AST) -> None:
        root = _root(value)
        if root is None:
            return
        owner = self.context.scopes.owner(root)
        name = root.id
        if self.is_own(owner):
            name = self._alias_of(root, owner)
            if not name:
                return
        self.refuse(node, f"writes to `{name}`, which it captures", name, shown(self.context.type_of(root)))

    def _alias_of(self, name: ast.Name, owner: Scope | None) -> str:
        """The captured name that a local one is another name for, or ""."""
        if owner is None:
            return ""
        for binding in owner.bindings.get(name.id, ()):
            root = None if binding.value is None else _root(binding.value)
            if root is None or root.id == name.id or self.is_own(self.context.scopes.owner(root)):
                continue
            if not path_of(root, self.context, self.purity.view):
                return root.id
        return ""

    # ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        table = pure()
        for alias in node.names:
            if isinstance(node, ast.Import):
                if not table.is_module(alias.name):
                    self.refuse(node, f"imports `{alias.name}`, which is not known to be pure", alias.name)
            elif not table.is_pure(f"{node.module}.{alias.name}") and not table.is_module(
                f"{node.module}.{alias.name}"
            ):
                self.refuse(node, f"imports `{node.module}.{alias.name}`, which is not known to be pure", alias.name)

    def _expression_type(self, node: ast.expr) -> None:
        typ = self.context.type_of(node)
        if typ is not None:
            for info in session_classes(typ):
                self._reach_info(node, info)

    def _reach_info(self, node: ast.AST, info: TypeInfo) -> None:
        for one in (info, *self.purity.types.overriders(info)):
            definition = self.purity.class_of(one)
            if definition is None:
                self.refuse(node, f"uses a value of `{one.name}`, whose class cannot be verified", one.name)
            else:
                self.purity.reach_class(definition, self.reach)


class _Body(_Walk):
    """The body of one function."""

    def __init__(self, purity: Purity, function: Function, reach: Reach, via: str, free: dict[str, FreeName]) -> None:
        super().__init__(purity, function.context, reach, via, free)
        self.function = function

    def is_own(self, scope: Scope | None) -> bool:
        return scope is not None and scope.is_within(self.function.scope)

    def check_shape(self) -> None:
        """What a shipped function may look like: nothing that was computed where it was defined."""
        node = self.function.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                self.refuse(decorator, "is decorated, so what runs is not what its source says", self.function.name)
            if isinstance(node, ast.AsyncFunctionDef):
                self.refuse(node, "waits for something outside the vault")
        defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
        for default in defaults:
            if not _is_literal(default):
                self.refuse(default, "has a default that is computed once and kept", self.function.name)

    def walk(self) -> None:
        node = self.function.node
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        self.visit_all(body)


class _ClassBody(_Walk):
    """The body of a class, but for its methods: fields, bases, decorators."""

    def __init__(self, purity: Purity, definition: Class, reach: Reach, free: dict[str, FreeName]) -> None:
        super().__init__(purity, definition.context, reach, definition.node.name, free)
        self.definition = definition

    def is_own(self, scope: Scope | None) -> bool:
        return scope is not None and scope.is_within(self.context.scopes.of[self.definition.node])

    def walk(self) -> None:
        node = self.definition.node
        if not isinstance(self.context.parents.get(node), ast.Module):
            self.refuse(
                node, f"uses the class `{node.name}`, which is not defined at the top level of a cell", node.name
            )
        outside: list[ast.AST] = [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]
        self.visit_all(outside)
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for decorator in statement.decorator_list:
                    if not _is_accessor(decorator):
                        self.visit_all([decorator])
                self.visit_all([*statement.args.defaults, *(d for d in statement.args.kw_defaults if d is not None)])
            else:
                self.visit_all([statement])


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that run: annotations do not."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "ctx"):
            continue
        if isinstance(value, ast.AST):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.AST))


def _root(node: ast.expr) -> ast.Name | None:
    """The name that an attribute, item or slice chain starts from."""
    current = node
    while isinstance(current, (ast.Attribute, ast.Subscript, ast.Starred)):
        current = current.value
    return current if isinstance(current, ast.Name) else None


def _first_name(node: ast.expr) -> ast.Name | None:
    """The name at the start of a chain of attributes, items and calls."""
    current = node
    while isinstance(current, (ast.Attribute, ast.Subscript, ast.Call)):
        current = current.func if isinstance(current, ast.Call) else current.value
    return current if isinstance(current, ast.Name) else None


def _stored_root(node: ast.AST) -> ast.Name | None:
    """The name whose object `node` stores into, when it does."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
        return _root(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr in MUTATING or any(keyword.arg == "inplace" for keyword in node.keywords):
        return _root(node.func.value)
    return None


def _may_be_called(method: Function, attributes: set[str]) -> bool:
    node = method.node
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    if method.name.startswith("__"):
        return True  # called by syntax, or under a mangled name
    # Anything but a plain method may run when an attribute is read, also through a format string.
    return bool(node.decorator_list) or method.name in attributes


def _is_accessor(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "getter", "deleter")


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_literal(node.operand)
    if isinstance(node, ast.Tuple):
        return all(_is_literal(item) for item in node.elts)
    return isinstance(node, ast.Constant)


def _has_no_target(node: ast.Call) -> bool:
    if node.args:
        return False
    return not any(keyword.arg in (None, "path_or_buf", "path", "buf", "path_or_buffer") for keyword in node.keywords)


def _is_module_name(context: Context, node: ast.expr) -> bool:
    resolved = context.resolve(node)
    return resolved is not None and is_module(resolved.symbol)


def _is_member_base(node: ast.expr, context: Context) -> bool:
    parent = context.parents.get(node)
    return isinstance(parent, ast.Attribute)


def _origin(entry: Entry) -> str:
    return f"cell {entry.cell}, line {entry.line}"


__all__ = ["CLASSIFIED", "FUNCTIONS", "Data", "FunctionNode", "Purity", "Reach", "Violation", "children"]
