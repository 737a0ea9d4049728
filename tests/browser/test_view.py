"""The viewer's page in Chromium, on a real session: what it shows, when, and to whom."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_kernel import LiveKernel, Ran, live_kernel
from PIL import Image
from playwright.sync_api import BrowserContext, Page, Route, expect
from viewer_server import page_elsewhere, viewer_server

from capkernel.viewer import sessions
from capkernel.viewer.web import ViewerServer

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

READ = "read · file:secrets/a.txt"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


# Ways a page has to get at another origin: with its cookies, in a frame, in a window, as a script.
ATTEMPTS = """async ([origin, session]) => {
    const found = {};
    const attempt = async (name, act) => {
        try { found[name] = await act(); } catch (problem) { found[name] = 'blocked ' + problem.name; }
    };
    const body = JSON.stringify({session});
    const text = (read) => { try { return read(); } catch (problem) { return 'blocked ' + problem.name; } };
    await attempt('fetch', async () => await (await fetch(origin + '/api/state', {
        method: 'POST', body, credentials: 'include', headers: {'Content-Type': 'application/json'} })).text());
    await attempt('no-cors', async () => (await (await fetch(origin + '/api/state', {
        method: 'POST', body, credentials: 'include', mode: 'no-cors' })).text()) || 'opaque');
    await attempt('frame', () => new Promise((done) => {
        const frame = document.createElement('iframe');
        frame.onload = () => done(text(() => frame.contentDocument.body.innerText));
        frame.src = origin + '/'; document.body.append(frame); setTimeout(() => done('never loaded'), 3000); }));
    await attempt('popup', () => new Promise((done) => {
        const popup = window.open(origin + '/');
        setTimeout(() => done(text(() => popup.document.body.innerText)), 1500); }));
    await attempt('script', () => new Promise((done) => {
        const script = document.createElement('script');
        script.onload = () => done('loaded'); script.onerror = () => done('blocked script');
        script.src = origin + '/viewer.js'; document.body.append(script); }));
    return found;
}"""


@dataclass
class Session:
    kernel: LiveKernel
    canary: str


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("project")
    canary = "canary" + uuid.uuid4().hex
    (folder / "secrets").mkdir()
    (folder / "secrets" / "a.txt").write_text(canary + HOSTILE)
    Image.new("RGB", (120, 80), "red").save(folder / "secrets" / "photo.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with live_kernel(folder) as kernel:
            made = kernel.run(
                "import pandas as pd\n"
                "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/a.txt')\n"
                "d = s.map(lambda t: {'k': [t, 1]})\n"
                "f = s.map(lambda t: pd.DataFrame({'c': [t], 'n': [1]}))\n"
                "p = s.map(lambda t: t[10**9])\n"
                "c = classify(5, label=\"<b onclick='x()'>mine</b>\")\n"
                "with request_file_system('.') as fs:\n    entry = fs.access('secrets/photo.png')\n"
                "    photo = entry.read_classified_bytes()"
            )
            assert made.ok, made.everything
            yield Session(kernel, canary)


@pytest.fixture
def server(session: Session) -> Iterator[ViewerServer]:
    with viewer_server() as made:
        yield made


@pytest.fixture
def page(context: BrowserContext, server: ViewerServer) -> Page:
    made = context.new_page()
    made.goto(server.link())
    made.wait_for_selector(".card")
    return made


def reveal(page: Page, words: str) -> str:
    """Press Reveal on the card with these words; the text that is shown then."""
    card = page.locator(".card", has_text=words)
    card = (card.filter(has_not_text="made from") if words == READ else card).first
    for _ in range(40):
        card.locator(".reveal").click()
        card.locator(".shown").wait_for()
        if card.locator(".what").inner_text() != "not computed yet":
            return card.locator(".body").inner_text()
        card.locator(".hide").click()
        page.wait_for_timeout(200)
    raise AssertionError("never computed")


def test_a_secret_is_in_the_page_only_between_reveal_and_hide(page: Page, session: Session) -> None:
    assert session.canary not in page.content()
    assert page.locator(".card").count() >= 6
    assert reveal(page, READ).startswith(session.canary)
    assert session.canary in page.content()
    page.keyboard.press("Escape")
    assert session.canary not in page.content()
    expect(page.locator("#status")).to_have_text("hidden")
    reveal(page, READ)
    page.locator(".hide:visible").click()
    assert session.canary not in page.content()


def test_markup_in_a_secret_and_in_a_claim_is_text(page: Page, session: Session) -> None:
    for words in (READ, "lambda t: {'k': [t, 1]}", "pd.DataFrame"):
        assert "onerror=" in reveal(page, words)
        assert page.locator(".body img, .body script").count() == 0
    assert page.locator(".claim q b").count() == 0
    assert "<b onclick='x()'>mine</b>" in page.locator(".claim q", has_text="mine").inner_text()
    assert page.title() == "capkernel viewer"


def test_the_policy_of_the_page_stops_markup_that_got_in(context: BrowserContext, server: ViewerServer) -> None:
    """As if a secret's markup had got into the page: the same body, once without and once with the page's policy."""
    for protected in (False, True):
        page = context.new_page()
        asked: list[str] = []

        dropped = {"content-length"} if protected else {"content-length", "content-security-policy"}

        def spoiled(route: Route) -> None:
            answer = route.fetch()
            headers = {name: value for name, value in answer.headers.items() if name not in dropped}  # noqa: B023
            body = answer.text().replace("<main>", HOSTILE + "<style>body{background:url(/css)}</style><main>")
            route.fulfill(status=200, headers=headers, body=body)

        page.route(server.origin + "/", spoiled)
        page.on("response", lambda answer, asked=asked: asked.append(answer.url))  # type: ignore[misc]
        page.goto(server.origin + "/")
        page.wait_for_timeout(700)
        assert (page.title() == "owned") is not protected
        loaded = {url.rpartition("/")[2] for url in asked}
        assert {"x", "css"} <= loaded if not protected else not {"x", "css"} & loaded
        page.close()


def test_the_page_cannot_be_given_markup(page: Page) -> None:
    """Trusted types: every sink of markup refuses a plain string; without the policy the same call works."""
    attempt = """(html) => {
        try { document.body.insertAdjacentHTML('beforeend', html); } catch (problem) { return problem.name; }
        return 'inserted';
    }"""
    plain = page.context.browser.new_page()  # type: ignore[union-attr]
    plain.set_content("<p>no policy</p>")
    assert plain.evaluate(attempt, HOSTILE) == "inserted"
    plain.close()
    assert page.evaluate(attempt, HOSTILE) == "TypeError"


def test_every_kind_is_drawn(page: Page, session: Session) -> None:
    reveal(page, "pd.DataFrame")
    assert page.locator(".body table.data tbody tr").count() == 1
    assert page.locator(".body table.data thead th").all_inner_texts() == ["c", "n"]
    assert reveal(page, "mine</b>").strip() == "5"
    assert reveal(page, "10**9").strip() == "IndexError in cell 1, line 6"
    tree = reveal(page, "lambda t: {'k': [t, 1]}")
    assert '"k"' in tree
    assert "list, 2 items" in tree


def test_a_picture_is_made_anew_in_the_vault_and_drawn(page: Page) -> None:
    reveal(page, "secrets/photo.png")
    canvas = page.locator(".body canvas[data-drawn]")
    canvas.wait_for()
    drawn = canvas.evaluate("(it) => [it.width, it.height, ...it.getContext('2d').getImageData(60, 40, 1, 1).data]")
    assert drawn == [120, 80, 255, 0, 0, 255]
    page.keyboard.press("Escape")
    assert page.locator("canvas").count() == 0


def test_a_cell_waits_for_the_person_in_the_tab(page: Page, session: Session) -> None:
    """Through a whole session: a secret is typed, goes to the vault, and a part of it is released, and nothing else."""
    ran: list[Ran] = []
    code = (
        "key = request_secret('API_KEY', label='to read the weather')\n"
        "print(request_declassify(key.map(lambda k: k[-4:]), 'to show its end'))"
    )
    cell = threading.Thread(target=lambda: ran.append(session.kernel.run(code)))
    cell.start()
    try:
        page.locator("#see").click(timeout=60_000)
        page.locator("#question textarea").fill("typed-canary-1234")
        page.locator("#question .allow").click(timeout=60_000)  # once it is enabled
        page.get_by_role("button", name="Show the exact value").click(timeout=60_000)
        assert page.locator("#question .exact").inner_text() == "'1234'"
        assert "to show its end" in page.locator("#question .claimed").inner_text()
        page.locator("#question .allow").click(timeout=60_000)
    finally:
        cell.join(90)
    assert ran[0].stdout.splitlines()[-1] == "1234"
    assert "typed-canary" not in ran[0].everything
    expect(page.locator("#results li")).to_have_count(2)


def test_only_ciphertext_crosses_the_loopback(page: Page, session: Session) -> None:
    bodies: list[bytes] = []
    page.on("response", lambda answer: bodies.append(answer.body()))
    reveal(page, READ)
    page.wait_for_timeout(200)
    assert any(b"sealed" in body for body in bodies)
    assert all(session.canary.encode() not in body for body in bodies)


def test_nothing_is_left_in_the_browsers_stores(page: Page, context: BrowserContext, session: Session) -> None:
    reveal(page, READ)
    held = page.evaluate(
        "() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, name])"
    )
    assert session.canary not in held
    assert "#" not in page.url, "the token is taken out of the address"
    assert page.evaluate("() => document.cookie") == ""
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert session.canary not in page.locator("#status").inner_text()


def test_it_hides_by_the_clock_and_when_the_tab_is_left(
    context: BrowserContext, server: ViewerServer, session: Session
) -> None:
    page = context.new_page()
    page.clock.install()
    page.goto(server.link())
    page.wait_for_selector(".card")
    reveal(page, READ)
    page.clock.run_for(28_000)
    assert session.canary in page.content()
    page.clock.run_for(3_000)
    assert session.canary not in page.content()
    reveal(page, READ)
    page.evaluate(
        """() => { Object.defineProperty(document, 'hidden', { get: () => true });
                   document.dispatchEvent(new Event('visibilitychange')); }"""
    )
    assert session.canary not in page.content()


def test_by_keyboard_alone(page: Page, session: Session) -> None:
    for _ in range(page.locator(".card").count()):
        page.keyboard.press("ArrowDown")
        said = page.evaluate("() => document.activeElement.textContent")
        if READ in said and "made from" not in said:
            break
    else:
        raise AssertionError("never reached")
    page.keyboard.press("Enter")
    page.wait_for_selector(".shown:not([hidden])")
    assert session.canary in page.content()
    assert page.evaluate("() => document.activeElement.className") == "hide"
    page.keyboard.press("Escape")
    assert session.canary not in page.content()
    assert page.evaluate("() => document.activeElement.className") == "reveal"


def test_a_reload_keeps_the_tab_and_a_second_link_ends_it(context: BrowserContext, server: ViewerServer) -> None:
    page = context.new_page()
    page.goto(server.link())
    page.wait_for_selector(".card")
    page.reload()
    page.wait_for_selector(".card")
    other = context.new_page()
    other.goto(server.link())
    other.wait_for_selector(".card")
    page.reload()
    expect(page.locator("#status.bad")).to_contain_text("this tab is not the one that the link opened")
    assert page.locator(".card").count() == 0


def test_a_tab_without_the_link_gets_nothing(context: BrowserContext, server: ViewerServer, page: Page) -> None:
    """The same browser, so with the same cookie: the cookie alone is not enough."""
    other = context.new_page()
    other.goto(server.origin + "/")
    expect(other.locator("#status.bad")).to_contain_text("this tab is not the one")
    assert other.locator(".card").count() == 0


def test_a_page_of_another_origin_reads_nothing(
    page: Page, context: BrowserContext, server: ViewerServer, session: Session
) -> None:
    """A hostile page on another port of 127.0.0.1: to a browser the same site, so it has the cookie sent along."""

    (running,) = sessions.running("test")
    hostile = context.new_page()
    with page_elsewhere("<!doctype html><title>hostile</title>") as address:
        hostile.goto(address)
        sent: list[str] = []
        hostile.on("request", lambda request: sent.append(request.url))
        said = hostile.evaluate(
            ATTEMPTS,
            [server.origin, running.name],
        )
    assert any("/api/state" in url for url in sent), "the attempts must have been made"
    assert session.canary not in json.dumps(said)
    assert said["fetch"].startswith("blocked")
    assert said["no-cors"] == "opaque" or said["no-cors"].startswith("blocked")
    assert "blocked" in said["popup"] or said["popup"] == ""
    assert said["script"] == "blocked script"
    assert "secrets/a.txt" not in json.dumps(said)


def test_dark_and_light_have_enough_contrast(page: Page) -> None:
    ratio = """() => {
        const part = (text) => text.match(/[0-9.]+/g).slice(0, 3).map(Number)
            .map((value) => value / 255)
            .map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        const light = (text) => { const [r, g, b] = part(text); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const pairs = [['.mask', '.card'], ['.meta', '.card'], ['.reveal', '.reveal'], ['h1', 'body'], ['#may', 'body'],
            ['#tabs button', 'body'], ['.claim', '.card'], ['#status', 'footer'], ['pre.code', '.card']];
        return pairs.map(([front, back]) => {
            const a = light(getComputedStyle(document.querySelector(front)).color);
            const b = light(getComputedStyle(document.querySelector(back)).backgroundColor);
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        });
    }"""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert min(page.evaluate(ratio)) >= 4.5, scheme


def test_the_audit_is_shown(page: Page, tmp_path: Path) -> None:
    reveal(page, "mine</b>")
    page.get_by_role("tab", name="Audit").click()
    expect(page.locator("#audit tr").first).to_contain_text("classified.reveal")
    expect(page.locator("#audit tr").first).to_contain_text("person")
