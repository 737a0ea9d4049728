"""The type checker of a session: one fresh mypy module per cell, on top of one warm build.

How it works. A cell becomes a module of its own. Between parsing and semantic analysis the names it uses out of
earlier cells are put straight into the new module's symbol table: no import statements, no growing module, no graph to
walk. So a check costs the same at cell 5 and cell 5000, earlier modules are never touched, and taking a cell back means
forgetting one module.

A name the cell both reads and binds needs two variables. When every read comes before the binding (`x = str(x)`),
those reads are renamed to a hidden name that stands for the old value. When old and new can meet (`if c: x = None`,
`x += 1`), the module starts with `x = ·x`, and mypy's own flow analysis does the rest. Both happen in the tree, so all
positions stay those of the text.

The type of a name after the cell is its narrowed type there: an expression statement per name, appended to the tree,
whose type mypy reports like any other. A function body runs at another time: it gets the type the name may ever have.

Rule 1: a module id is never used twice. mypy takes every symbol whose name starts with the module's for a local one.
Rule 2: `check` changes nothing the session can see. Only `commit` does, and only for the names it is given.
Rule 3: a symbol of an earlier cell is never handed to mypy where the new cell could assign to it; then it gets a copy.
"""

from __future__ import annotations

import ast
import builtins
import gc
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy import errorcodes
from mypy.build import State
from mypy.errors import CompileError, ErrorInfo
from mypy.freetree import free_tree
from mypy.messages import format_type_bare
from mypy.nodes import (
    ExpressionStmt,
    MypyFile,
    SymbolNode,
    SymbolTableNode,
    TypeInfo,
    Var,
)
from mypy.options import Options
from mypy.semanal_main import semantic_analysis_for_scc
from mypy.typeops import make_simplified_union
from mypy.types import Type

from capkernel.checker.builds import API, NOTEBOOK, WarmBuild, present_libraries
from capkernel.checker.conversion import (
    Became,
    convert,
    erase_annotations,
    finally_depth,
    has_finally,
    hide_modules,
    open_none,
)
from capkernel.checker.messages import widen
from capkernel.checker.outcome import bindings_of, code_of, set_by_functions
from capkernel.checker.pending import Pending, TooEarly
from capkernel.checker.profiles import STANDARD, Profile
from capkernel.checker.recall import Recall
from capkernel.checker.returns import infer_returns
from capkernel.checker.scan import GONE, NEW, OLD, Names, Read, has_lazy_annotations, scan
from capkernel.checker.seeding import HIDDEN, append_probes, seed
from capkernel.checker.symbols import (
    Binding,
    JoinedTypes,
    anything,
    kind_of,
    type_of,
    type_or_none,
    value,
)
from capkernel.checker.typed_cell import TypedCell
from capkernel.wire.codekey import cell_filename
from capkernel.wire.local_names import without_prefixes
from capkernel.wire.syntax import walk

_MODULE_NAMES = frozenset(
    ("__name__", "__doc__", "__file__", "__builtins__", "__annotations__", "__package__", "__spec__", "__path__")
)
_BUILTINS = frozenset(dir(builtins))
_CELL = "cell_"
_DEEPEST_FINALLY = 8
_RESULT = re.compile(r"_i?[1-9]\d{0,8}")


@dataclass
class Checked:
    """What `check` found. `errors` are mypy's own, unfiltered but for duplicates."""

    typed: TypedCell
    errors: list[ErrorInfo]
    scanned: Names
    unbound: list[Read]
    early: list[TooEarly]
    names: dict[str, Binding]
    last_type: Type | None
    globals_set: dict[str, Type]  # names its functions bind through `global`
    imports: frozenset[str]


class CellBlocked(Exception):
    """mypy could not go on with this cell. `errors` are what it said, as for any cell."""

    def __init__(self, errors: list[ErrorInfo]) -> None:
        super().__init__("mypy stopped at this cell")
        self.errors = errors


