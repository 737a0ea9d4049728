"""A text with every name of a local module as the session calls it.

A cell that says `from utils import f`, or `utils.f`, means the session's `utilsǀf`; the import itself does nothing any
more. So every rule about functions of earlier cells holds for those of local modules, and a module that is read again
changes what its names mean.

Checker and worker both parse the same text and both call `rename` on the tree, with the same LocalNames.

Rule 1: a pure function of its arguments: no file, no import system, no state.
Rule 2: the name of a local module stands only before a dot. It is no object, so nothing can be done with it.
Rule 3: places are kept: every node stays where the text has it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from capkernel.wire.local_imports import LocalImports, OtherBindings, Problem, all_bound
from capkernel.wire.local_names import DOT, LocalNames, session_name
from capkernel.wire.scope_bindings import ScopeBindings, arguments_of

_NAMED_BY_TEXT = frozenset(("TypeVar", "ParamSpec", "TypeVarTuple", "NewType", "namedtuple", "NamedTuple", "TypedDict"))


_Node = TypeVar("_Node", bound=ast.AST)


@dataclass
class Renamed:
    """The tree that is checked and runs. `aliases`: what its top level imported of local modules."""

    tree: ast.Module
    aliases: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def rename(tree: ast.Module, names: LocalNames) -> Renamed:
    """The tree with every name of a local module as the session calls it. Changes `tree`."""
    if not names.module and not names.exports:
        return Renamed(tree)
    work = _Renamer(names)
    work.module(tree)
    return Renamed(tree, work.top.aliases, work.problems)


@dataclass
class _Scope:
    bound: set[str]
    aliases: dict[str, str]
    globals: set[str] = field(default_factory=set)
    is_class: bool = False


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: LocalNames) -> None:
        self._names = names
        self._local = LocalImports(names)
        self._own: set[str] = set()  # top-level names of the module that the text is
        self.problems: list[Problem] = []
        self.top = _Scope(set(), {})
        self._scopes: list[_Scope] = []

    def module(self, tree: ast.Module) -> None:
        bound = all_bound(tree.body, self._local)
        self.top = _Scope(bound, self._local.found(tree.body, self.problems))
        if self._names.module:
            self._own = bound - self.top.aliases.keys()
        first: list[ast.stmt] = []
        for name in sorted(bound & (self._names.aliases.keys() - self.top.aliases.keys())):
            # A cell that binds an imported name anew begins with what it was.
            target = self._names.aliases[name]
            if ":" in target and tree.body:
                first.append(_assignment(name, target, tree.body[0]))
        self._settle(self.top, tree)
        tree.body = first + self._block(tree.body)

    def _settle(self, scope: _Scope, node: ast.AST) -> None:
        """A name that is imported and bound otherwise is an ordinary variable."""
        for name in scope.bound & scope.aliases.keys():
            target = scope.aliases.pop(name)
            if ":" not in target:
                why = f"`{name}` is a local module here, and is bound to something else as well"
                self.problems.append(Problem(node, why, help="use another name for one of the two"))

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in body:
            made = self.visit(statement)
            done += made if isinstance(made, list) else [made]
        return done

    # ── what a name is ───────────────────────────────────────────────────────────────────────────────────────────────

    def _meaning(self, name: str) -> str | None:
        """What a name means here: "m", "m:n", or None for what it says."""
        for depth, scope in enumerate(reversed(self._scopes)):
            if name in scope.globals:
                break
            if scope.is_class and depth:
                continue
            if name in scope.aliases:
                return scope.aliases[name]
            if name in scope.bound:
                return None
        if name in self.top.aliases:
            return self.top.aliases[name]
        if name in self._own:
            return f"{self._names.module}:{name}"
        if name in self.top.bound:
            return None
        return self._names.aliases.get(name)

    def _stored(self, name: str) -> str:
        """The name that a binding in the present scope binds."""
        if not self._names.module or name not in self._own:
            return name
        if self._scopes and name not in self._scopes[-1].globals:
            return name
        return session_name(self._names.module, name)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "__name__" and self._names.module and isinstance(node.ctx, ast.Load):
            return ast.copy_location(ast.Constant(self._names.module), node)
        target = self._meaning(node.id)
        if target is None:
            return node
        if ":" not in target:
            self._bare(node, node.id)
            return node
        node.id = session_name(*target.split(":", 1))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        module = self._module_of(node.value)
        if module is None:
            node.value = self.visit(node.value)
            return node
        target = self._local.member(module, node.attr)
        if target is None:
            why = f"the local module `{module}` has no name `{node.attr}`"
            self.problems.append(
                Problem(node, why, "attr-defined", help="a file is read again by the next import of it")
            )
        elif ":" not in target:
            self._bare(node, node.attr)
        elif not isinstance(node.ctx, ast.Load):
            why = f"`{node.attr}` of the local module `{module}` is set outside of it"
            self.problems.append(Problem(node, why, "unsafe-feature", help="have the module set it, in a function"))
        else:
            name = session_name(*target.split(":", 1))
            return ast.copy_location(ast.Name(name, ast.Load()), node)
        return node

    def _module_of(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            target = self._meaning(node.id)
        elif isinstance(node, ast.Attribute):
            outer = self._module_of(node.value)
            target = None if outer is None else self._local.member(outer, node.attr)
        else:
            return None
        return target if target is not None and ":" not in target else None

    def _bare(self, node: ast.AST, name: str) -> None:
        why = f"`{name}` is a local module, which only stands before a dot"
        self.problems.append(Problem(node, why, "unsafe-feature", help=f"use its names: `{name}.f(...)`"))

    # ── what binds ───────────────────────────────────────────────────────────────────────────────────────────────────

    def visit_Import(self, node: ast.Import) -> ast.stmt | list[ast.stmt]:
        if self._local.is_local(node):
            return self._gone(node)
        if not self._own or (self._scopes and not self._scopes[-1].globals):
            return node
        made: list[ast.stmt] = []
        for alias in node.names:
            root = alias.name.partition(".")[0]
            bound = alias.asname or root
            stored = self._stored(bound)
            if stored == bound:
                made.append(ast.copy_location(ast.Import([alias]), node))
                continue
            if not alias.asname and "." in alias.name:
                # Binds the first part only; the rest is loaded, and found through it.
                other = session_name(self._names.module, alias.name.replace(".", DOT))
                whole = ast.copy_location(ast.alias(alias.name, other), alias)
                made.append(ast.copy_location(ast.Import([whole]), node))
            made.append(
                ast.copy_location(
                    ast.Import([ast.copy_location(ast.alias(alias.name if alias.asname else root, stored), alias)]),
                    node,
                )
            )
        return made

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if self._local.is_local(node):
            return self._gone(node)
        for alias in node.names:
            if alias.name == "*" and self._names.module:
                why = "a local module imports the names it needs one by one"
                self.problems.append(Problem(node, why, help=f"write `from {node.module} import name`"))
            else:
                stored = self._stored(alias.asname or alias.name)
                if stored != (alias.asname or alias.name):
                    alias.asname = stored
        return node

    def _gone(self, node: ast.Import | ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        """What is left of an import of local modules: nothing, or the bindings that are variables of their own."""
        scope = self._scopes[-1] if self._scopes else self.top
        made: list[ast.stmt] = [
            _assignment(self._stored(name), target, node)
            for name, target in self._local.found([node]).items()
            if name in scope.bound and name not in scope.aliases and ":" in target
        ]
        return made or ast.copy_location(ast.Pass(), node)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        call, target = node.value, node.targets[0]
        if isinstance(call, ast.Call) and call.args and isinstance(target, ast.Name):
            maker = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            text = call.args[0]
            if maker in _NAMED_BY_TEXT and isinstance(text, ast.Constant) and text.value == target.id:
                text.value = self._stored(target.id)
        self.generic_visit(node)
        return node

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        node.names = [self._stored(name) for name in node.names]
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        return self._named(node, "name")

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.AST:
        return self._named(node, "name")

    def visit_MatchStar(self, node: ast.MatchStar) -> ast.AST:
        return self._named(node, "name")

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        return self._named(node, "rest")

    def _named(self, node: _Node, attribute: str) -> _Node:
        name = getattr(node, attribute)
        if name is not None:
            setattr(node, attribute, self._stored(name))
        self.generic_visit(node)
        return node

    # ── scopes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def visit_FunctionDef(self, node: Any) -> Any:
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        self._signature(node.args)
        node.returns = self._annotation(node.returns)
        bound = {argument.arg for argument in arguments_of(node.args)} | _type_parameters(node)
        with_body = self._scope(node.body, bound)
        node.name = self._stored(node.name)
        self._scopes.append(with_body)
        node.body = self._block(node.body)
        self._scopes.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        self._signature(node.args)
        self._scopes.append(self._scope([node.body], {argument.arg for argument in arguments_of(node.args)}))
        node.body = self.visit(node.body)
        self._scopes.pop()
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        node.decorator_list = [self.visit(one) for one in node.decorator_list]
        node.bases = [self.visit(one) for one in node.bases]
        node.keywords = [self.visit(one) for one in node.keywords]
        inside = self._scope(node.body, _type_parameters(node))
        inside.is_class = True
        node.name = self._stored(node.name)
        self._scopes.append(inside)
        node.body = self._block(node.body)
        self._scopes.pop()
        return node

    def _scope(self, body: Sequence[ast.AST], more: set[str]) -> _Scope:
        others = OtherBindings(body, self._local)
        scope = _Scope(
            (others.bound | more) - others.globals, self._local.found(body, self.problems), set(others.globals)
        )
        self._settle(scope, body[0])
        return scope

    def _signature(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.visit(one) for one in arguments.defaults]
        arguments.kw_defaults = [None if one is None else self.visit(one) for one in arguments.kw_defaults]
        for argument in arguments_of(arguments):
            argument.annotation = self._annotation(argument.annotation)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        node.target = self.visit(node.target)
        annotation = self._annotation(node.annotation)
        assert annotation is not None
        node.annotation = annotation
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def _annotation(self, node: ast.expr | None) -> ast.expr | None:
        if node is None:
            return None
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                try:
                    quoted = ast.parse(inner.value, mode="eval").body
                except (SyntaxError, ValueError):
                    continue
                inner.value = ast.unparse(self.visit(quoted))
        visited: ast.expr = self.visit(node)
        return visited

    def _comprehension(self, node: Any) -> Any:
        node.generators[0].iter = self.visit(node.generators[0].iter)
        targets = ScopeBindings(generator.target for generator in node.generators)
        self._scopes.append(_Scope(targets.bound, {}))
        for index, generator in enumerate(node.generators):
            generator.target = self.visit(generator.target)
            if index:
                generator.iter = self.visit(generator.iter)
            generator.ifs = [self.visit(one) for one in generator.ifs]
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        self._scopes.pop()
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815


def _type_parameters(node: ast.AST) -> set[str]:
    return {parameter.name for parameter in getattr(node, "type_params", ())}


def _assignment(name: str, target: str, place: ast.stmt) -> ast.stmt:
    value = ast.Name(session_name(*target.split(":", 1)), ast.Load())
    made = ast.Assign([ast.Name(name, ast.Store())], value)
    return ast.fix_missing_locations(ast.copy_location(made, place))
