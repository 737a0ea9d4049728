"""How long a person waits for a value in JupyterLab, from the click to the second paint after it is drawn.

shown_ms_p50, shown_ms_p95: with the frame prepared, as pointing at the card or moving the focus to it does.
cold_ms_p50: without. endpoint_ms_p50: the bare request from the same page to the same value, and over_endpoint the
median of paired ratios to it. Reveals and bare requests alternate. Needs Chromium.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from jupyter_server_started import FLAGS
from notebook_page import chromium_path, opened, run_all, served, write_notebook

ROUNDS = 40
CELL = "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/a.txt')\ns"

REVEAL = """async ({warm}) => {
    const card = document.querySelector('.capk-card'), button = card.querySelector('button');
    const pause = ms => new Promise(done => setTimeout(done, ms));
    const state = wanted => new Promise(done => {
        const look = () => { if (card.dataset.state === wanted) { seen.disconnect(); done(); } };
        const seen = new MutationObserver(look);
        seen.observe(card, {attributes: true}); look(); });
    document.activeElement.blur();
    if (warm) { card.dispatchEvent(new PointerEvent('pointerenter')); await pause(700); } else await pause(200);
    if (warm !== (card.querySelector('iframe') !== null)) return null;
    const begun = performance.now();
    button.click();
    await state('shown');
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const took = performance.now() - begun;
    button.click();
    await state('ready');
    return took;
}"""
ENDPOINT = """async ([kernel, handle]) => {
    const xsrf = document.cookie.match(/(?:^|; )_xsrf=([^;]*)/)[1];
    const key = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))));
    const begun = performance.now();
    const answer = await fetch('/capkernel/reveal', {method: 'POST', body: JSON.stringify({kernel, handle, key}),
        headers: {'Content-Type': 'application/json', 'X-XSRFToken': xsrf}});
    await answer.json();
    return answer.ok ? performance.now() - begun : null;
}"""
HANDLE = """() => JSON.stringify(jupyterapp.shell.currentWidget.content.model.toJSON())
    .match(/"handle":"([0-9a-f]{32})"/)[1]"""


def measure(page: Page, kernel: str) -> dict[str, float]:
    handle = page.evaluate(HANDLE)
    warm: list[float] = []
    cold: list[float] = []
    bare: list[float] = []
    for _ in range(ROUNDS):
        rounds = (page.evaluate(REVEAL, {"warm": True}), page.evaluate(ENDPOINT, [kernel, handle]),
                  page.evaluate(REVEAL, {"warm": False}))  # fmt: skip
        if None in rounds:
            continue
        warm.append(rounds[0])
        bare.append(rounds[1])
        cold.append(rounds[2])
    assert len(warm) > ROUNDS // 2, f"only {len(warm)} of {ROUNDS} rounds went through"
    return {
        "shown_ms_p50": statistics.median(warm),
        "shown_ms_p95": statistics.quantiles(warm, n=20)[-1],
        "cold_ms_p50": statistics.median(cold),
        "endpoint_ms_p50": statistics.median(bare),
        "over_endpoint": statistics.median(one / other for one, other in zip(warm, bare, strict=True)),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as place, served("lab", Path(place)) as server, sync_playwright() as playwright:
        (server.work / "secrets" / "a.txt").write_text("nothing that matters")
        write_notebook(server.work / "book.ipynb", [CELL])
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        kernel = opened(page, server, "book.ipynb")
        run_all(page, 1)
        page.mouse.move(0, 0)
        page.evaluate(REVEAL, {"warm": True})
        found = measure(page, kernel)
        browser.close()
    for key, value in found.items():
        print(f"{key:16} {value:8.1f}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
