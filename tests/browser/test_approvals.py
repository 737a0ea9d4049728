"""Decisions in the viewer's tab, in Chromium: what is shown, when Allow can be pressed, and who cannot press it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from asking_session import AskingSession, asking_session
from playwright.sync_api import BrowserContext, Page, expect
from viewer_server import page_elsewhere, viewer_server

from capkernel.broker.approvals import Granted
from capkernel.policy.decision import AskPerson, Denied
from capkernel.viewer.web import ViewerServer
from capkernel.wire.values import decode

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

HANDLE = "a1" * 16
MARKUP = "</blockquote><script>document.title='owned'</script><button>Allow</button>"
WRITE = AskPerson(
    "files.write", "write out/report.txt", ("files.write", "out/report.txt"),
    (("path", "out/report.txt"), ("size", "120 bytes"), ("now there", "90 bytes")),
    reason="the user asked me to " + MARKUP,
)  # fmt: skip
WAIT = 30.0


@pytest.fixture
def session(tmp_path: Path) -> Iterator[AskingSession]:
    with asking_session(tmp_path) as made:
        yield made


@pytest.fixture
def server(session: AskingSession) -> Iterator[ViewerServer]:
    with viewer_server(lambda: [session.found]) as made:
        yield made


@pytest.fixture
def page(context: BrowserContext, server: ViewerServer) -> Page:
    """With a clock of its own, which moves only when a test says so."""
    made = context.new_page()
    now = time.time()
    made.clock.install(time=now)
    made.goto(server.link())
    made.clock.pause_at(now + 60)
    made.get_by_role("tab", name="Approvals").click()
    return made


def until(page: Page, holds: Callable[[], bool]) -> None:
    """Let the page's clock go on until something is so."""
    for _ in range(300):
        if holds():
            return
        page.clock.run_for(200)
        page.wait_for_timeout(20)
    raise AssertionError("never so")


def waiting(page: Page, session: AskingSession, question: AskPerson = WRITE, cell: int = 3) -> Future[Granted | Denied]:
    """Ask, and wait until the page shows it."""
    answer = session.ask(question, cell)
    until(page, lambda: page.locator("#question > h3").count() == 1)
    return answer


def allow(page: Page) -> None:
    """As a person who reads first."""
    until(page, lambda: page.locator("#question .allow").is_enabled())
    page.locator("#question .allow").click()


def test_a_question_is_shown_and_allowed_after_a_second(page: Page, session: AskingSession) -> None:
    answer = waiting(page, session)
    assert page.locator("#question > h3").inner_text() == "write out/report.txt"
    facts = page.locator("#question .facts").inner_text()
    assert "90 bytes" in facts
    assert "files.write · cell 3" in page.locator("#question .meta").inner_text()
    assert page.locator("#question .left").inner_text().startswith("Denied in ")
    assert page.title().startswith("(1) ")
    assert page.locator("#question .allow").is_disabled()
    allow(page)
    assert isinstance(answer.result(WAIT), Granted)
    expect(page.locator("#results li").first).to_contain_text("allowed: write out/report.txt")
    until(page, lambda: page.locator("#no-question").is_visible())
    assert any('"decision":"allowed"' in line and '"who":"person"' in line for line in session.decisions())


def test_the_claim_of_the_cell_is_quoted_and_never_markup(page: Page, session: AskingSession) -> None:
    waiting(page, session)
    claim = page.locator("#question .claimed")
    assert MARKUP in claim.locator("blockquote").inner_text()
    assert "Nobody checked it" in claim.locator("figcaption").inner_text()
    assert page.locator("#question script").count() == 0
    assert page.locator("#question .claimed button").count() == 0
    assert page.locator("#question button.allow").count() == 1


def test_denied_stays_denied_until_the_person_says_otherwise(page: Page, session: AskingSession) -> None:
    answer = waiting(page, session)
    page.locator("#question .deny").click()  # at once: denying needs no second
    assert isinstance(answer.result(WAIT), Denied)
    assert isinstance(session.ask(WRITE, 4).result(WAIT), Denied), "nobody is asked again"
    until(page, lambda: page.locator("#denied li").count() == 1)
    page.locator("#denied-part summary").click()
    page.locator("#forget").click()
    until(page, lambda: page.locator("#denied-part").is_hidden())
    waiting(page, session, cell=5)


