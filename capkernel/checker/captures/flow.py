"""Rule E: a capability may not outlive its scope. Statements: how values move through a cell and where blocks end.

The cell is run on abstract values (`values`), top to bottom; branches are joined, loops run until nothing is new, and a
call of a session function runs its body with what it is given. So a helper needs no annotation, and what it does with a
capability is judged where it is called. A body that opens a block of its own is judged where it is defined as well.

Rule 1: a block's capability that would get into an object older than the block, out of the function that opened it, or
into a thread or task, is refused there and then. So after the block only names can hold it, and reading one is refused.
Rule 2: what is not followed is refused, when a capability is involved.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from capkernel.checker.captures.flow_calls import Calls
from capkernel.checker.captures.flow_functions import Arguments
from capkernel.checker.captures.known import Class, Function
from capkernel.checker.captures.scope_sites import entered_in, granting_call, has_scope
from capkernel.checker.captures.scopes import FunctionNode, parameters_of
from capkernel.checker.captures.types import shown
from capkernel.checker.captures.values import (
    NOTHING,
    OUTER,
    UNKNOWN,
    UNTRUSTED,
    Cap,
    Closure,
    Frame,
    Site,
    Value,
    join,
)

_MOST_ROUNDS = 8
_MOST_FRAMES = 8


class Flow(Calls):
    """Runs one cell on abstract values. Findings go to the report; `session` holds the names afterwards."""

    def run(self, module: ast.Module) -> None:
        self._block(module.body)
        for function in self._definitions:
            if has_scope(function.node, function.context):
                self._judge_definition(function)

    def _judge_definition(self, function: Function) -> None:
        """A body that opens a block, with arguments of which nothing is known."""
        given: dict[str, Value] = {argument.arg: UNKNOWN for argument in parameters_of(function.node)}
        self.lenient += 1
        self.inline(function, self.frames_of(function)[-1], given, function.node)
        self.lenient -= 1

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        self.spend()
        if isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.Assign):
            self._assignment(node.targets, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assignment([node.target], node.value)
        elif isinstance(node, ast.AugAssign):
            self._augmented(node)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node, 0)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._for(node)
        elif isinstance(node, ast.While):
            self._while(node)
        elif isinstance(node, ast.If):
            self.value(node.test)
            self._branches([node.body, node.orelse])
        elif isinstance(node, (ast.Try, ast.TryStar)):
            self._try(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._define(node)
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, ast.Return):
            self._return(node)
        elif isinstance(node, ast.Raise):
            self._raise(node)
        elif isinstance(node, ast.Match):
            self._match(node)
        elif isinstance(node, ast.Assert):
            self.value(node.test)
            if node.msg is not None:
                self.value(node.msg)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                self._delete(target)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.name != "*":
                    self.bind_name(alias.asname or alias.name.partition(".")[0], NOTHING, node)
        elif not isinstance(node, (ast.Pass, ast.Break, ast.Continue, ast.Global, ast.Nonlocal, *_TYPE_ALIAS)):
            self.report.add("not-understood", node, f"`{type(node).__name__}` is not followed by the capture checker")

    def _assignment(self, targets: Sequence[ast.expr], source: ast.expr) -> None:
        if isinstance(source, ast.Tuple) and len(targets) == 1 and _pairs(targets[0], source):
            # `a, b = b, a`: each its own, after all have been read.
            values = [self.value(item) for item in source.elts]
            for target, item, value in zip(targets[0].elts, source.elts, values, strict=True):  # type: ignore[attr-defined]
                self.assign(target, value, self.context.type_of(item))
            return
        value = self.value(source)
        for target in targets:
            self.assign(target, value, self.context.type_of(source))

    def _augmented(self, node: ast.AugAssign) -> None:
        value = self.value(node.value)
        old = self.load(node.target)
        self.implicit(
            node, [node.target, node.value], ("__iadd__", "__isub__", "__ior__", "__iand__", "__imul__"), [value]
        )
        if old:
            self.store(old, self.heap.within(value), node, "the value it is added to")
        if isinstance(node.target, (ast.Name, ast.Attribute)):
            self.assign(node.target, old | value, self.context.type_of(node.value))

    def _delete(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            frame = self.frame_of_name(target)
            frame.names[target.id] = NOTHING
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self._delete(item)
        elif isinstance(target, (ast.Attribute, ast.Subscript)):
            self.value(target.value)

    # ── blocks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _with(self, node: ast.With | ast.AsyncWith, number: int) -> None:
        if number == len(node.items):
            self._block(node.body)
            return
        item = node.items[number]
        granted_by = granting_call(item.context_expr, self.context)
        if granted_by is None:
            self._with_other(node, number)
            return
        call = item.context_expr
        assert isinstance(call, ast.Call)
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            self.value(argument)
        target = item.optional_vars
        cap = self._capability(call, granted_by, target)
        again = cap in self.active
        self.active.append(cap)
        self.frame.opened.append(cap)
        if target is not None:
            self.assign(target, frozenset((cap,)), None)
        self._with(node, number + 1)
        self.finalize(item.context_expr)
        self.frame.opened.pop()
        self.active.pop()
        if not again:
            self.kill(cap)

    def _capability(self, call: ast.Call, granted_by: str, target: ast.expr | None) -> Cap:
        name = target.id if isinstance(target, ast.Name) else "the capability"
        typ = shown(self.context.type_of(target)) if isinstance(target, ast.expr) else granted_by
        return Cap(self.context.number, call.lineno, call.col_offset, name, _TYPES.get(granted_by, typ), granted_by)

    def _with_other(self, node: ast.With | ast.AsyncWith, number: int) -> None:
        """An item that grants nothing itself. A stack ends with it what it entered, an executor what it started."""
        item = node.items[number]
        entered = self.value(item.context_expr)
        result = self.implicit(item.context_expr, [item.context_expr], ("__enter__", "__aenter__"), [])
        if not self._enters_own(item.context_expr):
            result |= self.heap.items(entered)
        if any(isinstance(token, Site) and token.node in self.opened for token in entered):
            self.files.add(result - {UNTRUSTED})
        if item.optional_vars is not None:
            self.assign(item.optional_vars, result, self.context.type_of(item.context_expr))
        granted = self._entered_by_stack(node) if number == len(node.items) - 1 else []
        fresh = [cap for cap in granted if cap not in self.active]
        opened = self.function_frame().opened
        self.active.extend(fresh)
        opened.extend(granted)
        self.waited.append((frozenset(entered | result), frozenset(self.active)))
        self._with(node, number + 1)
        self.waited.pop()
        self.implicit(item.context_expr, [item.context_expr], ("__exit__", "__aexit__"), [UNKNOWN])
        if granted:
            self.finalize(item.context_expr)
            del opened[len(opened) - len(granted) :]
        for cap in fresh:
            self.active.remove(cap)
            self.kill(cap)

    def _entered_by_stack(self, node: ast.With | ast.AsyncWith) -> list[Cap]:
        """The capabilities that a stack of this block enters anywhere in it: counted as open from its beginning."""
        found: list[Cap] = []
        for call in entered_in(node, self.context):
            entering = self.context.parents[call]
            statement = self.context.parents.get(entering)
            alone = isinstance(statement, ast.Assign) and len(statement.targets) == 1
            target = statement.targets[0] if alone and isinstance(statement, ast.Assign) else None
            cap = self._capability(call, granting_call(call, self.context) or "", target)
            self.entered[entering] = cap
            found.append(cap)
        return found

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        iterated = self.heap.elements(self.value(node.iter))
        iterated |= self.implicit(node, [node.iter], ("__iter__", "__next__", "__aiter__", "__anext__"), [])

        def once() -> None:
            self.assign(node.target, iterated, self.context.type_of(node.iter), parts=True)
            self._block(node.body)

        self._loop(once)
        self._branches([node.orelse, []])  # skipped after a `break`

    def _while(self, node: ast.While) -> None:
        def once() -> None:
            self.value(node.test)
            self._block(node.body)

        self._loop(once)
        self._branches([node.orelse, []])

    def _loop(self, once: Callable[[], None]) -> None:
        for _ in range(_MOST_ROUNDS):
            before, changes = self.snapshot(), self.heap.changes
            recorded = self.record()
            once()
            self.stop_recording(recorded)
            self.restore_joined([before, self.snapshot(), recorded])
            if self.snapshot() == before and self.heap.changes == changes:
                return

    def _branches(self, bodies: Iterable[Sequence[ast.stmt]]) -> None:
        before = self.snapshot()
        after = []
        for body in bodies:
            self.restore(before)
            self._block(body)
            state = self.snapshot()
            if _leaves(body):
                state.pop(self.function_frame())  # what it bound of its own is not seen by what follows
            after.append(state)
        self.restore_joined(after)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        before = self.snapshot()
        recorded = self.record()
        self._block(node.body)
        self._block(node.orelse)
        self.stop_recording(recorded)
        after = [self.snapshot()]
        # An exception may come at any point of the body: a handler sees what was bound before or at any time inside.
        self.restore_joined([before, after[0], recorded])
        interrupted = self.snapshot()
        for handler in node.handlers:
            self.restore(interrupted)
            if handler.type is not None:
                self.value(handler.type)
            if handler.name:
                self.bind_name(handler.name, NOTHING, handler)
            self._block(handler.body)
            after.append(self.snapshot())
        self.restore_joined([*after, interrupted] if node.finalbody else after)
        self._block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        subject = self.heap.within(self.value(node.subject))
        before = self.snapshot()
        after = [before]
        for case in node.cases:
            self.restore(before)
            for pattern in ast.walk(case.pattern):
                if isinstance(pattern, (ast.MatchAs, ast.MatchStar)) and pattern.name:
                    self.bind_name(pattern.name, self._untrusted(subject), pattern)
                elif isinstance(pattern, ast.MatchMapping) and pattern.rest:
                    self.bind_name(pattern.rest, self._untrusted(subject), pattern)
            if case.guard is not None:
                self.value(case.guard)
            self._block(case.body)
            after.append(self.snapshot())
        self.restore_joined(after)

    def _untrusted(self, value: Value) -> Value:
        # A pattern has no type of its own here; what it binds is taken to hold what the subject holds.
        return value | {UNTRUSTED} if self.caps(value) else value

    # ── leaving a function ───────────────────────────────────────────────────────────────────────────────────────────

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        value = self.value(node.value)
        self.check_leaving(node.value, value, "returned from the function that opened the block")
        if self.caps(value):
            value |= {UNTRUSTED}  # what the function says it returns is then only a claim
        self.function_frame().returned |= value

    def _raise(self, node: ast.Raise) -> None:
        for part in (node.exc, node.cause):
            if part is not None:
                caps = self.caps(self.value(part)) & set(self.active)
                if caps:
                    self.escape(part, caps, "raised out of the block")

    # ── definitions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        function = Function(node, self.context, node.name)
        self._check_defaults(node)
        value: Value = frozenset((Closure(function, self.frame_for_closures()),))
        self._remember(function)
        for decorator in reversed(node.decorator_list):
            value = self.decorate(decorator, value)
        self.bind_name(node.name, value, node)

    def _check_defaults(self, node: FunctionNode) -> None:
        for default in [*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)]:
            caps = self.caps(self.value(default)) & set(self.active)
            if caps:
                self.escape(default, caps, "kept as a default argument")

    def _remember(self, function: Function) -> None:
        frame, known = self.frame_for_closures(), self._defined_in.setdefault(function.node, [])
        if len(known) < _MOST_FRAMES:
            if not any(frame is other for other in known):
                known.append(frame)
        else:  # made very often: what it sees is joined
            known[-1].names = join(known[-1].names, frame.names)
        if not self.inlining:
            self._definitions.append(function)

    def _class(self, node: ast.ClassDef) -> None:
        for part in [*node.decorator_list, *node.bases]:
            self.value(part)
        keywords = [(keyword.value, self.value(keyword.value)) for keyword in node.keywords]
        outer = self.frame
        self.frame = Frame(self.context.scopes.of[node], outer)
        self.frames.append(self.frame)
        definition = Class(node, self.context, self.context.class_info(node))
        methods = {method.node: method for method in definition.methods()}
        for statement in node.body:
            method = methods.get(statement)  # type: ignore[call-overload]
            if method is not None:
                for decorator in statement.decorator_list:  # type: ignore[attr-defined]
                    self.value(decorator)
                self._check_defaults(method.node)
                self._remember(method)
                self.frame.names[method.name] = frozenset((Closure(method, self.frame_for_closures()),))
            else:
                self.statement(statement)
        members = self.frame.names
        self.frames.pop()
        self.frame = outer
        site = Site(node, frozenset(self.active))
        self.heap.made(site)
        for name, value in members.items():
            self.heap.add(site, value, name)
        self._made_class(node, definition, frozenset((site,)), keywords)
        self.bind_name(node.name, frozenset((site,)), node)

    def _made_class(self, node: ast.ClassDef, definition: Class, made: Value, keywords: Arguments) -> None:
        """What the class statement calls: `__set_name__` of what stands in it, `__init_subclass__` of its bases."""
        for statement in node.body:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                self.implicit(statement, [statement.value], ("__set_name__",), [made])
        if definition.info is None:
            return
        for base in definition.info.mro[1:]:
            for method in self._methods_named(f"{base.fullname}.__init_subclass__"):
                call = ast.Call(func=ast.Name("cls", ast.Load()), args=[], keywords=node.keywords)
                self.inline_method(method, self._given(method.node, call, keywords, made), node)
                return

    # ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> dict[Frame, dict[str, Value]]:
        return {frame: dict(frame.names) for frame in self.chain()}

    def restore(self, state: dict[Frame, dict[str, Value]]) -> None:
        for frame, names in state.items():
            frame.names = dict(names)

    def restore_joined(self, states: Sequence[dict[Frame, dict[str, Value]]]) -> None:
        for frame in self.chain():
            joined: dict[str, Value] = {}
            for state in states:
                joined = join(joined, state.get(frame, {}))
            frame.names = joined

    def chain(self) -> list[Frame]:
        found = []
        frame: Frame | None = self.frame
        while frame is not None:
            found.append(frame)
            frame = frame.parent
        return found


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether what stands behind a branch never runs after it. A `with` may swallow what is raised in it."""
    last = body[-1] if body else None
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return _leaves(last.body) and not isinstance(last.body[-1], (ast.Raise, ast.With, ast.AsyncWith))
    return isinstance(last, (ast.Return, ast.Raise, ast.Break, ast.Continue))


def _pairs(target: ast.expr, source: ast.Tuple) -> bool:
    if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != len(source.elts):
        return False
    return not any(isinstance(item, ast.Starred) for item in [*target.elts, *source.elts])


_TYPE_ALIAS: tuple[type[ast.AST], ...] = tuple(filter(None, (getattr(ast, "TypeAlias", None),)))
_TYPES = {
    "request_file_system": "FileSystem",
    "request_exec_permission": "ProcessPermission",
    "request_network": "Network",
}

__all__ = ["OUTER", "Flow"]
