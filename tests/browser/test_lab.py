"""JupyterLab in Chromium: the tour as a person sees it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_server_started import TOKEN, capkernel_lab
from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab started by `capkernel lab`, on two copies of the tour; NAME is to be filled in."""
    tmp_path = tmp_path_factory.mktemp("lab")
    shutil.copytree(REPOSITORY / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns("*.executed.*"))
    shutil.copy(tmp_path / "notebooks" / "tour.ipynb", tmp_path / "notebooks" / "again.ipynb")
    with capkernel_lab(tmp_path, "notebooks/tour.ipynb") as port:
        yield f"http://127.0.0.1:{port}/lab/workspaces/NAME/tree/NAME.ipynb?token={TOKEN}"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 1000})
    yield context.new_page()
    context.close()


NONE_RUNS = "() => ![...document.querySelectorAll('.jp-InputPrompt')].some(prompt => prompt.textContent.includes('*'))"


def run_selected_until(page: Page, words: str) -> None:
    """Run cells one after the other, as with the keyboard, until an output says `words`."""
    for _ in range(60):
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(400)
        # A refusal would abort the cells that wait behind it.
        page.wait_for_function(NONE_RUNS, timeout=60_000)
        if page.locator(".jp-OutputArea-output", has_text=words).count():
            return
    raise AssertionError(f"no output says {words!r}")


def test_the_tour_runs_and_a_refusal_is_seen(lab: str, page: Page) -> None:
    page.goto(lab.replace("NAME", "tour"))
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
    page.wait_for_selector(".jp-Toolbar-kernelName:has-text('capkernel')", timeout=60_000)
    page.locator(".jp-Notebook .jp-Cell").first.click()
    run_selected_until(page, "Classified[dict[str, float]](***)")
    shown = page.locator(".jp-OutputArea-output").all_text_contents()
    everything = "\n".join(shown)
    assert "Refused: nothing ran, nothing changed" in everything
    assert "capability-escape" in everything
    assert "Classified[str](***)" in everything
    assert "Corner Shop" in everything, "plain files are shown"
    assert "tour-only-payment" not in everything, "secret files are not"
    assert page.locator(".jp-OutputArea-output table tbody tr").count() >= 5, "a pandas frame is a table"
    assert page.locator(".jp-OutputArea-output img[src^='data:image/png']").count() >= 1, "a plot is an image"


def test_run_all_stops_at_a_refusal(lab: str, page: Page) -> None:
    page.goto(lab.replace("NAME", "again"))
    page.wait_for_selector(".jp-Toolbar-kernelName:has-text('capkernel')", timeout=60_000)
    page.locator(".jp-Notebook .jp-Cell").first.click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("^Run All Cells")).first.click()
    page.wait_for_selector(".jp-OutputArea-output:has-text('Refused: nothing ran')", timeout=60_000)
    page.wait_for_timeout(2000)
    everything = "\n".join(page.locator(".jp-OutputArea-output").all_text_contents())
    assert everything.count("Refused: nothing ran") == 1, "what came after it did not run"
    assert "Classified[" not in everything