def test_one_at_a_time_and_each_waits_its_own_second(page: Page, session: AskingSession) -> None:
    first = waiting(page, session)
    other = AskPerson("files.write", "write out/other.txt", ("files.write", "out/other.txt"))
    second = session.ask(other)
    until(page, lambda: page.locator("#later li").count() == 1)
    assert page.locator(".allow").count() == 1
    until(page, lambda: page.locator("#question .allow").is_enabled())
    box = page.locator("#question .allow").bounding_box()
    assert box is not None
    page.mouse.dblclick(box["x"] + 5, box["y"] + 5)  # the second press meets whatever stands there next
    assert isinstance(first.result(WAIT), Granted)
    until(page, lambda: page.locator("#question > h3").inner_text() == "write out/other.txt")
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    assert not second.done()
    assert page.locator("#question .allow").is_disabled()


def test_blind_keys_within_the_first_second_do_nothing(page: Page, session: AskingSession) -> None:
    """A program that gets the person to press Enter at the right moment: the same keys work once the second is over."""
    answer = waiting(page, session)
    page.locator("#question .deny").focus()
    page.keyboard.press("Tab")  # Allow cannot take the focus yet
    assert page.evaluate("() => document.activeElement.className") != "allow"
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    page.evaluate("() => document.querySelector('#question .allow').click()")  # a script's press is none
    assert not answer.done()
    page.locator("#question > h3").click()  # the focus may have left the page
    until(page, lambda: page.locator("#question .allow").is_enabled())
    page.evaluate("() => document.querySelector('#question .allow').click()")
    assert not answer.done()
    until(page, lambda: page.locator("#question .allow").is_enabled())
    page.locator("#question .deny").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "allow"
    page.keyboard.press("Enter")
    assert isinstance(answer.result(WAIT), Granted)


HIDDEN = """(hidden) => {
    Object.defineProperty(document, 'hidden', { get: () => hidden, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
}"""
FOCUS = """(has) => {
    document.hasFocus = () => has;
    window.dispatchEvent(new Event(has ? 'focus' : 'blur'));
}"""


@pytest.mark.parametrize("away", [HIDDEN, FOCUS], ids=["hidden", "without focus"])
def test_a_tab_that_is_not_looked_at_cannot_allow(page: Page, session: AskingSession, away: str) -> None:
    answer = waiting(page, session)
    until(page, lambda: page.locator("#question .allow").is_enabled())
    page.evaluate(away, away is HIDDEN)
    assert page.locator("#question .allow").is_disabled()
    page.clock.run_for(5_000)
    assert page.locator("#question .allow").is_disabled()
    page.evaluate(away, away is not HIDDEN)
    assert page.locator("#question .allow").is_disabled(), "the second begins anew"
    assert not answer.done()
    allow(page)
    assert isinstance(answer.result(WAIT), Granted)


def test_a_button_that_is_not_in_view_cannot_be_armed(page: Page, session: AskingSession) -> None:
    answer = waiting(page, session)
    page.set_viewport_size({"width": 1000, "height": 200})
    page.clock.run_for(5_000)
    assert page.locator("#question .allow").is_disabled()
    page.evaluate("() => document.querySelector('#question .deny').focus()")  # brings the buttons into view
    allow(page)
    assert isinstance(answer.result(WAIT), Granted)


def test_closing_the_tab_allows_nothing(page: Page, session: AskingSession) -> None:
    answer = waiting(page, session)
    until(page, lambda: page.locator("#question .allow").is_enabled())
    page.close(run_before_unload=True)
    session.end_cell(3)
    assert isinstance(answer.result(WAIT), Denied)


def test_nobody_answers_and_it_is_denied(context: BrowserContext, tmp_path: Path) -> None:
    (tmp_path / "quick").mkdir()
    with (
        asking_session(tmp_path / "quick", seconds=1.0) as session,
        viewer_server(lambda: [session.found]) as server,
    ):
        page = context.new_page()
        page.goto(server.link())
        answer = session.ask(WRITE)
        assert isinstance(answer.result(WAIT), Denied)
        page.get_by_role("tab", name="Approvals").click()
        expect(page.locator("#no-question")).to_be_visible(timeout=WAIT * 1000)


