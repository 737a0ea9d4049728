"""The viewer's tab in Chromium over a session without processes: search, lineage, pictures, history, sessions."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import numpy as np
import pytest
from asking_session import AskingSession, asking_session
from PIL import Image
from playwright.sync_api import BrowserContext, Locator, Page, expect
from viewer_server import page_elsewhere, viewer_server

from capkernel.broker.ledger import Origin
from capkernel.policy.decision import AskPerson
from capkernel.viewer.web import ViewerServer
from capkernel.wire.view import UsedFunction

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

ONE, TWO, THREE, PICTURE, ARRAY, JSON = (letter * 32 for letter in "abcdef")
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def png(colour: str = "red") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (120, 80), colour).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AskingSession]]:
    folder = tmp_path_factory.mktemp("sessions")
    with asking_session(folder, number=1) as first, asking_session(folder, number=2) as second:
        first.classified(ONE, "canary-one " + MARKUP, "the first " + MARKUP)
        first.classified(PICTURE, png())
        first.classified(ARRAY, np.zeros((40, 50), np.uint8))
        first.classified(JSON, '{"a": 1.10, "b": ["<b>", {"c": null}]}')
        cut = UsedFunction("cut", 2, "def cut(text: str) -> str:\n    return text[:4]")
        entries = (
            Origin(TWO, 4, "map", "str", code="lambda t: cut(t)", code_cell=4, parents=(ONE,), name="short",
                   functions=(UsedFunction("<lambda>", 4, "lambda t: cut(t)"), cut)),
            Origin(THREE, 5, "zip", "tuple[str, str]", parents=(ONE, TWO)),
        )  # fmt: skip
        for entry in entries:
            first.vault.values[entry.handle] = "canary-derived"
            first.do(lambda entry=entry: first.broker.ledger.add(entry))
        second.classified(ONE, "canary-other", "of the other session")
        yield [first, second]


@pytest.fixture
def server(sessions: list[AskingSession]) -> Iterator[ViewerServer]:
    with viewer_server(lambda: [session.found for session in sessions]) as made:
        yield made


@pytest.fixture
def page(context: BrowserContext, server: ViewerServer) -> Page:
    made = context.new_page()
    made.clock.set_fixed_time(time.time())  # nothing hides because a machine is slow; timers run
    made.goto(server.link())
    made.wait_for_selector(".card")
    return made


def card(page: Page, handle: str) -> Locator:
    return page.locator(f'.card[data-handle="{handle}"]')


def shown(page: Page, handle: str) -> Locator:
    card(page, handle).locator(".reveal").click()
    body = card(page, handle).locator(".body")
    body.wait_for()
    return body


def test_a_search_is_answered_by_the_session(page: Page) -> None:
    expect(page.locator(".card")).to_have_count(6)
    for words, handles in (("short", [TWO]), ("return text[:4]", [TWO]), ("the FIRST", [ONE]), ("zip", [THREE])):
        page.locator("#search").fill(words)
        expect(page.locator(".card")).to_have_count(len(handles))
        for handle in handles:
            expect(card(page, handle)).to_be_visible()
    page.locator("#search").fill("no such words")
    expect(page.locator("#empty")).to_have_text("No value has all of these words.")
    page.locator("#search").fill("")
    expect(page.locator(".card")).to_have_count(6)
    expect(page.locator("#count")).to_have_text("6")


def test_the_lineage_shows_functions_and_cells_and_can_be_walked(page: Page) -> None:
    card(page, THREE).get_by_role("button", name="Lineage").click()
    lineage = card(page, THREE).locator(".lineage")
    expect(lineage.locator(".steps li")).to_have_count(3)
    assert "def cut(text: str) -> str:\n    return text[:4]" in lineage.inner_text()
    assert "by cut of cell 2, as it was checked" in lineage.inner_text()
    assert lineage.locator("img, script").count() == 0
    lineage.get_by_role("button", name="the lineage of").first.click()
    expect(lineage.get_by_text("Made from it")).to_be_visible()
    lineage.get_by_role("button", name="go to").first.click()
    assert page.evaluate("() => document.activeElement.dataset.handle") in (ONE, THREE)


def test_a_value_is_gone_to_from_its_derivation(page: Page) -> None:
    card(page, TWO).locator(".parents button").click()
    assert page.evaluate("() => document.activeElement.dataset.handle") == ONE


def colour(canvas: Locator) -> list[int]:
    canvas.locator("xpath=self::*[@data-drawn]").wait_for()
    found: list[int] = canvas.evaluate("(it) => [...it.getContext('2d').getImageData(60, 40, 1, 1).data]")
    return found


def test_a_picture_is_drawn_from_memory_and_can_be_seen_as_bytes(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    body = shown(page, PICTURE)
    assert colour(body.locator("canvas")) == [255, 0, 0, 255]
    assert body.locator("canvas").get_attribute("role") == "img"
    assert "120 × 80 pixels" in card(page, PICTURE).locator(".what").inner_text()
    assert card(page, PICTURE).locator(".copy").is_hidden()
    body.get_by_role("button", name="hex").click()
    assert body.locator("pre.hex").inner_text().startswith("00000000  89 50 4e 47")
    assert body.locator("canvas").count() == 0
    assert {url.rpartition("/")[2] for url in asked} <= {"reveal", "sessions", "state"}, "no address of a picture"
    page.keyboard.press("Escape")
    assert page.locator("canvas").count() == 0


def test_an_array_is_a_picture_only_by_choice(page: Page) -> None:
    body = shown(page, ARRAY)
    assert body.locator("canvas").count() == 0
    assert body.locator("table.data").count() == 1
    body.get_by_role("button", name="picture").click()
    assert colour(body.locator("canvas"))[3] in (0, 255)
    assert body.get_by_role("button", name="picture").get_attribute("aria-pressed") == "true"


def test_json_is_text_or_a_tree(page: Page) -> None:
    body = shown(page, JSON)
    assert body.locator("pre.text").inner_text() == '{"a": 1.10, "b": ["<b>", {"c": null}]}'
    body.get_by_role("button", name="tree").click()
    tree = body.locator(".tree").first.inner_text()
    assert "1.10" in tree
    assert '"<b>"' in tree
    assert body.locator("b").count() == 0
    assert card(page, JSON).locator(".copy").is_hidden()


BROKEN = [
    ("not a picture", "Zm9v"),
    ("a header only", "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAA"),
    ("too large", "iVBORw0KGgoAAAANSUhEUgB/////AAAACCAIAAAA"),
]


@pytest.mark.parametrize(("_", "data"), BROKEN, ids=[name for name, _ in BROKEN])
def test_what_is_no_png_is_not_drawn(page: Page, _: str, data: str) -> None:
    """As if a vault that was taken over sent it."""
    page.evaluate(
        """async (png) => {
            const { draw } = await import('/draw.js');
            document.querySelector('main').append(draw({ kind: 'image', format: 'PNG', width: 2, height: 2, png }));
        }""",
        data,
    )
    expect(page.locator("main > .note")).to_contain_text("is not shown")


def test_the_history_leads_back_to_the_value(page: Page) -> None:
    shown(page, THREE)
    page.get_by_role("tab", name="History").click()
    first = page.locator("#history tr").first
    expect(first).to_contain_text("Classified[tuple[str, str]](***), cell 5")
    expect(first).to_contain_text("page, process")
    first.get_by_role("button").click()
    assert page.evaluate("() => document.activeElement.dataset.handle") == THREE
    assert page.locator("#pane-values").is_visible()


def test_another_pane_hides(page: Page) -> None:
    shown(page, ONE)
    assert "canary-one" in page.content()
    page.get_by_role("tab", name="Audit").click()
    assert "canary-one" not in page.content()


def test_the_audit_is_filtered(page: Page, sessions: list[AskingSession]) -> None:
    sessions[0].audit.record("files.write", "denied", cell=9, path=MARKUP, reason="nobody\u202easked")
    page.get_by_role("tab", name="Audit").click()
    page.locator("#filter").fill("denied files")
    expect(page.locator("#audit tr")).to_have_count(1)
    expect(page.locator("#audit tr")).to_contain_text(r"nobody\u202easked")
    assert page.locator("#audit img").count() == 0
    page.locator("#filter").fill("nothing at all")
    expect(page.locator("#audit tr")).to_have_count(0)


def test_sessions_are_told_apart(page: Page, sessions: list[AskingSession]) -> None:
    shown(page, ONE)
    page.locator("#session").select_option(index=1)
    assert "canary-one" not in page.content()
    expect(page.locator(".card")).to_have_count(1)
    expect(page.locator(".claim q")).to_have_text("of the other session")
    assert "canary-other" in shown(page, ONE).inner_text()


def test_a_new_value_comes_by_itself_and_disturbs_nothing(page: Page, sessions: list[AskingSession]) -> None:
    body = shown(page, ONE)
    page.evaluate("() => { window.before = document.querySelector('.body'); }")
    number = f"{len(sessions[0].broker.ledger):032x}"
    sessions[0].classified(number, "new", "just made")
    try:
        expect(page.locator(".card").first.locator("q")).to_have_text("just made", timeout=30_000)
        assert body.evaluate("(it) => it === window.before")
        assert "canary-one" in body.inner_text()
    finally:
        sessions[0].do(lambda: sessions[0].broker.ledger._entries.pop(number))


def test_what_the_running_cell_may_do_is_shown(page: Page) -> None:
    said = page.locator("#may").inner_text()
    assert "Cell 3 is running. It may: read data/a.csv · nothing else." in said
    assert "Open now: the folder data." in said


def test_panes_by_keyboard_and_for_a_screen_reader(page: Page) -> None:
    page.get_by_role("tab", name="Values").focus()
    for name in ("Approvals", "History", "Audit", "Values"):
        page.keyboard.press("ArrowRight")
        tab = page.get_by_role("tab", name=name)
        assert tab.get_attribute("aria-selected") == "true"
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        assert page.locator('[role="tab"][tabindex="0"]').count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.id") == "search"
    assert card(page, ONE).get_by_role("button", name="Reveal Classified[str](***) of cell 1").count() == 1
    shown(page, ONE)
    assert "canary" not in page.get_by_role("status").inner_text()


def test_narrow_screens_need_no_scrolling_sideways(page: Page) -> None:
    page.set_viewport_size({"width": 340, "height": 700})
    card(page, TWO).get_by_role("button", name="Lineage").click()
    card(page, TWO).locator(".lineage h3").first.wait_for()
    shown(page, ONE)
    for name in ("Values", "Approvals", "History", "Audit"):
        page.get_by_role("tab", name=name).click()
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"), name


def test_another_name_for_our_address_gets_nothing(page: Page, server: ViewerServer) -> None:
    """DNS rebinding. The same name reaches a server that does not look at whom it is asked as."""
    with page_elsewhere("<title>reached</title>") as careless:
        other = page.context.new_page()
        other.goto(careless.replace("127.0.0.1", "rebound.example"))
        assert other.title() == "reached"
        for path in ("/", "/viewer.js"):
            answer = other.goto(f"http://rebound.example:{server.port}{path}")
            assert answer is not None
            assert answer.status == 421
        assert other.locator(".card").count() == 0


def test_copy_takes_the_text_and_says_what_that_means(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown(page, ONE)
    card(page, ONE).locator(".copy").click()
    expect(page.locator("#status")).to_contain_text("every program of yours can read it")
    assert page.evaluate("() => navigator.clipboard.readText()") == "canary-one " + MARKUP
    shown(page, JSON)
    card(page, JSON).locator(".copy").click()
    expect(page.locator("#status")).to_contain_text("every program of yours can read it")
    assert page.evaluate("() => navigator.clipboard.readText()") == '{"a": 1.10, "b": ["<b>", {"c": null}]}'


def test_errors_say_what_to_do_and_pass(page: Page) -> None:
    page.route("**/api/*", lambda route: route.abort())
    card(page, ONE).locator(".reveal").click()
    expect(page.locator("#status.bad")).to_contain_text("is `capkernel view` still running?")
    page.unroute_all()
    expect(page.locator("#status")).to_have_text("up to date again", timeout=60_000)


def test_a_tab_that_another_replaced_shows_nothing_any_more(page: Page, server: ViewerServer) -> None:
    shown(page, ONE)
    other = page.context.new_page()
    other.goto(server.link())
    other.wait_for_selector(".card")
    page.bring_to_front()
    expect(page.locator("#status.bad")).to_contain_text("this tab is not the one", timeout=60_000)
    assert "canary" not in page.content()


def test_a_question_of_another_session_is_told(page: Page, sessions: list[AskingSession]) -> None:
    answer = sessions[1].ask(AskPerson("files.write", "write x", ("x",)))
    try:
        expect(page.locator("#elsewhere")).to_contain_text("Questions wait in another session", timeout=60_000)
        assert page.locator("#asks").is_hidden()
        page.locator("#session").select_option(index=1)
        expect(page.locator("#asks")).to_contain_text("write x", timeout=60_000)
        expect(page.locator("#elsewhere")).to_have_text("")
    finally:
        sessions[1].end_cell(3)
        answer.result(30)
