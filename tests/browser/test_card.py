"""The card in JupyterLab and Notebook 7, on a real server, kernel and vault: the person sees a value in an isolated
frame; the page, the notebook, other clients, the server and what the browser keeps never hold it.

The tests share one notebook whose cells have run; each leaves its cards hidden. The last one closes the browser.
"""

from __future__ import annotations

import base64
import io
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from jupyter_server_started import FLAGS
from leaks import leaked, spellings
from notebook_page import (
    Iopub,
    Opened,
    card,
    chromium_path,
    command,
    frame_of,
    hide,
    in_state,
    opened,
    press,
    ready,
    reveal,
    run_all,
    served,
    write_notebook,
)
from PIL import Image
from playwright.sync_api import Error, Frame, Page, Playwright, WebSocket, expect

from capkernel.vault.pictures import of_bytes

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
CELLS = [
    "import pandas as pd\nwith request_file_system('.') as fs:\n    s = fs.read_classified('secrets/a.txt')\n"
    "    i = fs.access('secrets/picture.png').read_classified_bytes()\ns",
    "s.map(lambda t: t.encode())",
    "s.map(lambda t: pd.DataFrame({'name': [t], 'n': [1]}))",
    "i",
    "s.map(lambda t: t[10**9])",
    "classify({'k': [1, 2]}, label=\"<b onclick='x()'>mine</b>\")",
]
TEXT, BYTES, FRAME, PICTURE, POISON, MADE = range(len(CELLS))
CANARY = "canary" + secrets.token_hex(16)


def picture() -> bytes:
    """Of pixels that nobody guesses."""
    out = io.BytesIO()
    Image.frombytes("RGB", (32, 32), secrets.token_bytes(32 * 32 * 3)).save(out, "PNG")
    return out.getvalue()


class Session(Opened):
    """`sent`: what went over the page's websockets. `picture`: the PNG that the frame gets, in base64."""

    picture = ""
    sent: list[str]
    closed = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.iopub.close()
            self.context.close()