def release(reason: str = "") -> AskPerson:
    return AskPerson(
        "secret.declassify", "release a value", ("declassify", HANDLE), (("made from", "file:secrets/a.txt"),),
        "release", reason, HANDLE,
    )  # fmt: skip


def test_a_release_shows_exactly_what_goes_out(page: Page, session: AskingSession) -> None:
    value = {"key": "a\u202eb\x1b[2J\n<b>"}
    session.classified(HANDLE, value, "mine")
    answer = waiting(page, session, release())
    page.clock.run_for(3_000)
    assert page.locator("#question .allow").is_disabled(), "not before it was seen"
    page.get_by_role("button", name="Show the exact value").click()
    exact = page.locator("#question .exact")
    exact.wait_for()
    assert exact.inner_text() == r"{'key': 'a\u202eb\x1b[2J\n<b>'}"
    assert "bytes in all" in page.locator("#question .what").inner_text()
    assert "Where it comes from" in page.locator("#question .lineage").inner_text()
    allow(page)
    granted = answer.result(WAIT)
    assert isinstance(granted, Granted)
    assert decode(granted.blob) == value


def test_a_release_that_is_hidden_again_cannot_be_allowed(page: Page, session: AskingSession) -> None:
    session.classified(HANDLE, "canary-value")
    answer = waiting(page, session, release())
    page.get_by_role("button", name="Show the exact value").click()
    page.locator("#question .exact").wait_for()
    until(page, lambda: page.locator("#question .allow").is_enabled())
    page.keyboard.press("Escape")
    assert "canary-value" not in page.content()
    until(page, lambda: page.locator("#question .allow").is_disabled())
    assert not answer.done()


def test_what_cannot_be_released_says_why(page: Page, session: AskingSession) -> None:
    session.classified(HANDLE, "x" * 5000)
    answer = waiting(page, session, release())
    page.get_by_role("button", name="Show the exact value").click()
    expect(page.locator("#question .poison")).to_contain_text("at most 4096 are released")
    page.clock.run_for(3_000)
    assert page.locator("#question .allow").is_disabled()
    page.locator("#question .deny").click()
    assert isinstance(answer.result(WAIT), Denied)


def test_a_typed_secret_goes_sealed_to_the_vault(page: Page, session: AskingSession) -> None:
    bodies: list[str] = []
    page.on("request", lambda request: bodies.append(request.post_data or ""))
    question = AskPerson(
        "secret.request", "type the secret API_KEY", ("API_KEY",), (("name", "API_KEY"),), "secret",
        handle=HANDLE, key=session.expect(HANDLE),
    )  # fmt: skip
    answer = waiting(page, session, question)
    page.clock.run_for(3_000)
    assert page.locator("#question .allow").is_disabled(), "nothing is typed"
    field = page.locator("#question textarea")
    field.fill("käse-canary\nsecond line")
    assert field.evaluate("(field) => getComputedStyle(field).webkitTextSecurity") == "disc"
    allow(page)
    assert isinstance(answer.result(WAIT), Granted)
    assert session.vault.received[HANDLE] == "käse-canary\nsecond line"
    assert not any("canary" in body for body in bodies)
    assert "canary" not in page.content()
    until(page, lambda: page.locator("#question").is_hidden())


def test_a_question_is_announced_on_every_pane(page: Page, session: AskingSession) -> None:
    page.get_by_role("tab", name="Values").click()
    session.ask(WRITE)
    until(page, lambda: page.locator("#asks").is_visible())
    assert "write out/report.txt" in page.locator("#asks").inner_text()
    assert "write out/report.txt" in page.locator("#status").inner_text()
    assert page.locator("#waiting-count").inner_text() == "1"
    page.locator("#see").click()
    assert page.locator("#question").is_visible()
    assert page.locator("#asks").is_hidden()
    assert page.evaluate("() => document.activeElement.tagName") == "H3"


