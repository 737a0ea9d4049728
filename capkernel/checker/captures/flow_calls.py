"""Rule E, calls: which function it is. What a library does with what it gets is in `flow_library`."""

from __future__ import annotations

import ast

from mypy.nodes import TypeInfo

from capkernel.checker.captures.flow_functions import Arguments, is_getter
from capkernel.checker.captures.flow_library import Libraries, brief
from capkernel.checker.captures.known import Function
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.reach import MUTATING, is_accessor
from capkernel.checker.captures.types import API, instances, is_session_module
from capkernel.checker.captures.values import NOTHING, UNKNOWN, Closure, Site, Token, Value


class Calls(Libraries):
    def call(self, node: ast.Call) -> Value:
        entered = self.entered.get(node)
        if entered is not None:
            for argument in [one for given in node.args if isinstance(given, ast.Call) for one in given.args]:
                self.value(argument)
            return frozenset((entered,))
        function = node.func
        path = path_of(function, self.context, self.view())
        if path:
            return self.library(node, path, NOTHING, self._arguments(node))
        if isinstance(function, ast.Attribute):
            return self._method(node, function)
        callee = self.value(function)
        arguments = self._arguments(node)
        made = self._class_of(function)
        if made is not None:
            return self._construct(node, made, arguments)
        return self._value_call(node, function, callee, arguments)

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
            elif isinstance(token, Site):
                result |= self._call_object(token, node, arguments)
        rest = frozenset(token for token in callee if not isinstance(token, Closure) and self._partial(token) is None)
        known = known or rest != callee
        if isinstance(function, ast.Attribute):
            self._check_callee(node, rest, arguments)
        if rest or not known:
            result |= self.implicit(node, [function], ("__call__",), [value for _, value in arguments])
            if not (known and not rest):
                result |= self.unknown_call(node, function, "", rest, arguments)
            return self.cut(self.context.type_of(node), result)
        return result

    def _call_object(self, token: Site, node: ast.Call, arguments: Arguments) -> Value:
        """What calling an object does that was made in the cell: a partial, a bound method, one with `__call__`."""
        applied = self._partial(token)
        if applied is not None and isinstance(token.node, ast.Call):
            return self._apply_partial(token.node, applied, node, arguments)
        if isinstance(token.node, ast.Attribute):
            holder = self.heap.contents.get(token, NOTHING)
            given: Value = frozenset().union(*(value for _, value in arguments)) if arguments else NOTHING
            self.store(holder, given, node, f"`{ast.unparse(token.node.value)}`")
        info = self.heap.instances.get(token.node)
        result = NOTHING
        for method in [] if info is None else self._methods(info, "__call__"):
            given_here = self._given(method.node, node, arguments, frozenset((token,)))
            result |= self.inline_method(method, given_here, node)
        return result

    def _check_callee(self, node: ast.Call, callee: Value, arguments: Arguments) -> None:
        """Nobody knows what is called, so it may keep what it gets."""
        given: Value = frozenset().union(*(value for _, value in arguments)) if arguments else NOTHING
        caps = self.caps(given) & set(self.active)
        if caps and self.is_unknown_callable(callee):
            self.escape(node, caps, f"passed to `{brief(node.func)}`, which could keep it")

    def _partial(self, token: Token) -> Arguments | None:
        """The arguments of the `functools.partial` that made this object, when it applies functions of the session."""
        return self.heap.partials.get(token.node) if isinstance(token, Site) else None

    def _apply_partial(self, bound: ast.Call, applied: Arguments, node: ast.Call, arguments: Arguments) -> Value:
        call = ast.Call(func=node.func, args=[*bound.args[1:], *node.args], keywords=[*bound.keywords, *node.keywords])
        result = NOTHING
        for token in applied[0][1]:
            if isinstance(token, Closure):
                given = self._given(token.function.node, call, [*applied[1:], *arguments], None)
                result |= self.inline(token.function, token.frame, given, node)
        return result

    def _method(self, node: ast.Call, function: ast.Attribute) -> Value:
        receiver = self.value(function.value)
        self.uses(receiver, function, node)
        arguments = self._arguments(node)
        resolved = self.context.resolve(function)
        typ = self.context.type_of(function.value)
        if _is_super(function.value):
            symbol = "" if resolved is None else resolved.fullname
            methods = self._methods_above(function.attr) or self._methods_named(symbol)
            receiver = self._self_value()
            if methods:
                return self._run_methods(methods, node, receiver, arguments)
            return self.unknown_call(node, function, "", receiver, arguments, keeps=True)
        owners = [] if typ is None else list(instances(typ))
        if owners and all(info.fullname.startswith(API) for info in owners):
            return self.api_method(node, receiver, arguments)
        if receiver and function.attr not in MUTATING and self.is_plain_member(function.attr, typ, receiver):
            return NOTHING
        if receiver and self.is_capability_only(typ, receiver):
            given: Value = frozenset().union(*(value for _, value in arguments)) if arguments else NOTHING
            containers = frozenset(token for token in receiver if isinstance(token, Site))
            if containers:
                self.store(containers, given, node, "it")
            result = self.api_method(node, receiver, arguments)
            if function.attr == "open":
                self.opened.add(node)
            if function.attr == "lines":  # it holds the file until it is run through, and gives text
                result = frozenset(token for token in result if isinstance(token, Site) and token.node is node)
                self.produces(result, NOTHING)
            return result
        made = self._class_of(function)
        if made is not None:
            return self._construct(node, made, arguments)
        methods = [method for info in owners for method in self._methods(info, function.attr)]
        if not methods and resolved is not None:
            methods = self._methods_named(resolved.fullname)  # `Base.method(self, ...)`
        if methods and all(is_getter(method) for method in methods):
            # What the property gives is called, not the property.
            found = self.implicit(function, [function.value], (function.attr,), [], only_accessors=True)
            return self._value_call(node, function, found, arguments)
        result = self._patched(node, function.attr, receiver, arguments)
        if any(self._is_wrapped(info) for info in owners):
            self._check_callee(node, UNKNOWN, arguments)
        if methods:
            return result | self._run_methods(methods, node, receiver, arguments)
        if owners and all(is_session_module(info.module_name) for info in owners):
            found = self.implicit(function, [function.value], ("__getattr__",), [])
            if found:
                return result | self._value_call(node, function, found, arguments)
        return result | self.cut_result(
            self.context.type_of(node), self.library_method(node, function, typ, receiver, arguments)
        )

    def _patched(self, node: ast.Call, name: str, receiver: Value, arguments: Arguments) -> Value:
        """What was stored under the name of a method may be what is called."""
        return self.call_as_method(self.heap.patched.get(name, NOTHING), node, receiver, arguments)

    def call_as_method(self, functions: Value, node: ast.Call, receiver: Value, arguments: Arguments) -> Value:
        if not functions:
            return NOTHING
        base = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        first = ast.Call(func=node.func, args=[base, *node.args], keywords=node.keywords)
        result = NOTHING
        for token in functions:
            if isinstance(token, Closure):
                with_self = self._given(token.function.node, first, [(base, receiver), *arguments], None)
                result |= self.inline(token.function, token.frame, with_self, node)
                result |= self._enter(token, node, arguments, None)
            elif isinstance(token, Site):
                result |= self._call_object(token, node, arguments)
        rest = frozenset(token for token in functions if not isinstance(token, Closure))
        self._check_callee(node, rest, arguments)
        if rest:
            result |= self.unknown_call(node, node.func, "", rest | receiver, arguments)
        return result

    def _is_wrapped(self, info: TypeInfo) -> bool:
        """Whether a function of the session decorates the class: then its name may mean another class."""
        definition = self.classes.get(info.fullname)
        return definition is not None and any(
            not path_of(
                decorator.func if isinstance(decorator, ast.Call) else decorator, definition.context, self.view()
            )
            for decorator in definition.node.decorator_list
        )

    def decorated(self, function: Function) -> Value:
        known = self._decorated.get(function.node)
        if known is not None:
            return known
        value: Value = frozenset((Closure(function, self.session),))
        self._decorated[function.node] = value  # while they run, it is the bare function
        # They ran when it was defined, outside of every block that is open now.
        outside = self.active, self.frame, self.context
        self.active, self.frame, self.context = [], self.session, function.context
        for decorator in reversed(getattr(function.node, "decorator_list", ())):
            if not is_accessor(decorator):
                value = self.decorate(decorator, value)
                if self._is_younger(decorator, function):
                    value |= UNKNOWN  # the decorator of then has been replaced since
        self.active, self.frame, self.context = outside
        self._decorated[function.node] = value
        return value

    def _is_younger(self, decorator: ast.expr, function: Function) -> bool:
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        entry = self.entries.get(named.id) if isinstance(named, ast.Name) else None
        return entry is not None and entry.cell > function.context.number


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
