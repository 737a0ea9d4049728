"""The walk over one piece of source that Rule P makes: its names, attributes, calls and stores (see `purity`)."""

from __future__ import annotations

import ast
from typing import Protocol

from mypy.nodes import TypeInfo
from mypy.types import Type

from capkernel.checker.captures.asks import KINDS as ASKS_PERSON
from capkernel.checker.captures.described import described
from capkernel.checker.captures.instead import in_its_place, its_parts, without_decorator
from capkernel.checker.captures.known import Class, Context, Entry, Function, Imported, Made, View
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.reach import (
    CHANGED_IN_PLACE,
    MUTATING,
    MUTATING_FUNCTIONS,
    PURE_API,
    UNSENDABLE,
    Reach,
    Violation,
    children,
    count_of_inputs,
    first_name,
    has_no_target,
    is_accessor,
    is_literal,
    is_member_base,
    is_module_name,
    is_named,
    is_plain_text_call,
    origin_of,
    root_of,
    stored_root_of,
)
from capkernel.checker.captures.scopes import Scope
from capkernel.checker.captures.types import (
    API,
    Types,
    instances,
    is_callable,
    is_classified,
    session_classes,
    shown,
    unsendable,
)
from capkernel.checker.tables import pure
from capkernel.wire.plan import FreeName
from capkernel.wire.types import union


class Judge(Protocol):
    """What a body asks for while it is judged (`purity`)."""

    @property
    def view(self) -> View: ...

    @property
    def types(self) -> Types: ...

    def reach_function(self, function: Function, reach: Reach) -> None:
        """The function is judged as well."""

    def reach_class(self, definition: Class, reach: Reach) -> None:
        """The class is judged as well."""

    def class_of(self, info: TypeInfo) -> Class | None:
        """The definition of a class of the session."""

    def mutated_parameters(self, function: Function) -> set[str]:
        """Names of the parameters that the body stores into."""


_MOST_HOPS = 8  # from one local name to the next


