"""The card with other servers, policies and kernels: where it wants a pairing, where it cannot show anything, and when
what it belongs to ends. Each test has a Jupyter server of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebook_page import SECONDS, Served, card, command, opened, ready, reveal, run_all, served, write_notebook
from page_client import printed_code
from playwright.sync_api import BrowserContext, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

SECRET = "canary-3b9d-elsewhere"
READ = "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/a.txt')\ns"


def with_card(page: Page, server: Served, words: str, code: str = READ) -> None:
    """A notebook whose one cell has run, until its card says `words`."""
    (server.work / "secrets" / "a.txt").write_text(SECRET)
    write_notebook(server.work / "book.ipynb", [code])
    opened(page, server, "book.ipynb")
    command(page, "notebook:run-all-cells")
    expect(card(page, 0)).to_contain_text(words, timeout=SECONDS)


def shows_nothing(page: Page) -> None:
    assert card(page, 0).get_by_role("button").count() == 0
    assert page.locator("iframe").count() == 0
    assert SECRET not in page.content()


def test_a_paired_page_shows_values(context: BrowserContext, tmp_path: Path) -> None:
    page = context.new_page()
    with served("lab", tmp_path, policy="[viewer]\npairing = true\n") as server:
        with_card(page, server, "Pair this browser")
        shows_nothing(page)
        assert page.locator(".capk-card input").count() == 0, "a code is never asked for in a cell"
        with context.expect_page() as popup:
            card(page, 0).get_by_role("link").click()
        tab = popup.value
        code, _ = printed_code(server.log)
        tab.get_by_label("Code").fill(code)
        tab.get_by_role("button", name="Pair").click()
        expect(tab.get_by_role("status")).to_contain_text("Paired")
        tab.close()
        page.bring_to_front()
        page.evaluate(
            "() => { document.dispatchEvent(new Event('visibilitychange')); }"
        )  # as a browser with a screen does
        ready(page, 0)
        assert reveal(page, 0).locator(".body").inner_text() == SECRET
        assert code not in page.content()


def test_a_value_of_high_origin_wants_a_pairing_when_it_is_asked_for(context: BrowserContext, tmp_path: Path) -> None:
    page = context.new_page()
    with served("lab", tmp_path, policy="[viewer]\nhigh = ['work/secrets/']\n") as server:
        with_card(page, server, "high")
        ready(page, 0)
        card(page, 0).get_by_role("button").press("Enter")
        expect(card(page, 0)).to_contain_text("Pair this browser")
        shows_nothing(page)


def test_with_active_outputs_nothing_is_shown_in_the_page(context: BrowserContext, tmp_path: Path) -> None:
    page = context.new_page()
    with served("lab", tmp_path, policy="[output]\nactive = true\n") as server:
        with_card(page, server, "capkernel view")
        shows_nothing(page)


def test_a_kernel_of_another_launcher_is_named(context: BrowserContext, tmp_path: Path) -> None:
    page = context.new_page()
    with served("lab", tmp_path, provisioner=False) as server:
        with_card(page, server, "capkernel view")
        expect(card(page, 0)).to_contain_text("provisioner")
        shows_nothing(page)


def test_a_server_without_the_extension_is_named(context: BrowserContext, tmp_path: Path) -> None:
    page = context.new_page()
    with served("lab", tmp_path, "--ServerApp.jpserver_extensions={'capkernel.viewer.jupyter': False}") as server:
        with_card(page, server, "capkernel view")
        expect(card(page, 0)).to_contain_text("does not have capkernel's extension")
        shows_nothing(page)


def test_an_approval_that_waits_is_counted_without_a_button(context: BrowserContext, tmp_path: Path) -> None:
    page = context.new_page()
    with served("lab", tmp_path) as server:
        write_notebook(server.work / "book.ipynb", ["request_secret('API_KEY')"])
        opened(page, server, "book.ipynb")
        page.evaluate("() => { void jupyterapp.commands.execute('notebook:run-all-cells'); }")
        badge = page.locator(".capk-badge")
        expect(badge).to_have_text(
            "1 approval waiting: decide in `capkernel view` or `capkernel approve`", timeout=SECONDS
        )
        assert badge.locator("button, a, input").count() == 0
        page.evaluate("() => { void jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt(); }")
        expect(badge).to_be_hidden(timeout=SECONDS)


def test_a_value_goes_with_its_tab_its_kernel_and_its_notebook(context: BrowserContext, tmp_path: Path) -> None:
    page = context.new_page()
    with served("lab", tmp_path) as server:
        with_card(page, server, "Classified[str](***)")
        write_notebook(server.work / "other.ipynb", ["1"])
        ready(page, 0)
        gone = "() => ![...document.querySelectorAll('iframe')].some(frame => frame.getBoundingClientRect().height)"
        reveal(page, 0)
        page.evaluate("() => jupyterapp.commands.execute('docmanager:open', {path: 'other.ipynb'}).then(() => null)")
        page.wait_for_function(gone)
        page.evaluate("() => jupyterapp.commands.execute('docmanager:open', {path: 'book.ipynb'}).then(() => null)")
        ready(page, 0)
        reveal(page, 0)
        page.evaluate("() => { void jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
        expect(card(page, 0)).to_contain_text("run the cell again", timeout=SECONDS)
        page.wait_for_function(gone)
        run_again(page)
        reveal(page, 0)
        page.evaluate("() => { jupyterapp.shell.currentWidget.dispose(); }")
        expect(page.locator("iframe")).to_have_count(0)
        assert SECRET not in page.content()


def run_again(page: Page) -> None:
    page.wait_for_function(
        "() => jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'", timeout=SECONDS
    )
    run_all(page, 1)
