"""Rule C: a Classified value has no observable. Each refusal shows the `map` that asks inside the vault."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from mypy.types import Type

from capkernel.checker.captures.known import Context, View
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.types import API, holds_classified, instances, is_classified, shown
from capkernel.checker.subset.report import Report, show
from capkernel.diagnostics.model import Captured

_CELL_OF = re.compile(r"cell_(\d+)(?:_\d+)?\.")  # the module names that the engine gives to cells
_ASK = {
    "len": "len",
    "bool": "bool",
    "int": "int",
    "float": "float",
    "complex": "complex",
    "list": "list",
    "tuple": "tuple",
    "set": "set",
    "frozenset": "frozenset",
    "dict": "dict",
    "iter": "list",
    "next": "lambda x: next(iter(x))",
    "hash": "lambda x: x",
    "sorted": "sorted",
    "min": "min",
    "max": "max",
    "sum": "sum",
    "any": "any",
    "all": "all",
    "bytes": "bytes",
    "abs": "abs",
    "round": "round",
    "enumerate": "lambda x: list(enumerate(x))",
    "reversed": "lambda x: list(reversed(x))",
    "map": "lambda x: list(map(f, x))",
    "filter": "lambda x: list(filter(f, x))",
    "zip": "lambda x: list(zip(x, others))",
    "ord": "ord",
    "chr": "chr",
    "divmod": "lambda x: divmod(x, n)",
    "isinstance": "lambda x: isinstance(x, str)",
}
_COMPARES_ITEMS = frozenset(("sorted", "min", "max", "sum", "any", "all", "set", "frozenset"))
_TO_TEXT = frozenset(("str", "repr", "format", "ascii"))
_COMPARING_METHODS = frozenset(("index", "count", "remove", "discard", "add", "setdefault", "pop", "get"))
_LOGGING = frozenset(("debug", "info", "warning", "error", "exception", "critical", "log"))
_API_METHODS = frozenset(("map", "flat_map", "zip"))


class ClassifiedRule:
    """Judges one node at a time; the walk over the cell is `rules`."""

    def __init__(self, context: Context, view: View, report: Report) -> None:
        self._context = context
        self._view = view
        self._report = report

    def visit(self, node: ast.AST) -> None:
        rule = _RULES.get(type(node))
        if rule is not None:
            rule(self, node)

    def _test(self, node: ast.If | ast.While | ast.IfExp | ast.Assert) -> None:
        self._truth(node.test)

    def _operands(self, node: ast.BoolOp) -> None:
        for value in node.values:
            self._truth(value)

    def _unary(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._truth(node.operand)
        else:
            self._arithmetic(node.operand)

    def _generator(self, node: ast.comprehension) -> None:
        self._iteration(node.iter)
        for condition in node.ifs:
            self._truth(condition)

    def _guard(self, node: ast.match_case) -> None:
        if node.guard is not None:
            self._truth(node.guard)

    def _subscript(self, node: ast.Subscript) -> None:
        if self._is(node.value):
            self._observed(node, node.value, "has no items", "lambda x: x[0]")
        self._key(node.slice)

    def _display(self, node: ast.Dict | ast.Set) -> None:
        for key in node.keys if isinstance(node, ast.Dict) else node.elts:
            if key is not None:
                self._key(key)

    def _set_comprehension(self, node: ast.SetComp) -> None:
        self._key(node.elt)

    def _dict_comprehension(self, node: ast.DictComp) -> None:
        self._key(node.key)

    def _loop(self, node: ast.For | ast.AsyncFor) -> None:
        self._iteration(node.iter)

    def _spread(self, node: ast.Starred | ast.YieldFrom) -> None:
        self._iteration(node.value)

    def _assign(self, node: ast.Assign) -> None:
        if self._is(node.value) and any(isinstance(target, (ast.Tuple, ast.List)) for target in node.targets):
            self._iteration(node.value)

    def _match(self, node: ast.Match) -> None:
        if self._is(node.subject):
            self._observed(node.subject, node.subject, "cannot be matched", "describe")

    # ── what is observed ─────────────────────────────────────────────────────────────────────────────────────────────

    def _is(self, node: ast.expr) -> bool:
        return is_classified(self._context.type_of(node))

    def _holds(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            # What a list is typed as depends on what it is handed to.
            return any(self._holds(item) for item in node.elts)
        return holds_classified(self._context.type_of(node))

    def _observed(self, node: ast.AST, value: ast.expr, what: str, function: str) -> None:
        typ = self._context.type_of(value)
        name = _name(value)
        self._report.add(
            "classified-observed",
            node,
            f"{_subject(value)} is classified: it {what}",
            label=shown(typ),
            captured=(Captured(name, shown(typ), self._origin(value)),),
            help="ask inside the vault; the answer stays classified",
            fix=show(f"{name}.map({function})"),
        )

    def _origin(self, value: ast.expr) -> str:
        """Where the value comes from: the cell that bound its name, else the place where it is made."""
        resolved = self._context.cell.resolve(value) if isinstance(value, ast.Name) else None
        bound = _CELL_OF.match(resolved.fullname) if resolved is not None else None
        if bound is not None and int(bound[1]) != self._context.number:
            return f"cell {bound[1]}"
        return f"cell {self._context.number}, line {getattr(value, 'lineno', 1)}"

    def _truth(self, node: ast.expr) -> None:
        if self._is(node):
            self._observed(node, node, "has no truth value", "bool")

    def _iteration(self, node: ast.expr) -> None:
        if self._is(node):
            self._observed(node, node, "cannot be iterated", "lambda x: [part for part in x]")

    def _arithmetic(self, node: ast.expr) -> None:
        if self._is(node):
            self._observed(node, node, "takes part in no arithmetic", "lambda x: -x")

    def _key(self, node: ast.expr) -> None:
        if self._is(node):
            self._observed(node, node, "has no hash, so it is no key", "lambda x: table.get(x)")

    def _compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, node.comparators, strict=False):
            if isinstance(operator, (ast.Is, ast.IsNot)) and any(_is_none(side) for side in (left, right)):
                continue
            value = left if self._is(left) else right if self._is(right) else None
            if value is None:
                if (
                    isinstance(operator, (ast.Eq, ast.NotEq, ast.Lt, ast.Gt))
                    and self._holds(left)
                    and self._holds(right)
                ):
                    self._observed(node, left, "cannot be compared", "lambda x: x == expected")
                    return
                continue
            if isinstance(operator, (ast.In, ast.NotIn)):
                answer = "lambda x: x in known" if value is left else "lambda x: part in x"
            else:
                answer = "lambda x: x == expected"
            self._observed(node, value, "cannot be compared", answer)
            return

    def _binary(self, node: ast.BinOp | ast.AugAssign) -> None:
        left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
        if isinstance(node.op, ast.Mod) and _is_text(self._context.type_of(left)) and self._holds(right):
            self._format(node, right)
            return
        for side in (left, right):
            if self._is(side):
                self._observed(node, side, "takes part in no arithmetic", "lambda x: x + more")
                return

    def _attribute(self, node: ast.Attribute) -> None:
        if not self._is(node.value):
            if node.attr in _API_METHODS and self._is_classified_class(node.value):
                self._indirect(node, node.attr, "secret")
            return
        if node.attr not in _API_METHODS:
            self._observed(node, node.value, f"has no `.{node.attr}`", f"lambda x: x.{node.attr}")
            return
        parent = self._context.parents.get(node)
        if not (isinstance(parent, ast.Call) and parent.func is node):
            self._indirect(node, node.attr, _name(node.value))

    def _indirect(self, node: ast.AST, method: str, name: str) -> None:
        self._report.add(
            "impure-map",
            node,
            f"`.{method}` of a Classified value stands only in a direct call",
            help="the function it will get must be known where it is called",
            fix=show(f"{name}.{method}(lambda x: ...)"),
        )

    def _call(self, node: ast.Call) -> None:
        function = node.func
        if self._is(function):
            self._observed(node, function, "cannot be called", "lambda f: f()")
            return
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        classified = [argument for argument in arguments if self._is(argument)]
        if isinstance(function, ast.Attribute) and not path_of(function, self._context, self._view):
            self._method(node, function, arguments, classified)
            return
        path = path_of(function, self._context, self._view)
        name = path.removeprefix("builtins.")
        if name in ("getattr", "operator.methodcaller", "operator.attrgetter"):
            self._by_string(node, name)
        if path in ("builtins.print",) or path == "display":
            self._print(node)
        elif not path.startswith("builtins."):
            return
        elif name in _TO_TEXT:
            for argument in arguments:
                if self._holds(argument):
                    self._format(node, argument)
                    return
        elif name == "isinstance":
            if classified and not (len(node.args) == 2 and self._is_classified_class(node.args[1])):
                self._observed(node, classified[0], "answers no question about its type", _ASK[name])
        elif name in _ASK and classified and classified[0] in node.args:
            self._observed(node, classified[0], f"answers no `{name}`", _ASK[name])
        elif name in _COMPARES_ITEMS or (name == "filter" and len(node.args) == 2 and _is_none(node.args[0])):
            for argument in node.args:
                if self._holds(argument):
                    self._observed(node, argument, "holds values without order, truth or hash", _ASK.get(name, "bool"))
                    return

    def _by_string(self, node: ast.Call, name: str) -> None:
        if name == "getattr":
            if len(node.args) > 1 and self._is(node.args[0]):
                self._indirect(node, _text(node.args[1]) or "map", _name(node.args[0]))
        elif any(_text(argument) in ("flat_map", "map") for argument in node.args[:1]):
            self._indirect(node, _text(node.args[0]), "secret")

    def _method(
        self, node: ast.Call, function: ast.Attribute, arguments: list[ast.expr], classified: list[ast.expr]
    ) -> None:
        owner = self._context.type_of(function.value)
        if function.attr in ("format", "format_map", "join") and _is_text(owner):
            for argument in arguments:
                if self._holds(argument):
                    self._format(node, argument)
                    return
        if not classified or function.attr not in _COMPARING_METHODS:
            return
        names = {info.fullname for info in instances(owner)} if owner is not None else set()
        hashes = function.attr in ("add", "setdefault", "pop", "get")
        if hashes and not (names & {"builtins.set", "builtins.dict", "builtins.frozenset", "collections.defaultdict"}):
            return
        if hashes and function.attr != "add" and classified[0] not in node.args[:1]:
            return
        self._observed(node, classified[0], "cannot be compared or hashed", "lambda x: x in known")

    def _is_classified_class(self, node: ast.expr) -> bool:
        resolved = self._context.resolve(node)
        return resolved is not None and resolved.fullname.endswith("classified.Classified")

    # ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _print(self, node: ast.Call) -> None:
        if not any(keyword.arg == "file" for keyword in node.keywords):
            return
        for argument in node.args:
            if self._holds(argument):
                self._format(argument, argument, directly=False)
                return

    def _formatted(self, node: ast.FormattedValue) -> None:
        if self._holds(node.value):
            # The place is the whole text's, as in Python 3.11, which knows none of its parts.
            self._format(self._context.parents.get(node, node), node.value)

    def _format(self, node: ast.AST, value: ast.expr, directly: bool = True) -> None:
        if directly and self._is_output(node):
            return
        typ = self._context.type_of(value)
        name = _name(value)
        self._report.add(
            "classified-format",
            node,
            f"{_subject(value)} is classified: this text would hold only its mask",
            label=shown(typ),
            captured=(Captured(name, shown(typ), self._origin(value)),),
            help="make the text inside the vault, or format it right in `print`, `display`, a log call or an exception",
            fix=show(f'{name}.map(lambda x: f"... {{x}}")'),
        )

    def _is_output(self, node: ast.AST) -> bool:
        """Whether this text goes nowhere but to `print`, `display`, a log or an exception."""
        current = node
        parent = self._context.parents.get(current)
        while isinstance(parent, (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.IfExp, ast.Tuple, ast.keyword)) or (
            isinstance(parent, ast.Call) and parent.func is current
        ):
            current, parent = parent, self._context.parents.get(parent)
        if isinstance(parent, ast.Call):
            return self._is_output_call(parent)
        return isinstance(parent, ast.Assert) and parent.msg is current

    def _is_output_call(self, node: ast.Call) -> bool:
        path = path_of(node.func, self._context, self._view)
        if path == "builtins.print":
            return not any(keyword.arg == "file" for keyword in node.keywords)
        module, _, name = path.rpartition(".")
        if path in ("display", "IPython.display.display") or (module == "logging" and name in _LOGGING):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in _LOGGING:
            owner = self._context.type_of(node.func.value)
            return owner is not None and any(info.fullname.startswith("logging.") for info in instances(owner))
        made = self._context.type_of(node)
        return made is not None and any(
            base.fullname == "builtins.BaseException" for info in instances(made) for base in info.mro
        )


_RULES: dict[type[ast.AST], Callable[[ClassifiedRule, Any], None]] = {
    ast.If: ClassifiedRule._test,
    ast.While: ClassifiedRule._test,
    ast.IfExp: ClassifiedRule._test,
    ast.Assert: ClassifiedRule._test,
    ast.BoolOp: ClassifiedRule._operands,
    ast.UnaryOp: ClassifiedRule._unary,
    ast.comprehension: ClassifiedRule._generator,
    ast.match_case: ClassifiedRule._guard,
    ast.Compare: ClassifiedRule._compare,
    ast.BinOp: ClassifiedRule._binary,
    ast.AugAssign: ClassifiedRule._binary,
    ast.Subscript: ClassifiedRule._subscript,
    ast.Dict: ClassifiedRule._display,
    ast.Set: ClassifiedRule._display,
    ast.SetComp: ClassifiedRule._set_comprehension,
    ast.DictComp: ClassifiedRule._dict_comprehension,
    ast.For: ClassifiedRule._loop,
    ast.AsyncFor: ClassifiedRule._loop,
    ast.Starred: ClassifiedRule._spread,
    ast.YieldFrom: ClassifiedRule._spread,
    ast.Assign: ClassifiedRule._assign,
    ast.Match: ClassifiedRule._match,
    ast.Attribute: ClassifiedRule._attribute,
    ast.Call: ClassifiedRule._call,
    ast.FormattedValue: ClassifiedRule._formatted,
}


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(typ: Type | None) -> bool:
    return typ is not None and any(info.fullname in ("builtins.str", "builtins.bytes") for info in instances(typ))


def _name(node: ast.expr) -> str:
    text = ast.unparse(node)
    if len(text) <= 24 and not any(isinstance(inner, ast.Constant) for inner in ast.walk(node)):
        return text
    return "secret"


def _subject(node: ast.expr) -> str:
    name = _name(node)
    return f"`{name}`" if name != "secret" or isinstance(node, ast.Name) else "this value"


__all__ = ["API", "ClassifiedRule"]
