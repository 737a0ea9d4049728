"""The state of the flow analysis: frames, heap, open blocks; what a value reaches; and how an escape is reported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from mypy.types import AnyType, Type, get_proper_type

from capkernel.checker.captures.known import FUNCTIONS, Class, Context, Data, Entry, Function, Imported, Known, View
from capkernel.checker.captures.scope_sites import SiteKey
from capkernel.checker.captures.scopes import Scope
from capkernel.checker.captures.types import Types, is_library_function, only_classified, shown
from capkernel.checker.captures.values import (
    NOTHING,
    OUTER,
    UNKNOWN,
    UNTRUSTED,
    Cap,
    Closure,
    Dead,
    Frame,
    Heap,
    Site,
    Token,
    Value,
)
from capkernel.checker.captures.verbs import verbs_of
from capkernel.checker.subset.report import Report, show
from capkernel.checker.tables import borrows
from capkernel.diagnostics.model import Captured, Fix, Note

_MOST_STEPS = 20_000  # statements run on abstract values
_MOST_VISITS = 1_000_000  # tokens looked at; about a second

Recording = dict[Frame, dict[str, Value]]


class TooMuchWork(Exception):
    """The flow of this cell cannot be followed within the limits."""


class Machine:
    """What every part of the analysis shares. One per cell."""

    def __init__(
        self,
        context: Context,
        report: Report,
        types: Types,
        session: Frame,
        heap: Heap,
        entries: Mapping[str, Entry],
        classes: Mapping[str, Class],
    ) -> None:
        self.context = context
        self.report = report
        self.types = types
        self.session = session
        self.heap = heap
        self.entries = entries
        self.classes = classes
        self.frame = session
        self.frames: list[Frame] = [session]
        self.active: list[Cap] = []
        self.inlining: list[ast.AST] = []  # the calls, outermost first; errors are reported at the first one
        self.lenient = 0
        self.home = context
        self._steps = 0
        self._recordings: list[Recording] = []
        self._definitions: list[Function] = []
        self._defined_in: dict[ast.AST, list[Frame]] = {}  # where a function was made, each time
        self._free: dict[ast.AST, list[tuple[str, Scope | None]]] = {}
        self._read_after: set[str] = set()
        self._escaped: set[ast.AST] = set()
        self.transparent: set[ast.AST] = set()  # calls whose result is a capability or a builtin container of such
        self._memo: dict[tuple[object, ...], tuple[int, Value]] = {}
        self._frames_of_functions: set[Frame] = set()
        self._seen_values: set[Value] = set()  # whose functions' frames are among those
        self._running: dict[tuple[object, ...], Value] = {}
        self._decorated: dict[ast.AST, Value] = {}
        self.opened: set[ast.AST] = set()  # calls of `open` in helpers that do not know the types
        self.files: set[Value] = set()  # what names of open files hold
        self.entered: dict[ast.AST, Cap] = {}  # calls by which the stack of a block enters a capability
        # What the blocks around wait for when they end (executors, task groups), with the capabilities that are open.
        self.waited: list[tuple[Value, frozenset[Cap]]] = []
        self.followed: set[tuple[SiteKey, str]] = set()  # what was done with which capability, for the plan

    def decorated(self, function: Function) -> Value:
        """What the decorators of a function of the session make of it."""
        raise NotImplementedError

    def spend(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS or self.heap.visits > _MOST_VISITS:
            raise TooMuchWork

    def uses(self, receiver: Value, member: ast.Attribute, call: ast.Call | None = None) -> None:
        """Note that a member of a value is used, when the value may be a capability itself."""
        for verb in verbs_of(member, call):
            for token in receiver:
                if isinstance(token, Cap):
                    self.followed.add(((token.cell, token.line, token.column), verb))

    # ── what a value reaches ─────────────────────────────────────────────────────────────────────────────────────────

    def reach(self, value: Value) -> set[Token]:
        """All tokens that a value is or leads to, through objects and through what functions capture."""
        found: set[Token] = set()
        todo: list[Token] = list(value)
        while todo:
            token = todo.pop()
            if token in found:
                continue
            found.add(token)
            if isinstance(token, Site):
                todo.extend(self.heap.contents.get(token, NOTHING))
            elif isinstance(token, Closure):
                for name, scope in self.free_names(token.function):
                    todo.extend(self._captured(token, name, scope))
        self.heap.visits += len(found)
        return found

    def caps(self, value: Value) -> set[Cap]:
        """The capabilities of open blocks that a value holds."""
        if not value:
            return set()
        return {token for token in self.reach(value) if isinstance(token, Cap)}

    def dead(self, value: Value) -> set[Cap]:
        if not value:
            return set()
        return {token.cap for token in self.reach(value) if isinstance(token, Dead)}

    def _captured(self, closure: Closure, name: str, scope: Scope | None) -> Value:
        if scope is None or scope.kind == "module":
            return self.session_value(name)
        frame = closure.frame.for_scope(scope)
        return UNKNOWN if frame is None else frame.names.get(name, NOTHING)

    def free_names(self, function: Function) -> list[tuple[str, Scope | None]]:
        """The names a function reads from outside itself, with the scope that binds each."""
        known = self._free.get(function.node)
        if known is None:
            own = function.scope
            scopes = function.context.scopes
            seen: dict[str, Scope | None] = {}
            for inner in own.walk():
                for name in inner.names:
                    owner = scopes.owner(name)
                    if owner is None or not owner.is_within(own):
                        seen[name.id] = owner
            known = list(seen.items())
            self._free[function.node] = known
        return known

    def session_value(self, name: str) -> Value:
        value = self.session.names.get(name)
        if value is not None:
            return value
        entry = self.entries.get(name)
        if entry is None:
            return NOTHING
        known = entry.known
        if isinstance(known, Function) and entry.certain and getattr(known.node, "decorator_list", None):
            # What stands behind the name is what the decorators made of it. They are run once, and it is kept.
            value = self.decorated(known)
            self.session.names[name] = value
            return value
        return frozenset[Token]().union(*(self._value_of(known, entry.certain) for known in entry.known_ways))

    def _value_of(self, known: Known, certain: bool) -> Value:
        if isinstance(known, Imported):
            return NOTHING
        if isinstance(known, Function):
            if isinstance(known.node, ast.Lambda) and not certain:
                return UNKNOWN
            return frozenset((Closure(known, self.session),)) | (NOTHING if certain else UNKNOWN)
        if isinstance(known, Data) and (self.types.is_immutable(known.type) or is_library_function(known.type)):
            return NOTHING
        return UNKNOWN

    def cut(self, typ: Type | None, value: Value) -> Value:
        """What of `value` a value of this type can still hold."""
        if not value or typ is None or UNTRUSTED in value:
            return value
        if self.types.is_immutable(typ) or only_classified(typ) is not None:
            return NOTHING
        if self.types.is_plain(typ):
            return frozenset(token for token in value if isinstance(token, Site) or token is OUTER)
        return value

    def cut_result(self, typ: Type | None, value: Value) -> Value:
        """The same for what a library returns: plain data does not keep the functions that were called to make it."""
        value = self.cut(typ, value)
        if not value or UNTRUSTED in value or not self.types.is_plain(typ):
            return value
        return frozenset(token for token in value if not isinstance(token, Site) or not self._keeps_code(token))

    def _keeps_code(self, site: Site) -> bool:
        inside = self.heap.within(frozenset((site,)))
        return any(isinstance(token, Closure) for token in inside) and not any(
            isinstance(token, (Cap, Dead)) for token in inside
        )

    def is_plain_member(self, name: str, typ: Type | None, base: Value) -> bool:
        """Whether `.name` of a value that mypy does not know is plain: there can be only capabilities behind it."""
        if name not in borrows().plain_members or typ is None or not isinstance(get_proper_type(typ), AnyType):
            return False
        return self.is_capability_only(typ, base)

    def is_capability_only(self, typ: Type | None, base: Value) -> bool:
        """Whether a value that mypy does not know can only be a capability, or a builtin container of such."""
        if typ is None or not isinstance(get_proper_type(typ), AnyType):
            return False
        return all(
            isinstance(token, (Cap, Dead))
            or (isinstance(token, Site) and _is_transparent(token.node, self.transparent))
            for token in self.heap.within(base)
        )

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def frame_of_name(self, node: ast.Name) -> Frame:
        owner = self.context.scopes.owner(node)
        return self.frame_of_scope(owner)

    def frame_of_scope(self, owner: Scope | None) -> Frame:
        if owner is None or owner.kind == "module":
            return self.session
        return self.frame.for_scope(owner) or self.frame

    def frame_for_closures(self) -> Frame:
        """Where a function that is made now finds its free names: a class body is skipped."""
        frame = self.frame
        while frame.scope is not None and frame.scope.kind == "class" and frame.parent is not None:
            frame = frame.parent
        return frame

    def function_frame(self) -> Frame:
        frame = self.frame
        while frame.scope is not None and frame.scope.kind in ("class", "comprehension") and frame.parent is not None:
            frame = frame.parent
        return frame

    def bind_name(self, name: str, value: Value, node: ast.AST) -> None:
        """What `def`, `class`, imports, handlers and patterns bind, in the scope that is running."""
        frame = self.frame
        while frame.scope is not None and frame.scope.kind == "comprehension" and frame.parent is not None:
            frame = frame.parent
        if frame.scope is not None and name in frame.scope.globals:
            self._check_global(name, value, node)
            frame = self.session
        self.set_variable(frame, name, value, node)

    def set_variable(self, frame: Frame, name: str, value: Value, node: ast.AST) -> None:
        frame.names[name] = value
        frame.lines[name] = getattr(node, "lineno", 1)
        for recording in self._recordings:
            names = recording.setdefault(frame, {})
            names[name] = names.get(name, NOTHING) | value

    def _check_global(self, name: str, value: Value, node: ast.AST) -> None:
        caps = self.caps(value) & set(self.active)
        if caps:
            self.escape(node, caps, f"stored in the global name `{name}`")

    def set_name(self, node: ast.Name, value: Value) -> None:
        owner = self.context.scopes.owner(node)
        frame = self.frame_of_scope(owner)
        if frame is self.session and self.frame is not self.session and not self._is_session_level():
            self._check_global(node.id, value, node)
        elif frame is not self.frame and frame is not self.function_frame():
            caps = {cap for cap in self.caps(value) if cap in self.active and self._opened_inside(cap, frame)}
            if caps:
                self.escape(node, caps, f"stored in `{node.id}` of the function around this one")
                return  # said once; what follows from it is not said again
            value = value | frame.names.get(node.id, NOTHING)
        self.set_variable(frame, node.id, value, node)

    def _is_session_level(self) -> bool:
        return self.function_frame() is self.session

    def _opened_inside(self, cap: Cap, frame: Frame) -> bool:
        current: Frame | None = self.frame
        while current is not None and current is not frame:
            if cap in current.opened:
                return True
            current = current.parent
        return False

    # ── storing and leaving ──────────────────────────────────────────────────────────────────────────────────────────

    def store(self, target: Value, value: Value, node: ast.AST, what: str, field: str = "") -> None:
        """Put `value` into the objects `target`; refused when they are older than a block whose capability it holds."""
        caps = self.caps(value) & set(self.active)
        sites = [token for token in target if isinstance(token, Site)]
        if caps:
            late = {cap for cap in caps if not sites or any(cap not in site.within for site in sites)}
            if OUTER in target or any(isinstance(token, Closure) for token in target):
                late = caps
            if late:
                self.escape(node, late, f"stored in {what}, which is older than the block")
                return
        if value:
            for site in sites:
                self.heap.add(site, value, field)

    def check_plain_target(self, node: ast.AST, target: ast.expr, value: Value) -> None:
        """A capability in an object whose type says that it holds plain data could not be followed any further."""
        if not self.active or not self.types.is_plain(self.context.type_of(target)):
            return
        caps = self.caps(value) & set(self.active)
        if caps:
            self.escape(node, caps, f"stored in `{ast.unparse(target)}`, whose type says that it holds plain data")

    def check_leaving(self, node: ast.expr, value: Value, how: str) -> None:
        opened = self.function_frame().opened
        if opened:
            caps = self.caps(value) & set(opened)
            if caps:
                self.escape(node, caps, how)

    def kill(self, cap: Cap) -> None:
        """The block has ended: whatever still holds its capability holds a dead one."""
        seen: set[Frame] = set()
        todo = [*self.frames, *self._closure_frames(), *self.chain_of(self.frame)]
        for frame in todo:
            if frame in seen:
                continue
            seen.add(frame)
            self._kill_in(frame.names, cap)
            frame.returned = self.heap.after(frame.returned, cap)
            frame.yielded = self.heap.after(frame.yielded, cap)
        for recording in self._recordings:
            for names in recording.values():
                self._kill_in(names, cap)
        self.heap.kill(cap)

    def _kill_in(self, names: dict[str, Value], cap: Cap) -> None:
        for name in self.heap.unsettled(names):
            names[name] = self.heap.after(names[name], cap)

    def chain_of(self, frame: Frame | None) -> Iterable[Frame]:
        while frame is not None:
            yield frame
            frame = frame.parent

    def _closure_frames(self) -> set[Frame]:
        """The frames of all functions that are held anywhere. What a value leads to is looked up once: it stays so."""
        found = self._frames_of_functions
        frames: list[Frame] = [*self.frames, *found]
        todo = self._unseen(self.heap.contents.values())
        while frames or todo:
            if frames:
                todo += self._unseen(frames.pop().names.values())
                continue
            value = todo.pop()
            self._seen_values.add(value)
            for token in value:
                if isinstance(token, Closure) and token.frame not in found:
                    new = [frame for frame in self.chain_of(token.frame) if frame not in found]
                    found.update(new)
                    frames += new
        return found

    def _unseen(self, values: Iterable[Value]) -> list[Value]:
        return [value for value in values if value and value not in self._seen_values]

    # ── recordings of what loops and try bodies bind on the way ──────────────────────────────────────────────────────

    def record(self) -> Recording:
        recording: Recording = {}
        self._recordings.append(recording)
        return recording

    def stop_recording(self, recording: Recording) -> None:
        self._recordings = [other for other in self._recordings if other is not recording]

    # ── refusing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def escape(self, node: ast.AST, caps: set[Cap], how: str) -> None:
        """A capability would outlive its block. Reported in the cell that is checked, also from inside a helper."""
        cap = min(caps, key=lambda one: (one.cell, one.line, one.column))
        if node in self._escaped:
            return
        self._escaped.add(node)
        place, notes = self._place(node)
        self.report.add(
            "capability-escape",
            place,
            f"`{cap.name}` would outlive its block: it is {how}",
            label=f"holds `{cap.name}`",
            captured=(Captured(cap.name, cap.type, cap.origin),),
            notes=notes,
            help="keep the capability inside the block and let plain results out",
            fix=_fix(cap),
        )

    def read_after(self, node: ast.Name, caps: set[Cap], typ: Type | None, line: int) -> None:
        """A name still holds the capability of a block that has ended."""
        cap = min(caps, key=lambda one: (one.cell, one.line, one.column))
        place, notes = self._place(node)
        if not self.inlining:
            if node.id in self._read_after:
                return
            self._read_after.add(node.id)
        captured = [Captured(cap.name, cap.type, cap.origin)]
        if node.id != cap.name:
            bound = f"cell {cap.cell}, line {line}" if line else f"cell {cap.cell}"
            captured.insert(0, Captured(node.id, shown(typ), bound))
        self.report.add(
            "capability-escape",
            place,
            f"`{node.id}` is used after the block of `{cap.name}`, which it holds, has ended",
            label=f"holds `{cap.name}`",
            captured=tuple(captured),
            notes=notes,
            help="use it inside the block, or take plain data out of the block",
            fix=_fix(cap),
        )

    def _place(self, node: ast.AST) -> tuple[ast.AST, tuple[Note, ...]]:
        if not self.inlining:
            return node, ()
        span = self.context.cell.span(node)
        return self.inlining[0], (Note("it happens here", self.context.number, span),)


def _is_transparent(node: ast.AST, calls: set[ast.AST]) -> bool:
    return node in calls or isinstance(
        node, (ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp)
    )


def _fix(cap: Cap) -> Fix | None:
    if cap.granted_by != "request_file_system":
        return None
    return show(
        f'with request_file_system(...) as {cap.name}:\n    text = {cap.name}.access("notes.txt").read()\ntext',
        "let data out, not the capability",
    )


__all__ = ["FUNCTIONS", "UNKNOWN", "UNTRUSTED", "Machine", "TooMuchWork", "View"]
