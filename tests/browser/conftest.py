"""Chromium for the tests of the viewer's tab."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync",
         # A name that resolves to us, as in DNS rebinding.
         "--host-resolver-rules=MAP rebound.example 127.0.0.1"]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    where = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    assert where is not None
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=where, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1000, "height": 900})
    yield made
    made.close()
