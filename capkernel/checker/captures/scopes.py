"""Which scope a name of a cell belongs to: Python's own rules, for every binding form of 3.11 to 3.14.

Rule 1: the answer is the compiler's (tests compare with `symtable`): what the compiler calls local is local here.
Rule 2: every way to bind a name is listed, with the node that does it; rules about rebinding read this list.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from capkernel.wire.syntax import children

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ComprehensionNode = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

Kind = Literal["module", "function", "comprehension", "class", "type parameters"]


@dataclass(frozen=True)
class Binding:
    """One place that binds `name`. `how` is a word for a diagnostic: "assignment", "parameter", "import"."""

    name: str
    node: ast.AST
    how: str
    value: ast.expr | None = None  # the whole of what a plain `name = value` binds
    path: str = ""  # what an import binds, as it is written: "os.path"


@dataclass(eq=False)
class Scope:
    kind: Kind
    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    names: list[ast.Name] = field(default_factory=list)  # every name that stands in this scope, not in an inner one
    children: list[Scope] = field(default_factory=list)
    _paths: dict[str, list[str]] = field(default_factory=dict)

    def paths_of(self, name: str) -> list[str]:
        """What imports bind the name to in this scope. Asked for when the scopes of the cell are complete."""
        if name not in self._paths:
            self._paths[name] = [binding.path for binding in self.bindings.get(name, ()) if binding.path]
        return self._paths[name]

    def bind(self, name: str, node: ast.AST, how: str, value: ast.expr | None = None, path: str = "") -> None:
        self.bindings.setdefault(name, []).append(Binding(name, node, how, value, path))

    def owner(self, name: str) -> Scope | None:
        """The scope that `name` belongs to when it stands in this one; None when no scope of the cell binds it."""
        scope: Scope | None = self
        inner = False
        while scope is not None:
            if scope.kind == "module":
                return scope if name in scope.bindings else None
            visible = scope.kind != "class" or not inner
            if visible:
                if name in scope.globals:
                    return scope.module if name in scope.module.bindings else None
                if name in scope.bindings and name not in scope.nonlocals:
                    return scope
            inner = True
            scope = scope.parent
        return None

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def is_within(self, other: Scope) -> bool:
        """Whether this scope is `other` or inside of it."""
        scope: Scope | None = self
        while scope is not None:
            if scope is other:
                return True
            scope = scope.parent
        return False

    def walk(self) -> Iterator[Scope]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(eq=False)
class Scopes:
    """All scopes of one cell."""

    module: Scope
    of: dict[ast.AST, Scope]  # the scope that a function, class, comprehension or module node opens
    standing: dict[ast.Name, Scope]  # the scope a name stands in

    def owner(self, name: ast.Name) -> Scope | None:
        """The scope that binds this name; None: a builtin or a name of the session."""
        return self.standing[name].owner(name.id)

    def is_local(self, name: ast.Name) -> bool:
        """Whether a function, comprehension or type parameter binds the name.

        A class does not count: a name that its body has not bound yet is looked up in the session and in builtins.
        """
        owner = self.owner(name)
        return owner is not None and owner.kind not in ("module", "class")


@lru_cache(maxsize=2)  # the safe subset and the capture checker ask for the same cell's
def scopes_of(module: ast.Module) -> Scopes:
    builder = _Builder(module)
    builder.statements(module.body)
    return Scopes(builder.root, builder.of, builder.standing)


class _Builder:
    def __init__(self, module: ast.Module) -> None:
        self.root = Scope("module", module, None)
        self.scope = self.root
        self.of: dict[ast.AST, Scope] = {module: self.root}
        self.standing: dict[ast.Name, Scope] = {}
        self._visitors: dict[type[ast.AST], Callable[..., None]] = {
            ast.Name: self._name,
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
            ast.Lambda: self._lambda,
            ast.ClassDef: self._class,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.Assign: self._assign,
            ast.AugAssign: self._augmented,
            ast.AnnAssign: self._annotated,
            ast.NamedExpr: self._walrus,
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.Global: self._global,
            ast.Nonlocal: self._nonlocal,
            ast.ExceptHandler: self._handler,
            ast.MatchAs: self._match_name,
            ast.MatchStar: self._match_name,
            ast.MatchMapping: self._match_mapping,
        }
        alias = getattr(ast, "TypeAlias", None)
        if alias is not None:
            self._visitors[alias] = self._type_alias

    def statements(self, body: Iterable[ast.AST]) -> None:
        for node in body:
            self.visit(node)

    def visit(self, node: ast.AST | None) -> None:
        if node is None:
            return
        visitor = self._visitors.get(type(node))
        if visitor is not None:
            visitor(node)
            return
        for child in children(node):
            self.visit(child)

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _name(self, node: ast.Name) -> None:
        self.standing[node] = self.scope
        self.scope.names.append(node)
        if not isinstance(node.ctx, ast.Load):
            how = "del" if isinstance(node.ctx, ast.Del) else "assignment"
            self._bind(node.id, node, how)

    def _bind(self, name: str, node: ast.AST, how: str, value: ast.expr | None = None, path: str = "") -> None:
        if name in self.scope.globals:
            self.root.bind(name, node, how)
        self.scope.bind(name, node, how, value, path)

    def _assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.standing[target] = self.scope
                self.scope.names.append(target)
                self._bind(target.id, target, "assignment", node.value)
            else:
                self.visit(target)

    def _augmented(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def _annotated(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            self.standing[node.target] = self.scope
            self.scope.names.append(node.target)
            self._bind(node.target.id, node.target, "assignment", node.value)
        else:
            self.visit(node.target)

    def _walrus(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        outer = self.scope
        while outer.kind == "comprehension" and outer.parent is not None:
            outer = outer.parent
        self.standing[node.target] = outer
        outer.names.append(node.target)
        inner, self.scope = self.scope, outer
        self._bind(node.target.id, node.target, "assignment", node.value)
        self.scope = inner

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            self._bind(alias.asname or first, alias, "import", path=alias.name if alias.asname else first)

    def _import_from(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name != "*":
                self._bind(alias.asname or alias.name, alias, "import", path=f"{node.module}.{alias.name}")

    def _global(self, node: ast.Global) -> None:
        for name in node.names:
            self.scope.globals.add(name)
            self.root.bind(name, node, "global")

    def _nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.nonlocals.update(node.names)
        for name in node.names:
            self.scope.bind(name, node, "nonlocal")

    def _handler(self, node: ast.ExceptHandler) -> None:
        self.visit(node.type)
        if node.name:
            self._bind(node.name, node, "except")
        self.statements(node.body)

    def _match_name(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name, node, "match")
        if isinstance(node, ast.MatchAs):
            self.visit(node.pattern)

    def _match_mapping(self, node: ast.MatchMapping) -> None:
        for child in children(node):
            self.visit(child)
        if node.rest:
            self._bind(node.rest, node, "match")

    def _type_alias(self, node: ast.AST) -> None:
        self.visit(node.name)  # type: ignore[attr-defined]
        with_parameters = self._type_parameters(node)
        self.visit(node.value)  # type: ignore[attr-defined]
        self._leave(with_parameters)

    # ── scopes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _enter(self, kind: Kind, node: ast.AST) -> Scope:
        outer = self.scope
        self.scope = Scope(kind, node, outer)
        outer.children.append(self.scope)
        if kind != "type parameters":
            self.of[node] = self.scope
        return outer

    def _leave(self, outer: Scope | None) -> None:
        if outer is not None:
            self.scope = outer

    def _type_parameters(self, node: ast.AST) -> Scope | None:
        parameters = getattr(node, "type_params", None)
        if not parameters:
            return None
        outer = self._enter("type parameters", node)
        for parameter in parameters:
            self.scope.bind(parameter.name, parameter, "type parameter")
            for child in children(parameter):
                self.visit(child)
        return outer

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.statements(node.decorator_list)
        self._defaults(node.args)
        self._bind(node.name, node, "def")
        outer = self._type_parameters(node)
        for argument in _arguments(node.args):
            self.visit(argument.annotation)
        self.visit(node.returns)
        inner = self._enter("function", node)
        self._parameters(node.args)
        self._hoist_declarations(node.body)
        self.statements(node.body)
        self._leave(inner)
        self._leave(outer)

    def _lambda(self, node: ast.Lambda) -> None:
        self._defaults(node.args)
        outer = self._enter("function", node)
        self._parameters(node.args)
        self.visit(node.body)
        self._leave(outer)

    def _defaults(self, arguments: ast.arguments) -> None:
        self.statements(arguments.defaults)
        for default in arguments.kw_defaults:
            self.visit(default)

    def _parameters(self, arguments: ast.arguments) -> None:
        for argument in _arguments(arguments):
            self.scope.bind(argument.arg, argument, "parameter")

    def _class(self, node: ast.ClassDef) -> None:
        self.statements(node.decorator_list)
        self._bind(node.name, node, "class")
        outer = self._type_parameters(node)
        self.statements(node.bases)
        self.statements(node.keywords)
        inner = self._enter("class", node)
        self._hoist_declarations(node.body)
        self.statements(node.body)
        self._leave(inner)
        self._leave(outer)

    def _comprehension(self, node: ComprehensionNode) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        outer = self._enter("comprehension", node)
        for number, generator in enumerate(node.generators):
            if number:
                self.visit(generator.iter)
            self.visit(generator.target)
            self.statements(generator.ifs)
        if isinstance(node, ast.DictComp):
            self.visit(node.key)
            self.visit(node.value)
        else:
            self.visit(node.elt)
        self._leave(outer)

    def _hoist_declarations(self, body: Iterable[ast.stmt]) -> None:
        # `global` and `nonlocal` hold for the whole block, also in front of the statement.
        todo: list[ast.AST] = list(body)
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Global):
                self.scope.globals.update(node.names)
            elif isinstance(node, ast.Nonlocal):
                self.scope.nonlocals.update(node.names)
            elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
                todo.extend(children(node))


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]


def parameters_of(node: FunctionNode) -> list[ast.arg]:
    """All parameters of a function, `*args` and `**kwargs` last."""
    return _arguments(node.args)
