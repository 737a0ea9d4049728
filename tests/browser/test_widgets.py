"""Widgets in JupyterLab, in Chromium, used by a person where the operator allows it. Where not: integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_server_started import TOKEN, capkernel_lab
from notebook_page import write_notebook
from playwright.sync_api import Browser, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

SECONDS = 120_000  # milliseconds, for what has to appear
CELLS = [
    """\
import ipywidgets as widgets
import anywidget, traitlets
import plotly.graph_objects as go
out = widgets.Output()
button = widgets.Button(description="press")
slider = widgets.IntSlider(value=3)
@button.on_click
def pressed(_):
    with out:
        print("pressed at", slider.value)
widgets.VBox([slider, button, out])
""",
    """\
class Counter(anywidget.AnyWidget):
    _esm = '''
    function render({ model, el }) {
      const button = document.createElement("button");
      const show = () => { button.innerHTML = `count is ${model.get("value")}`; };
      button.className = "counter";
      button.onclick = () => { model.set("value", model.get("value") + 1); model.save_changes(); };
      model.on("change:value", show);
      show();
      el.appendChild(button);
    }
    export default { render };
    '''
    value = traitlets.Int(0).tag(sync=True)
counter = Counter()
counter
""",
    'go.Figure(data=[go.Bar(x=["a", "b"], y=[1, 3])])',
    'counter.value = counter.value + 40\nprint("slider", slider.value, "counter", counter.value)',
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab on the notebook of `CELLS`, where the operator allows active outputs."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    write_notebook(folder / "widgets.ipynb", CELLS)
    policy = tmp_path / "policy.toml"
    policy.write_text("[output]\nactive = true\n")
    with capkernel_lab(tmp_path, "notebooks/widgets.ipynb", CAPKERNEL_POLICY=str(policy)) as port:
        yield f"http://127.0.0.1:{port}/lab/tree/widgets.ipynb?token={TOKEN}"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 1600})
    yield context.new_page()
    context.close()


def run_cell(page: Page, number: int) -> None:
    """Run the cell of this number (from 0) and wait until it is done."""
    page.locator(".jp-Notebook .jp-CodeCell .jp-InputArea-editor").nth(number).click()
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(
        "n => /\\[\\d+\\]/.test(document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')[n]?.textContent ?? '')",
        arg=number, timeout=SECONDS,
    )  # fmt: skip


def test_widgets(lab: str, page: Page) -> None:
    page.goto(lab)
    page.wait_for_selector(".jp-Toolbar-kernelName:has-text('capkernel')", timeout=SECONDS)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SECONDS)
    for number in range(3):
        run_cell(page, number)
    said = page.locator(".jp-OutputArea-output", has_text="active outputs are ON")
    expect(said).to_have_count(1, timeout=SECONDS)
    press, out = page.locator("button.jupyter-button", has_text="press"), page.locator(".widget-output")
    press.click(timeout=SECONDS)
    expect(out).to_contain_text("pressed at 3", timeout=SECONDS)
    for moved in ("4", "5"):
        page.locator(".noUi-handle").press("ArrowRight", timeout=SECONDS)
        expect(page.locator(".widget-readout")).to_have_text(moved, timeout=SECONDS)
    press.click()
    expect(out).to_contain_text("pressed at 5", timeout=SECONDS)
    counter = page.locator("button.counter")
    counter.click(timeout=SECONDS)
    expect(counter).to_have_text("count is 1", timeout=SECONDS)
    expect(page.locator(".js-plotly-plot .bars .point")).to_have_count(2, timeout=SECONDS)
    run_cell(page, 3)
    expect(page.locator(".jp-OutputArea-output", has_text="slider 5 counter 41")).to_have_count(1, timeout=SECONDS)
    expect(counter).to_have_text("count is 41", timeout=SECONDS)
