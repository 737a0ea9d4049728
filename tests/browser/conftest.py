"""Chromium: one for each module, and what a test asks of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jupyter_server_started import FLAGS
from notebook_page import chromium_path
from playwright.sync_api import Browser, BrowserContext, Playwright, expect, sync_playwright

REBOUND = "--host-resolver-rules=MAP rebound.example 127.0.0.1"  # a name that resolves to us, as in DNS rebinding

expect.set_options(timeout=60_000)  # a machine may be busy; what is so is seen at once


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    started = playwright.chromium.launch(executable_path=chromium_path(), args=[*FLAGS, REBOUND])
    yield started
    started.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1000, "height": 900})
    yield made
    made.close()