class Engine:
    """mypy, warm, with the names of a session. Not thread safe."""

    def __init__(
        self, cache_directory: Path | None, profile: Profile = STANDARD, *, libraries: Sequence[str] | None = None
    ) -> None:
        self._warm = WarmBuild(cache_directory, libraries=libraries)
        self._manager = self._warm.manager
        self._graph = self._warm.graph
        self._options = profile.cell_options(self._warm.options)
        self.table: dict[str, Binding] = {}
        self.globals_set: dict[str, Type] = {}
        self._imports: frozenset[str] = frozenset()
        self._lazy_annotations = False
        self._waited_for: set[str] = set()  # read by functions, bound by no cell yet
        self._pending = Pending()
        self._own_modules: set[str] = set()
        self._times_used: dict[int, int] = {}  # cell number: how many modules it was given
        self._ambient = _public_names(self._manager.modules[NOTEBOOK]) | _public_names(self._manager.modules[API])
        function = self._manager.modules["builtins"].names["function"].node
        assert isinstance(function, TypeInfo)
        self._function_class = function
        self.recall = Recall()
        self._warm.freeze()

    def preload(self) -> str:
        """Load one more of the installed big libraries, so that no cell pays for it: its name, "" when none was left.

        Nothing that a check says changes: a cell that imports one earlier loads it itself.
        """
        left = [name for name in present_libraries() if name not in self._manager.modules]
        if not left:
            return ""
        self._warm.take_over()
        self._load(left[:1])
        return left[0] if left[0] in self._manager.modules else ""  # one that cannot be loaded is not tried again

    # ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, cell: int, text: str, module: ast.Module) -> Checked:
        """Type `module`, the parsed `text`, against the session.

        Raises CellBlocked when mypy cannot go on, RecursionError for a tree too deep, and whatever a bug of mypy
        raises; in every case the session is as it was.
        """
        first = self._attempt(cell, text, module, frozenset())
        invalid = [error for error in first.errors if code_of(error) == "valid-type"]
        if not invalid:
            return first
        # Annotations that are no types hide the code that uses them. Say so, and look again without them.
        self.forget(first)
        second = self._attempt(cell, text, module, frozenset((error.line, error.column) for error in invalid))
        second.errors = _without_duplicates([*invalid, *second.errors])
        return second

    def _attempt(self, cell: int, text: str, module: ast.Module, erased: frozenset[tuple[int, int]]) -> Checked:
        collecting = gc.isenabled()
        gc.disable()
        self._warm.take_over()
        module_id = self._new_id(cell)
        path = cell_filename(cell)
        state: State | None = None
        checked: Checked | None = None
        try:
            early = self._pending.early_calls(cell, text, module, self._is_known)
            names = scan(module, lazy_annotations=self._lazy_annotations, called=early)
            self._manager.errors.reset()
            state = State.new_state(id=module_id, path=path, source=text, manager=self._manager, root_source=True)
            self._graph[module_id] = state
            checked = self._check(cell, text, module, state, names, erased)
            checked.early = self._certainly_early(early.found, checked)
            return checked
        except CompileError:
            raise CellBlocked(_without_duplicates(self._manager.errors.error_info_map.get(path, []))) from None
        finally:
            if state is not None:
                state.free_state()
            self._forget_state(module_id)
            if checked is None:
                self._manager.modules.pop(module_id, None)
            self._manager.errors.reset()
            if collecting:
                gc.enable()

    def _check(
        self,
        cell: int,
        text: str,
        module: ast.Module,
        state: State,
        names: Names,
        erased: frozenset[tuple[int, int]],
    ) -> Checked:
        nodes = walk(module)
        tree, became = self._convert(module, nodes, state, names)
        if erased:
            erase_annotations(became, erased)
        self._resolve_imports(state)
        stars = self._star_names(names)
        unbound = self._unbound(names, stars)
        session_names = seed(tree, names, became, self._lookup)
        last = _last_expression(module, tree)
        probes = append_probes(tree, names)

        semantic_analysis_for_scc(self._graph, [state.id], self._manager.errors)
        if has_finally(nodes):
            state.type_checker()._type_maps[0] = JoinedTypes()
        self.recall.first_pass(state)
        while state.type_check_second_pass():
            pass
        self._detect_undefined(state, nodes)
        types = dict(state.type_map())  # the checker empties its own when it is freed

        errors = _without_duplicates(self._manager.errors.error_info_map.get(state.xpath, []))
        typed = TypedCell(
            number=cell,
            text=text,
            module=module,
            module_id=state.id,
            session_names=session_names,
            error_lines=frozenset(error.line for error in errors if error.severity == "error"),
            _became=became,
            _types=types,
        )
        infer_returns(typed, self._function_class)
        return Checked(
            typed=typed,
            errors=errors,
            scanned=names,
            unbound=unbound,
            early=[],
            names=bindings_of(typed, tree, names, stars or {}, probes, errors),
            last_type=None if last is None else types.get(last.expr),
            globals_set=set_by_functions(tree, names, errors),
            imports=frozenset(state.dependencies_set),
        )

    def _detect_undefined(self, state: State, nodes: list[ast.AST]) -> None:
        """mypy looks at a `try` twice for its `finally`, so at the innermost of twenty a million times."""
        if finally_depth(nodes) <= _DEEPEST_FINALLY:
            state.detect_possibly_undefined_vars()
        elif errorcodes.POSSIBLY_UNDEFINED in self._options.enabled_error_codes:
            raise RecursionError  # where its answer may refuse the cell, there is no verdict without it

    def _convert(self, module: ast.Module, nodes: list[ast.AST], state: State, names: Names) -> tuple[MypyFile, Became]:
        errors = self._manager.errors
        state.options = self._options
        state.needs_parse = False
        tree, became = convert(module, state.id, state.xpath, self._options, errors)
        open_none(module, nodes, names.deferred, became)
        hide_modules(tree, self._own_modules)
        state.tree = tree
        state.semantic_analysis_pass1()
        self._manager.modules[state.id] = tree
        state.setup_errors()
        if errors.is_blockers():
            errors.raise_error()
        return tree, became

    def _resolve_imports(self, state: State) -> None:
        manager = self._manager
        state.compute_dependencies()
        missing = [name for name in state.dependencies if name not in manager.modules]
        if missing:
            self._load(missing)
            for name in missing:
                if name not in manager.modules:
                    state.suppress_dependency(name)
        manager.import_map[state.id] = state.dependencies_set | self._imports

    def _load(self, names: list[str]) -> None:
        before = len(self._manager.modules)
        self._warm.load(names)
        if len(self._manager.modules) != before:
            self.recall.forget()
            self._warm.freeze()

    def _star_names(self, names: Names) -> dict[str, SymbolTableNode] | None:
        """What the cell's star imports bring; None when one of them cannot be known."""
        found: dict[str, SymbolTableNode] = {}
        for statement in names.stars:
            source = self._manager.modules.get(statement.module or "")
            if source is None or statement.level:
                return None
            listed = "__all__" in source.names
            found |= {
                name: symbol
                for name, symbol in source.names.items()
                if symbol.module_public and (listed or not name.startswith("_"))
            }
        return found

    def _unbound(self, names: Names, stars: Mapping[str, SymbolTableNode] | None) -> list[Read]:
        """Reads that certainly raise NameError."""
        if stars is None:
            return []
        return names.gone + [
            read
            for read in names.reads
            if (read.certain or (read.states == GONE and not read.shielded))
            and not read.states & NEW
            and not (read.states & OLD and self._is_known(read.name))
            and read.name not in names.set_in_functions
            and (read.name not in stars or read.states == GONE)
        ]

    def _certainly_early(self, found: list[TooEarly], checked: Checked) -> list[TooEarly]:
        """Those of `found` that no star import and no `global` of the cell could put right."""
        names = checked.scanned
        stars = self._star_names(names) if found and names.stars else {}
        if stars is None:
            return []
        return [one for one in found if one.missing not in names.set_in_functions and one.missing not in stars]

    def members(self, module: str) -> frozenset[str]:
        """The public names of a module that is loaded, none of another."""
        known = self._manager.modules.get(module)
        return frozenset() if known is None else frozenset(name for name in known.names if not name.startswith("_"))

    @property
    def modules(self) -> Mapping[str, MypyFile]:
        """What is loaded, by full name."""
        return self._manager.modules

    @property
    def options(self) -> Options:
        return self._options

    def names_of_every_session(self) -> frozenset[str]:
        """What is there before the first cell: the API, and Python's builtins."""
        return frozenset(self._ambient) | _BUILTINS

    def _is_known(self, name: str) -> bool:
        if _RESULT.fullmatch(name):
            return True
        return any(name in names for names in (self.table, self._ambient, _BUILTINS, _MODULE_NAMES, self.globals_set))

    # ── the names of earlier cells ───────────────────────────────────────────────────────────────────────────────────

    def _lookup(self, name: str) -> Binding | None:
        binding = self.table.get(name)
        if binding is not None:
            return binding
        if name in self.globals_set:
            return value("", name, 0, self.globals_set[name], self.globals_set[name])
        if _RESULT.fullmatch(name):
            # `_7` and `_i7` are the result and the text of the cell with that number, if it ran.
            kind = self._ambient["_i" if name.startswith("_i") else "_"].node
            return None if kind is None else Binding(kind, 0, type_or_none(kind))
        symbol = self._ambient.get(name)
        if symbol is not None and symbol.node is not None:
            return Binding(symbol.node, 0, type_or_none(symbol.node))
        return None

    # ── earlier cells, looked at again ───────────────────────────────────────────────────────────────────────────────

    def changes(self, name: str, checked: Checked) -> bool:
        """Whether the cell makes `name` mean something of another type than the session has."""
        new = checked.names[name]
        old = self.table.get(name)
        if old is None or new.node is old.node:
            return old is None and name in self._waited_for
        if type(new.node) is not type(old.node) or not isinstance(new.node, Var):
            return True
        return (new.wide or new.type) != (old.wide or old.type)

    def type_again(self, cell: int, text: str, node: ast.stmt, names: Mapping[str, Binding]) -> list[ErrorInfo]:
        """What mypy says of one definition of an earlier cell, were `names` bound. Keeps nothing."""
        table = self.table
        self.table = {**table, **names}
        try:
            again = self.check(cell, text, ast.Module(body=[node], type_ignores=[]))
        finally:
            self.table = table
        self.forget(again)
        return again.errors

    # ── keeping and forgetting ───────────────────────────────────────────────────────────────────────────────────────

    def commit(self, checked: Checked, bound: Iterable[str], deleted: Iterable[str], *, raised: bool = False) -> None:
        """The cell ran: `bound` and `deleted` are what it did to the session's names.

        `raised`: it stopped half-way, so a name has the type it can have anywhere in the cell, not the one at its end.
        """
        module_id, cell = checked.typed.module_id, checked.typed.number
        for name, typ in checked.globals_set.items():
            known = self.globals_set.get(name)
            self.globals_set[name] = typ if known is None else make_simplified_union([known, typ])
        bound, deleted = list(bound), list(deleted)
        for name in bound:
            binding = self._committed(name, checked)
            if binding is not None and raised and binding.wide is not None:
                binding = value(module_id, name, cell, binding.wide, binding.wide)
            if binding is not None:
                self.table[name] = binding
        for name in deleted:
            self.table.pop(name, None)
        if "_" not in checked.names and checked.last_type is not None and not raised:
            self._shift_results(module_id, cell, checked.last_type)
        self._waited_for |= {name for name in checked.scanned.deferred if not self._is_known(name)}
        self._waited_for |= set(deleted)
        self._waited_for -= set(bound)
        self._pending.commit(cell, checked.typed.text, checked.typed.module, bound, deleted)
        self._imports |= checked.imports
        self._lazy_annotations |= has_lazy_annotations(checked.typed.module)
        tree = self._manager.modules.get(module_id)
        if tree is not None:
            # Types and symbols stay; the statements were only needed to find them.
            free_tree(tree)
            tree.defs.clear()
            for name in [name for name in tree.names if name in _MODULE_NAMES or name.startswith(HIDDEN)]:
                del tree.names[name]  # eight symbols of each module that nobody asks a cell for
            if not any(_is_found_by_name(symbol.node, module_id) for symbol in tree.names.values()):
                del self._manager.modules[module_id]

    def _committed(self, name: str, checked: Checked) -> Binding | None:
        module_id, cell = checked.typed.module_id, checked.typed.number
        if name in checked.names:
            return checked.names[name]
        if name in self.globals_set:
            # Some function bound it. What it held before may also be what it holds now.
            kinds = [self.globals_set[name]]
            if name in self.table:
                kinds.append(type_of(self.table[name].node))
            typ = make_simplified_union(kinds)
            return value(module_id, name, cell, typ, typ)
        # Bound by something mypy knows nothing of (`from untyped import *`). Names of every session keep their meaning.
        return None if self._is_known(name) else value(module_id, name, cell, anything(), anything())

    def _shift_results(self, module_id: str, cell: int, typ: Type) -> None:
        # IPython keeps the last three results under these names.
        for newer, older in (("__", "___"), ("_", "__")):
            if newer in self.table:
                self.table[older] = self.table[newer]
        self.table["_"] = value(module_id, "_", cell, typ, typ)

    def reset(self) -> None:
        """Forget the session: the next cell is the first of another notebook. What is loaded stays."""
        self.table.clear()
        self.globals_set.clear()
        self._imports = frozenset()
        self._lazy_annotations = False
        self._waited_for.clear()
        self._pending.clear()

    def forget(self, checked: Checked) -> None:
        """The cell did not run, or was refused."""
        self._manager.modules.pop(checked.typed.module_id, None)

    def describe(self, typ: Type | None) -> str:
        """A type as the person reads it; a literal shows as the type of its value."""
        return "" if typ is None else without_prefixes(widen(format_type_bare(typ, self._options)))

    def describe_binding(self, binding: Binding) -> str:
        """The same for what a name is bound to; a kind ("module", "function") where there is no type."""
        return self.describe(binding.type) or kind_of(binding.node)

    def _new_id(self, cell: int) -> str:
        times = self._times_used.get(cell, 0)
        self._times_used[cell] = times + 1
        module_id = f"{_CELL}{cell}" if not times else f"{_CELL}{cell}_{times}"
        self._own_modules.add(module_id)
        return module_id

    def _forget_state(self, module_id: str) -> None:
        manager = self._manager
        self._graph.pop(module_id, None)
        manager.ast_cache.pop(module_id, None)
        manager.import_map.pop(module_id, None)
        manager.import_options.pop(module_id, None)


