"""What every test shares: folders that look like a project, and saying loudly which parts cannot be tested here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

TOOLS = {"browser": ("chromium", "chromium-browser", "google-chrome"), "bwrap": ("bwrap",)}
REQUIRED = {name for name in os.environ.get("CAPKERNEL_TEST_REQUIRE", "").split(",") if name}


# Tests that wait on many processes, and are not about security: on a busy machine one may be late for a reason that is
# not the product's. Such a failure is run once more; the run says so at its end, and fails when it is no exception.
# What an attacker, a secret or a rule of the checker is tried with is never here: failing once is failing. One thing is
# nobody's answer: a browser test that hangs until its time is up, because the driver waits for a browser that will not
# say any more. That, and nothing else about a browser test, counts as late as well.
MAY_BE_LATE = {
    "test_checker_process",
    "test_kernel_conformance",
    "test_kernel_interrupt",
    "test_kernel_life",
    "test_kernel_outputs",
    "test_kernel_parts",
    "test_kill_matrix",
    "test_lab",
    "test_out_of_memory",
    "test_run",
    "test_sandbox_workloads",
    "test_session_api",
    "test_stuck_and_orphaned",
    "test_widgets",
}
DRIVER_HANGS = r"^Failed: Timeout \(>"
MOST_LATE = 3  # in one run


def _found(tool: str) -> str | None:
    return next((path for name in TOOLS[tool] if (path := shutil.which(name))), None)


def pytest_report_header() -> list[str]:
    lines = []
    for tool in TOOLS:
        where = _found(tool)
        lines.append(
            f"{tool}: {where}" if where else f"{tool}: MISSING, its tests are skipped: install {TOOLS[tool][0]}"
        )
    return lines


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in MAY_BE_LATE:
            item.add_marker(pytest.mark.flaky(reruns=1))
        elif item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=DRIVER_HANGS))
    for tool in TOOLS:
        if _found(tool) is None and tool not in REQUIRED:
            for item in items:
                if item.get_closest_marker(tool):
                    item.add_marker(pytest.mark.skip(reason=f"needs {TOOLS[tool][0]}"))


def _run_twice(reporter: object) -> list[str]:
    return [report.nodeid for report in getattr(reporter, "stats", {}).get("rerun", ())]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    late = _run_twice(session.config.pluginmanager.get_plugin("terminalreporter"))
    if len(late) > MOST_LATE and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if late := _run_twice(terminalreporter):
        terminalreporter.section(f"FAILED ONCE, RUN AGAIN: {len(late)}, at most {MOST_LATE} may be", red=True)
        for report in terminalreporter.stats["rerun"]:
            terminalreporter.line(f"{report.nodeid}\n{report.longreprtext[-2000:]}")
    for tool in TOOLS:
        if _found(tool) is None:
            terminalreporter.section(f"NOT TESTED: {tool}", red=True)
            terminalreporter.line(f"{TOOLS[tool][0]} is not installed, so the `{tool}` tests did not run.")


@pytest.fixture
def chromium() -> str:
    where = _found("browser")
    assert where is not None, "Chromium is required here (CAPKERNEL_TEST_REQUIRE) and not installed"
    return where


@pytest.fixture(autouse=True)
def _own_user_directories(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit and state go to a temporary place; the cache of the checker is kept, it costs seconds to build."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    return


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with plain files and secrets, as a notebook's directory."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("hello\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key.txt").write_text("not-the-canary\n")
    (tmp_path / ".env").write_text("NAME=shop\n")
    return tmp_path
