"""A Jupyter server with our extension and kernels it launched: what its page gets, and what nobody else gets.

What an attacker tries here is tried first at a server whose checks are off (`unprotected_server`), where it works.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import readers
from jupyter_server_started import TOKEN, jupyter_environment, jupyter_server
from leaks import leaked
from memory import count_in_memory, readable
from page_client import Browser, Key, printed_code, run_cell, wait

from capkernel.vault.seal import unseal
from capkernel.viewer import frame, sessions
from capkernel.viewer.link import Link

pytestmark = pytest.mark.timeout(300)

CANARY = "canary-7c1f-Zq83-in-the-page"
PROD = "canary-of-production-55"
READ = """\
with request_file_system('.') as fs:
    s = fs.read_classified('secrets/canary.txt')
    p = fs.read_classified('secrets/prod/key.txt')
n = s.map(lambda t: len(t))
"""
POLICY = "[viewer]\nhigh = ['notebooks/secrets/prod/']\n"


@dataclass
class Session:
    """A kernel with classified values, the newest first: a number made from s, p of a high origin, s."""

    kernel: str
    pid: int
    number: str
    high: str
    handle: str


@dataclass
class Server:
    """A running Jupyter server."""

    port: int
    base: str
    log: Path
    environment: dict[str, str]
    directory: Path
    pid: int
    token: str

    def browser(self) -> Browser:
        return Browser(self.port, self.base, log_in=bool(self.token))

    def session(self, code: str = READ) -> Session:
        browser = self.browser()
        before = {session.pid for session in self.sessions()}
        kernel = browser.start_kernel(self.directory)
        browser.state(kernel)
        said = run_cell(self.environment, kernel, code)
        assert leaked(CANARY, said) == []
        (found,) = [session for session in self.sessions() if session.pid not in before]
        with Link.open(found.runtime, "test") as link:
            number, high, handle = (value.handle for value in link.values().values)
        return Session(kernel, found.pid, number, high, handle)

    def sessions(self) -> list[sessions.Session]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", self.environment["XDG_RUNTIME_DIR"])
            return sessions.running("test")


@contextmanager
def served(
    place: Path, *options: str, base: str = "/", program: str = "jupyter_server", token: str = TOKEN
) -> Iterator[Server]:
    directory = place / "notebooks"
    (directory / "secrets" / "prod").mkdir(parents=True)
    (directory / "secrets" / "canary.txt").write_text(CANARY)
    (directory / "secrets" / "prod" / "key.txt").write_text(PROD)
    policy = place / "policy.toml"
    policy.write_text(POLICY + '[files]\nroots = ["notebooks"]\n')
    environment = jupyter_environment(place / "jupyter") | {"CAPKERNEL_POLICY": str(policy)}
    log = place / "server.log"
    with jupyter_server(directory, environment, log, *options, base=base, program=program, token=token) as it:
        yield Server(it.port, base, log, environment, directory, it.pid, token)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    readers = "--ServerApp.authorizer_class=readers.Readers"
    with served(tmp_path_factory.mktemp("page"), readers, base="/its/base/") as running:
        yield running


@pytest.fixture(scope="module")
def session(server: Server) -> Session:
    return server.session()


@pytest.fixture(scope="module")
def browser(server: Server) -> Browser:
    return server.browser()


def asked(session: Session, handle: str | None = None, key: Key | None = None) -> dict[str, str]:
    return {"kernel": session.kernel, "handle": handle or session.handle, "key": (key or Key.fresh()).public}


def refused(answer: httpx.Response) -> tuple[int, str]:
    """Status and name of a refusal, which has nothing else in it."""
    said = answer.json()
    assert set(said) <= {"error", "message", "pair_url"}, said
    assert leaked(CANARY, answer.text) == []
    return answer.status_code, said["error"]


# ── the person ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_is_revealed_to_the_page_that_made_the_key(server: Server, session: Session, browser: Browser) -> None:
    assert browser.state(session.kernel) == {
        "reveal": "card", "why": "", "pair_url": "/its/base/capkernel/pair", "paired": False,
    }  # fmt: skip
    about = browser.ask("about", {"kernel": session.kernel, "handle": session.handle}).json()
    assert about == {
        "type": "str", "origins": ["file:secrets/canary.txt"], "label": "", "cell": 1, "how": "read", "high": False,
    }  # fmt: skip
    answer = browser.ask("reveal", asked(session, key=(key := Key.fresh())))
    assert key.open(answer, session.handle) == {"kind": "text", "text": CANARY, "length": len(CANARY)}
    assert leaked(CANARY, answer.text) == []
    first = answer.json()["count"]
    key = Key.fresh()
    answer = browser.ask("reveal", asked(session, session.number, key))
    assert key.open(answer, session.number)["text"] == str(len(CANARY))
    assert (answer.json()["count"], answer.json()["seconds"]) == (first + 1, 30)


def test_the_server_holds_no_cleartext_and_logs_nothing_of_a_reveal(
    server: Server, session: Session, browser: Browser
) -> None:
    line = "POST /its/base/capkernel/reveal"
    before = server.log.read_text().count(line)
    key = Key.fresh()
    answer = browser.ask("reveal", asked(session, key=key))
    assert key.open(answer, session.handle)["text"] == CANARY
    log = wait(lambda: text if (text := server.log.read_text()).count(line) > before else None)
    assert leaked(CANARY, log) == []
    for text in (key.public, answer.json()["sealed"], session.handle, browser.xsrf):
        assert text not in log
    if readable(server.pid):
        assert count_in_memory(server.pid, session.kernel.encode()) > 0, "what the server knows is found"
        assert count_in_memory(server.pid, CANARY.encode()) == 0
        assert count_in_memory(session.pid, CANARY.encode()) == 0


# ── what must fail ───────────────────────────────────────────────────────────────────────────────────────────────────

FOREIGN = "http://evil.example"
# Who asks for a value, with what a person's own page would send but for this, and how it is refused.
ATTACKS: dict[str, tuple[Callable[[Browser, dict[str, str]], httpx.Response], tuple[int, str]]] = {
    "a program with the token in a header": (
        lambda page, said: page.ask("reveal", said, Authorization=f"token {TOKEN}"), (403, "token"),
    ),
    "with the token as bearer, and nothing of a page": (
        lambda page, said: httpx.post(
            f"{page.origin}{page.base}capkernel/reveal", json=said, headers={"Authorization": f"Bearer {TOKEN}"},
            trust_env=False,
        ),
        (403, "token"),
    ),
    "with the token in the address": (
        lambda page, said: page.ask(f"reveal?token={TOKEN}", said), (403, "token"),
    ),
    "without a cookie": (
        lambda page, said: _stranger(page).ask("reveal", said),
        (403, "not-this-page"),
    ),
    "by somebody who may not run kernels": (
        lambda page, said: page.ask("reveal", said, **{readers.HEADER: "1"}), (403, "not-this-page"),
    ),
    "from another site": (
        lambda page, said: page.ask("reveal", said, Origin=FOREIGN, Sec_Fetch_Site="cross-site"),
        (403, "not-this-page"),
    ),
    "from another port of this host": (
        lambda page, said: page.ask("reveal", said, Origin="http://127.0.0.1:1", Sec_Fetch_Site="same-site"),
        (403, "not-this-page"),
    ),
    "with another origin": (lambda page, said: page.ask("reveal", said, Origin=FOREIGN), (403, "not-this-page")),
    "without an origin": (lambda page, said: page.ask("reveal", said, Origin=None), (403, "not-this-page")),
    "from a frame without an origin": (
        lambda page, said: page.ask("reveal", said, Origin="null"), (403, "not-this-page"),
    ),
    "as a form": (
        lambda page, said: page.ask("reveal", said, Content_Type="text/plain", Sec_Fetch_Dest="document"),
        (403, "not-this-page"),
    ),
    "from a browser that says nothing of itself": (
        lambda page, said: page.ask("reveal", said, Sec_Fetch_Site=None, Sec_Fetch_Dest=None), (403, "not-this-page"),
    ),
    "without the page's token": (lambda page, said: page.ask("reveal", said, X_XSRFToken=None), (403, "not-this-page")),
    "with another page's token": (
        lambda page, said: page.ask("reveal", said, X_XSRFToken="0" * 32), (403, "not-this-page"),
    ),
    "under another name (DNS rebinding)": (
        lambda page, said: page.ask("reveal", said, Host="evil.example", Origin=FOREIGN), (403, "not-this-page"),
    ),
}  # fmt: skip


def _stranger(page: Browser) -> Browser:
    return Browser(int(page.origin.rpartition(":")[2]), page.base, log_in=False)


@pytest.fixture(scope="module")
def unprotected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Session]]:
    with served(tmp_path_factory.mktemp("off"), program="unprotected_server") as running:
        yield running, running.session()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_request_that_is_not_the_pages_own_is_refused(
    unprotected: tuple[Server, Session], session: Session, browser: Browser, attack: str
) -> None:
    attempt, named = ATTACKS[attack]
    off, there = unprotected
    key = Key.fresh()
    answer = attempt(off.browser(), asked(there, key=key))
    assert key.open(answer, there.handle)["text"] == CANARY, "it works where nothing protects"
    assert refused(attempt(browser, asked(session))) == named


def test_how_much_waits_is_a_number(session: Session, browser: Browser) -> None:
    assert browser.ask("waiting", {"kernel": session.kernel}).json() == {"count": 0}


def test_every_address_is_guarded_the_same(session: Session, browser: Browser) -> None:
    bodies = {"state": {"kernel": session.kernel}, "about": {"kernel": session.kernel, "handle": session.handle},
              "waiting": {"kernel": session.kernel}, "pair": {"code": "12345678"}}  # fmt: skip
    for name, said in bodies.items():
        assert refused(browser.ask(name, said, Authorization=f"token {TOKEN}")) == (403, "token")
        assert refused(browser.ask(name, said, Origin=FOREIGN)) == (403, "not-this-page")
        assert refused(browser.ask(name, said, X_XSRFToken="0" * 32)) == (403, "not-this-page")
        url = f"{browser.base}capkernel/{name}"
        assert browser.http.put(url, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 405
        if name != "pair":
            assert browser.http.get(url).status_code == 405


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{", '{"kernel": 1, "handle": "x", "key": "x"}', '{"kernel": "../x", "handle": "", "key": ""}',
     '{"kernel": "x"}', '{"kernel": "x", "handle": "x", "key": "x", "more": 1}',
     '{"kernel": "x", "handle": "x", "key": "?"}', "\udc80"],
)  # fmt: skip
def test_nonsense_is_no_request(browser: Browser, body: str) -> None:
    raw = body.encode("utf-8", "surrogateescape").decode("latin-1")
    assert refused(browser.ask("reveal", raw)) == (400, "not-a-request")


def test_a_long_body_is_not_read(browser: Browser, session: Session) -> None:
    answer = browser.ask("reveal", json.dumps(asked(session)) + " " * 10_000)
    assert answer.status_code in (400, 413)
    assert browser.ask("reveal", asked(session)).status_code == 200, "the server goes on"


def test_what_is_sealed_opens_for_its_key_and_its_handle_only(session: Session, browser: Browser) -> None:
    key, other = Key.fresh(), Key.fresh()
    answer = browser.ask("reveal", asked(session, key=key))
    sealed = base64.b64decode(answer.json()["sealed"])
    assert key.open(answer, session.handle)["text"] == CANARY
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for data, private, handle in (
        (sealed, other.private, session.handle),  # replayed to another frame
        (sealed, key.private, session.number),  # said to be another value
        (changed, key.private, session.handle),
        (sealed[1:], key.private, session.handle),
    ):
        with pytest.raises(ValueError, match="not sealed to this"):
            unseal(data, private, handle)
    again = browser.ask("reveal", asked(session, key=key)).json()["sealed"]
    assert again != answer.json()["sealed"], "each is sealed anew"


def test_unknown_values_and_kernels(server: Server, session: Session, browser: Browser) -> None:
    assert refused(browser.ask("reveal", asked(session, "f" * 32))) == (404, "no-such-value")
    assert refused(browser.ask("reveal", asked(session, "nonsense"))) == (404, "no-such-value")
    assert refused(browser.ask("about", {"kernel": session.kernel, "handle": "f" * 32})) == (404, "no-such-value")
    other = server.session()
    assert browser.reveal(other.kernel, other.handle)["text"] == CANARY
    crossed = {**asked(session), "handle": other.handle}
    assert refused(browser.ask("reveal", crossed)) == (404, "no-such-value"), "the handle of another kernel"
    # A restart is a new process with a new secret; what was before is gone.
    assert browser.kernels(other.kernel, "restart").status_code == 200
    assert browser.state(other.kernel)["reveal"] == "card"
    assert refused(browser.ask("reveal", asked(other))) == (404, "no-such-value")
    assert browser.kernels(other.kernel, "delete").status_code == 204
    assert refused(browser.ask("reveal", asked(other))) == (410, "kernel-gone")
    assert refused(browser.ask("state", {"kernel": other.kernel})) == (410, "kernel-gone")


@pytest.mark.parametrize(("name", "words"), [("python3", "is not capkernel's"), ("user", "its kernelspec names no")])
def test_a_kernel_that_was_not_launched_by_our_provisioner_has_no_page(
    server: Server, browser: Browser, name: str, words: str
) -> None:
    specs = Path(server.environment["JUPYTER_DATA_DIR"]) / "kernels"
    spec = json.loads((specs / "capkernel" / "kernel.json").read_text())
    del spec["metadata"]["kernel_provisioner"]  # as `capkernel install --user` writes it
    (specs / "user").mkdir(exist_ok=True)
    (specs / "user" / "kernel.json").write_text(json.dumps(spec))
    kernel = browser.start_kernel(server.directory, name)
    try:
        said = browser.state(kernel)
        assert said["reveal"] == "view"
        assert words in said["why"]
        answer = browser.ask("reveal", {"kernel": kernel, "handle": "f" * 32, "key": Key.fresh().public})
        assert refused(answer) == (409, "reveal-off")
    finally:
        browser.kernels(kernel, "delete")


# ── pairing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_of_a_high_origin_is_shown_after_pairing_only(server: Server, session: Session) -> None:
    """With a login bought by the token and forged headers, as a program would: everything but the code works."""
    person, program = server.browser(), server.browser()
    assert person.reveal(session.kernel, session.handle)["text"] == CANARY
    assert person.ask("about", {"kernel": session.kernel, "handle": session.high}).json()["high"] is True
    answer = person.ask("reveal", asked(session, session.high))
    assert refused(answer) == (428, "pairing-needed")
    assert answer.json()["pair_url"] == "/its/base/capkernel/pair"

    page = person.visit_pairing()
    assert page.status_code == 200
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    code, _ = printed_code(server.log)
    assert code not in page.text
    second = program.visit_pairing()
    assert (second.status_code, "cannot be used here" in second.text) == (403, True), "one code at a time"
    assert refused(program.ask("pair", {"code": code})) == (403, "code"), "the code is for who asked"
    wrong = code[:-1] + ("1" if code[-1] == "0" else "0")
    assert refused(person.ask("pair", {"code": wrong})) == (403, "code")
    answer = person.ask("pair", {"code": f"{code[:4]} {code[4:]}"})
    assert answer.json() == {"paired": True}
    cookie = answer.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=Strict", "Path=/its/base/capkernel;"):
        assert part in cookie + ";"
    assert refused(person.ask("pair", {"code": code})) == (403, "code"), "it works once"

    assert person.reveal(session.kernel, session.high)["text"] == PROD
    assert person.state(session.kernel)["paired"] is True
    assert refused(program.ask("reveal", asked(session, session.high))) == (428, "pairing-needed")
    # The cookie in the hands of another login is worth nothing: it is bound to who paired.
    name, value = cookie.split(";")[0].split("=", 1)
    program.http.cookies.set(name, value, path=f"{server.base}capkernel")
    assert refused(program.ask("reveal", asked(session, session.high))) == (428, "pairing-needed")
    assert code not in re.sub(r"pairing code: .*", "", server.log.read_text())


def test_the_frame_is_the_same_for_all_and_for_those_who_logged_in(server: Server, browser: Browser) -> None:
    found = browser.http.get(f"{server.base}capkernel/frame")
    document, headers = frame.document()
    assert found.content == document
    assert found.headers["content-security-policy"] == headers["Content-Security-Policy"]
    stranger = Browser(server.port, server.base, log_in=False)
    assert refused(stranger.http.get(f"{server.base}capkernel/frame")) == (403, "not-this-page")


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Site": "cross-site"}])
def test_the_pairing_page_is_no_frame_and_nobody_is_sent_to_it(browser: Browser, headers: dict[str, str]) -> None:
    assert refused(browser.visit_pairing(**headers)) == (403, "not-this-page")


def test_without_a_login_there_is_no_pairing_page(server: Server) -> None:
    stranger = Browser(server.port, server.base, log_in=False)
    assert stranger.visit_pairing().status_code in (302, 403)


# ── pages that others have, too, and other launches ──────────────────────────────────────────────────────────────────


def test_a_server_that_asks_nobody_who_they_are_shows_nothing_unpaired(tmp_path: Path) -> None:
    with served(tmp_path, token="") as open_to_all:
        visitor, session = open_to_all.browser(), open_to_all.session()
        said = visitor.state(session.kernel)
        assert said["reveal"] == "pair"
        assert "asks nobody" in said["why"]
        assert refused(visitor.ask("reveal", asked(session))) == (428, "pairing-needed")
        visitor.visit_pairing()
        code, _ = printed_code(open_to_all.log)
        assert visitor.ask("pair", {"code": code}).json() == {"paired": True}
        assert visitor.reveal(session.kernel, session.handle)["text"] == CANARY
