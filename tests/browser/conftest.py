"""One browser for each module; a page of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jupyter_server_started import FLAGS
from notebook_page import chromium_path
from playwright.sync_api import Browser, Page, Playwright, sync_playwright


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    started = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
    yield started
    started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1200, "height": 1000})
    yield context.new_page()
    context.close()
