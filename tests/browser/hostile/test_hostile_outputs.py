"""Hostile outputs in JupyterLab: each acts when a stock kernel sends it, and none when it went through the firewall.

The fenced kernel has the real front, worker and firewall; its checker accepts everything, so that what is tested is the
firewall alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hostile_corpus import CORPUS, PREAMBLE, Hostile, source
from playwright.sync_api import Browser, Page, sync_playwright
from unchecked import install_spec

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
TOKEN = "only-for-this-test"
SETTLE_SECONDS = 1.5


@dataclass
class Listener:
    """A server that writes down which names it was asked for."""

    url: str = ""
    asked: set[str] = field(default_factory=set)

    def take(self, path: str) -> None:
        self.asked.add(path.lstrip("/").split("?")[0])


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    found = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.take(self.path)
            self.send_response(204)  # a page that is sent here stays where it is
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()

        do_POST = do_HEAD = do_OPTIONS = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, listener: Listener) -> Iterator[str]:
    """A JupyterLab with a notebook of the whole corpus for each of two kernels, `stock` and `fenced`."""
    home = tmp_path_factory.mktemp("hostile")
    install_spec(home / "share", "fenced")
    stock = home / "share" / "kernels" / "stock"
    stock.mkdir(parents=True)
    argv = [sys.executable, "-P", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (stock / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "stock", "language": "python"}))
    settings = home / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    (settings / "tracker.jupyterlab-settings").write_text('{"windowingMode": "none"}')
    work = home / "work"
    work.mkdir()
    for kernel in ("stock", "fenced"):
        nbformat.write(notebook(kernel, listener.url), work / f"{kernel}.ipynb")
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "run"),
        "JUPYTER_PATH": str(home / "share"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    command = [sys.executable, "-P", "-m", "jupyterlab", "--no-browser", "--LabApp.expose_app_in_browser=True",
               "--ServerApp.port=0", "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={TOKEN}"]  # fmt: skip
    server = subprocess.Popen(
        [*command, "--allow-root"], cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield f"{wait_for_address(server, home / 'run')}lab/workspaces/"
    finally:
        server.terminate()
        server.communicate(timeout=30)


def wait_for_address(server: subprocess.Popen[bytes], runtime: Path) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.poll() is None, server.stderr.read().decode()  # type: ignore[union-attr]
        for found in runtime.glob("jpserver-*.json"):
            try:
                url: str = json.loads(found.read_text())["url"]
                with urllib.request.urlopen(f"{url}api?token={TOKEN}", timeout=2):
                    return url
            except (OSError, ValueError):
                pass
        time.sleep(0.2)
    raise AssertionError("JupyterLab did not come up")


def notebook(kernel: str, url: str) -> Any:
    """The corpus, a cell each."""
    fresh = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": kernel, "display_name": kernel}})
    cells = [PREAMBLE, *(source(hostile, hostile.code, url) for hostile in CORPUS), "print('all ran')"]
    fresh.cells = [nbformat.v4.new_code_cell(cell, metadata={"tags": ["raises-exception"]}) for cell in cells]
    return fresh


@pytest.fixture
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@contextmanager
def open_page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 1000})
    page = context.new_page()
    page.add_init_script("window.__owned = []")
    yield page
    context.close()


READY = """() => {
  const panel = window.jupyterapp && jupyterapp.shell.currentWidget;
  return !!(panel && panel.sessionContext && panel.sessionContext.session && panel.sessionContext.session.kernel
    && panel.sessionContext.session.kernel.status === 'idle' && panel.content.widgets.length > 1);
}"""
# A command and a comm target that mark the page, as a page of a real person has many that do worse.
TRAPS = """() => {
  jupyterapp.commands.addCommand('canary:run', {execute: args => window.__owned.push(args.name)});
  jupyterapp.shell.currentWidget.sessionContext.session.kernel.registerCommTarget('canary', (comm, message) => {
    const take = data => data.name && window.__owned.push(data.name);
    comm.onMsg = later => take(later.content.data);
    take(message.content.data);
  });
}"""
# JupyterLab makes a link of an address in plain text. It goes where it says, so it is the person's own to follow.
CLICK = """([index, selector]) => {
  const cell = jupyterapp.shell.currentWidget.content.widgets[index].node;
  for (const found of cell.querySelectorAll('.jp-Cell-outputArea ' + selector)) {
    const says_where = found.tagName === 'A' && found.getAttribute('href') === found.textContent;
    if (!says_where) found.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}));
  }
}"""


def run_corpus(page: Page, address: str, kernel: str, listener: Listener, *, click_all: bool) -> set[str]:
    """The names of what acted."""
    listener.asked.clear()
    page.goto(f"{address}{kernel}/tree/{kernel}.ipynb?token={TOKEN}")
    page.wait_for_function(READY, timeout=90_000)
    page.evaluate(TRAPS)
    page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells') }")
    page.wait_for_selector(".jp-OutputArea-output:has-text('all ran')", timeout=90_000)
    page.wait_for_timeout(SETTLE_SECONDS * 1000)
    for index, hostile in enumerate(CORPUS, start=1):
        selector = hostile.click or ("*" if click_all else "")
        if selector:
            page.evaluate(CLICK, [index, selector])
    page.wait_for_timeout(SETTLE_SECONDS * 1000)
    acted = set(page.evaluate("window.__owned")) | listener.asked
    return acted | {hostile.name for hostile in CORPUS if hostile.proof and page.evaluate(hostile.proof)}


def acts_in_a_plain_page(browser: Browser, listener: Listener, hostile: Hostile) -> bool:
    listener.asked.clear()
    with open_page(browser) as page:
        markup = source(hostile, hostile.code.partition(", ")[2].removesuffix(")"), listener.url)
        document = source(hostile, hostile.payload, listener.url)
        if "MARKUP" in document:
            document = document.replace("MARKUP", markup)
        page.set_content(f"<script>window.__owned = []</script>{document}")
        page.wait_for_timeout(500)
        return hostile.name in set(page.evaluate("window.__owned")) | listener.asked


def test_names_are_used_once() -> None:
    assert len({hostile.name for hostile in CORPUS}) == len(CORPUS) >= 35


def test_each_acts_without_the_firewall_and_none_with_it(browser: Browser, lab: str, listener: Listener) -> None:
    everything = {hostile.name for hostile in CORPUS}
    disarmed = {hostile.name for hostile in CORPUS if hostile.disarmed}
    with open_page(browser) as page:
        acted = run_corpus(page, lab, "stock", listener, click_all=False)
    assert everything - disarmed - acted == set(), "these do nothing, so the next assertion would say nothing of them"
    assert acted & disarmed == set(), "these act in JupyterLab after all"
    for hostile in CORPUS:
        if hostile.disarmed:
            assert acts_in_a_plain_page(browser, listener, hostile), hostile.name

    with open_page(browser) as page:
        acted = run_corpus(page, lab, "fenced", listener, click_all=True)
        shown = page.locator(".jp-OutputArea-output").all_text_contents()
        cells = page.evaluate("jupyterapp.shell.currentWidget.content.widgets.length")
        stayed = page.url.startswith(lab)
    assert acted == set()
    assert stayed
    assert cells == len(CORPUS) + 2, "no cell was added"
    assert sum("TEXT" in text for text in shown) > len(CORPUS) / 3, "what is dropped leaves its text"
