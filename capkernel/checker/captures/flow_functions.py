"""Rule E, session functions: a call runs the body with what it is given; syntax calls special methods."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cached_property

from mypy.nodes import TypeInfo, Var
from mypy.types import CallableType, Overloaded, Type, TypeType, get_proper_type

from capkernel.checker.captures.flow_expr import Expressions
from capkernel.checker.captures.flow_machine import TooMuchWork
from capkernel.checker.captures.known import Function
from capkernel.checker.captures.scopes import FunctionNode
from capkernel.checker.captures.types import instances, is_session_module
from capkernel.checker.captures.values import NOTHING, OUTER, UNKNOWN, UNTRUSTED, Closure, Frame, Site, Token, Value

_DEEPEST = 40

Arguments = list[tuple[ast.expr, Value]]


class Functions(Expressions):
    @cached_property
    def _class_infos(self) -> dict[ast.AST, TypeInfo]:
        return {known.node: known.info for known in self.classes.values() if known.info is not None}

    def _methods(self, info: TypeInfo, name: str) -> list[Function]:
        found: list[Function] = []
        for one in (info, *self.types.overriders(info)):
            for base in one.mro:
                definition = self.classes.get(base.fullname)
                if definition is None:
                    continue
                found.extend(method for method in definition.methods() if method.name == name and method not in found)
                if any(method.name == name for method in definition.methods()):
                    break
        return found

    def _methods_named(self, fullname: str) -> list[Function]:
        owner, _, name = fullname.rpartition(".")
        definition = self.classes.get(owner)
        return [] if definition is None else [method for method in definition.methods() if method.name == name]

    def _enters_own(self, manager: ast.expr) -> bool:
        """Whether `with manager` runs an `__enter__` of the session, so that what it returns is known."""
        typ = self.context.type_of(manager)
        owners = [] if typ is None else list(instances(typ))
        return bool(owners) and all(
            is_session_module(info.module_name) and self._methods(info, "__enter__") for info in owners
        )

    def _methods_above(self, name: str) -> list[Function]:
        """What `super().name` can be in the method that runs: of the next class in the order of whatever class."""
        frame: Frame | None = self.frame
        running = None
        while frame is not None and running is None:
            running = frame.scope.node if frame.scope is not None and frame.scope.kind == "function" else None
            frame = frame.parent
        found: list[Function] = []
        for known in list(self.classes.values()):
            if known.info is None or not any(method.node is running for method in known.methods()):
                continue
            for one in (known.info, *self.types.overriders(known.info)):
                above = one.mro[one.mro.index(known.info) + 1 :] if known.info in one.mro else []
                for base in above:
                    here = self._methods_named(f"{base.fullname}.{name}")
                    if here:
                        found.extend(method for method in here if method not in found)
                        break
        return found

    def _class_of(self, function: ast.expr) -> TypeInfo | None:
        """The session class that a call of `function` makes a value of."""
        resolved = self.context.resolve(function)
        if resolved is None:
            return None
        info = resolved.symbol if isinstance(resolved.symbol, TypeInfo) else type_object(resolved.type)
        return info if info is not None and is_session_module(info.module_name) else None

    def _self_value(self) -> Value:
        frame: Frame | None = self.frame
        while frame is not None:
            node = None if frame.scope is None else frame.scope.node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                arguments = node.args.posonlyargs + node.args.args
                return frame.names.get(arguments[0].arg, UNKNOWN) if arguments else UNKNOWN
            frame = frame.parent
        return UNKNOWN

    # ── session functions ────────────────────────────────────────────────────────────────────────────────────────────

    def _enter(self, closure: Closure, node: ast.Call, arguments: Arguments, receiver: Value | None) -> Value:
        given = self._given(closure.function.node, node, arguments, receiver)
        return self.inline(closure.function, closure.frame, given, node)

    def _given(
        self, function: FunctionNode, node: ast.AST, arguments: Arguments, receiver: Value | None
    ) -> dict[str, Value]:
        """Each parameter's value. Stars give every parameter everything they hold."""
        names = [argument.arg for argument in function.args.posonlyargs + function.args.args]
        every = names + [argument.arg for argument in function.args.kwonlyargs]
        given: dict[str, Value] = dict.fromkeys(every, NOTHING)
        extra = NOTHING
        if receiver is not None and names:
            given[names[0]] = receiver
            names = names[1:]
        values = dict(
            zip((id(expression) for expression, _ in arguments), (value for _, value in arguments), strict=True)
        )
        positional = node.args if isinstance(node, ast.Call) else [expression for expression, _ in arguments]
        keywords = node.keywords if isinstance(node, ast.Call) else []
        for index, argument in enumerate(positional):
            value = values.get(id(argument), UNKNOWN)
            if isinstance(argument, ast.Starred):
                extra |= value
                for name in names[index:]:
                    given[name] |= value
            elif index < len(names):
                given[names[index]] |= value
            else:
                extra |= value
        taken = {*names[: len(positional)], *(keyword.arg for keyword in keywords)}
        for name in _kept_defaults(function) - taken:
            given[name] |= UNKNOWN  # one object for all calls, as old as the function
        for keyword in keywords:
            value = values.get(id(keyword.value), UNKNOWN)
            if keyword.arg is None:
                extra |= value
                for name in every:
                    given[name] |= value
            elif keyword.arg in given:
                given[keyword.arg] |= value
            else:
                extra |= value
        for parameter in (function.args.vararg, function.args.kwarg):
            if parameter is not None:
                given[parameter.arg] = self.made(parameter, extra)
        return given

    def _claimed(self, expression: ast.expr, value: Value) -> Value:
        # A parameter's annotation may claim more than what comes through `Any`.
        if not value or self.types.is_plain(self.context.type_of(expression)) or not self.caps(value):
            return value
        return value | {UNTRUSTED}

    def inline(self, function: Function, frame: Frame, given: dict[str, Value], node: ast.AST) -> Value:
        """Run a session function's body with these arguments; what it may return."""
        key = (function.node, frame, _key(given), tuple(self.active))
        running = self._running.get(key)
        if running is not None:
            return running
        known = self._memo.get(key)
        if known is not None and known[0] == self.heap.changes:
            return known[1]
        if len(self.inlining) > _DEEPEST:
            raise TooMuchWork
        result = NOTHING
        for _ in range(4):
            self._running[key] = result
            made = self._run_body(function, frame, given, node)
            if made <= result:
                break
            result |= made
        del self._running[key]
        self._memo[key] = (self.heap.changes, result)
        return result

    def frames_of(self, function: Function) -> list[Frame]:
        """Where it was made: each call of a function makes its classes anew; their methods see that call's names."""
        return self._defined_in.get(function.node, [self.session])

    def inline_method(self, method: Function, given: dict[str, Value], node: ast.AST) -> Value:
        """The same for a method, of whatever it was made with."""
        return frozenset[Token]().union(*(self.inline(method, frame, given, node) for frame in self.frames_of(method)))

    def _run_body(self, function: Function, frame: Frame, given: dict[str, Value], node: ast.AST) -> Value:
        outer, context = self.frame, self.context
        inner = Frame(function.scope, frame, dict(given))
        self.frame, self.context = inner, function.context
        self.frames.append(inner)
        # Errors inside a body that is only judged where it stands are reported where they are.
        judged_in_place = node is function.node
        if not judged_in_place:
            self.inlining.append(node if not self.inlining else self.inlining[0])
        try:
            body = function.node.body
            if isinstance(body, list):
                for statement in body:
                    self.statement(statement)
                result = inner.returned
            else:
                self.spend()
                result = self.value(body)
                if self.caps(result) and not self.types.is_plain(self.context.type_of(body)):
                    result |= {UNTRUSTED}
        finally:
            if not judged_in_place:
                self.inlining.pop()
            self.frames.pop()
            self.frame, self.context = outer, context
        if inner.yielded or (isinstance(body, list) and _is_generator(function)):
            # A generator holds what it was given until it ends.
            held = frozenset((Closure(function, frame),)).union(result, inner.yielded, *given.values())
            result = self.made(node, held)
            self.produces(result, inner.yielded)
        elif isinstance(function.node, ast.AsyncFunctionDef):
            # A coroutine holds what it was given until it is awaited.
            result = self.made(node, frozenset((Closure(function, frame),)).union(inner.returned, *given.values()))
            self.produces(result, inner.returned)
        return result

    def statement(self, node: ast.stmt) -> None:
        raise NotImplementedError

    def _run_methods(self, methods: Sequence[Function], node: ast.Call, receiver: Value, arguments: Arguments) -> Value:
        result = NOTHING
        for method in methods:
            of = self.class_values(method.class_name) if is_classmethod(method) else _self_of(method, receiver)
            result |= self.inline_method(method, self._given(method.node, node, arguments, of), node)
            made = self.decorated(method)
            if any(not isinstance(token, Closure) or token.function.node is not method.node for token in made):
                result |= self.call_as_method(made, node, receiver, arguments)
        return result

    def call_as_method(self, functions: Value, node: ast.Call, receiver: Value, arguments: Arguments) -> Value:
        """Call what stands in place of a method: with the object first, and without it when it was stored in one."""
        raise NotImplementedError

    def class_values(self, name: str) -> Value:
        """The class that a session name stands for, as an object that can be stored into."""
        return self.session_value(name) or UNKNOWN

    def member_values(self, base: Value, name: str) -> Value:
        """What attribute `name` of these objects may be: of an object made here, what was stored under that name."""
        found = NOTHING
        for token in base:
            fields = self.heap.fields.get(token) if isinstance(token, Site) else None
            of_class = self._of_classes(token, name) if isinstance(token, Site) and fields is not None else None
            if fields is None or of_class is None:
                found |= self.heap.within(frozenset((token,)))
            else:
                found |= self.heap.within(fields.get(name, NOTHING)) | of_class
        return found

    def _of_classes(self, site: Site, name: str) -> Value | None:
        """What its classes give to an object, or its bases to a class, under a name; None when that cannot be told."""
        is_class = isinstance(site.node, ast.ClassDef)
        info = self._class_infos.get(site.node) if is_class else self.heap.instances.get(site.node)
        symbol = None if info is None else info.get(name)
        if info is None or symbol is None or not isinstance(symbol.node, Var):
            return None
        found = NOTHING
        for base in info.mro[1:] if is_class else info.mro:
            definition = self.classes.get(base.fullname)
            if definition is None:
                if is_session_module(base.module_name):
                    return None
                continue
            at_top = isinstance(definition.context.parents.get(definition.node), ast.Module)
            if "__getattr__" in base.names or not at_top:
                return None
            known = NOTHING
            for token in self.class_values(base.name):
                held = self.heap.fields.get(token) if isinstance(token, Site) else None
                known |= frozenset((token,)) | self.heap.within(
                    frozenset((token,)) if held is None else held.get(name, NOTHING)
                )
            bindings = definition.context.scopes.of[definition.node].bindings.get(name, [])
            if all(_is_harmless_default(binding.value) for binding in bindings):
                known = frozenset(token for token in known if not _is_class(token) and token is not OUTER)
            found |= known
        return found

    # ── methods that run without being called ────────────────────────────────────────────────────────────────────────

    def hooks(self, node: ast.AST, value: Value) -> None:
        """A library may show, compare, hash, format and iterate whatever it is given."""
        if self.active:
            self._run_hooks(node, value, _is_hook)

    def finalize(self, node: ast.AST) -> None:
        """At the end of a block the objects made in it may be finalized, with what they hold."""
        if not self.heap.instances:
            return
        sites: Value = frozenset(site for site in self.heap.contents if site.node in self.heap.instances)
        self._run_hooks(node, sites, lambda name: name == "__del__")

    def _run_hooks(self, node: ast.AST, value: Value, wanted: Callable[[str], bool]) -> None:
        for token in self.heap.within(value):
            info = self.heap.instances.get(token.node) if isinstance(token, Site) else None
            if info is None:
                continue
            for base in info.mro:
                definition = self.classes.get(base.fullname)
                for method in [] if definition is None else definition.methods():
                    if wanted(method.name):
                        given = self._spread(method, frozenset((token,)), [])
                        self.inline_method(method, given, node)

    def _construct(self, node: ast.Call, info: TypeInfo, arguments: Arguments) -> Value:
        site = Site(node, frozenset(self.active))
        made: Value = frozenset((site,))
        self.heap.instances[node] = info
        self.heap.made(site)
        of_class = self.heap.within(self.value(node.func))
        if self.caps(of_class):  # its methods use a capability: whoever has the object can call them
            self.heap.add(site, of_class)
        ran = False
        for name in ("__new__", "__init__", "__post_init__"):
            for method in self._methods(info, name)[:1]:
                ran = ran or name != "__post_init__"
                given = arguments if name != "__post_init__" else []
                self.inline_method(method, self._given(method.node, node if given else method.node, given, made), node)
        if not ran:
            names = _fields_in_order(info, self.context.type_of(node.func))
            keywords = {id(keyword.value): keyword.arg or "" for keyword in node.keywords}
            for index, (expression, value) in enumerate(arguments):
                spread = isinstance(expression, ast.Starred)
                name = keywords.get(id(expression), "" if spread or index >= len(names) else names[index])
                self.store(made, value, node, "the new object", name if names else "")
        return made

    def implicit(
        self,
        node: ast.AST,
        receivers: Sequence[ast.expr],
        names: Sequence[str],
        arguments: Sequence[Value],
        only_accessors: bool = False,
    ) -> Value:
        """Methods of session classes that the syntax at `node` calls."""
        result = NOTHING
        for receiver in receivers:
            typ = self.context.type_of(receiver)
            for info in [] if typ is None else instances(typ):
                if not is_session_module(info.module_name):
                    continue
                for name in names:
                    for method in self._methods(info, name):
                        if only_accessors and not name.startswith("__") and not _is_accessor(method):
                            continue
                        value = self.value(receiver) if not isinstance(receiver, ast.Constant) else NOTHING
                        given = self._spread(method, value, arguments)
                        result |= self.inline_method(method, given, node)
        return result

    def _spread(self, method: Function, receiver: Value, arguments: Sequence[Value]) -> dict[str, Value]:
        """Arguments of a call that the syntax makes: every parameter may get any of them."""
        every: Value = frozenset().union(*arguments) if arguments else NOTHING
        given = {
            argument.arg: every
            for argument in [*method.node.args.posonlyargs, *method.node.args.args, *method.node.args.kwonlyargs]
        }
        for parameter in (method.node.args.vararg, method.node.args.kwarg):
            if parameter is not None:
                given[parameter.arg] = self.made(parameter, every)
        if method.self_name in given:
            given[method.self_name] = receiver
        return {name: value | {UNTRUSTED} if self.caps(value) else value for name, value in given.items()}


