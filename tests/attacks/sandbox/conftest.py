"""Runs the attack driver once for each kind of user and keeps the results."""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import capkernel
from capkernel.sandbox import bubblewrap

HERE = Path(__file__).parent
PACKAGE = str(Path(capkernel.__file__).parent.parent)
NOBODY = 65534

RUNS: dict[str, dict[str, Any]] = {
    "plain": {"locked": False},
    "standard": {"locked": True},
    "no_scratch": {"locked": True, "scratch": False, "role": "keeper"},
    "no_namespaces": {"locked": True, "features": {"namespaces": False}},
    "landlock_1": {"locked": True, "features": {"landlock": 1}},
    "landlock_2": {"locked": True, "features": {"landlock": 2, "namespaces": False}},
    "landlock_5": {"locked": True, "features": {"landlock": 5, "namespaces": False}},
    "runner": {"locked": True, "allow_fork": True, "scratch": False, "role": "runner"},
    "full": {"locked": True, "bwrap": True},
    "full_runner": {"locked": True, "bwrap": True, "allow_fork": True, "scratch": False, "role": "runner"},
    "full_no_landlock": {"locked": True, "bwrap": True, "features": {"landlock": 0}},
    "plain_int80": {"locked": False, "int80": True, "names": []},
    "standard_int80": {"locked": True, "int80": True, "names": []},
}


def attack_names() -> list[str]:
    """The functions of inside.py that are decorated as attacks."""

    def is_attack(node: ast.expr) -> bool:
        node = node.func if isinstance(node, ast.Call) else node
        return isinstance(node, ast.Name) and node.id == "attack"

    tree = ast.parse((HERE / "inside.py").read_text())
    return [
        item.name
        for item in tree.body
        if isinstance(item, ast.FunctionDef) and any(map(is_attack, item.decorator_list))
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attack_name" in metafunc.fixturenames:
        metafunc.parametrize("attack_name", attack_names())


@functools.cache
def _interpreter_for_nobody() -> str | None:
    """An interpreter of a supported version that an unprivileged user can run, and that finds this package."""
    check = (
        f"import sys; sys.path.insert(0, {PACKAGE!r}); import capkernel.sandbox; sys.exit(sys.version_info < (3, 11))"
    )
    for candidate in dict.fromkeys([sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]):
        try:
            done = subprocess.run(
                [candidate, "-I", "-c", check],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
                env={},
                capture_output=True,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0:
            return candidate
    return None


@functools.cache
def _run(user: str) -> dict[str, Any]:
    runs = {name: run for name, run in RUNS.items() if not run.get("bwrap") or not bubblewrap.why_not()}
    request = {"package": PACKAGE, "inside": (HERE / "inside.py").read_text(), "names": attack_names(), "runs": runs}
    command, extra = [sys.executable], {}
    if user == "nobody":
        interpreter = _interpreter_for_nobody()
        assert interpreter is not None
        command, extra = [interpreter], {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    done = subprocess.run(
        [*command, "-I", "-c", (HERE / "driver.py").read_text()],
        input=json.dumps(request),
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=300,
        check=False,
        **extra,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results: dict[str, Any] = json.loads(done.stdout)
    results["stderr"] = done.stderr
    return results


@pytest.fixture(scope="session", params=["same_user", "nobody"])
def results(request: pytest.FixtureRequest) -> dict[str, Any]:
    """All results for one kind of user; "nobody" needs root to become it."""
    if request.param == "nobody":
        if os.geteuid() != 0:
            pytest.skip("only root can run the attacks as another user")
        if _interpreter_for_nobody() is None:
            pytest.skip("no Python from 3.11 on that an unprivileged user can run")
    outcome = dict(_run(request.param))
    outcome["is_root"] = request.param == "same_user" and os.geteuid() == 0
    return outcome


@pytest.fixture(scope="session")
def decorated() -> Callable[[str], set[str]]:
    """The attacks that carry this keyword in inside.py."""
    tree = ast.parse((HERE / "inside.py").read_text())

    def named(keyword: str) -> set[str]:
        found = set()
        for item in tree.body:
            for node in getattr(item, "decorator_list", []):
                if isinstance(node, ast.Call) and any(part.arg == keyword for part in node.keywords):
                    found.add(item.name)  # type: ignore[attr-defined]
        return found

    return named
