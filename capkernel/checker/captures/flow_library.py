"""Rule E, libraries: they keep nothing, store, run what they get, or are not known."""

from __future__ import annotations

import ast

from mypy.nodes import TypeInfo
from mypy.types import CallableType, Overloaded, Type, get_proper_type

from capkernel.checker.captures.flow_expr import is_open_file
from capkernel.checker.captures.flow_functions import Arguments, Functions, type_object
from capkernel.checker.captures.known import View
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.scopes import parameters_of
from capkernel.checker.captures.types import API, instances, is_any, is_session_module
from capkernel.checker.captures.values import NOTHING, OUTER, UNKNOWN, UNTRUSTED, Cap, Closure, Site, Token, Value
from capkernel.checker.captures.verbs import ANY
from capkernel.checker.captures.waiting import is_run_through, is_waited_for
from capkernel.checker.tables import ambient, borrows

# Builtins that have run through an iterator when they return, and hold what it gave.
_CONSUMING = frozenset(
    f"builtins.{name}"
    for name in ("list", "tuple", "set", "frozenset", "dict", "sorted", "sum", "min", "max", "any", "all", "next")
)
_PASSING_ON = tuple(
    f"{module}." for module in ("builtins", "typing", "itertools", "functools", "contextlib", "collections",
                                "_collections_abc", "asyncio", "concurrent", "threading", "copy", "logging")
)  # fmt: skip

_AWAITING = frozenset(
    ("asyncio.gather", "asyncio.wait_for", "asyncio.timeout", "asyncio.create_task", "asyncio.ensure_future")
)
# A function behind one of these has its arguments kept, or others run in its place.
_KEEPING_DECORATORS = frozenset(
    f"functools.{name}" for name in ("cache", "lru_cache", "singledispatch", "singledispatchmethod")
)
_BARE_DECORATORS = ("builtins.", "contextlib.", "functools.", "typing.", "typing_extensions.", "abc.", "dataclasses.")
_APPLYING = frozenset(
    "apply applymap map agg aggregate transform filter assign apply_along_axis apply_over_axes fromfunction".split()
)
_WHOLE = frozenset(("append", "appendleft", "add", "put", "put_nowait"))
_LINE_BY_LINE = frozenset(("csv.reader", "csv.DictReader"))
_PASSING = frozenset(("concurrent.futures.as_completed", "asyncio.as_completed"))
_RUNNING = frozenset(("asyncio.to_thread",))
_OF_ARRAYS = ("numpy.", "pandas.", "scipy.", "polars.")