def type_object(typ: Type | None) -> TypeInfo | None:
    proper = get_proper_type(typ) if typ is not None else None
    if isinstance(proper, (CallableType, Overloaded)) and proper.is_type_obj():
        return proper.type_object()
    if isinstance(proper, TypeType):  # `cls` in a class method
        return next(instances(proper.item), None)
    return None


def _kept_defaults(function: FunctionNode) -> set[str]:
    """The parameters whose default is an object that can be written to: `def f(x, store=[])`."""
    arguments = function.args
    places = arguments.posonlyargs + arguments.args
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(places[len(places) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    made = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Call)
    return {parameter.arg for parameter, default in pairs if isinstance(default, made)}


def _key(given: dict[str, Value]) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(given.items(), key=lambda item: item[0]))


def _is_generator(function: Function) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _own_nodes(function.node))


def _own_nodes(function: FunctionNode) -> list[ast.AST]:
    found: list[ast.AST] = []
    todo: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    while todo:
        node = todo.pop()
        found.append(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(node))
    return found


def _self_of(method: Function, receiver: Value) -> Value | None:
    decorators = {_decorator_name(decorator) for decorator in getattr(method.node, "decorator_list", ())}
    return None if "staticmethod" in decorators else receiver


def _fields_in_order(info: TypeInfo, constructor: Type | None) -> list[str]:
    """The fields of a dataclass in the order of its arguments; none when it is no dataclass."""
    proper = get_proper_type(constructor) if constructor is not None else None
    if "dataclass" not in info.metadata or not isinstance(proper, CallableType):
        return []
    return [name or "" for name in proper.arg_names]


