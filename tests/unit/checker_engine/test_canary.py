"""What the engine takes from inside mypy, pinned: a mypy that changes any of it must fail here, with a name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import mypy.build as mypy_build
import pytest
from mypy import errorcodes, fastparse, message_registry
from mypy.errors import Errors
from mypy.nodes import Import, ImportAll, ImportFrom, MypyFile, NameExpr, Var
from mypy.options import Options
from mypy.semanal_main import semantic_analysis_for_scc
from mypy.server.update import ensure_trees_loaded
from mypy.types import AnyType, TypeOfAny

from capkernel.checker import builds, pinned


def test_the_version() -> None:
    assert builds.mypy_version().startswith(pinned.SUPPORTED)
    assert pinned.installed() == builds.mypy_version()
    assert pinned.problem() == ""


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "_mypy_version", "2.5.0")
    with pytest.raises(builds.UnsupportedMypy) as refused:
        builds.require_supported()
    command = f"{sys.executable} -m pip install 'mypy==2.4.*'"
    assert str(refused.value) == f"capkernel needs mypy 2.4.*, and mypy 2.5.0 is installed. Run: {command}"
    assert "mypy is not installed" in pinned.problem("")


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (
            mypy_build,
            "build load_graph process_fresh_modules sorted_components_inner order_ascc PRI_INDIRECT State BuildManager",
        ),
        (
            mypy_build.State,
            "new_state semantic_analysis_pass1 setup_errors compute_dependencies suppress_dependency "
            "type_checker type_check_first_pass type_check_second_pass detect_possibly_undefined_vars type_map "
            "free_state",
        ),
        (Errors, "reset set_file is_blockers raise_error"),
        (fastparse.ASTConverter, "visit visitor_cache visit_Name visit_Call visit_Lambda"),
        (fastparse, "parse_type_ignore_tag"),
        (errorcodes, "TOP_LEVEL_AWAIT ANNOTATION_UNCHECKED"),
        (message_registry, "ASYNC_FOR_OUTSIDE_COROUTINE ASYNC_WITH_OUTSIDE_COROUTINE"),
    ],
)
def test_the_internals_exist(owner: object, names: str) -> None:
    missing = [name for name in names.split() if not hasattr(owner, name)]
    assert missing == []
    assert callable(semantic_analysis_for_scc)
    assert callable(ensure_trees_loaded)


def test_the_converter_looks_visitors_up_by_type() -> None:
    """`conversion` rests on this: a visitor put in `visitor_cache` is the one that is called."""
    converter = fastparse.ASTConverter(
        Options(), is_stub=False, errors=Errors(Options()), strip_function_bodies=False, path="<test>"
    )
    seen: list[ast.AST] = []
    original = converter.visit_Name

    def visit(node: ast.AST | None) -> object:
        seen.append(node)
        return original(node)

    converter.visitor_cache[ast.Name] = visit
    module = ast.parse("f(x)[y].z + (lambda: w)()")
    tree = converter.visit(module)
    assert isinstance(tree, MypyFile)
    assert [node.id for node in seen] == ["x", "f", "y", "w"]


def test_nodes_can_be_made_and_changed() -> None:
    name = NameExpr("a")
    name.name = "b"
    made = Var("x", AnyType(TypeOfAny.unannotated))
    made._fullname = "m.x"
    made.is_ready = True
    assert (name.name, made.fullname, NameExpr("a").line) == ("b", "m.x", -1)
    assert Import([("a", None)]).ids == [("a", None)]
    assert ImportFrom("a", 0, []).id == "a"
    assert ImportAll("a", 0).id == "a"


def test_the_parts_of_an_error() -> None:
    fields = {"line", "column", "end_line", "end_column", "severity", "message", "code", "origin_span"}
    errors = Errors(Options())
    errors.set_file("f", "f", Options())
    info = errors.report(2, 1, "said", errorcodes.ASSIGNMENT)
    assert {name: getattr(info, name) for name in fields} == {
        "line": 2,
        "column": 1,
        "end_line": 2,
        "end_column": 2,
        "severity": "error",
        "message": "said",
        "code": errorcodes.ASSIGNMENT,
        "origin_span": [2],
    }
    assert errors.error_info_map["f"] == [info]


def test_the_type_map_is_a_dict_that_can_be_replaced(cells) -> None:
    # JoinedTypes stands in for it; both ways mypy writes to it must be the Python ones.
    typed = cells.typed("v: int | str = 'a' if input() else 1\ntry:\n    v = 3\nfinally:\n    print(v)\n    v\n")
    finally_body = typed.module.body[1].finalbody
    through_update = finally_body[0].value.args[0]
    through_setitem = finally_body[1].value
    for node in (through_update, through_setitem):
        assert str(typed.resolve(node).type) in ("int | str", "str | int")


def test_nothing_of_the_directory_is_read(tmp_path: Path, cache_directory: Path) -> None:
    """A folder full of traps: modules, stubs and configuration that would all change what mypy says."""
    (tmp_path / "json.py").write_text("def loads(x: int) -> int: ...\n")
    (tmp_path / "helper.py").write_text("value: int = 1\n")
    (tmp_path / "mypy.ini").write_text("[mypy]\ndisallow_any_expr = true\nplugins = trap\n")
    (tmp_path / "pyproject.toml").write_text("[tool.mypy]\nstrict = true\nplugins = ['trap']\n")
    (tmp_path / "trap.py").write_text("raise SystemExit('the trap was read')\n")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('the trap was read')\n")
    program = (
        "import ast, sys\nfrom pathlib import Path\nfrom capkernel.checker.engine import Engine\n"
        "engine = Engine(Path(sys.argv[1]))\n"
        "text = 'import json\\nimport helper\\njson.loads(\"1\")\\nhelper.value'\n"
        "checked = engine.check(1, text, ast.parse(text))\n"
        "print(len(checked.errors), engine.describe(checked.last_type))\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "MYPYPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-s", "-E", "-c", program, str(cache_directory)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "Any"]
    # The trap works where nothing protects from it.
    plain = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "-c", "import helper\nreveal_type(helper.value)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "trap" in plain.stdout + plain.stderr