@pytest.fixture(scope="module", params=["lab", pytest.param("notebook", marks=pytest.mark.slow)])
def session(
    request: pytest.FixtureRequest, playwright: Playwright, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    place = tmp_path_factory.mktemp("card")
    with served(request.param, place) as server:
        original = picture()
        (server.work / "secrets" / "a.txt").write_text(CANARY + HOSTILE)
        (server.work / "secrets" / "picture.png").write_bytes(original)
        write_notebook(server.work / "book.ipynb", CELLS)
        context = playwright.chromium.launch_persistent_context(
            str(place / "browser"), executable_path=chromium_path(), args=FLAGS,
            viewport={"width": 1100, "height": 1000}, record_har_path=str(place / "all.har"),
            record_har_content="embed",
        )  # fmt: skip
        page = context.pages[0]
        sent: list[str] = []

        def keep(payload: str | bytes) -> None:
            sent.append(payload if isinstance(payload, str) else payload.decode("latin-1"))

        def listen(socket: WebSocket) -> None:
            socket.on("framesent", keep)
            socket.on("framereceived", keep)

        page.on("websocket", listen)
        console: list[str] = []
        page.on("console", lambda said: console.append(said.text))
        page.on("pageerror", lambda problem: console.append(str(problem)))
        kernel = opened(page, server, "book.ipynb")
        iopub = Iopub(server, kernel)
        iopub.start()
        made = Session(server, context, page, kernel, iopub, console)
        made.sent = sent
        drawn = of_bytes(original, 1_400_000)
        assert drawn is not None
        made.picture = drawn.png
        try:
            run_all(page, len(CELLS))
            yield made
        finally:
            made.close()


@pytest.fixture
def page(session: Session) -> Page:
    return session.page


def traces(session: Session, text: str) -> list[str]:
    """What of the secrets is in `text`."""
    pieces = [session.picture[at : at + 40] for at in range(60, len(session.picture) - 100, 40)]
    return leaked(CANARY, text) + [piece for piece in pieces if piece in text]


SHOWN = {TEXT: "str", BYTES: "bytes", FRAME: "DataFrame, 1 × 2", PICTURE: "bytes", POISON: "failed", MADE: "dict"}


@pytest.mark.parametrize("number", SHOWN)
def test_a_value_is_in_the_frame_while_it_is_shown_and_never_in_the_page(
    session: Session, page: Page, number: int
) -> None:
    frame = reveal(page, number)
    assert frame.locator(".what").inner_text().startswith(SHOWN[number])
    body = frame.locator(".body")
    match number:
        case 0 | 1 | 2:
            assert CANARY in body.inner_text(), "the search must find it where it is"
            assert "onerror=" in body.inner_text()
            assert body.locator("img, script").count() == 0
        case 3:
            body.locator("canvas[data-drawn=yes]").wait_for()
            first = "canvas => [...canvas.getContext('2d').getImageData(0, 0, 1, 1).data]"
            raw = Image.open(io.BytesIO(base64.b64decode(session.picture))).convert("RGBA").getpixel((0, 0))
            assert body.locator("canvas").evaluate(first) == list(raw)
        case 4:
            assert "IndexError" in body.inner_text()
    assert traces(session, page.content()) == []
    assert "IndexError" not in page.content(), "that a value failed is for the person alone"
    assert page.title() != "owned"
    hide(page, number)
    assert not [other for other in page.frames if "capkernel" in other.url and other.locator(".shown:visible").count()]
    assert traces(session, "".join(kept(page))) == []


def kept(page: Page) -> list[str]:
    """All that the page holds in its document and in the browser's storage for it."""
    return page.evaluate("""async () => [document.documentElement.outerHTML, JSON.stringify({...localStorage}),
        JSON.stringify({...sessionStorage}), JSON.stringify(await indexedDB.databases()), document.cookie,
        location.href, ...[...document.querySelectorAll('input, textarea')].map(field => field.value)]""")


def test_reveals_are_silent_on_iopub(session: Session, page: Page) -> None:
    before = session.iopub.settled()
    for number in (TEXT, POISON, TEXT):
        reveal(page, number)
        hide(page, number)
    after = session.iopub.settled()
    silent = [message["msg_type"] for message in session.iopub.messages[before:] if not own(session, message)]
    assert (after - before, silent) == (2, ["status", "status"]), "only the first question of this test"


def own(session: Session, message: dict[str, Any]) -> bool:
    """Whether it is about the listener's last question."""
    return message["parent_header"].get("msg_id") == session.iopub.messages[-1]["parent_header"].get("msg_id")


# What a script in the frame would try, and whether it worked.
OUT = """async () => {
    const tried = {};
    const attempt = async (name, act) => { try { tried[name] = Boolean(await act()); } catch { tried[name] = false; } };
    const loads = (element, address) => new Promise(done => {
        element.onload = () => done(true); element.onerror = () => done(false); element.src = address;
        document.body.append(element); });
    await attempt('reads the page', () => parent.document.body.innerText.length);
    await attempt('writes into the page', () => { parent.document.title = 'owned'; return true; });
    await attempt('storage', () => { localStorage.setItem('x', '1'); return true; });
    await attempt('cookies', () => document.cookie.length);
    await attempt('fetch', () => fetch('/api', {mode: 'no-cors'}));
    await attempt('image', () => loads(new Image(), '/an-image.png'));
    await attempt('beacon frame', () => new Promise(done => {
        const frame = document.createElement('iframe');
        frame.onload = () => done(frame.contentDocument?.body.innerText);
        frame.src = '/api'; document.body.append(frame); setTimeout(() => done(false), 4000); }));
    await attempt('script', () => { const script = document.createElement('script');
        script.textContent = 'window.ran = true'; document.body.append(script); return window.ran; });
    await attempt('markup', () => { document.body.insertAdjacentHTML('beforeend', '<b id=inserted>x</b>');
        return document.getElementById('inserted'); });
    await attempt('eval', () => window.eval('1 + 1'));
    await attempt('style', () => { const style = document.createElement('style');
        style.textContent = 'body { outline: 7px solid red }'; document.body.append(style);
        return getComputedStyle(document.body).outlineWidth === '7px'; });
    await attempt('popup', () => window.open('about:blank'));
    return tried;
}"""
IN = """() => { const found = [];
    for (const frame of document.querySelectorAll('iframe')) {
        try { found.push(frame.contentDocument?.body.innerText ?? ''); } catch { found.push(''); }
        try { found.push(frame.contentWindow.document.body.innerText); } catch (problem) { found.push(problem.name); }
    }
    return found; }"""


def test_nothing_gets_out_of_the_frame_or_into_it(session: Session, page: Page) -> None:
    """The same attempts in the same document without its policy and sandbox, where all of them work."""
    there = {"Content-Type": "image/png", "Access-Control-Allow-Origin": "*"}
    session.context.route("**/an-image.png", lambda route: route.fulfill(body=picture(), headers=there))
    bare = session.context.new_page()
    headers = {"Content-Type": "text/html"}
    bare.route("**/capkernel/frame?bare", lambda route: route.fulfill(body=route.fetch().text(), headers=headers))
    bare.route("**/bare-page", lambda route: route.fulfill(body="<title>bare</title>a page", headers=headers))
    bare.goto(f"http://127.0.0.1:{session.server.port}/bare-page")
    bare.evaluate("""() => new Promise(done => { const frame = document.createElement('iframe');
        frame.onload = done; frame.src = '/capkernel/frame?bare'; document.body.append(frame); })""")
    unprotected = bare.frames[1]
    unprotected.evaluate("() => { document.cookie = 'mine=1'; document.querySelector('.shown').hidden = false; }")
    unprotected.evaluate("text => { document.querySelector('.body').textContent = text; }", CANARY)
    assert any(CANARY in text for text in bare.evaluate(IN))
    tried = unprotected.evaluate(OUT)
    for other in session.context.pages:
        if other is not page:
            other.close()  # the popup as well
    page.bring_to_front()
    assert [name for name, worked in tried.items() if not worked] == []

    frame = reveal(page, TEXT)
    assert frame.evaluate("() => [window.origin, isSecureContext]") == ["null", True]
    assert not any(CANARY in text for text in page.evaluate(IN))
    assert [name for name, worked in frame.evaluate(OUT).items() if worked] == []
    assert page.title() != "owned"
    hide(page, TEXT)


def escape_in_the_frame(frame: Frame) -> None:
    """Not a key of the driver's: Chromium tells it of a key when the document that got it is done with it, and this
    document is thrown away for it, so the driver may never be told."""
    with suppress(Error):  # thrown away before it could say that it did
        frame.evaluate("""() => setTimeout(() => document.activeElement.dispatchEvent(
            new KeyboardEvent('keydown', {key: 'Escape', bubbles: true})))""")


def test_keyboard_and_screen_reader(page: Page) -> None:
    at = card(page, TEXT)
    button = at.get_by_role("button")
    expect(at).to_have_attribute("role", "group")
    expect(at).to_have_attribute("aria-label", "Classified[str](***), hidden value")
    at.locator(".capk-status").evaluate("""line => { window.said = [];
        new MutationObserver(() => said.push(line.textContent)).observe(line, {childList: true}); }""")
    assert at.locator("[aria-live=polite]").count() == 1
    button.focus()
    assert button.evaluate("button => getComputedStyle(button).outlineStyle") != "none"
    page.keyboard.press("Enter")
    in_state(page, TEXT, "shown")
    expect(at).to_have_attribute("aria-label", "Classified[str](***), shown value")
    expect(at.locator("iframe")).to_have_attribute("title", "the revealed value")
    frame = frame_of(page, TEXT)
    page.keyboard.press("Tab")
    assert frame.evaluate("() => document.activeElement.className") == "copy", "from the button into the frame"
    page.keyboard.press("Enter")
    expect(at.locator(".capk-status")).to_contain_text("copied")
    escape_in_the_frame(frame)
    ready(page, TEXT)
    expect(button).to_be_focused()
    page.keyboard.press("Space")
    in_state(page, TEXT, "shown")
    page.keyboard.press("Escape")
    ready(page, TEXT)
    expect(button).to_be_focused()
    words = " ".join(page.evaluate("() => said"))
    assert "reveal" in words
    assert "hidden" in words
    assert not leaked(CANARY, words)


def no_value(page: Page, number: int) -> None:
    ready(page, number)
    assert not any(frame.locator(".shown:visible").count() for frame in page.frames if "/capkernel/frame" in frame.url)


def test_a_value_hides_by_itself(page: Page) -> None:
    page.evaluate("""() => { const real = window.fetch; window.fetch = async (address, options) => {
        const answer = await real(address, options);
        if (!String(address).endsWith('/capkernel/reveal')) return answer;
        window.fetch = real;
        const said = await answer.json();
        window.__seconds = said.seconds;
        return Response.json({...said, seconds: 1}); }; }""")
    press(page, TEXT)
    page.wait_for_function("() => document.querySelector('.capk-status').textContent.endsWith(', hidden')")
    assert page.evaluate("() => window.__seconds") == 30
    no_value(page, TEXT)


def test_a_value_hides_when_the_page_is_not_seen(page: Page) -> None:
    reveal(page, TEXT)
    page.evaluate("""() => { Object.defineProperty(document, 'hidden', {value: true, configurable: true});
        document.dispatchEvent(new Event('visibilitychange')); delete document.hidden; }""")
    no_value(page, TEXT)


def test_a_value_hides_when_its_cell_runs_again_or_is_cleared(page: Page) -> None:
    reveal(page, MADE)
    page.locator(".jp-Notebook .jp-Cell").nth(MADE).locator(".cm-content").click()
    command(page, "notebook:run-cell")
    no_value(page, MADE)
    reveal(page, MADE)
    page.locator(".jp-Notebook .jp-Cell").nth(MADE).locator(".cm-content").click()
    command(page, "notebook:clear-cell-output")
    page.wait_for_function(f"() => document.querySelectorAll('.capk-card').length === {MADE}")
    no_value(page, TEXT)
    command(page, "notebook:run-cell")
    ready(page, MADE)


# The least contrast of the card's texts with what is behind them (WCAG 2: 4.5 for text of this size).
CONTRAST = """card => {
    const channels = color => { const all = color.match(/[\\d.]+/g).map(Number);
        return [...all.slice(0, 3), all[3] ?? 1]; };
    const over = (top, below) => below.slice(0, 3).map((low, at) => low + (top[at] - low) * top[3]);
    const light = color => { const [r, g, b] = color.map(one => { const part = one / 255;
        return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const paper = channels(getComputedStyle(card).backgroundColor);
    const ratios = [...card.querySelectorAll('.capk-mask, .capk-meta, .capk-status, button')].map(node => {
        const own = channels(getComputedStyle(node).backgroundColor);
        const back = own[3] ? over(own, paper) : paper.slice(0, 3);
        const both = [light(over(channels(getComputedStyle(node).color), back)), light(back)];
        return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05); });
    return Math.min(...ratios); }"""


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_it_can_be_read_in_both_themes_when_narrow_and_is_not_printed(page: Page, theme: str) -> None:
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme}).then(() => null)", theme)
    dark = "false" if theme.endswith("Dark") else "true"
    page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=dark)
    at = card(page, FRAME)
    at.evaluate("card => { card.style.width = '260px'; }")
    frame = reveal(page, FRAME)
    assert at.evaluate(CONTRAST) >= 4.5
    assert at.evaluate("card => card.scrollWidth <= card.clientWidth")
    assert at.get_by_role("button").bounding_box()["width"] > 40  # type: ignore[index]
    assert frame.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    paper = "() => getComputedStyle(document.documentElement).backgroundColor"
    assert frame.evaluate(paper) == at.evaluate("card => getComputedStyle(card).backgroundColor")
    page.emulate_media(media="print")
    expect(at.locator("iframe")).to_be_hidden()
    page.emulate_media(media="screen")
    expect(at.locator("iframe")).to_be_visible()
    at.evaluate("card => { card.style.width = ''; }")
    hide(page, FRAME)