def _is_class(token: Token) -> bool:
    return isinstance(token, Site) and isinstance(token.node, ast.ClassDef)


def _is_harmless_default(value: ast.expr | None) -> bool:
    """`kept = None`, `count: int`, `tags: list[str] = field(...)`: no object that all objects of the class share."""
    if value is None or isinstance(value, ast.Constant):
        return True
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("field", "dataclasses.field")


def is_classmethod(method: Function) -> bool:
    return any(_decorator_name(decorator) == "classmethod" for decorator in getattr(method.node, "decorator_list", ()))


def _is_hook(name: str) -> bool:
    if name.startswith("_repr_") or name == "_ipython_display_":
        return True
    return name.startswith("__") and name.endswith("__") and name not in _NOT_BY_LIBRARIES


# Called when a class or an object is made, a name is read or written, a block is entered: where that stands.
_NOT_BY_LIBRARIES = frozenset(
    """
    __init__ __new__ __post_init__ __init_subclass__ __set_name__ __class_getitem__ __get__ __set__ __delete__
    __getattr__ __setattr__ __delattr__ __del__ __setitem__ __delitem__ __iadd__ __isub__ __imul__ __ior__ __iand__
    """.split()
)


def is_getter(method: Function) -> bool:
    names = {_decorator_name(decorator) for decorator in getattr(method.node, "decorator_list", ())}
    return bool(names & {"property", "cached_property"})


def _is_accessor(method: Function) -> bool:
    return bool(getattr(method.node, "decorator_list", ()))


def _decorator_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
