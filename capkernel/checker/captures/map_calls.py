"""Calls of `map` and `flat_map` on a Classified: which function it is, whether it is pure, and what is shipped."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from capkernel.checker.captures.instead import as_plain, out_of_table
from capkernel.checker.captures.known import Change, Class, Context, Data, Entry, Function, View
from capkernel.checker.captures.made_functions import MadeFunction, made_function
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.plan import PlanBuilder, Unshippable
from capkernel.checker.captures.purity import Purity
from capkernel.checker.captures.reach import UNSENDABLE, Violation, first_name, origin_of
from capkernel.checker.captures.types import (
    API,
    Types,
    holds_classified,
    is_any,
    is_callable,
    is_classified,
    only_classified,
    shown,
    unsendable,
)
from capkernel.checker.subset.report import Report, show
from capkernel.checker.tables import pure
from capkernel.diagnostics.model import Captured, Note

_MAPS = ("map", "flat_map")
_MOST_NAMES = 8  # from `p` to what `p` is, to what that is, ...
_REBOUND = "bound anew"
_CLOCK = 'now = time.time()\nstamped = secret.map(lambda x: f"{x} {now}")'
_NAMED = (ast.Name, ast.Attribute, ast.Call)


@dataclass(frozen=True)
class _Place:
    """A function that is handed to `map`: `node` is where, in the cell that is judged; `given` is the expression that
    says which, in `context`, of names that mean what they do in `view`. `through`: the names that lead there."""

    node: ast.expr
    given: ast.expr
    context: Context
    view: View
    through: tuple[tuple[str, Context, ast.expr], ...] = ()

    def part(self, given: ast.expr) -> _Place:
        return _Place(self.node if self.through else given, given, self.context, self.view, self.through)

    def notes(self) -> tuple[Note, ...]:
        return tuple(
            Note(f"`{name}` is made here", context.number, context.cell.span(value))
            for name, context, value in self.through
        )


class MapCalls:
    """Judges the calls of one cell."""

    def __init__(
        self,
        context: Context,
        entries: Mapping[str, Entry],
        types: Types,
        classes: dict[str, Class],
        report: Report,
        plan: PlanBuilder,
        changed: Mapping[str, Change],
    ) -> None:
        self._changed = changed
        self._context = context
        self._entries = entries
        self._types = types
        self._classes = classes
        self._report = report
        self._plan = plan

    def visit(self, node: ast.Call) -> None:
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in _MAPS:
            self._handed_over(node)
            return
        typ = self._context.type_of(function.value)
        if is_any(typ) and self._stands_for_classified(function.value):
            self._refuse_untyped(node, function, (), _name_of(function.value))
            return
        if not is_classified(typ):
            return
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            self._refuse(node, f"`{function.attr}` takes exactly one function, written in the call")
            return
        self._judge(node.args[0])
        self._warn_of_result(node)

    def _warn_of_result(self, node: ast.Call) -> None:
        """A result that the codec does not carry is a failure, of which only the person hears."""
        made = only_classified(self._context.type_of(node))
        kind = unsendable(made.args[0]) if made is not None and made.args else ""
        if kind:
            self._report.add(
                "impure-map",
                node,
                f"this gives a `{kind}`, which the vault cannot keep: what comes of it is a failure that only you see",
                why="the vault keeps plain data, numpy arrays and pandas frames between two calls",
                help=f"give plain data: {as_plain(kind)}",
                severity="warning",
            )

    def _view(self, node: ast.AST) -> View:
        index = None if self._context.is_deferred(node) else self._context.index_of(node)
        return View(self._entries, self._context, index)

    def _judge(self, given: ast.expr) -> None:
        self._judge_at(_Place(given, given, self._context, self._view(given)))

    def _judge_at(self, at: _Place) -> None:
        given, context, view = at.given, at.context, at.view
        if isinstance(given, ast.IfExp):
            self._judge_at(at.part(given.body))
            self._judge_at(at.part(given.orelse))
            return
        made = made_function(given, context, view)
        if made is not None:
            self._judge_made(at, made)
            return
        function = self._function(at)
        if isinstance(function, Function):
            self._judge_function(at, function)
            return
        named = None if function == _REBOUND else self._named(at)
        if named is not None:
            self._judge_at(named)
        elif function == "":
            path = path_of(given, context, view)
            if path and not path.startswith(API) and pure().is_pure(path):
                resolved = context.resolve(given)
                self._plan.add_table(path, "" if resolved is None else resolved.fullname)
            elif not self._refuse_bound(at):
                self._refuse_unknown(at, path)
        elif function == _REBOUND:
            self._refuse_rebound(at)
        else:
            self._refuse(at.node, f"function given to `Classified.map` cannot be verified: {function}")

    def _named(self, at: _Place) -> _Place | None:
        """What a name stands for that was bound to a function made elsewhere: `p` after `p = partial(f, 2)`."""
        if not isinstance(at.given, ast.Name) or len(at.through) >= _MOST_NAMES:
            return None
        owner = at.context.scopes.owner(at.given)
        if owner is not None and owner.kind != "module":
            bindings = owner.bindings[at.given.id]
            entry = at.context.entry(bindings[0], True) if len(bindings) == 1 else None
        else:
            entry = at.view.lookup(at.given.id)
        if entry is None or entry.made is None or not entry.certain or entry.others:
            return None
        value, context = entry.made.value, entry.made.context
        if isinstance(value, (ast.Dict, ast.List, ast.Tuple)):
            return None
        if owner is not None and owner.kind != "module":
            view = at.view
        else:
            # The value was made when the statement ran: of what its names were then.
            view = View(self._entries, context, context.index_of(value))
        return _Place(at.node, value, context, view, (*at.through, (at.given.id, context, value)))

    def _judge_made(self, at: _Place, made: MadeFunction) -> None:
        """A partial, a getter, a method of plain data: the function, and what it is given."""
        inner = None if made.function is None else self._function(at.part(made.function))
        names = [""] * (len(made.arguments) - len(made.names))
        written: set[str] = set()
        if isinstance(inner, Function):
            parameters = inner.node.args.posonlyargs + inner.node.args.args
            names = [*(one.arg for one in parameters), *names][: len(names)]
            purity = Purity(self._view(at.node), self._types, self._classes, self._changed)
            written = purity.mutated_parameters(inner)
        why = made.why
        for argument, parameter in zip(made.arguments, [*names, *made.names], strict=True):
            typ = at.context.type_of(argument)
            name = _short(argument) if isinstance(argument, (ast.Name, ast.Attribute)) else "an argument"
            if not self._types.is_plain(typ) or is_callable(typ):
                self._refuse_made(at, f"it captures `{name}`, which is not plain data", name, shown(typ))
                return
            if unsendable(typ):
                why = f"it captures `{name}`, and no `{unsendable(typ)}` {UNSENDABLE}"
                self._refuse_made(at, why, name, shown(typ))
                return
            if parameter in written:
                why = f"it writes to `{name}`, which it captures"
        if why:
            self._refuse_made(at, why)
        elif made.function is None:
            self._plan.add_table(made.table)
        else:
            self._judge_at(at.part(made.function))

    def _refuse_bound(self, at: _Place) -> bool:
        """A method of an object that cannot be sent along."""
        given = at.given
        if not isinstance(given, ast.Attribute) or path_of(given.value, at.context, at.view):
            return False
        typ = at.context.type_of(given.value)
        kind = unsendable(typ)
        if is_callable(typ) or typ is None:
            return False
        name = _short(given.value)
        if kind:
            why = f"it captures `{name}`, and no `{kind}` {UNSENDABLE}"
            fix = f"secret.map(lambda x: {kind}(...).{given.attr}(x))"
        elif not self._types.is_plain(typ):
            why, fix = f"it captures `{name}`, which is not plain data", "secret.map(lambda x: ...)"
        else:
            return False
        self._refuse_made(at, why, name, shown(typ), fix)
        return True

    def _refuse_made(self, at: _Place, why: str, name: str = "", typ: str = "", fix: str = "") -> None:
        self._report.add(
            "impure-map",
            at.node,
            f"function given to `Classified.map` must be pure: {why}",
            label=f"captures `{name}`" if name else "",
            captured=(Captured(name, typ, "this call" if not at.through else f"`{at.through[-1][0]}`"),)
            if name
            else (),
            notes=at.notes(),
            help="write a lambda that makes what it needs, and capture plain data only",
            fix=show(fix or "secret.map(lambda x: ...)"),
        )

    def _refuse_rebound(self, at: _Place) -> None:
        """A partial of a function whose name means another one by now."""
        name, (held, _, value) = _short(at.given), at.through[-1]
        self._report.add(
            "impure-map",
            at.node,
            f"function given to `Classified.map` cannot be verified: `{name}` was bound anew after `{held}` was made",
            notes=at.notes(),
            help="make it again, of what the name means now",
            fix=show(f"{held} = {ast.unparse(value)}"),
        )

    def _function(self, at: _Place) -> Function | str:
        """The session function that it is; "" for anything else; otherwise why it is not one function."""
        given, context = at.given, at.context
        if isinstance(given, ast.Lambda):
            return Function(given, context, "<lambda>")
        if not isinstance(given, ast.Name):
            return ""
        owner = context.scopes.owner(given)
        if owner is not None and owner.kind != "module":
            bindings = owner.bindings[given.id]
            if len(bindings) == 1:
                known = context.known(bindings[0])
                if isinstance(known, Function):
                    return known
            return "" if len(bindings) == 1 and bindings[0].path else f"`{given.id}` is a variable"
        entry = at.view.lookup(given.id)
        if entry is None:
            return ""
        if context is not self._context and _is_later(entry, given, context):
            return _REBOUND
        if isinstance(entry.known, Function):
            return entry.known if entry.certain else f"`{given.id}` is bound in more than one way"
        if isinstance(entry.known, Class):
            return f"`{given.id}` is a class; write `lambda x: {given.id}(x)`"
        return ""

    def _judge_function(self, at: _Place, function: Function) -> None:
        reach = Purity(self._view(at.node), self._types, self._classes, self._changed).judge(function)
        if reach.violations:
            for violation in _causes(reach.violations)[:3]:
                self._report_violation(at, violation)
            return
        try:
            self._plan.add_pure(reach)
        except Unshippable:
            self._report.add(
                "not-understood",
                at.node,
                "the text of this function cannot be shipped to the vault as it was checked",
                help="write it as a `def` at the left margin",
            )

    # ── a Classified value without its type ──────────────────────────────────────────────────────────────────────────

    def _stands_for_classified(self, receiver: ast.expr) -> bool:
        """Whether a value of no known type was made of a Classified one."""
        for name in (part for part in ast.walk(receiver) if isinstance(part, ast.Name)):
            owner = self._context.scopes.owner(name)
            bindings = [] if owner is None else owner.bindings.get(name.id, [])
            values = [binding.value for binding in bindings if binding.value is not None]
            if any(self._mentions_classified(value) for value in values):
                return True
            entry = None if bindings else self._entries.get(name.id)
            if entry is not None and any(self._is_classified_name(mentioned) for mentioned in entry.mentions):
                return True
        return False

    def _mentions_classified(self, value: ast.expr) -> bool:
        named = (part for part in ast.walk(value) if isinstance(part, _NAMED))
        return any(holds_classified(self._context.type_of(part)) for part in named)

    def _is_classified_name(self, name: str) -> bool:
        entry = self._entries.get(name)
        return entry is not None and isinstance(entry.known, Data) and holds_classified(entry.known.type)

    def _handed_over(self, node: ast.Call) -> None:
        """A Classified given to a helper that maps it without knowing what it is."""
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if not isinstance(node.func, ast.Name) or not any(is_classified(self._context.type_of(one)) for one in given):
            return
        helper = self._function(_Place(node, node.func, self._context, self._view(node)))
        if not isinstance(helper, Function):
            return
        names = [argument.arg for argument in helper.node.args.posonlyargs + helper.node.args.args]
        pairs = [*zip(names, node.args, strict=False), *((keyword.arg, keyword.value) for keyword in node.keywords)]
        classified = {name for name, value in pairs if is_classified(self._context.type_of(value))}
        for inner in ast.walk(helper.node):
            if not (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _MAPS):
                continue
            receiver = inner.func.value
            if (
                isinstance(receiver, ast.Name)
                and receiver.id in classified
                and helper.context.scopes.owner(receiver) is helper.scope
                and is_any(helper.context.type_of(receiver))
            ):
                note = Note(f"`{helper.name}` maps it here", helper.context.number, helper.context.cell.span(inner))
                self._refuse_untyped(node, inner.func, (note,), receiver.id)
                return

    def _refuse_untyped(self, node: ast.Call, function: ast.Attribute, notes: tuple[Note, ...], name: str) -> None:
        self._report.add(
            "impure-map",
            node,
            f"`.{function.attr}` is called on a Classified value of which only `Any` is known",
            notes=notes,
            help="say what it is, then the function it gets is checked where it is called",
            fix=show(f"{name}: Classified[str]"),
        )

    # ── refusing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _report_violation(self, at: _Place, violation: Violation) -> None:
        given = at.node
        here = violation.context is self._context and _is_inside(violation.node, given)
        notes = at.notes()
        if not here:
            span = violation.context.cell.span(violation.node)
            where = f" in `{violation.via}`" if violation.via else ""
            notes += (Note(f"it happens{where} here", violation.context.number, span),)
        captured: tuple[Captured, ...] = ()
        if violation.name and violation.type:
            captured = (Captured(violation.name, violation.type, violation.origin or "its body"),)
        reached = f"`{violation.via}` " if violation.via and not here else "it "
        self._report.add(
            "impure-map",
            violation.node if here else given,
            f"function given to `Classified.map` must be pure: {reached}{violation.message}",
            label=f"captures `{violation.name}`" if violation.name else "",
            captured=captured,
            notes=notes,
            help=violation.help
            or "return a value from the function; read clocks and random numbers before the call, capture the result",
            fix=show(violation.fix or _CLOCK) if violation.fix or violation.name == "clock" else None,
        )

    def _refuse_unknown(self, at: _Place, path: str) -> None:
        if path:
            effect = pure().effect(path)
            name = path.removeprefix("builtins.")
            what = f"has an effect on `{effect}`" if effect else "is not known to be pure"
            self._report.add(
                "impure-map",
                at.node,
                f"function given to `Classified.map` must be pure: `{name}` {what}",
                label=f"captures `{effect or name}`",
                captured=(Captured(effect, "effect", f"`{name}`"),) if effect else (),
                notes=at.notes(),
                help="return a value from the function; a Classified is shown by `print` and `display` themselves",
                fix=show("print(secret)") if effect == "stdout" else None,
            )
            return
        typ = at.context.type_of(at.given)
        table = first_name(at.given)
        entry = None if table is None or table is at.given else at.view.lookup(table.id)
        if table is None or entry is None or entry.made is None:
            why, advice, code = "its source is not in sight", "write a lambda or a `def`, and pass it by name", ""
            captured = Captured(_short(at.given), shown(typ), "this call")
        else:
            why = f"it is taken out of `{table.id}`, which can hold another function by then"
            advice, code = out_of_table(at.given, table, at.context, entry.made)
            captured = Captured(table.id, shown(at.context.type_of(table)), origin_of(entry))
        self._report.add(
            "impure-map",
            at.node,
            f"function given to `Classified.map` cannot be verified: {why}",
            captured=(captured,),
            notes=at.notes(),
            help=advice,
            fix=show(code or "secret.map(lambda x: ...)"),
        )

    def _refuse(self, node: ast.AST, message: str) -> None:
        self._report.add(
            "impure-map",
            node,
            message,
            help="write a lambda or a `def`, and pass it by name",
            fix=show("secret.map(lambda x: ...)"),
        )


def _causes(violations: list[Violation]) -> list[Violation]:
    """What is captured explains what is done with it. That a value cannot be sent matters where nothing else does."""
    violations = [one for one in violations if not one.message.endswith(UNSENDABLE)] or violations
    captured = {violation.name for violation in violations if violation.message.startswith("captures")}
    return [
        violation
        for violation in violations
        if violation.message.startswith("captures") or violation.name not in captured
    ]


def _is_later(entry: Entry, name: ast.Name, context: Context) -> bool:
    """Whether a name that stands in an accepted cell was bound to this after the statement it stands in had run."""
    at = context.index_of(name)
    before = any(index < at for index, _, _ in context.top.get(name.id, ()))
    return entry.cell > context.number or (entry.cell == context.number and not before)


def _is_inside(node: ast.AST, outer: ast.AST) -> bool:
    return any(inner is node for inner in ast.walk(outer))


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else "secret"


def _short(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else "the function"
