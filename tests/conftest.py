"""What every test shares: folders that look like a project, and saying loudly which parts cannot be tested here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

TOOLS = {"browser": ("chromium", "chromium-browser", "google-chrome"), "bwrap": ("bwrap",)}
REQUIRED = {name for name in os.environ.get("CAPKERNEL_TEST_REQUIRE", "").split(",") if name}


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
    for tool in TOOLS:
        if _found(tool) is None and tool not in REQUIRED:
            for item in items:
                if item.get_closest_marker(tool):
                    item.add_marker(pytest.mark.skip(reason=f"needs {TOOLS[tool][0]}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
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