def _is_found_by_name(node: SymbolNode | None, module_id: str) -> bool:
    """Whether mypy may look a symbol of this module up by its full name later: classes, aliases, and functions, to say
    where they are defined. A value is reached through what the session binds."""
    plain = isinstance(node, Var | MypyFile)
    return node is not None and not plain and node.fullname.startswith(f"{module_id}.")


def _last_expression(module: ast.Module, tree: MypyFile) -> ExpressionStmt | None:
    if not module.body or not isinstance(module.body[-1], ast.Expr):
        return None
    last = tree.defs[-1]
    return last if isinstance(last, ExpressionStmt) else None


def _without_duplicates(errors: Iterable[ErrorInfo]) -> list[ErrorInfo]:
    # A function that is checked twice (it waited for a type) says everything twice.
    unique: dict[tuple[int, int, str, str], ErrorInfo] = {}
    for error in errors:
        unique.setdefault((error.line, error.column, error.severity, error.message), error)
    return list(unique.values())


def _public_names(module: MypyFile) -> dict[str, SymbolTableNode]:
    """The names a session starts with: those of `__all__`, or all that a stub of ours defines."""
    return {
        name: symbol
        for name, symbol in module.names.items()
        if symbol.module_public
        and name not in _MODULE_NAMES
        and symbol.node is not None
        and not isinstance(symbol.node, MypyFile)
        and (symbol.node.fullname or "").startswith("capkernel.")
        and name not in ("__all__", "_Shell")
    }