def test_contrast_of_a_question(page: Page, session: AskingSession) -> None:
    waiting(page, session)
    ratio = """() => {
        const part = (text) => text.match(/[0-9.]+/g).slice(0, 3).map(Number).map((value) => value / 255)
            .map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        const light = (text) => { const [r, g, b] = part(text); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const pairs = [['.claimed figcaption', '.claimed'], ['blockquote', '.claimed'],
            ['#question .left', '#question'], ['dt', '#question'], ['.deny', '.deny']];
        return pairs.map(([front, back]) => {
            const a = light(getComputedStyle(document.querySelector(front)).color);
            const b = light(getComputedStyle(document.querySelector(back)).backgroundColor);
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        });
    }"""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert min(page.evaluate(ratio)) >= 4.5, scheme


# ── from other places ────────────────────────────────────────────────────────────────────────────────────────────────


UNDER = (
    "<!doctype html><button style='position:absolute;inset:0;width:100%' "
    "onclick=\"document.title='pressed'\">Allow</button>"
)


@pytest.mark.parametrize("protected", [False, True])
def test_clickjacking(context: BrowserContext, server: ViewerServer, protected: bool) -> None:
    """A hostile page with the tab in an invisible frame under its own button: without our headers the press arrives."""
    frame = (
        f"<iframe src='{server.origin}/' style='opacity:0;position:absolute;inset:0;width:900px;height:600px'></iframe>"
    )
    with page_elsewhere(f"<!doctype html><button>win a prize</button>{frame}") as address:
        page = context.new_page()
        dropped = {"content-length", "x-frame-options", "content-security-policy", "cross-origin-resource-policy",
                   "cross-origin-embedder-policy", "cross-origin-opener-policy"}  # fmt: skip
        framed: list[int] = []

        def spoiled(route: object) -> None:
            answer = route.fetch()  # type: ignore[attr-defined]
            framed.append(answer.status)
            keep = {name: value for name, value in answer.headers.items() if protected or name not in dropped}
            body = answer.text() if protected else UNDER
            keep.pop("content-length", None)
            route.fulfill(status=200, headers=keep, body=body)  # type: ignore[attr-defined]

        page.route(server.origin + "/", spoiled)
        page.goto(address)
        page.wait_for_function("() => document.querySelector('iframe').contentDocument === null")
        inside = page.frames[-1]
        assert framed, "the frame was asked for"
        page.mouse.click(60, 20)
        if protected:
            assert inside.url.startswith("chrome-error") or inside.locator("button").count() == 0
        else:
            expect(inside.locator("button")).to_have_count(1)
            inside.wait_for_function("() => document.title === 'pressed'")


def test_a_page_elsewhere_cannot_decide(
    context: BrowserContext, page: Page, server: ViewerServer, session: AskingSession
) -> None:
    """With the cookie of the tab, which a browser sends to every port; the tab's own request, with its key, decides."""
    answer = waiting(page, session)
    question = session.approvals.questions()[0][0].id
    body = f'{{"session": "{session.found.name}", "question": "{question}", "allow": true}}'
    attempt = """async ([address, body, kind]) => {
        try {
            const mode = kind === 'text/plain' ? 'no-cors' : 'cors';
            const answer = await fetch(address, { method: 'POST', body, credentials: 'include', mode,
                headers: { 'Content-Type': kind } });
            return String(answer.status);
        } catch (problem) { return 'blocked ' + problem.name; }
    }"""
    with page_elsewhere("<!doctype html><title>hostile</title>") as address:
        other = context.new_page()
        other.goto(address)
        sent: list[str] = []
        other.on("request", lambda request: sent.append(request.url))
        for kind in ("application/json", "text/plain"):
            said = other.evaluate(attempt, [server.origin + "/api/decide", body, kind])
            assert said.startswith("blocked") or said == "0"
        assert any(url.endswith("/api/decide") for url in sent)
    assert not answer.done()
    page.bring_to_front()
    page.evaluate(
        """async (body) => { await fetch('/api/decide', { method: 'POST', body, headers: {
            'Content-Type': 'application/json', 'X-Capkernel-Key': sessionStorage.getItem('capkernel-key') } }); }""",
        body,
    )
    assert isinstance(answer.result(WAIT), Granted)
