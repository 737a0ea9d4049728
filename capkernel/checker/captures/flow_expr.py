"""Rule E, expressions: what the value of an expression may hold, and what evaluating it stores where."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property

from mypy.nodes import Decorator, OverloadedFuncDef, TypeInfo
from mypy.types import Type

from capkernel.checker.captures.flow_machine import Machine
from capkernel.checker.captures.known import Function
from capkernel.checker.captures.reach import MUTATING
from capkernel.checker.captures.types import API, instances, is_session_module, mentions_any
from capkernel.checker.captures.values import NOTHING, UNKNOWN, UNTRUSTED, Closure, Frame, Site, Value

_BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor")
_BINARY_METHODS = tuple(f"__{side}{name}__" for name in _BINARY for side in ("", "r"))
_COMPARE_METHODS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__bool__")
_UNARY_METHODS = ("__neg__", "__pos__", "__invert__", "__bool__", "__len__")
_TEXT_METHODS = ("__str__", "__repr__", "__format__")
_PUTTING = frozenset(("put", "put_nowait", "send", "setdefault", "__setitem__"))
_ITEM_METHODS = ("__getitem__", "__missing__", "__class_getitem__")


class Expressions(Machine):
    def call(self, node: ast.Call) -> Value:
        raise NotImplementedError

    def inline(self, function: Function, frame: Frame, given: dict[str, Value], node: ast.AST) -> Value:
        raise NotImplementedError

    @cached_property
    def method_names(self) -> frozenset[str]:
        return frozenset(method.name for known in self.classes.values() for method in known.methods())

    def member_values(self, base: Value, name: str) -> Value:
        raise NotImplementedError

    def implicit(
        self,
        node: ast.AST,
        receivers: Sequence[ast.expr],
        names: Sequence[str],
        arguments: Sequence[Value],
        only_accessors: bool = False,
    ) -> Value:
        raise NotImplementedError

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def value(self, node: ast.expr) -> Value:
        """The tokens of an expression, cut by its type."""
        if isinstance(node, ast.Name):
            return self.load(node)
        if isinstance(node, ast.Constant):
            return NOTHING
        if isinstance(node, ast.Lambda):
            return self._lambda(node)
        return self.cut(self.context.type_of(node), self._evaluate(node))

    def _is_made_here(self, value: Value) -> bool:
        """Whether it is an object of a class of the session: plain fields say nothing of what its methods hold."""
        return any(isinstance(token, Site) and token.node in self.heap.instances for token in value)

    def load(self, node: ast.expr) -> Value:
        """The same for a name, attribute or item that an augmented assignment reads."""
        if not isinstance(node, ast.Name):
            return self.value_of_place(node)
        frame = self.frame_of_name(node)
        value = self.session_value(node.id) if frame is self.session else frame.names.get(node.id, NOTHING)
        if not value:
            return value
        typ = self.context.type_of(node)
        if UNTRUSTED in value or self._is_set_inside(node):
            value -= {UNTRUSTED}
        else:
            value = self.cut(typ, value)
            if self.types.is_plain(typ) and not self._is_made_here(value):
                return value
        gone = self.dead(value)
        if gone:
            self.read_after(node, gone, typ, frame.lines.get(node.id, 0))
            return NOTHING  # said once; what follows from it is not said again
        return value

    def _is_set_inside(self, node: ast.Name) -> bool:
        """Whether a function inside binds the name by `nonlocal`: what mypy narrows it to need not hold any longer."""
        owner = self.context.scopes.owner(node)
        if owner is None or owner.kind != "function":
            return False
        return any(node.id in inner.nonlocals for inner in owner.walk())

    def value_of_place(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Attribute):
            return self.member_values(self.value(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return self.heap.within(self.value(node.value))
        return NOTHING

    def _evaluate(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            base, index = self.value(node.value), self.value(node.slice)
            return self.heap.within(base) | self.implicit(node, [node.value], _ITEM_METHODS, [index])
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return self.made(node, self._all(node.elts))
        if isinstance(node, ast.Dict):
            return self.made(node, self._all([*(key for key in node.keys if key is not None), *node.values]))
        if isinstance(node, ast.BinOp):
            sides = self.value(node.left) | self.value(node.right)
            result = self.implicit(node, [node.left, node.right], _BINARY_METHODS, [sides])
            return self.made(node, self.heap.within(sides) | result) | sides
        if isinstance(node, ast.BoolOp):
            return self._all(node.values)
        if isinstance(node, ast.UnaryOp):
            return self.value(node.operand) | self.implicit(node, [node.operand], _UNARY_METHODS, [])
        if isinstance(node, ast.Compare):
            sides = self._all([node.left, *node.comparators])
            return sides | self.implicit(node, [node.left, *node.comparators], _COMPARE_METHODS, [sides])
        if isinstance(node, ast.IfExp):
            self.value(node.test)
            return self.value(node.body) | self.value(node.orelse)
        if isinstance(node, (ast.JoinedStr, ast.FormattedValue)):
            return self._text(node)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return self._comprehension(node)
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value)
            self.assign(node.target, value, self.context.type_of(node.value))
            return value
        if isinstance(node, ast.Starred):
            return self.heap.elements(self.value(node.value))
        if isinstance(node, ast.Await):
            return self.heap.items(self.value(node.value)) | self.implicit(node, [node.value], ("__await__",), [])
        if isinstance(node, ast.Yield):
            return self._yield(node.value)
        if isinstance(node, ast.YieldFrom):
            return self._yield(node.value)
        if isinstance(node, ast.Slice):
            return self._all([part for part in (node.lower, node.upper, node.step) if part is not None])
        self.report.add("not-understood", node, f"`{type(node).__name__}` is not followed by the capture checker")
        return UNKNOWN

    def made(self, node: ast.AST, holds: Value) -> Value:
        """A new object, made here, that holds `holds`."""
        site = Site(node, frozenset(self.active))
        self.heap.add(site, holds)
        return frozenset((site,))

    def produces(self, made: Value, produced: Value) -> None:
        for token in made:
            if isinstance(token, Site):
                self.heap.produced[token] = self.heap.produced.get(token, NOTHING) | produced

    def _all(self, nodes: Sequence[ast.expr]) -> Value:
        value = NOTHING
        for node in nodes:
            value |= self.value(node)
        return value

    def _text(self, node: ast.JoinedStr | ast.FormattedValue) -> Value:
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                self._text(part) if isinstance(part, ast.FormattedValue) else self.value(part)
            return NOTHING
        self.value(node.value)
        self.implicit(node, [node.value], _TEXT_METHODS, [])
        if node.format_spec is not None:
            self.value(node.format_spec)
        return NOTHING

    def _attribute(self, node: ast.Attribute) -> Value:
        base = self._base_of(node)
        self.uses(base, node)
        typ = self.context.type_of(node.value)
        result = NOTHING if _is_property(typ, node.attr) else self.member_values(base, node.attr)
        if result and node.attr in MUTATING | _PUTTING and not _is_session(typ):
            return self.made(node, result)  # a method that is not called here: it puts what it gets into `base`
        if base and self.is_plain_member(node.attr, typ, base):
            return NOTHING
        if typ is not None and any(is_session_module(info.module_name) for info in instances(typ)):
            # A property runs a method.
            result |= self.implicit(node, [node.value], (node.attr, "__getattr__"), [], only_accessors=True)
        return result

    def _base_of(self, node: ast.Attribute) -> Value:
        """The object that an attribute is read of. It may hold a dead capability, when this attribute does not."""
        if isinstance(node.value, ast.Name):
            frame = self.frame_of_name(node.value)
            raw = (
                self.session_value(node.value.id) if frame is self.session else frame.names.get(node.value.id, NOTHING)
            )
            tracked = bool(raw) and all(isinstance(token, Site) and token in self.heap.fields for token in raw)
            if tracked and self.dead(raw) and not self.dead(self.member_values(raw, node.attr)):
                return raw
        return self.value(node.value)

    def _lambda(self, node: ast.Lambda) -> Value:
        for default in [*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)]:
            caps = self.caps(self.value(default)) & set(self.active)
            if caps:
                self.escape(default, caps, "kept as a default argument")
        return frozenset((Closure(Function(node, self.context, "<lambda>"), self.frame_for_closures()),))

    def _yield(self, value: ast.expr | None) -> Value:
        if value is not None:
            found = self.value(value)
            self.check_leaving(value, found, "yielded from the function that opened the block")
            self.function_frame().yielded |= found
        return UNKNOWN

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Value:
        first = self.heap.elements(self.value(node.generators[0].iter))
        first |= self.implicit(node, [node.generators[0].iter], ("__iter__", "__next__"), [])
        outer = self.frame
        self.frame = Frame(self.context.scopes.of[node], outer)
        self.frames.append(self.frame)
        held = NOTHING
        for number, generator in enumerate(node.generators):
            iterated = first if number == 0 else self.heap.elements(self.value(generator.iter))
            if number:
                iterated |= self.implicit(node, [generator.iter], ("__iter__", "__next__"), [])
            self.assign(generator.target, iterated, self.context.type_of(generator.iter), parts=True)
            for condition in generator.ifs:
                self.value(condition)
        if isinstance(node, ast.DictComp):
            held |= self.value(node.key) | self.value(node.value)
        else:
            held |= self.value(node.elt)
        produced = held
        if isinstance(node, ast.GeneratorExp):
            # It runs later: it holds everything that it will read.
            held |= first
            for inner in self.context.scopes.of[node].walk():
                for name in inner.names:
                    if isinstance(name.ctx, ast.Load):
                        held |= self.load(name) if self._is_visible(name) else NOTHING
        self.frames.pop()
        self.frame = outer
        made = self.made(node, held)
        if isinstance(node, ast.GeneratorExp):
            self.produces(made, produced)
        return made

    def _is_visible(self, name: ast.Name) -> bool:
        owner = self.context.scopes.owner(name)
        return owner is None or owner.kind == "module" or self.frame.for_scope(owner) is not None

    # ── binding ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def assign(self, target: ast.expr, value: Value, source: Type | None, parts: bool = False) -> None:
        """Bind or store. `source` is the type of the whole right side; with `parts`, the target gets a part of it."""
        if isinstance(target, ast.Name):
            if is_open_file(self.context.type_of(target)):
                self.files.add(value - {UNTRUSTED})
            if self._is_claim(target, value, source, parts):
                value |= {UNTRUSTED}
            self.set_name(target, value)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.made(target, self.heap.within(value)), source, parts=True)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self.assign(item, self.heap.items(value), source, parts=True)
        elif isinstance(target, ast.Attribute):
            base = self.value(target.value)
            self.check_plain_target(target, target.value, value)
            self.store(base, value - {UNTRUSTED}, target, f"`{ast.unparse(target.value)}`", target.attr)
            self.implicit(target, [target.value], (target.attr, "__setattr__"), [value], only_accessors=True)
            if value and target.attr in self.method_names:
                self.heap.patched[target.attr] = self.heap.patched.get(target.attr, NOTHING) | value
        elif isinstance(target, ast.Subscript):
            base, index = self.value(target.value), self.value(target.slice)
            self.check_plain_target(target, target.value, value | index)
            self.store(base, (value | index) - {UNTRUSTED}, target, f"`{ast.unparse(target.value)}`")
            self.implicit(target, [target.value], ("__setitem__",), [index, value])

    def _is_claim(self, target: ast.Name, value: Value, source: Type | None, parts: bool) -> bool:
        """Whether the target's type only claims that the value is plain: `text: str = anything`."""
        if not value or UNTRUSTED in value or self.types.is_plain(source) or not self.caps(value):
            return False
        typ = self.context.type_of(target)
        if typ is not None and not self.types.is_plain(typ):
            return False
        return not parts or mentions_any(source)


_FILES = ("typing.TextIO", "typing.BinaryIO", "typing.IO")


def is_open_file(typ: Type | None) -> bool:
    owners = [] if typ is None else list(instances(typ))
    return bool(owners) and all(info.fullname in _FILES for info in owners)


def _is_session(typ: Type | None) -> bool:
    owners = [] if typ is None else list(instances(typ))
    return any(is_session_module(info.module_name) or info.fullname.startswith(API) for info in owners)


def _is_property(typ: Type | None, name: str) -> bool:
    """Whether `.name` runs a getter, whatever object of this type it is read of: then it gives what that returns."""
    owners = [] if typ is None else list(instances(typ))
    return bool(owners) and all(is_session_module(info.module_name) and _has_getter(info, name) for info in owners)


def _has_getter(info: TypeInfo, name: str) -> bool:
    symbol = info.get(name)
    node = None if symbol is None else symbol.node
    if isinstance(node, Decorator):
        return node.var.is_property
    return isinstance(node, OverloadedFuncDef) and node.is_property
