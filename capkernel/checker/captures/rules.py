"""One walk over a typed cell: everything must have a type, and each node is shown to the rules on single nodes."""

from __future__ import annotations

import ast

from mypy.nodes import TypeInfo

from capkernel.checker.captures.ambient import AmbientRule
from capkernel.checker.captures.classified import ClassifiedRule
from capkernel.checker.captures.frame_text import FrameText
from capkernel.checker.captures.known import Change, Class, Context, Entry, Function, Imported, View
from capkernel.checker.captures.map_calls import MapCalls
from capkernel.checker.captures.openers import Openers
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.plan import PlanBuilder
from capkernel.checker.captures.scope_sites import entering_block, granting_name
from capkernel.checker.captures.types import API, class_object, is_session_module, only_classified, shown
from capkernel.checker.subset.report import Report, show

_UNTYPED_FIELDS = frozenset(("annotation", "returns", "type_params", "bases", "ctx", "pattern", "decorator_list"))
_RUNS_UNTYPED = frozenset(("annotation", "returns", "type_params", "bases", "decorator_list"))
_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


class Rules:
    """All rules but the flow of capabilities."""

    def __init__(
        self,
        context: Context,
        view: View,
        report: Report,
        plan: PlanBuilder,
        maps: MapCalls,
        openers: Openers,
        changed: dict[str, Change],
    ) -> None:
        """changed: classes, by mypy's name, of which an attribute was bound later; the walk adds to it."""
        self._context = context
        self._report = report
        self._plan = plan
        self._maps = maps
        self._view = view
        self._ambient = AmbientRule(context, view, report, openers)
        self._classified = ClassifiedRule(context, view, report)
        self._frames = FrameText(context, view, report)
        self.opens_block = False
        self.stored: set[str] = set()  # names of attributes that the cell binds
        self.changed = changed

    def walk(self) -> None:
        todo: list[ast.AST] = [self._context.cell.module]
        while todo:
            node = todo.pop()
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
                if not self._is_typed(node):
                    continue
                self._judge(node)
            self._classified.visit(node)
            todo.extend(_parts(node)[::-1])
            for field in _RUNS_UNTYPED.intersection(node._fields):
                self._walk_untyped(getattr(node, field), flows=field in ("bases", "decorator_list"))

    def _judge(self, node: ast.Name | ast.Attribute | ast.Call) -> None:
        self._ambient.visit(node)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            self.stored.add(node.attr)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            self._note_change(node)
        if isinstance(node, ast.Call):
            self._call(node)
        else:
            self._reference(node)

    def _walk_untyped(self, value: ast.AST | list[ast.AST] | None, flows: bool) -> None:
        """Annotations, bases, decorators and type parameters run like any other expression; mypy reads them as types.

        `flows`: what is handed over in a call there is followed (rule E).
        """
        for part in value if isinstance(value, list) else [value]:
            unknown = False
            for node in () if part is None else ast.walk(part):
                typed = isinstance(node, ast.expr) and self._context.resolve(node) is not None
                if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
                    if typed:
                        self._judge(node)
                    else:
                        self._ambient.visit(node)
                        unknown |= isinstance(node, ast.Call) and not self._is_known_call(node, flows)
                elif not typed and _operates(node):
                    unknown |= any(isinstance(inner, ast.Name) for inner in ast.walk(node))
                if typed:
                    self._classified.visit(node)
            if unknown and part is not None:
                self._report.add(
                    "untyped-code",
                    part,
                    "what is computed here was not checked: the type checker reads this place as a type",
                    help="compute it before, and give the result a name",
                )

    def _is_known_call(self, node: ast.Call, flows: bool) -> bool:
        """Whether it calls something of a library, or a function of the session by its name."""
        path = path_of(node.func, self._context, self._view)
        if path:
            return not path.startswith(API)
        entry = self._view.lookup(node.func.id) if flows and isinstance(node.func, ast.Name) else None
        return entry is not None and isinstance(entry.known, Function)

    def _note_change(self, node: ast.Attribute) -> None:
        info = class_object(self._context.type_of(node.value))
        if info is not None and is_session_module(info.module_name):
            self.changed[info.fullname] = Change(node.attr, self._context.number, node.lineno)

    def _is_typed(self, node: ast.Name | ast.Attribute | ast.Call) -> bool:
        if not isinstance(node, ast.Call) and not isinstance(node.ctx, ast.Load):
            return True
        if self._context.resolve(node) is not None:
            return True
        if isinstance(node, ast.Call) and path_of(node.func, self._context, self._view) in _TYPE_MAKERS:
            return False  # a definition of a type: mypy read it as one, and it holds nothing that runs
        if not isinstance(node, ast.Call) and self._is_alias(node):
            return True
        if self._is_after_exit(node):
            return False  # it never runs
        self._report.add(
            "untyped-code",
            node,
            "this code was not checked: the type checker holds it for unreachable, or was told to skip it",
            help="delete it, or write it so that it is reached: no `TYPE_CHECKING`, `no_type_check`, `sys.platform`",
        )
        return False

    def _is_after_exit(self, node: ast.AST) -> bool:
        """Whether a `return`, `raise`, `break` or `continue` stands before it in its block, or in a block around it."""
        parents = self._context.parents
        current: ast.AST | None = node
        while current is not None:
            around = parents.get(current)
            for field in ("body", "orelse", "finalbody"):
                block = getattr(around, field, None)
                if not isinstance(block, list) or current not in block:
                    continue
                if any(isinstance(one, _EXITS) for one in block[: block.index(current)]):
                    return True
            current = around
        return False

    def _is_alias(self, node: ast.expr) -> bool:
        """Whether `node` is part of `Name = <type>`: mypy reads that as a type, and evaluating it calls nothing."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self._context.parents.get(current)
        if (
            not isinstance(current, ast.Assign)
            or len(current.targets) != 1
            or not isinstance(current.targets[0], ast.Name)
        ):
            return False
        if self._context.resolve(current.value) is None:
            return False
        return all(isinstance(part, _TYPE_SYNTAX) for part in ast.walk(current.value))

    def _call(self, node: ast.Call) -> None:
        typ = self._context.type_of(node)
        classified = only_classified(typ)
        if classified is not None:
            self._plan.add_mask(node, shown(classified.args[0]) if classified.args else "Any", self._context)
        self._maps.visit(node)
        self._frames.visit(node)

    def _reference(self, node: ast.Name | ast.Attribute) -> None:
        name = granting_name(node, self._context)
        if name is None:
            return
        call = self._context.parents.get(node)
        item = None if call is None else self._context.parents.get(call)
        if (
            isinstance(call, ast.Call)
            and call.func is node
            and isinstance(item, ast.withitem)
            and item.context_expr is call
        ):
            self.opens_block = True
            return
        if isinstance(call, ast.Call) and call.func is node and entering_block(call, self._context) is not None:
            self.opens_block = True
            return
        member = item.func if isinstance(item, ast.Call) else None
        if isinstance(member, ast.Attribute) and member.attr == "enter_context":
            self._report.add(
                "scope-outside-with",
                node,
                f"`{name}` is entered by a stack that is not the one of a `with` around it",
                label="nobody can say when it would be taken back",
                help="open the stack in a `with`, and do nothing with it in there but enter and add callbacks",
                fix=show(f"with ExitStack() as stack:\n    {_USUAL[name]} = stack.enter_context({name}(...))\n    ..."),
            )
            return
        self._report.add(
            "scope-outside-with",
            node,
            f"`{name}` stands only as the item of a `with` block",
            label="nothing would take it back",
            help="open the block where the capability is used",
            fix=show(f"with {name}(...) as {_USUAL[name]}:\n    ..."),
        )


# What runs methods of its operands, secrets among them. `X | Y` is a type.
_OPERATING = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.IfExp, ast.FormattedValue)


def _operates(node: ast.AST) -> bool:
    return isinstance(node, _OPERATING) and not isinstance(getattr(node, "op", None), ast.BitOr)


_TYPE_MAKERS = frozenset(
    f"{module}.{name}"
    for module in ("typing", "typing_extensions")
    for name in ("NewType", "TypeVar", "ParamSpec", "TypeVarTuple", "TypedDict", "NamedTuple")
)

_TYPE_SYNTAX = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Tuple,
    ast.List,
    ast.BinOp,
    ast.BitOr,
    ast.Constant,
    ast.Load,
)

_USUAL = {"request_file_system": "fs", "request_exec_permission": "run", "request_network": "net"}


_UNTYPED = frozenset(("MatchValue", "TypeAlias", "Constant"))
_typed_fields: dict[type[ast.AST], tuple[str, ...]] = {}


def _parts(node: ast.AST) -> list[ast.AST]:
    """Parts that mypy types as expressions: not annotations, patterns, bases."""
    kind = type(node)
    fields = _typed_fields.get(kind)
    if fields is None:
        untyped = kind.__name__ in _UNTYPED
        fields = () if untyped else tuple(name for name in kind._fields if name not in _UNTYPED_FIELDS)
        _typed_fields[kind] = fields
    found: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found.extend(item for item in value if isinstance(item, ast.AST))
    return found


__all__ = ["API", "Class", "Entry", "Function", "Imported", "Rules", "TypeInfo", "is_session_module"]
