"""The walk over a cell's tree that refuses what is outside the safe subset."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable

from capkernel.checker.captures.scopes import Scopes
from capkernel.checker.subset.bindings import check_bindings, is_dunder, is_interpreter_attribute
from capkernel.checker.subset.evaluated import check_annotation, check_copied_names, check_evaluation
from capkernel.checker.subset.imports import check_import, check_import_from
from capkernel.checker.subset.magics import check_magic, magic_call
from capkernel.checker.subset.report import Report, advice, show
from capkernel.checker.tables import subset
from capkernel.wire.syntax import children

# The closed world. Names, because newer ones are missing in older Pythons.
_SYNTAX = (
    "Module Expr Assign AugAssign AnnAssign Delete Pass Break Continue Return Raise Assert Global "
    "Nonlocal Import ImportFrom alias If For AsyncFor While With AsyncWith withitem Try TryStar "
    "ExceptHandler Match match_case FunctionDef AsyncFunctionDef ClassDef Lambda arguments arg keyword "
    "Call Attribute Subscript Slice Starred Name Constant JoinedStr FormattedValue List Tuple Set Dict "
    "BinOp UnaryOp BoolOp Compare IfExp NamedExpr Await Yield YieldFrom ListComp SetComp DictComp "
    "GeneratorExp comprehension MatchValue MatchSingleton MatchSequence MatchMapping MatchClass MatchStar "
    "MatchAs MatchOr Load Store Del And Or Add Sub Mult MatMult Div Mod Pow LShift RShift BitOr BitXor "
    "BitAnd FloorDiv Invert Not UAdd USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn TypeAlias TypeVar "
    "ParamSpec TypeVarTuple TypeIgnore"
)
_KNOWN = frozenset(getattr(ast, name) for name in _SYNTAX.split() if hasattr(ast, name))
_BY_STRING = frozenset(("attrgetter", "methodcaller"))


class Walker:
    """One pass, parents before children; a parent may vouch for a child it understands."""

    def __init__(self, scopes: Scopes, report: Report) -> None:
        self._scopes = scopes
        self._report = report
        self._fine: set[ast.AST] = set()
        self._rules: dict[type[ast.AST], Callable[..., None]] = {
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.ClassDef: self._class,
            ast.Import: lambda node: check_import(node, report),
            ast.ImportFrom: lambda node: check_import_from(node, report),
            ast.MatchClass: self._match_class,
            ast.AnnAssign: lambda node: check_annotation(node.annotation, report),
            ast.arg: lambda node: check_annotation(node.annotation, report),
            ast.FunctionDef: lambda node: check_annotation(node.returns, report),
            ast.AsyncFunctionDef: lambda node: check_annotation(node.returns, report),
        }

    def walk(self, module: ast.Module) -> None:
        check_bindings(self._scopes.module, self._report)
        todo: deque[ast.AST] = deque([module])
        while todo:
            node = todo.popleft()
            kind = type(node)
            if kind not in _KNOWN:
                self._report.add(
                    "not-understood",
                    node,
                    f"`{kind.__name__}` is syntax that the checker does not know",
                    help="write it with ordinary statements and expressions",
                )
                continue
            rule = self._rules.get(kind)
            if rule is not None:
                rule(node)
            todo.extend(children(node))

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _name(self, node: ast.Name) -> None:
        name = node.id
        if not isinstance(node.ctx, ast.Load) or node in self._fine:
            return  # what is bound is judged by check_bindings
        table = subset()
        if is_dunder(name):
            if name in table.method_dunders and self._is_of_class(node):
                return  # `__rmul__ = __mul__`
            if name not in table.module_dunders and not self._scopes.is_local(node):
                self._report.add(
                    "unsafe-feature",
                    node,
                    f"`{name}` leads into the interpreter",
                    help="what it holds is outside the checked subset; use ordinary names",
                )
            return
        if name.startswith("__") and len(name) > 2 and not self._scopes.is_local(node) and self._is_mangled(node):
            self._report.add(
                "not-understood",
                node,
                f"`{name}` inside a class means another name, made of the class's and this one",
                help="give the outer name at most one underscore in front",
            )
            return
        if name not in table.forbidden and name not in ("getattr", "get_ipython"):
            return
        if self._scopes.is_local(node):
            return
        self._forbidden(node)

    def _is_of_class(self, node: ast.Name) -> bool:
        """Whether it stands in the body of a class that binds the name."""
        scope = self._scopes.standing.get(node)
        return scope is not None and scope.kind == "class" and node.id in scope.bindings

    def _is_mangled(self, node: ast.Name) -> bool:
        scope = self._scopes.standing.get(node)
        while scope is not None:
            if scope.kind == "class":
                return True
            scope = scope.parent
        return False

    def _forbidden(self, node: ast.Name) -> None:
        name, table, report = node.id, subset(), self._report
        if name in table.files:
            report.ambient(node, f"`{name}` opens files without asking for them", "file")
        elif name in table.code:
            report.ambient(node, f"`{name}` runs code that is made at run time", "code", "unsafe-feature")
        elif name == "get_ipython":
            report.ambient(node, "`get_ipython` gives a cell the whole kernel", "magic", "unsafe-magic")
        elif name == "getattr":
            report.add(
                "unsafe-feature",
                node,
                "`getattr` stands only in a call with a fixed name",
                help='write the attribute, or `getattr(value, "name", default)`',
            )
        elif name in ("setattr", "delattr"):
            report.add(
                "unsafe-feature",
                node,
                f"`{name}` changes attributes that the checker cannot see",
                help="write the assignment, or keep the data in a dict",
                fix=show("value.name = new" if name == "setattr" else "del value.name"),
            )
        elif name in table.namespaces:
            report.add(
                "unsafe-feature",
                node,
                f"`{name}` opens a namespace that the checker cannot see",
                help="name what you need; `%whos` lists the session",
            )
        elif name in ("exit", "quit"):
            report.add(
                "unsafe-feature",
                node,
                f"`{name}` would end the kernel",
                help="raise an exception to stop a cell; restart the kernel from its menu",
            )
        else:
            report.add(
                "unsafe-feature",
                node,
                f"`{name}` takes over the prompt",
                help="use `name?` for help on a name, `print` to look at values",
            )

    # ── attributes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        if is_dunder(name):
            self._dunder(node)
        elif name in subset().frame_attributes:
            self._report.add(
                "unsafe-feature",
                node,
                f"`.{name}` reaches frames, code or tracebacks",
                help='`traceback.format_exc()` gives the text of an error; a column of that name is `row["..."]`',
            )

    def _dunder(self, node: ast.Attribute) -> None:
        name, table = node.attr, subset()
        if node in self._fine:
            return
        stored = not isinstance(node.ctx, ast.Load)
        if name in table.operators and not stored:
            return
        if name in table.readable_dunders and (not stored or name in table.settable_dunders):
            base = node.value
            if isinstance(base, ast.Attribute) and base.attr == "__class__":
                self._fine.add(base)  # `x.__class__.__name__` is only a text
            return
        help_text = "special attributes lead into the interpreter; use ordinary attributes and builtins"
        fix = None
        if name == "__class__" and not stored:
            help_text, fix = "`type(x)` gives the class", show("type(x)")
        elif name == "__dict__":
            help_text = "name the fields, or keep the data in a dict; `dataclasses.asdict` makes one of a dataclass"
        elif name in table.method_dunders and not stored:
            help_text = "use the operator or builtin that calls it, or `super()` inside a class"
        self._report.add("unsafe-feature", node, f"`.{name}` is not available to a cell", help=help_text, fix=fix)

    def _match_class(self, node: ast.MatchClass) -> None:
        of_error = _last_name(node.cls).endswith(("Error", "Exception"))  # `.obj` is whatever object failed
        for name in node.kwd_attrs:
            if is_interpreter_attribute(name) or (of_error and name == "obj"):
                self._report.add(
                    "unsafe-feature",
                    node,
                    f"this pattern reads `.{name}`",
                    help="match on ordinary attributes",
                )

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _call(self, node: ast.Call) -> None:
        method = magic_call(node)
        if method is not None:
            check_magic(node, method, self._report)
            inner = node.func
            assert isinstance(inner, ast.Attribute)
            assert isinstance(inner.value, ast.Call)
            self._fine.add(inner.value.func)
            return
        function = node.func
        for keyword in node.keywords:
            if keyword.arg is not None and is_interpreter_attribute(keyword.arg) and is_dunder(keyword.arg):
                self._report.add(
                    "unsafe-feature",
                    keyword,
                    f"`{keyword.arg}=` sets a special attribute",
                    help="use an ordinary name",
                )
        check_evaluation(node, self._report)
        check_copied_names(node, _last_name(function), self._report)
        if isinstance(function, ast.Name):
            if function.id == "getattr" and not self._scopes.is_local(function):
                self._getattr(node, function)
            elif function.id == "type" and not self._scopes.is_local(function):
                self._type(node)
            elif function.id == "help" and _is_one_value(node):
                self._fine.add(function)
            elif function.id in _BY_STRING:
                self._by_string(node, function.id)
        elif isinstance(function, ast.Attribute):
            if function.attr in _BY_STRING:
                self._by_string(node, function.attr)
            elif function.attr in subset().method_dunders and _is_class_reference(function):
                self._fine.add(function)

    def _getattr(self, node: ast.Call, function: ast.Name) -> None:
        name = node.args[1] if len(node.args) >= 2 else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and not node.keywords:
            self._fine.add(function)
            if is_interpreter_attribute(name.value):
                self._report.add(
                    "unsafe-feature",
                    node,
                    "`getattr` reads a special attribute",
                    help="special attributes are not available to a cell",
                )
            return
        self._fine.add(function)
        self._report.add(
            "unsafe-feature",
            node,
            "`getattr` with a computed name reads an attribute that the checker cannot see",
            help="choose among fixed names",
            fix=show('pick = {"mean": df.mean, "max": df.max}\npick[name]()'),
        )

    def _type(self, node: ast.Call) -> None:
        if len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred):
            return
        self._report.add(
            "unsafe-feature",
            node,
            "`type` with three arguments makes a class that the checker cannot see",
            help="write a `class` statement",
            fix=show("class Name(Base):\n    ..."),
        )

    def _by_string(self, node: ast.Call, name: str) -> None:
        fixed = node.args if name == "attrgetter" else node.args[:1]
        for argument in fixed:
            value = argument.value if isinstance(argument, ast.Constant) else None
            if not isinstance(value, str) or any(
                part.startswith("_") or part == "obj" or is_interpreter_attribute(part) for part in value.split(".")
            ):
                help_text, fix = advice("reflection")
                self._report.add(
                    "unsafe-feature",
                    node,
                    f"`{name}` reads an attribute that the checker cannot see",
                    help=f"write the attribute in a lambda; {help_text}",
                    fix=fix or show("lambda row: row.name"),
                )
                return

    # ── classes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _class(self, node: ast.ClassDef) -> None:
        for keyword in node.keywords:
            if keyword.arg is None:
                self._metaclass(keyword, "**")
            elif keyword.arg == "metaclass":
                name = _last_name(keyword.value)
                if name not in subset().metaclasses:
                    self._metaclass(keyword, name)

    def _metaclass(self, node: ast.AST, name: str) -> None:
        self._report.add(
            "unsafe-feature",
            node,
            f"the metaclass `{name}` would run at every use of the class",
            help="only `type`, `ABCMeta` and `EnumMeta` may make classes; `__init_subclass__` or a decorator does most",
        )


def _is_one_value(node: ast.Call) -> bool:
    """`help(x)` prints what is known of a value; without one it asks, and with a text it looks for modules."""
    return len(node.args) == 1 and not node.keywords and isinstance(node.args[0], (ast.Name, ast.Attribute, ast.Call))


def _is_class_reference(function: ast.Attribute) -> bool:
    """`super().__init__` or `Base.__init__`: the way a method calls the one it overrides."""
    base = function.value
    if isinstance(base, ast.Call):
        return isinstance(base.func, ast.Name) and base.func.id == "super"
    return function.attr in ("__init__", "__post_init__", "__repr__", "__str__") and isinstance(
        base, (ast.Name, ast.Attribute)
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
