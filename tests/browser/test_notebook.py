"""Notebook 7 in Chromium: cells run, a refusal is seen, completion opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebook_page import opened, served, write_notebook
from playwright.sync_api import BrowserContext, Error, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]


def run(page: Page, cell: int, words: str) -> None:
    """Run a cell until an output says `words`: a key that comes before the page has its kernel is lost."""
    for _ in range(8):
        page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        try:
            page.wait_for_selector(f".jp-OutputArea-output:has-text('{words}')", timeout=20_000)
            return
        except Error:  # it timed out
            continue
    raise AssertionError(f"no output says {words!r}")


def test_cells_run_a_refusal_is_seen_and_completion_is_by_type(context: BrowserContext, tmp_path: Path) -> None:
    with served("notebook", tmp_path) as server:
        (server.work / "data").mkdir()
        (server.work / "data" / "a.txt").write_text("hello\n")
        write_notebook(server.work / "small.ipynb", ["6 * 7", "open('data/a.txt')", "word = 'a'\nword.splitl"])
        page = context.new_page()
        opened(page, server, "small.ipynb")
        run(page, 0, "42")
        run(page, 1, "ambient-authority")
        page.locator(".jp-Notebook .jp-Cell").nth(2).locator(".cm-content").click()
        page.keyboard.press("Control+End")
        page.keyboard.press("Tab")
        # A word's only completion is put there at once; the cell has not run.
        page.wait_for_function(
            "() => [...document.querySelectorAll('.cm-content')].some(e => e.textContent.includes('splitlines'))"
            " || [...document.querySelectorAll('.jp-Completer')].some(e => e.textContent.includes('splitlines'))",
            timeout=60_000,
        )