class Libraries(Functions):
    def view(self) -> View:
        return View(self.entries, self.home, None)

    def api_method(self, node: ast.Call, receiver: Value, arguments: Arguments) -> Value:
        for _, value in arguments:
            self._call_back(node, value, NOTHING)
        # What a capability gives is made of itself: it takes nothing but text.
        held = receiver.union(*(value for _, value in arguments)) if arguments and not receiver else receiver
        self.transparent.add(node)
        return self.cut(self.context.type_of(node), self.made(node, held) | held)

    def library(self, node: ast.Call, path: str, receiver: Value, arguments: Arguments) -> Value:
        if path.startswith(API):
            return self.api_method(node, receiver, arguments)
        if path in borrows().starts and self._is_left_running(node, path.rpartition(".")[2], arguments):
            return self.made(node, NOTHING)  # said once; what follows from it is not said again
        if path in _LINE_BY_LINE and arguments and all(self._is_open_file(*pair) for pair in arguments[:1]):
            made = self.made(node, arguments[0][1])  # it holds the file until it is run through, and gives text
            self.produces(made, NOTHING)
            return made
        if path in _PASSING and arguments:
            return arguments[0][1]
        if path.startswith(("builtins.", "itertools.")):
            self.transparent.add(node)
        if path in _CONSUMING:
            arguments = [(expression, self.heap.items(value)) for expression, value in arguments]
        if path == "builtins.type" and len(node.args) == 1:
            return self._type_of(node.args[0])
        if path in _AWAITING:
            return self._awaited(node, arguments)
        if path in _RUNNING and arguments:
            return self._ran(node, arguments)
        if path == "functools.partial" and arguments and all(isinstance(one, Closure) for one in arguments[0][1]):
            self.heap.partials[node] = arguments
            return self.made(node, frozenset().union(*(value for _, value in arguments)))
        if path in ("builtins.map", "builtins.filter"):
            return self._mapped(node, arguments, filters=path.endswith("filter"))
        keeps = not borrows().keeps_nothing(path) and not self._is_class(node.func)
        result = self.unknown_call(node, node.func, path, receiver, arguments, keeps=keeps)
        return self.cut_result(self.context.type_of(node), result)

    def _type_of(self, argument: ast.expr) -> Value:
        """`type(x)` is the class itself, which is as old as its definition."""
        typ = self.context.type_of(argument)
        owners = [] if typ is None else list(instances(typ))
        found = NOTHING
        for info in owners:
            for one in (info, *self.types.overriders(info)):
                if is_session_module(one.module_name):
                    found |= self.class_values(one.name)
        return found if owners else UNKNOWN

    def _awaited(self, node: ast.Call, arguments: Arguments) -> Value:
        """It holds what it waits for, and gives what that returns."""
        made = self.made(node, frozenset().union(*(value for _, value in arguments)) if arguments else NOTHING)
        for _, value in arguments:
            self.produces(made, self.heap.items(value))
        return made

    def _ran(self, node: ast.Call, arguments: Arguments) -> Value:
        """A function that runs elsewhere, with its arguments: what is awaited, or asked for its result, gives what it
        returns."""
        made = self.made(node, frozenset().union(*(value for _, value in arguments)))
        function, functions = arguments[0]
        rest = node.args[1:]
        if functions and all(isinstance(token, Closure) for token in functions) and function is node.args[0]:
            call = ast.Call(func=function, args=rest, keywords=node.keywords)
            for token in functions:
                if isinstance(token, Closure):
                    given = self._given(token.function.node, call, arguments[1:], None)
                    self.produces(made, self.heap.items(self.inline(token.function, token.frame, given, node)))
        else:
            self.produces(made, self.unknown_call(node, node.func, "", NOTHING, arguments, keeps=False))
        return made

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

    def library_method(
        self, node: ast.Call, function: ast.Attribute, typ: Type | None, receiver: Value, arguments: Arguments
    ) -> Value:
        table = borrows()
        owner = resolved_owner(typ)
        if function.attr == "map" and owner.startswith("concurrent.futures"):
            if not is_run_through(node, self.context) and self._is_left_running(node, "map", arguments, receiver):
                return self.made(node, NOTHING)
            return self._mapped(node, arguments)
        if function.attr in table.start_methods and self._is_left_running(node, function.attr, arguments, receiver):
            return self.made(node, NOTHING)
        if function.attr == "submit" and owner.startswith("concurrent.futures") and arguments:
            return self._ran(node, arguments)
        if function.attr == "create_task" and owner.startswith("asyncio."):
            return self._awaited(node, arguments)
        if function.attr == "result" and owner.startswith(("concurrent.futures", "asyncio.", "_asyncio.")):
            return self.heap.items(receiver)
        owners = [] if typ is None else list(instances(typ))
        if owners and all(info.fullname.startswith(table.storing) for info in owners):
            whole = function.attr in _WHOLE  # the object itself is put in, not what is in it
            parts = [value if whole else self.heap.within(value) for _, value in arguments]
            given: Value = frozenset().union(*parts) if parts else NOTHING
            self.check_plain_target(node, function.value, given)
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
        if caps and not self._only_passes_on(function, name):
            # With an open file it can do what that was opened for, which is counted where it was.
            files = [value for expression, value in arguments if self._is_open_file(expression, value)]
            others = [value for expression, value in arguments if not self._is_open_file(expression, value)]
            used = caps if not files else (self.caps(frozenset().union(*others)) | self.caps(receiver)) & caps
            self.followed.update(((cap.cell, cap.line, cap.column), ANY) for cap in used)
        inside = frozenset().union(
            *(self.heap.contents.get(token, NOTHING) for token in receiver if isinstance(token, Site))
        )
        keeps = keeps or any(self._is_bound(expression, value) for expression, value in arguments)
        returned: Arguments = []
        of_arrays = self._is_of_arrays(function, name)
        data = frozenset(token for token in given if not isinstance(token, Closure)) if of_arrays else given
        for expression, value in arguments:
            returned.append((expression, self._call_back(node, value, data | inside | (receiver & UNKNOWN))))
            self.hooks(expression, value)
            if caps:
                self.implicit(node, [expression], ("__call__",), [given])
        if caps and of_arrays:
            self._check_put_into_data(node, returned, with_functions=True)
            files_only = name in ambient().path_functions or (
                isinstance(function, ast.Attribute) and function.attr in ambient().path_methods
            )
            kept = [pair for pair in arguments if not (files_only and self._is_open_file(*pair))]
            self._check_put_into_data(node, [pair for pair in kept if not self._is_image(pair[0])])
        if caps and keeps:
            self._check_kept(node, function, receiver, arguments, caps)
        if name in borrows().data and len(arguments) == len([pair for pair in arguments if self._is_open_file(*pair)]):
            return NOTHING  # what is read out of a file is data, whatever type it has
        if name in borrows().frames and all(
            self._is_open_file(expression, value) or not value for expression, value in arguments
        ):
            typ = self.context.type_of(node) if isinstance(node, ast.expr) else None
            if typ is not None and all(info.fullname == "pandas.core.frame.DataFrame" for info in instances(typ)):
                return NOTHING
        holds = self.heap.within(given) | self.heap.within(receiver)
        if of_arrays and name.rpartition(".")[2] in _APPLYING:  # it holds what the functions gave, not the functions
            holds = frozenset(token for token in holds if not isinstance(token, Closure) and not self._is_code(token))
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

    def _is_open_file(self, expression: ast.expr, value: Value) -> bool:
        typ = self.context.type_of(expression)
        # In a helper without annotations it is what it was where it was opened.
        return is_open_file(typ) or (is_any(typ) and bool(value) and value - {UNTRUSTED} in self.files)

    def _is_image(self, expression: ast.expr) -> bool:
        """Of an image, which may hold the file that it is read from, an array holds the pixels."""
        typ = self.context.type_of(expression)
        owners = [] if typ is None else list(instances(typ))
        return bool(owners) and all(info.has_base("PIL.Image.Image") for info in owners)

    def _is_of_arrays(self, function: ast.expr, name: str) -> bool:
        """Whether it is a function of numpy or pandas, whose types say that there is nothing but data in a value."""
        if name.startswith(_OF_ARRAYS):
            return True
        typ = self.context.type_of(function.value) if isinstance(function, ast.Attribute) else None
        return typ is not None and any(info.fullname.startswith(_OF_ARRAYS) for info in instances(typ))

    def _is_code(self, token: Token) -> bool:
        return isinstance(token, Site) and self._keeps_code(token)

    def _check_put_into_data(self, node: ast.AST, arguments: Arguments, with_functions: bool = False) -> None:
        """An array or frame of objects could hold a capability; a function that only runs meanwhile is fine."""
        for _, value in arguments:
            inside = self.heap.within(frozenset(token for token in value if not isinstance(token, Closure)))
            found = self.caps(value) if with_functions else {token for token in inside if isinstance(token, Cap)}
            caps = found & set(self.active)
            if caps:
                self.escape(node, caps, "put into an array or a frame, whose type says that it holds plain data")
                return

    def _only_passes_on(self, function: ast.expr, name: str) -> bool:
        """Whether the library function calls what it gets at most, and uses no member of it."""
        if name.startswith(_PASSING_ON):
            return True
        if not isinstance(function, ast.Attribute):
            return name == "map"
        typ = self.context.type_of(function.value)
        owners = [] if typ is None else list(instances(typ))
        return bool(owners) and all(info.fullname.startswith(_PASSING_ON) for info in owners)

    def _is_bound(self, expression: ast.expr, value: Value) -> bool:
        """Whether it is a method of a library's object, which may keep what it is called with: `kept.append`."""
        if isinstance(expression, ast.Attribute) and expression.attr in borrows().methods:
            return False
        typ = self.context.type_of(expression)
        proper = get_proper_type(typ) if typ is not None else None
        return isinstance(proper, CallableType | Overloaded) and any(isinstance(token, Site) for token in value)

    def _check_kept(
        self, node: ast.AST, function: ast.expr, receiver: Value, arguments: Arguments, caps: set[Cap]
    ) -> None:
        """Something older than the block that is handed to an unknown function together with its capability."""
        places: Arguments = list(arguments)
        if isinstance(function, ast.Attribute):
            places.append((function.value, receiver))
        elif self.is_unknown_callable(receiver) or any(_is_cache(token) for token in receiver):
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
                how = f"passed to `{brief(function)}` together with `{brief(place)}`, which could keep it"
                self.escape(node, late, how)
                return

    def decorate(self, decorator: ast.expr, value: Value) -> Value:
        """What a decorator makes of a function; those of libraries are taken to wrap it."""
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        path = path_of(named, self.context, self.view())
        late = self.caps(value) & set(self.active) if path in borrows().starts else set()
        if late:
            self.escape(decorator, late, f"given to `{path.rpartition('.')[2]}`, which may run it after the block")
            return value
        if path in _KEEPING_DECORATORS:
            return self.made(decorator, value) | value
        if path.startswith(_BARE_DECORATORS):
            return value
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

    def is_unknown_callable(self, receiver: Value) -> bool:
        # In a definition that is judged by itself a parameter may be any function; callers bring the real one.
        return OUTER in receiver and not self.lenient

    def _is_left_running(self, node: ast.Call, name: str, arguments: Arguments, receiver: Value = NOTHING) -> bool:
        """What runs later or elsewhere must have ended when the block does; refused when it may not."""
        caps: set[Cap] = set()
        for _, value in arguments:
            caps |= self.caps(value) & set(self.active)
        if receiver:
            # What a block inside waits for ends inside: `with ThreadPoolExecutor() as pool`.
            caps = {cap for cap in caps if not any(receiver <= them and cap in then for them, then in self.waited)}
        if not caps or is_waited_for(node, self.context):
            return False
        self.escape(node, caps, f"given to `{name}`, which may run after the block")
        return True

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
            isinstance(resolved.symbol, TypeInfo) or type_object(resolved.type) is not None
        )


def _is_cache(token: Token) -> bool:
    """Whether it is a function that `functools.cache` or `lru_cache` made: it keeps every argument it ever had."""
    if not isinstance(token, Site):
        return False
    made_by = token.node.func if isinstance(token.node, ast.Call) else token.node
    name = made_by.attr if isinstance(made_by, ast.Attribute) else getattr(made_by, "id", "")
    return f"functools.{name}" in _KEEPING_DECORATORS


def resolved_owner(typ: Type | None) -> str:
    """The class a value has, by its full name; "" when there is no one class."""
    owners = [] if typ is None else list(instances(typ))
    return owners[0].fullname if len(owners) == 1 else ""


def brief(node: ast.expr) -> str:
    """Its text when that is short and holds no value."""
    text = ast.unparse(node)
    return (
        text
        if len(text) <= 30 and not any(isinstance(inner, ast.Constant) for inner in ast.walk(node))
        else "this call"
    )
