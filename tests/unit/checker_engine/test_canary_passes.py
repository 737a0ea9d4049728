"""The way of a module through mypy's passes, step by step as `engine` and `builds` go it, one internal per test.

When a new mypy changes one of these, the test with its name fails, and says what is rested on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import mypy.build as mypy_build
import pytest
from mypy.build import State
from mypy.errors import CompileError
from mypy.fixup import NodeFixer
from mypy.freetree import free_tree
from mypy.messages import format_type_bare
from mypy.modules_state import modules_state
from mypy.nodes import GDEF, ExpressionStmt, FuncDef, NameExpr, SymbolTableNode, TypeInfo, Var
from mypy.semanal_main import semantic_analysis_for_scc
from mypy.typeops import make_simplified_union
from mypy.types import CallableType, Instance, instance_cache
from mypy.typevars import fill_typevars_with_any

from capkernel.checker.conversion import convert
from capkernel.checker.profiles import STRICT

NAME, PATH = "canary_module", "<canary>"


class Walk:
    """One module on its way, with what the engine has at hand."""

    def __init__(self, engine) -> None:
        self.engine = engine
        self.manager = engine._warm.manager
        self.graph = engine._warm.graph
        engine._warm.take_over()
        self.manager.errors.reset()

    def state(self, text: str) -> State:
        state = State.new_state(id=NAME, path=PATH, source=text, manager=self.manager, root_source=True)
        self.graph[NAME] = state
        state.options = self.engine._options
        state.needs_parse = False
        self.became = {}
        module = ast.parse(text)
        tree, self.became = convert(module, state.id, state.xpath, state.options, self.manager.errors)
        self.module, state.tree = module, tree
        state.semantic_analysis_pass1()
        self.manager.modules[NAME] = tree
        state.setup_errors()
        state.compute_dependencies()
        self.manager.import_map[NAME] = set(state.dependencies_set)
        return state

    def analysed(self, text: str) -> State:
        state = self.state(text)
        semantic_analysis_for_scc(self.graph, [NAME], self.manager.errors)
        return state

    def checked(self, text: str) -> State:
        state = self.analysed(text)
        state.type_check_first_pass()
        while state.type_check_second_pass():
            pass
        return state

    def clear(self) -> None:
        state = self.graph.pop(NAME, None)
        if state is not None:
            state.free_state()
        for table in (self.manager.modules, self.manager.ast_cache, self.manager.import_map):
            table.pop(NAME, None)
        self.manager.import_options.pop(NAME, None)
        self.manager.errors.reset()


@pytest.fixture
def walk(cells) -> Iterator[Walk]:
    made = Walk(cells.engine)
    yield made
    made.clear()


def test_new_state(walk: Walk) -> None:
    state = State.new_state(id=NAME, path=PATH, source="x = 1", manager=walk.manager, root_source=True)
    assert (state.id, state.xpath) == (NAME, PATH)
    assert state.tree is None
    assert NAME not in walk.graph


def test_the_first_pass_makes_the_symbol_table_be_open(walk: Walk) -> None:
    """What `seeding` puts in between the passes is found by the semantic analysis."""
    state = walk.state("found = seeded")
    assert state.tree is not None
    known = walk.manager.modules["builtins"].names["len"].node
    assert known is not None
    state.tree.names["seeded"] = SymbolTableNode(GDEF, known)
    semantic_analysis_for_scc(walk.graph, [NAME], walk.manager.errors)
    state.type_check_first_pass()
    assert walk.manager.errors.error_info_map.get(PATH, []) == []
    read = walk.became[walk.module.body[0].value]
    assert isinstance(read, NameExpr)
    assert read.node is known


def test_dependencies(walk: Walk) -> None:
    state = walk.state("import json")
    assert "json" in state.dependencies
    assert "json" in state.dependencies_set


def test_import_map_decides_what_a_module_reaches(walk: Walk) -> None:
    assert isinstance(walk.manager.import_map, dict)
    walk.checked("import json\nx = json.loads('1')")
    assert "json" in walk.manager.import_map[NAME]


def test_semantic_analysis_for_scc(walk: Walk) -> None:
    state = walk.analysed("class C:\n    def f(self) -> int:\n        return 1\n")
    assert state.tree is not None
    made = state.tree.names["C"].node
    assert isinstance(made, TypeInfo)
    assert isinstance(made.names["f"].node, FuncDef)
    assert made.fullname == f"{NAME}.C"


def test_type_map(walk: Walk) -> None:
    state = walk.checked("x = [1]\nx")
    asked = walk.became[walk.module.body[1].value]
    typ = dict(state.type_map())[asked]
    assert isinstance(typ, Instance)
    assert format_type_bare(typ, walk.engine._options) == "list[int]"


def test_a_statement_that_is_appended_gets_a_type(walk: Walk) -> None:
    state = walk.state("x = 1\nx = 'a'\n")
    probe = NameExpr("x")
    assert state.tree is not None
    state.tree.defs.append(ExpressionStmt(probe))
    semantic_analysis_for_scc(walk.graph, [NAME], walk.manager.errors)
    state.type_check_first_pass()
    assert str(state.type_map()[probe]) == "str"


def test_the_checkers_type_maps_are_a_list_whose_first_can_be_replaced(walk: Walk) -> None:
    state = walk.analysed("x = 1\nx")
    own: dict = {}
    state.type_checker()._type_maps[0] = own
    state.type_check_first_pass()
    assert len(own) > 0
    assert state.type_map() is own


def test_error_info_map(walk: Walk) -> None:
    walk.checked("x: int = 'a'")
    (error,) = walk.manager.errors.error_info_map[PATH]
    assert (error.line, error.severity, error.code.code) == (1, "error", "assignment")


def test_possibly_undefined_variables(walk: Walk) -> None:
    state = walk.state("import random\nif random.random():\n    x = 1\nx")
    state.options = STRICT.cell_options(walk.engine._warm.options)
    state.setup_errors()
    semantic_analysis_for_scc(walk.graph, [NAME], walk.manager.errors)
    state.type_check_first_pass()
    state.detect_possibly_undefined_vars()
    (error,) = walk.manager.errors.error_info_map[PATH]
    assert (error.line, error.code.code) == (4, "possibly-undefined")


def test_a_blocking_error_is_raised_as_one(walk: Walk) -> None:
    errors = walk.manager.errors
    errors.set_file(PATH, NAME, walk.engine._options)
    assert not errors.is_blockers()
    errors.report(1, 0, "said", blocker=True)
    assert errors.is_blockers()
    with pytest.raises(CompileError):
        errors.raise_error()


def test_free_tree_leaves_symbols_and_types(walk: Walk) -> None:
    state = walk.checked("x = 1\ndef f(a: int) -> str: return str(a)\n")
    tree = state.tree
    assert tree is not None
    free_tree(tree)
    tree.defs.clear()
    variable, function = tree.names["x"].node, tree.names["f"].node
    assert isinstance(variable, Var)
    assert str(variable.type) == "int"
    assert isinstance(function, FuncDef)
    assert isinstance(function.type, CallableType)


def test_the_state_of_the_process_can_be_pointed_at_a_build(walk: Walk) -> None:
    assert modules_state.modules is walk.manager.modules
    assert isinstance(NodeFixer(walk.manager.modules, False), NodeFixer)
    assert callable(instance_cache.reset)


def test_modules_are_found_with_their_cache(walk: Walk) -> None:
    path = walk.manager.find_module_cache.find_module("json")
    assert isinstance(path, str)
    assert path.endswith(".pyi")
    assert not isinstance(walk.manager.find_module_cache.find_module("no_such_module_at_all"), str)
    assert mypy_build.find_cache_meta("json", path, walk.manager) is not None


def test_the_words_for_types(walk: Walk) -> None:
    builtins = walk.manager.modules["builtins"].names
    kinds = [fill_typevars_with_any(builtins[name].node) for name in ("int", "str", "list")]
    joined = make_simplified_union(kinds)
    assert format_type_bare(joined, walk.engine._options) == "int | str | list[Any]"
    assert make_simplified_union([kinds[0], kinds[0]]) == kinds[0]


def _first_value(state: State) -> object:
    (statement,) = state.tree.defs
    return statement.rvalue


@pytest.mark.parametrize("where", ["expr_cache", "type_overrides"])
def test_mypy_takes_the_type_of_an_expression_from_its_caches(walk: Walk, where: str) -> None:
    """`recall` lays what is known into them."""
    state = walk.analysed("x = len('a') + 1\n")
    checker, value = state.type_checker(), _first_value(state)
    text = checker.named_type("builtins.str")
    if where == "expr_cache":
        checker.expr_checker.expr_cache[(value, None)] = (checker.binder.version, text, [], {value: text})
    else:
        checker.expr_checker.type_overrides[value] = text
    state.type_check_first_pass()
    assert state.tree.names["x"].node.type == text


def test_what_mypy_found_stays_in_its_cache_until_the_module_is_checked(walk: Walk) -> None:
    state = walk.analysed("x = len('a') + 1\n")
    checker, value = state.type_checker(), _first_value(state)
    state.type_check_first_pass()
    version, typ, messages, types = checker.expr_checker.expr_cache[(value, None)]
    assert isinstance(version, int)
    assert str(typ) == "int"
    assert messages == []
    assert str(types[value.left]) == "int"
    assert value not in types


def test_a_local_type_map_leaves_no_trace(walk: Walk) -> None:
    state = walk.analysed("x = len('a') + 1\n")
    checker, value = state.type_checker(), _first_value(state)
    with checker.local_type_map as types:
        checker.expr_checker.accept(value)
    assert value in types
    assert not checker._type_maps[0]
