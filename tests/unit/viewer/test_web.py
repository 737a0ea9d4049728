"""The page's server: who is answered. Each refusal is one header away from a request that works."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from viewer_server import viewer_server

from capkernel.viewer import web
from capkernel.viewer.sessions import Session
from capkernel.viewer.web import ViewerServer

SESSION = Session("s" * 32, "/notes/\x1b", 1, 2.0, "/nowhere")


class Client:
    """Speaks as the page does, unless told otherwise."""

    def __init__(self, server: ViewerServer) -> None:
        self.server = server
        self.cookie = ""
        self.key = ""

    def ask(
        self, path: str, body: Any = None, *, method: str = "POST", without: tuple[str, ...] = (), **changed: str
    ) -> tuple[int, dict[str, Any], http.client.HTTPMessage]:
        headers = {
            "Host": f"127.0.0.1:{self.server.port}",
            "Origin": self.server.origin,
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/json",
            "Cookie": self.cookie,
            "X-Capkernel-Key": self.key,
        }
        headers.update({name.replace("_", "-"): value for name, value in changed.items()})
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            data = json.dumps({} if body is None else body).encode() if method == "POST" else b""
            for name, value in headers.items():
                if name not in without:
                    connection.putheader(name, value)
            if method == "POST":
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            content = answer.read()
            is_json = answer.getheader("Content-Type") == "application/json"
            said = json.loads(content) if content and is_json else {}  # HEAD has none
            return answer.status, said, answer.headers
        finally:
            connection.close()

    def open(self) -> None:
        token = self.server.link().partition("#")[2]
        status, said, headers = self.ask("/api/open", {"token": token})
        assert status == 200
        self.key = said["key"]
        self.cookie = headers["Set-Cookie"].partition(";")[0]


@pytest.fixture
def server() -> Iterator[ViewerServer]:
    with viewer_server(lambda: [SESSION]) as made:
        yield made


@pytest.fixture
def client(server: ViewerServer) -> Client:
    made = Client(server)
    made.open()
    return made


def test_the_page_that_the_link_opened_is_answered(client: Client) -> None:
    status, said, _ = client.ask("/api/sessions")
    assert status == 200
    assert said["sessions"][0]["directory"] == r"/notes/\x1b"


REFUSED: list[tuple[int, dict[str, Any]]] = [
    (421, {"Host": "localhost:{port}"}),
    (421, {"Host": "evil.example:{port}"}),
    (421, {"Host": "127.0.0.1"}),
    (421, {"without": ("Host",)}),
    (403, {"Origin": "http://127.0.0.1:1"}),
    (403, {"Origin": "http://localhost:{port}"}),
    (403, {"Origin": "null"}),
    (403, {"without": ("Origin",)}),
    (403, {"Sec_Fetch_Site": "same-site"}),
    (403, {"Sec_Fetch_Site": "cross-site"}),
    (403, {"Sec_Fetch_Site": "none"}),
    (403, {"Cookie": "capkernel-view-{port}=wrong"}),
    (403, {"without": ("Cookie",)}),
    (403, {"X_Capkernel_Key": "wrong"}),
    (403, {"X_Capkernel_Key": "é"}),
    (403, {"without": ("X-Capkernel-Key",)}),
    (415, {"Content_Type": "text/plain"}),
    (411, {"Transfer_Encoding": "chunked"}),
]


@pytest.mark.parametrize(("status", "changed"), REFUSED)
def test_one_wrong_header_is_refused(client: Client, status: int, changed: dict[str, Any]) -> None:
    port = str(client.server.port)
    filled = {
        name: value.replace("{port}", port) if isinstance(value, str) else value for name, value in changed.items()
    }
    for path in ("/api/sessions", "/api/reveal", "/api/state", "/api/decide", "/api/secret"):
        found, said, _ = client.ask(path, {"session": SESSION.name, "handle": "0" * 32, "key": "AAAA"}, **filled)
        assert found == status
        assert set(said) == {"error"}
    assert client.ask("/api/sessions")[0] == 200


def test_the_link_works_once(server: ViewerServer) -> None:
    token = server.link().partition("#")[2]
    client = Client(server)
    assert client.ask("/api/open", {"token": "wrong"})[0] == 403
    assert client.ask("/api/open", {"token": ""})[0] == 403
    assert client.ask("/api/open", {"token": token})[0] == 200
    assert client.ask("/api/open", {"token": token})[0] == 403


def test_a_link_expires_and_a_new_one_ends_the_one_before(
    server: ViewerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = server.link().partition("#")[2]
    second = server.link().partition("#")[2]
    client = Client(server)
    assert client.ask("/api/open", {"token": first})[0] == 403
    late = time.monotonic() + web.LINK_SECONDS + 1
    with monkeypatch.context() as later:
        later.setattr(web.time, "monotonic", lambda: late)
        assert client.ask("/api/open", {"token": second})[0] == 403
    assert client.ask("/api/open", {"token": second})[0] == 200


def test_a_new_tab_ends_the_one_before(client: Client) -> None:
    other = Client(client.server)
    other.open()
    assert other.ask("/api/sessions")[0] == 200
    assert client.ask("/api/sessions")[0] == 403


def test_before_a_link_was_opened_nobody_is_in(server: ViewerServer) -> None:
    client = Client(server)
    assert client.ask("/api/sessions")[0] == 403
    assert client.ask("/api/sessions", X_Capkernel_Key="", Cookie=f"{server.cookie_name}=")[0] == 403


def test_every_answer_carries_the_headers_that_keep_it_to_itself(client: Client) -> None:
    answers = [client.ask(path, method="GET") for path in ("/", "/viewer.js", "/viewer.css", "/nothing")]
    answers += [client.ask("/api/sessions"), client.ask("/api/sessions", Host="x"), client.ask("/api/nothing")]
    # What the server takes for no request before any of our code is asked.
    answers += [client.ask("/", method="PUT"), client.ask("/" + "a" * 70_000, method="GET")]
    for _, _, headers in answers:
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(server: ViewerServer) -> None:
    token = server.link().partition("#")[2]
    _, _, headers = Client(server).ask("/api/open", {"token": token})
    words = {part.strip() for part in headers["Set-Cookie"].split(";")}
    assert {"HttpOnly", "SameSite=Strict", "Path=/api"} <= words
    assert str(server.port) in server.cookie_name


@pytest.mark.parametrize(
    "path", ["/../web.py", "/%2e%2e/web.py", "//etc/passwd", "/page/index.html", "/viewer.js?x", "/.."]
)
def test_only_the_files_of_the_page_are_served(server: ViewerServer, path: str) -> None:
    client = Client(server)
    assert client.ask("/", method="GET")[0] == 200
    assert client.ask(path, method="GET")[0] == 404


@pytest.mark.parametrize("body", [{"token": "x" * 20_000}, {"other": 1}, [], "x", {"token": 1}])
def test_other_bodies_are_refused(client: Client, body: object) -> None:
    assert client.ask("/api/sessions", body)[0] in (400, 413)


@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "DELETE", "HEAD", "TRACE"])
def test_other_methods_are_refused(client: Client, method: str) -> None:
    assert client.ask("/api/sessions", method=method)[0] == 501


def test_a_session_that_ended_or_is_not_ours_is_a_clear_error(client: Client) -> None:
    assert client.ask("/api/state", {"session": "other"})[:2] == (404, {"error": "this session has ended"})
    status, said, _ = client.ask("/api/state", {"session": SESSION.name})
    assert (status, said) == (502, {"error": "the session cannot be reached: it may have ended"})


def test_the_page_has_no_markup_sink_and_no_inline_script() -> None:
    files = [web._file(name).decode() for name in web._PAGE]
    for text in files:
        for sink in (
            "innerHTML =",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
            "new Function",
            "localStorage",
        ):
            assert sink not in text
    html = web._file("index.html").decode()
    assert html.count("<script") == 1
    assert "style=" not in html
    assert " on" not in html.replace(" one", "").replace(" only", "")
    scripts = [text for name, text in zip(web._PAGE, files, strict=True) if name.endswith(".js")]
    assert len(scripts) > 10
    assert all(text.startswith("// @ts-check") for text in scripts)
