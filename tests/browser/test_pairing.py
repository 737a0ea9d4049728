"""The pairing page in Chromium: the person types the code that the server printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jupyter_server_started import FLAGS, TOKEN, jupyter_environment, jupyter_server
from page_client import printed_code, wait
from playwright.sync_api import sync_playwright

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_a_wrong_and_the_right_code(tmp_path: Path, chromium: str) -> None:
    (tmp_path / "notebooks").mkdir()
    log = tmp_path / "server.log"
    with (
        jupyter_server(tmp_path / "notebooks", jupyter_environment(tmp_path / "jupyter"), log) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        context = browser.new_context()
        page = context.new_page()
        origin = f"http://127.0.0.1:{server.port}"
        problems: list[str] = []
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.goto(f"{origin}/login?token={TOKEN}")
        page.goto(f"{origin}/capkernel/pair")
        code, _ = printed_code(log)
        field, status = page.get_by_label("Code"), page.locator("#status")
        field.fill(code[:-1] + ("1" if code[-1] == "0" else "0"))
        page.get_by_role("button", name="Pair").click()
        page.wait_for_function("document.getElementById('status').textContent")
        assert status.text_content() == "This is not the code that the server printed: 2 tries are left."
        assert field.input_value() == ""
        field.fill(f"{code[:4]} {code[4:]}")
        page.keyboard.press("Enter")
        page.wait_for_selector("#pair", state="hidden")
        assert "Paired" in (status.text_content() or "")
        (cookie,) = [one for one in context.cookies() if one["name"].startswith("capkernel-paired-")]
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/capkernel")
        assert cookie["value"] not in page.evaluate("document.cookie")
        # In a frame of the Jupyter page it is not shown, and prints no code.
        frame = context.new_page()
        frame.goto(f"{origin}/login")
        frame.evaluate(
            """() => { const frame = document.createElement("iframe"); frame.src = "/capkernel/pair";
                        document.body.append(frame); }"""
        )
        wait(lambda: "403 GET /capkernel/pair" in log.read_text() or None)
        assert log.read_text().count("pairing code:") == 1
        assert problems == []
        browser.close()
