"""A notebook in a real browser, on a real Jupyter server with our extension and our kernel."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import nbformat
from jupyter_client.blocking import BlockingKernelClient
from jupyter_server_started import TOKEN, jupyter_environment, jupyter_server
from playwright.sync_api import BrowserContext, Error, Frame, Locator, Page

SECONDS = 60_000  # milliseconds, for Playwright
APPLICATIONS = {
    "lab": ("jupyterlab", "lab/tree", "LabApp"),
    "notebook": ("notebook", "notebooks", "JupyterNotebookApp"),
}
IDLE = """() => {
    const kernel = window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel;
    return kernel && kernel.status === 'idle' && kernel.id;
}"""


@dataclass
class Served:
    """A Jupyter server, its directories, and where its log is (level DEBUG)."""

    application: str
    port: int
    place: Path
    work: Path
    log: Path
    environment: dict[str, str]

    def address(self, notebook: str) -> str:
        return f"http://127.0.0.1:{self.port}/{APPLICATIONS[self.application][1]}/{notebook}?token={TOKEN}"


def chromium_path() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    where = next((path for name in names if (path := shutil.which(name))), None)
    assert where is not None, "Chromium is required here (CAPKERNEL_TEST_REQUIRE) and not installed"
    return where


@contextmanager
def served(application: str, place: Path, *options: str, policy: str = "", **environment: Any) -> Iterator[Served]:
    """JupyterLab ("lab") or Notebook 7 ("notebook"), its files below `place`. Cells are never taken out of the page
    while they are not looked at. environment: for `jupyter_environment`."""
    program, _, app = APPLICATIONS[application]
    work = place / "work"
    (work / "secrets").mkdir(parents=True, exist_ok=True)
    variables = jupyter_environment(place / "jupyter", **environment)
    settings = place / "settings" / "@jupyterlab"
    for name, content in (("notebook-extension/tracker", {"windowingMode": "none"}),
                          ("apputils-extension/notification", {"fetchNews": "false"})):  # fmt: skip
        (settings / name).parent.mkdir(parents=True)
        (settings / f"{name}.jupyterlab-settings").write_text(json.dumps(content))
    variables |= {"JUPYTERLAB_SETTINGS_DIR": str(place / "settings"),
                  "JUPYTERLAB_WORKSPACES_DIR": str(place / "workspaces"),
                  "XDG_STATE_HOME": str(place / "state")}  # fmt: skip
    if policy:
        (place / "policy.toml").write_text(policy)
        variables["CAPKERNEL_POLICY"] = str(place / "policy.toml")
    log = place / "server.log"
    with jupyter_server(
        work, variables, log, f"--{app}.expose_app_in_browser=True", *options, program=program
    ) as started:
        yield Served(application, started.port, place, work, log, variables)


def write_notebook(path: Path, cells: list[str]) -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata["kernelspec"] = {"name": "capkernel", "display_name": "capkernel", "language": "python"}
    nbformat.write(made, path)


def opened(page: Page, server: Served, notebook: str) -> str:
    """Open a notebook and wait for its kernel, whose id is given."""
    page.goto(server.address(notebook))
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=SECONDS)
    kernel: str = page.wait_for_function(IDLE, timeout=SECONDS).json_value()
    return kernel


def command(page: Page, name: str) -> None:
    """A command of the application, to its end."""
    page.evaluate("name => window.jupyterapp.commands.execute(name).then(() => null)", name)


def run_all(page: Page, cards: int) -> None:
    """Run every cell, until there are so many cards that can be revealed."""
    command(page, "notebook:run-all-cells")
    try:
        page.wait_for_function(f"() => document.querySelectorAll('.capk-card').length === {cards}", timeout=SECONDS)
    except Error:  # it timed out
        shown = page.locator(".jp-OutputArea-output").all_inner_texts()
        raise AssertionError(f"not {cards} cards: {shown}") from None
    for number in range(cards):
        card(page, number).scroll_into_view_if_needed()
        ready(page, number)


def card(page: Page, number: int) -> Locator:
    return page.locator(".capk-card").nth(number)


def in_state(page: Page, number: int, state: str) -> None:
    page.wait_for_function(
        "([number, state]) => document.querySelectorAll('.capk-card')[number]?.dataset.state === state",
        arg=[number, state], timeout=SECONDS,
    )  # fmt: skip


def ready(page: Page, number: int) -> None:
    in_state(page, number, "ready")


def press(page: Page, number: int) -> None:
    """The card's button, as a person's Enter on it: a click could meet what has moved in between."""
    card(page, number).get_by_role("button").press("Enter")


def frame_of(page: Page, number: int) -> Frame:
    """The isolated frame of a card."""
    held = card(page, number).locator("iframe").element_handle()
    found = held.content_frame()
    assert found is not None
    return found


def reveal(page: Page, number: int) -> Frame:
    """Reveal; until the vault has computed it."""
    for _ in range(60):
        press(page, number)
        in_state(page, number, "shown")
        frame = frame_of(page, number)
        if frame.locator(".what").inner_text() != "not computed yet":
            return frame
        hide(page, number)
        page.wait_for_timeout(250)
    raise AssertionError("never computed")


def hide(page: Page, number: int) -> None:
    press(page, number)
    ready(page, number)


class Iopub(threading.Thread):
    """Another client of the kernel, which hears what every client hears."""

    def __init__(self, server: Served, kernel: str) -> None:
        super().__init__(daemon=True)
        file = Path(server.environment["JUPYTER_RUNTIME_DIR"]) / f"kernel-{kernel}.json"
        self.client = BlockingKernelClient(connection_file=str(file))
        self.client.load_connection_file()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS / 1000)
        self.messages: list[dict[str, Any]] = []
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            try:
                self.messages.append(self.client.get_iopub_msg(timeout=0.2))
            except Empty:
                continue

    def settled(self) -> int:
        """How many messages came, when all that was sent before now has come."""
        before = len(self.messages)
        mark = self.client.kernel_info()  # answered with a busy and an idle
        for _ in range(600):
            said = [message for message in self.messages[before:] if message["parent_header"].get("msg_id") == mark]
            if any(message["content"].get("execution_state") == "idle" for message in said):
                return len(self.messages) - len(said)
            self._end.wait(0.05)
        raise AssertionError("the kernel did not answer")

    def close(self) -> None:
        self._end.set()
        self.join(10)
        self.client.stop_channels()


@dataclass
class Opened:
    """A notebook whose cells have run, what a listener heard, and what the page's console said."""

    server: Served
    context: BrowserContext
    page: Page
    kernel: str
    iopub: Iopub
    console: list[str] = field(default_factory=list)