def test_the_card_says_what_the_server_knows_and_marks_what_the_cell_claims(page: Page) -> None:
    assert "file:secrets/a.txt · cell 1" in card(page, TEXT).inner_text()
    assert card(page, MADE).locator("q").inner_text() == "<b onclick='x()'>mine</b>"
    assert "the cell calls it" in card(page, MADE).inner_text()
    assert page.locator(".capk-card b").count() == 0
    assert "Classified[dict[str, list[int]]](***)" in card(page, MADE).inner_text()


REFUSALS: dict[str, tuple[int, dict[str, Any], str]] = {
    "off": (200, {"reveal": "view", "why": "active outputs are on."}, "active outputs are on. Run `capkernel view`"),
    "no extension": (404, {}, "does not have capkernel's extension. Run `capkernel view`"),
    "gone": (410, {"error": "kernel-gone", "message": "x"}, "run the cell again"),
    "unreachable": (502, {"error": "kernel-unreachable", "message": "it does not answer"}, "it does not answer"),
    "pairing": (200, {"reveal": "pair", "why": ""}, "Pair this browser"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_where_it_cannot_work_the_card_says_what_to_do(session: Session, why: str) -> None:
    """A page that is told so from its start. Nothing is shown another way, and no code is asked for in a cell."""
    status, said, words = REFUSALS[why]
    page = session.page
    page.route("**/capkernel/state", lambda route: route.fulfill(status=status, json=said))
    command(page, "docmanager:save")
    page.evaluate(
        "() => { document.dispatchEvent(new Event('visibilitychange')); }"
    )  # what is known of it is forgotten
    page.locator(".jp-Notebook .jp-Cell").nth(MADE).locator(".cm-content").click()
    command(page, "notebook:run-cell")
    page.wait_for_function("words => document.body.innerText.includes(words)", arg=words)
    at = page.locator(".capk-card", has_text=words)
    assert at.get_by_role("button").count() == 0
    assert at.locator("iframe, input").count() == 0
    if why == "pairing":
        link = at.get_by_role("link")
        expect(link).to_have_attribute("href", f"http://127.0.0.1:{session.server.port}/capkernel/pair")
        expect(link).to_have_attribute("target", "_blank")
    page.unroute("**/capkernel/state")
    page.evaluate("() => { document.dispatchEvent(new Event('visibilitychange')); }")
    command(page, "notebook:run-cell")
    ready(page, MADE)


def test_on_plain_http_from_elsewhere_it_says_so(page: Page) -> None:
    page.evaluate("() => Object.defineProperty(window, 'isSecureContext', {value: false, configurable: true})")
    page.locator(".jp-Notebook .jp-Cell").nth(MADE).locator(".cm-content").click()
    command(page, "notebook:run-cell")
    page.wait_for_function("() => document.body.innerText.includes('plain http from another machine')")
    page.evaluate("() => Object.defineProperty(window, 'isSecureContext', {value: true, configurable: true})")
    command(page, "notebook:run-cell")
    ready(page, MADE)


def test_the_renderer_is_ours_and_stays_so(page: Page) -> None:
    """A second renderer for the type would have it, without a word."""
    other = """() => { const registry = jupyterapp.shell.currentWidget.content.rendermime;
        window.__ours = registry.getFactory('application/vnd.capkernel.classified+json');
        registry.addFactory({safe: true, mimeTypes: window.__ours.mimeTypes, createRenderer: () => null}, 0);
        return registry.getFactory('application/vnd.capkernel.classified+json') === window.__ours; }"""
    assert page.evaluate(other) is False
    page.locator(".jp-Notebook .jp-Cell").nth(MADE).locator(".cm-content").click()
    command(page, "notebook:run-cell")
    ready(page, MADE)
    expect(page.get_by_text("Another extension wanted to show")).to_be_visible()
    page.wait_for_function("""() => window.__ours === jupyterapp.shell.currentWidget.content.rendermime
        .getFactory('application/vnd.capkernel.classified+json')""")


def trust_and_save_as(page: Page, copy: Path) -> None:
    """While a value is shown: sign the notebook, then save it under another name."""
    dialog = page.locator(".jp-Dialog")
    page.evaluate("() => { jupyterapp.commands.execute('notebook:trust'); }")
    trust = dialog.get_by_role("button", name="Trust", exact=True)
    expect(trust.or_(dialog.get_by_role("button", name="Ok"))).to_be_visible()
    dialog.locator("button.jp-mod-accept").click()
    expect(dialog).to_have_count(0)
    page.evaluate("() => { jupyterapp.commands.execute('docmanager:save-as'); }")
    dialog.locator("input").fill(copy.name)
    dialog.locator("button.jp-mod-accept").click()
    expect(dialog).to_have_count(0)
    end = time.monotonic() + 60
    while not copy.exists() or "vnd.capkernel.classified" not in copy.read_text():
        assert time.monotonic() < end
        page.wait_for_timeout(100)


def test_nothing_is_left_anywhere(session: Session, page: Page) -> None:
    """Saved while values are shown; then everything that the server, the kernel and the browser wrote is searched."""
    for number in (TEXT, BYTES, FRAME, PICTURE, POISON):
        reveal(page, number)
        command(page, "docmanager:save")
        hide(page, number)
    reveal(page, TEXT)
    command(page, "docmanager:save")
    book = session.server.work / "book.ipynb"
    assert "vnd.capkernel.classified" in book.read_text()
    trust_and_save_as(page, session.server.work / "copy.ipynb")
    from nbconvert import HTMLExporter, MarkdownExporter, ScriptExporter

    exporters = HTMLExporter(), MarkdownExporter(), ScriptExporter()
    exported = "".join(exporter.from_filename(str(book))[0] for exporter in exporters)
    session.iopub.settled()
    heard = json.dumps(session.iopub.messages, default=str) + "".join(session.sent)
    assert "Classified[str](***)" in heard
    for what, text in (("exports", exported), ("messages", heard), ("console", "\n".join(session.console))):
        assert traces(session, text) == [], what
    session.close()
    secret, found = session.server.work / "secrets", {}
    needles = {text.encode() for text in (*spellings(CANARY), *(CANARY[at : at + 10] for at in range(len(CANARY) - 9)))}
    needles |= {text.encode("utf-16-le") for text in (CANARY, CANARY[:10], CANARY[-10:])}
    needles |= {session.picture[at : at + 40].encode() for at in (100, 1000, 2000)}
    for file in session.server.place.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            hits = [needle for needle in needles if needle in content]
            if hits:
                found[str(file)] = hits
    assert str(secret / "a.txt") in found, "the search must find it where it is"
    assert [name for name in found if not Path(name).is_relative_to(secret)] == []
    har = session.server.place / "all.har"
    assert "capkernel/reveal" in har.read_text(), "the reveals are in what was searched"
