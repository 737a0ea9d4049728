"""Rule E, calls: session functions run with what they are given; libraries keep nothing, store, or are not known."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mypy.nodes import TypeInfo
from mypy.types import CallableType, Overloaded, Type, get_proper_type

from capkernel.checker.captures.flow_expr import Expressions
from capkernel.checker.captures.flow_machine import TooMuchWork
from capkernel.checker.captures.known import Class, Function, View
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.scopes import FunctionNode, parameters_of
from capkernel.checker.captures.types import API, instances, is_session_module
from capkernel.checker.captures.values import NOTHING, OUTER, UNKNOWN, UNTRUSTED, Cap, Closure, Frame, Site, Value
from capkernel.checker.tables import borrows

_DEEPEST = 40

# Builtins that have run through an iterator when they return, and hold what it gave.
_CONSUMING = frozenset(
    f"builtins.{name}"
    for name in ("list", "tuple", "set", "frozenset", "dict", "sorted", "sum", "min", "max", "any", "all", "next")
)
Arguments = list[tuple[ast.expr, Value]]


class Calls(Expressions):
    def call(self, node: ast.Call) -> Value:
        function = node.func
        path = path_of(function, self.context, self._view())
        if path:
            return self._library(node, path, NOTHING, self._arguments(node))
        if isinstance(function, ast.Attribute):
            return self._method(node, function)
        callee = self.value(function)
        arguments = self._arguments(node)
        made = self._class_of(function)
        if made is not None:
            return self._construct(node, made, arguments)
        return self._value_call(node, function, callee, arguments)

    def _view(self) -> View:
        return View(self.entries, self.home, None)

    def _arguments(self, node: ast.Call) -> Arguments:
        found: Arguments = []
        for argument in node.args:
            found.append((argument, self.value(argument)))
        for keyword in node.keywords:
            value = self.value(keyword.value)
            found.append((keyword.value, self.heap.within(value) if keyword.arg is None else value))
        return found

    # ── which function it is ─────────────────────────────────────────────────────────────────────────────────────────

    def _value_call(self, node: ast.Call, function: ast.expr, callee: Value, arguments: Arguments) -> Value:
        result = NOTHING
        known = False
        for token in callee:
            if isinstance(token, Closure):
                known = True
                result |= self._enter(token, node, arguments, None)
        rest = frozenset(token for token in callee if not isinstance(token, Closure))
        if rest or not known:
            result |= self.implicit(node, [function], ("__call__",), [value for _, value in arguments])
            if not (known and not rest):
                result |= self.unknown_call(node, function, "", rest, arguments)
            return self.cut(self.context.type_of(node), result)
        return result

    def _method(self, node: ast.Call, function: ast.Attribute) -> Value:
        receiver = self.value(function.value)
        arguments = self._arguments(node)
        resolved = self.context.resolve(function)
        typ = self.context.type_of(function.value)
        if _is_super(function.value):
            symbol = "" if resolved is None else resolved.fullname
            methods = self._methods_named(symbol)
            receiver = self._self_value()
            if methods:
                return self._run_methods(methods, node, receiver, arguments)
            return self.unknown_call(node, function, "", receiver, arguments, keeps=True)
        owners = [] if typ is None else list(instances(typ))
        if owners and all(info.fullname.startswith(API) for info in owners):
            return self._api_method(node, receiver, arguments)
        if receiver and self.is_plain_member(function.attr, typ, receiver):
            return NOTHING
        if receiver and self.is_capability_only(typ, receiver):
            given: Value = frozenset().union(*(value for _, value in arguments)) if arguments else NOTHING
            self.store(receiver - {token for token in receiver if isinstance(token, Cap)}, given, node, "it")
            return self._api_method(node, receiver, arguments)
        made = self._class_of(function)
        if made is not None:
            return self._construct(node, made, arguments)
        methods = [method for info in owners for method in self._methods(info, function.attr)]
        if not methods and resolved is not None:
            methods = self._methods_named(resolved.fullname)  # `Base.method(self, ...)`
        if methods:
            return self._run_methods(methods, node, receiver, arguments)
        return self.cut(self.context.type_of(node), self._library_method(node, function, typ, receiver, arguments))

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

    def _class_of(self, function: ast.expr) -> TypeInfo | None:
        """The session class that a call of `function` makes a value of."""
        resolved = self.context.resolve(function)
        if resolved is None:
            return None
        info = resolved.symbol if isinstance(resolved.symbol, TypeInfo) else _type_object(resolved.type)
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
        bound = {*names[: len(positional)], *(keyword.arg for keyword in keywords)}
        for name in _kept_defaults(function) - bound:
            given[name] |= UNKNOWN  # one object for all calls, and as old as the function
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
            result |= self.inline(
                method, self.session, self._given(method.node, node, arguments, _self_of(method, receiver)), node
            )
        return result

    def _construct(self, node: ast.Call, info: TypeInfo, arguments: Arguments) -> Value:
        site = Site(node, frozenset(self.active))
        made: Value = frozenset((site,))
        ran = False
        for name in ("__new__", "__init__", "__post_init__"):
            for method in self._methods(info, name)[:1]:
                ran = ran or name != "__post_init__"
                given = arguments if name != "__post_init__" else []
                self.inline(
                    method, self.session, self._given(method.node, node if given else method.node, given, made), node
                )
        if not ran:
            for _, value in arguments:
                self.store(made, value, node, "the new object")
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
                        result |= self.inline(method, self.session, given, node)
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

    # ── libraries ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _api_method(self, node: ast.Call, receiver: Value, arguments: Arguments) -> Value:
        for _, value in arguments:
            self._call_back(node, value, NOTHING)
        held = receiver.union(*(value for _, value in arguments)) if arguments else receiver
        self.transparent.add(node)
        return self.cut(self.context.type_of(node), self.made(node, held) | held)

    def _library(self, node: ast.Call, path: str, receiver: Value, arguments: Arguments) -> Value:
        if path.startswith(API):
            return self._api_method(node, receiver, arguments)
        if path in borrows().starts:
            self._check_start(node, path.rpartition(".")[2], arguments)
        if path.startswith(("builtins.", "itertools.")):
            self.transparent.add(node)
        if path in _CONSUMING:
            arguments = [(expression, self.heap.items(value)) for expression, value in arguments]
        if path in ("builtins.map", "builtins.filter"):
            return self._mapped(node, arguments, filters=path.endswith("filter"))
        keeps = not borrows().keeps_nothing(path) and not self._is_class(node.func)
        result = self.unknown_call(node, node.func, path, receiver, arguments, keeps=keeps)
        return self.cut(self.context.type_of(node), result)

    def _mapped(self, node: ast.Call, arguments: Arguments, filters: bool = False) -> Value:
        """`map(f, xs)`: it holds f and xs, and gives what f returns."""
        given: Value = frozenset().union(*(value for _, value in arguments)) if arguments else NOTHING
        items: Value = (
            frozenset().union(*(self.heap.items(value) for _, value in arguments[1:])) if arguments else NOTHING
        )
        made = self.made(node, given)
        functions = arguments[0][1] if arguments else NOTHING
        known = bool(functions) and all(isinstance(token, Closure) for token in functions)
        returned = self._call_back(node, functions, items)
        if arguments and self.caps(items):
            self.implicit(node, [arguments[0][0]], ("__call__",), [items])
        bound = bool(arguments) and self._is_bound(*arguments[0])
        self.unknown_call(node, node.func, "map", NOTHING, arguments if bound else arguments[1:], keeps=bound)
        self.produces(made, items if filters or not known else returned)
        return made

    def _library_method(
        self, node: ast.Call, function: ast.Attribute, typ: Type | None, receiver: Value, arguments: Arguments
    ) -> Value:
        table = borrows()
        if function.attr == "map" and resolved_owner(typ).startswith("concurrent.futures"):
            return self._mapped(node, arguments)
        if function.attr in table.start_methods:
            self._check_start(node, function.attr, arguments, receiver)
        owners = [] if typ is None else list(instances(typ))
        if owners and all(info.fullname.startswith(table.storing) for info in owners):
            given: Value = (
                frozenset().union(*(self.heap.within(value) for _, value in arguments)) if arguments else NOTHING
            )
            self.store(receiver, given, node, f"`{ast.unparse(function.value)}`")
            self._call_back(node, given, receiver)
            return self.heap.within(receiver) | given
        plain = typ is not None and self.types.is_plain(typ)
        return self.unknown_call(
            node, function, function.attr, receiver, arguments, keeps=function.attr not in table.methods and not plain
        )

    def unknown_call(
        self, node: ast.AST, function: ast.expr, name: str, receiver: Value, arguments: Arguments, keeps: bool = True
    ) -> Value:
        """A call whose source nobody holds: it may call what it gets, and keep it in whatever it gets."""
        given: Value = frozenset().union(*(value for _, value in arguments)) if arguments else NOTHING
        caps = (self.caps(given) | self.caps(receiver)) & set(self.active)
        keeps = keeps or any(self._is_bound(expression, value) for expression, value in arguments)
        inside = frozenset().union(
            *(self.heap.contents.get(token, NOTHING) for token in receiver if isinstance(token, Site))
        )
        for expression, value in arguments:
            self._call_back(node, value, given | inside | (receiver & UNKNOWN))
            if caps:
                self.implicit(node, [expression], ("__call__",), [given])
        if caps and keeps:
            self._check_kept(node, function, receiver, arguments, caps)
        holds = self.heap.within(given) | self.heap.within(receiver)
        if caps and keeps:
            # Every object that can carry may now hold every other.
            places = [*arguments, (function.value if isinstance(function, ast.Attribute) else function, receiver)]
            for place, value in places:
                if not self.types.is_plain(self.context.type_of(place)):
                    for token in value:
                        if isinstance(token, Site):
                            self.heap.add(token, holds)
        result = self.made(node, holds) | holds
        return result | UNKNOWN if keeps and not name else result

    def _check_kept(
        self, node: ast.AST, function: ast.expr, receiver: Value, arguments: Arguments, caps: set[Cap]
    ) -> None:
        """Something older than the block that is handed to an unknown function together with its capability."""
        places: Arguments = list(arguments)
        if isinstance(function, ast.Attribute):
            places.append((function.value, receiver))
        elif self._is_unknown_callable(receiver):
            places.append((function, receiver))
        for place, value in places:
            if self.types.is_plain(self.context.type_of(place)):
                continue
            given: Value = frozenset().union(*(other for where, other in places if where is not place))
            late = self.caps(given) & caps
            reached = self.reach(value)
            if late and (
                OUTER in reached
                or any(isinstance(token, Site) and any(cap not in token.within for cap in late) for token in reached)
            ):
                how = f"passed to `{_shown(function)}` together with `{_shown(place)}`, which could keep it"
                self.escape(node, late, how)
                return

    def decorate(self, decorator: ast.expr, value: Value) -> Value:
        """What a decorator makes of a function; those of libraries are taken to wrap it."""
        callee = self.value(decorator)
        result = NOTHING
        for token in callee:
            if isinstance(token, Closure):
                names = [
                    argument.arg for argument in token.function.node.args.posonlyargs + token.function.node.args.args
                ]
                every = dict.fromkeys([argument.arg for argument in parameters_of(token.function.node)], NOTHING)
                given = every | ({names[0]: value} if names else {})
                result |= self.inline(token.function, token.frame, given, decorator) - {UNTRUSTED}
        rest = frozenset(token for token in callee if not isinstance(token, Closure))
        if not rest:
            return result or value
        return (
            result
            | value
            | self.unknown_call(decorator, decorator, "", rest, [(decorator, value)], keeps=OUTER in rest)
        )

    def _is_unknown_callable(self, receiver: Value) -> bool:
        # In a definition that is judged by itself a parameter may be any function; callers bring the real one.
        return OUTER in receiver and not self.lenient

    def _is_bound(self, expression: ast.expr, value: Value) -> bool:
        """Whether an argument is a method of a library's object, which may keep what it is called with: `kept.append`."""
        if isinstance(expression, ast.Attribute) and expression.attr in borrows().methods:
            return False
        typ = self.context.type_of(expression)
        proper = get_proper_type(typ) if typ is not None else None
        return isinstance(proper, (CallableType, Overloaded)) and any(isinstance(token, Site) for token in value)

    def _check_start(self, node: ast.Call, name: str, arguments: Arguments, receiver: Value = NOTHING) -> None:
        caps: set[Cap] = set()
        for _, value in arguments:
            caps |= self.caps(value) & set(self.active)
        if receiver and all(isinstance(token, Site) for token in receiver):
            # An executor made inside the block ends inside it, too.
            caps = {
                cap for cap in caps if any(isinstance(token, Site) and cap not in token.within for token in receiver)
            }
        if caps:
            self.escape(node, caps, f"given to `{name}`, which may run after the block")

    def _call_back(self, node: ast.AST, value: Value, given: Value) -> Value:
        """A library may call every function it gets, with anything it gets. What they return."""
        returned = NOTHING
        for token in self.heap.within(value):
            if isinstance(token, Closure) and self._matters(token, given):
                arguments = {
                    argument.arg: self.heap.within(given)
                    for argument in [
                        *token.function.node.args.posonlyargs,
                        *token.function.node.args.args,
                        *token.function.node.args.kwonlyargs,
                    ]
                }
                for parameter in (token.function.node.args.vararg, token.function.node.args.kwarg):
                    if parameter is not None:
                        arguments[parameter.arg] = self.made(parameter, given)
                returned |= self.inline(token.function, token.frame, arguments, node)
        return returned

    def _matters(self, closure: Closure, given: Value) -> bool:
        return bool(self.active) or bool(self.dead(frozenset((closure,)))) or bool(self.dead(given))

    def _is_class(self, function: ast.expr) -> bool:
        resolved = self.context.resolve(function)
        return resolved is not None and (
            isinstance(resolved.symbol, TypeInfo) or _type_object(resolved.type) is not None
        )


def resolved_owner(typ: Type | None) -> str:
    """The class a value has, by its full name; "" when there is no one class."""
    owners = [] if typ is None else list(instances(typ))
    return owners[0].fullname if len(owners) == 1 else ""


def _type_object(typ: Type | None) -> TypeInfo | None:
    proper = get_proper_type(typ) if typ is not None else None
    if isinstance(proper, (CallableType, Overloaded)) and proper.is_type_obj():
        return proper.type_object()
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


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


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


def _is_accessor(method: Function) -> bool:
    return bool(getattr(method.node, "decorator_list", ()))


def _decorator_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return (
        text
        if len(text) <= 30 and not any(isinstance(inner, ast.Constant) for inner in ast.walk(node))
        else "this call"
    )


__all__ = ["Calls", "Class"]
