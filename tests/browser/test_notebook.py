"""Notebook 7 in Chromium: cells run, a refusal is seen, completion opens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_server_started import FLAGS, TOKEN, free_port, wait_until_it_answers
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Error, Page, sync_playwright

from capkernel.bridge.launch import kernel_argv

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def notebook(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Notebook 7 on a notebook of ours."""
    jupyter = tmp_path_factory.mktemp("jupyter")
    spec = jupyter / "data" / "kernels" / "capkernel"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": kernel_argv(), "display_name": "capkernel", "language": "python"})
    )
    cells = [new_code_cell("6 * 7"), new_code_cell("open('data/a.txt')"), new_code_cell("word = 'a'\nword.splitl")]
    made = new_notebook(cells=cells)
    made.metadata["kernelspec"] = {"name": "capkernel", "display_name": "capkernel", "language": "python"}
    nbformat.write(made, str(project / "small.ipynb"))
    port = free_port()
    environment = {
        **os.environ,
        "JUPYTER_DATA_DIR": str(jupyter / "data"),
        "JUPYTER_CONFIG_DIR": str(jupyter / "config"),
        "JUPYTER_RUNTIME_DIR": str(jupyter / "run"),
    }
    server = subprocess.Popen(
        [sys.executable, "-m", "notebook", "--no-browser", "--allow-root", f"--ServerApp.port={port}",
         "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={TOKEN}"],
        cwd=project, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_until_it_answers(server, port)
        yield f"http://127.0.0.1:{port}/notebooks/small.ipynb?token={TOKEN}"
    finally:
        server.terminate()
        server.communicate(timeout=30)


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


def test_cells_run_a_refusal_is_seen_and_completion_is_by_type(notebook: str, chromium: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page: Page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.goto(notebook)
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
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
        browser.close()