class Walk:
    """Judges the names, attributes and stores of one piece of source."""

    def __init__(self, purity: Judge, context: Context, reach: Reach, via: str, free: dict[str, FreeName]) -> None:
        self.purity = purity
        self.context = context
        self.reach = reach
        self.via = via
        self.free = free
        self._targetless: set[ast.AST] = set()
        self._aliases: dict[str, str] = {}

    def is_own(self, scope: Scope | None) -> bool:
        raise NotImplementedError

    def refuse(
        self,
        node: ast.AST,
        message: str,
        name: str = "",
        typ: str = "",
        origin: str = "",
        teaches: tuple[str, str] = ("", ""),
    ) -> None:
        """`teaches`: what to do instead, in words and as code."""
        self.reach.violations.append(Violation(node, self.context, message, name, typ, origin, self.via, *teaches))

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
        elif isinstance(node, ast.Nonlocal) and all(self._is_bound_inside(node, name) for name in node.names):
            pass  # a variable of a call that is going on
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            kind = "global" if isinstance(node, ast.Global) else "nonlocal"
            self.refuse(node, f"rebinds `{node.names[0]}` with `{kind}`", node.names[0])
        elif isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.AsyncFunctionDef)):
            self.refuse(node, "waits for something outside the vault")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        self._store(node)

    def _is_bound_inside(self, node: ast.AST, name: str) -> bool:
        """Whether `nonlocal name` means a variable of a function that stands inside of what is judged."""
        around: ast.AST | None = node
        while around is not None and around not in self.context.scopes.of:
            around = self.context.parents.get(around)
        scope = None if around is None else self.context.scopes.of[around].owner(name)
        return scope is not None and self.is_own(scope)

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
        elif not entry.certain and (entry.others or isinstance(entry.known, (Function, Class))):
            self.refuse(node, f"uses `{node.id}`, which is bound in more than one way", node.id, "", origin_of(entry))
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
                made=self.context.entry(bindings[0], True).made if len(bindings) == 1 else None,
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
            self._data(node, typ, origin_of(entry), known.type, entry.made)

    def _data(
        self, node: ast.Name, typ: Type | None, origin: str, bound: Type | None = None, made: Made | None = None
    ) -> None:
        """`bound`: the type of the session's name, when it is one; what is read may be narrowed."""
        if is_classified(typ):
            self.free[node.id] = FreeName(node.id, "classified")
            return
        if not self.purity.types.is_plain(typ) or is_callable(typ):
            said = f"captures `{node.id}`, which is not plain data"
            self.refuse(node, said, node.id, shown(typ), origin, in_its_place(node, self.context, made))
            return
        if unsendable(typ):
            said = f"captures `{node.id}`, and no `{unsendable(typ)}` {UNSENDABLE}"
            self.refuse(node, said, node.id, shown(typ), origin, its_parts(node, self.context, typ))
            return
        for info in session_classes(typ):
            self._reach_info(node, info)
        types = [described(typ)] if bound is None else [described(typ), described(bound)]
        before = self.free.get(node.id)
        if before is not None and before.kind == "data":
            types.append(before.type)
        self.free[node.id] = FreeName(node.id, "data", type=union(types))

    def _library(self, node: ast.Name) -> None:
        path = path_of(node, self.context, self.purity.view)
        if path.startswith(API):
            name = path.rpartition(".")[2]
            if name in ASKS_PERSON:
                said = f"uses `{node.id}`, which has an effect on `person`"
                self.refuse(node, said, "person", "effect", f"`{node.id}`")
            elif name not in PURE_API:
                self.refuse(node, f"uses `{node.id}`, which acts outside the vault", node.id, "", "the capability API")
            self.free[node.id] = FreeName(node.id, "api", name)
        elif path:
            self._path(node, path, node.id)
        else:
            self.refuse(node, f"uses `{node.id}`, which cannot be verified", node.id, shown(self.context.type_of(node)))

    def _path(self, node: ast.expr, path: str, name: str) -> None:
        """A module or library name. `name` is the free name it came through, "" for an attribute of a module."""
        table = pure()
        if table.is_module(path) or (name and is_module_name(self.context, node)):
            # A module may be named when all of its members that are used are pure; each is judged where it stands.
            if name:
                self.free[name] = FreeName(name, "module", path)
            if not is_member_base(node, self.context):
                self.refuse(node, f"uses the module `{path}` as a value", path)
        elif table.is_pure(path):
            if name:
                self.free[name] = FreeName(name, "table", path)
        else:
            effect = table.effect(path)
            shown_path = path.removeprefix("builtins.")
            what = f"which has an effect on `{effect}`" if effect else "which is not known to be pure"
            self.refuse(
                node,
                f"uses `{shown_path}`, {what}",
                effect or shown_path,
                "effect" if effect else "",
                f"`{shown_path}`",
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
                root = first_name(node)
                name = owner if root is None else root.id
                self.refuse(node, f"uses `{owner}.{node.attr}`, which acts outside the vault", name, shown(base))
            return
        parent = self.context.parents.get(node)
        if node.attr in MUTATING and not (isinstance(parent, ast.Call) and parent.func is node):
            self._refuse_store(node.value, node)  # `key=kept.append`: whoever gets it may call it
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
        if isinstance(function, ast.Attribute) and function.attr in pure().text_without_target and has_no_target(node):
            self._targetless.add(function)
        if isinstance(function, ast.Attribute) and is_plain_text_call(node, function.attr):
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
            if text in MUTATING:
                self._refuse_store(node.args[0], node)
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                # operator.methodcaller("show") names a method too
                self.reach.attributes.update(argument.value.split("."))
        self._passed(node)

    def _passed(self, node: ast.Call) -> None:
        """A captured object that is handed to something that stores into it."""
        function = node.func
        path = path_of(function, self.context, self.purity.view)
        unbound = (
            path.startswith(("builtins.", "collections.")) and path.rpartition(".")[2] in MUTATING
        )  # `list.append`
        if node.args and (path in MUTATING_FUNCTIONS or unbound):
            self._refuse_store(node.args[0], node)
            return
        for keyword in node.keywords:
            if keyword.arg == "out":
                self._refuse_store(keyword.value, node)
        for argument in node.args[count_of_inputs(self.context.type_of(function)) :]:
            self._refuse_store(argument, node)  # `numpy.add(x, y, kept)`
        if isinstance(function, ast.Call) and is_named(function.func, "methodcaller"):
            named = function.args[0] if function.args else None
            if isinstance(named, ast.Constant) and named.value in MUTATING and node.args:
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
        root = stored_root_of(node)
        if root is None and isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            typ = self.context.type_of(node.target)
            if typ is not None and any(info.fullname in CHANGED_IN_PLACE for info in instances(typ)):
                root = node.target  # `mine = kept` and `mine += [x]`
        if root is not None:
            self._refuse_store(root, node)

    def _refuse_store(self, value: ast.expr, node: ast.AST) -> None:
        root = root_of(value)
        if root is None or path_of(root, self.context, self.purity.view):
            return  # `np.append(x, 1)` is a function of a library, judged by its name
        owner = self.context.scopes.owner(root)
        name = root.id
        if self.is_own(owner):
            name = self._alias_of(root, owner)
            if not name:
                return
        self.refuse(node, f"writes to `{name}`, which it captures", name, shown(self.context.type_of(root)))

    def _alias_of(self, name: ast.Name, owner: Scope | None, hops: int = 0) -> str:
        """The captured name that a local one is another name for, or for an item of, or ""."""
        bindings = () if owner is None else owner.bindings.get(name.id, ())
        for binding in bindings:
            value = binding.value
            if value is None and len(bindings) == 1:
                value = self._iterated(binding.node)  # `for row in kept`
            root = None if value is None else root_of(value)
            if root is None or root.id == name.id:
                continue
            of_root = self.context.scopes.owner(root)
            if self.is_own(of_root):
                found = self._alias_of(root, of_root, hops + 1) if hops < _MOST_HOPS else ""
                if found:
                    return found
            elif not path_of(root, self.context, self.purity.view):
                return root.id
        return ""

    def _iterated(self, target: ast.AST) -> ast.expr | None:
        """What a loop or comprehension takes the items from that it binds to `target`."""
        loop = self.context.parents.get(target)
        return loop.iter if isinstance(loop, (ast.For, ast.comprehension)) and loop.target is target else None

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


class Body(Walk):
    """The body of one function."""

    def __init__(self, purity: Judge, function: Function, reach: Reach, via: str, free: dict[str, FreeName]) -> None:
        super().__init__(purity, function.context, reach, via, free)
        self.function = function

    def is_own(self, scope: Scope | None) -> bool:
        return scope is not None and scope.is_within(self.function.scope)

    def check_shape(self) -> None:
        """What a shipped function may look like: nothing that was computed where it was defined."""
        node = self.function.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                said = "is decorated, so what runs is not what its source says"
                path = path_of(decorator, self.context, self.purity.view)
                self.refuse(decorator, said, self.function.name, teaches=without_decorator(self.function, path))
            if isinstance(node, ast.AsyncFunctionDef):
                self.refuse(node, "waits for something outside the vault")
        defaults = [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None)]
        for default in defaults:
            if not is_literal(default):
                self.refuse(default, "has a default that is computed once and kept", self.function.name)

    def walk(self) -> None:
        node = self.function.node
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        self.visit_all(body)


class ClassBody(Walk):
    """The body of a class, but for its methods: fields, bases, decorators."""

    def __init__(self, purity: Judge, definition: Class, reach: Reach, free: dict[str, FreeName]) -> None:
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
                    if not is_accessor(decorator):
                        self.visit_all([decorator])
                self.visit_all([*statement.args.defaults, *(d for d in statement.args.kw_defaults if d is not None)])
            else:
                self.visit_all([statement])
