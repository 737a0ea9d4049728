"""`capkernel view`: a page on 127.0.0.1, on a random port and so on an origin of its own.

Rule 1: this process holds no cleartext: the browser makes a key for each reveal, the vault seals to it, and what
passes through here is ciphertext.
Rule 2: the link in the terminal holds a token that works once, for LINK_SECONDS. It buys a cookie (HttpOnly,
SameSite=Strict) and a key that the page keeps in the tab; every request needs both. A cookie alone would not do:
browsers send it to every port of 127.0.0.1, and let pages of every port use it. The key stays within the origin.
Rule 3: every request names our Host; every request that does something has our Origin and comes from our own page.
Rule 4: nothing is logged, cached, framed or loaded from elsewhere; texts that come from a cell are made visible first.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import importlib.resources
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

import msgspec

from capkernel.viewer import answers, sessions
from capkernel.viewer.answers import Asked, Unasked
from capkernel.viewer.link import Link, LinkRefused
from capkernel.viewer.sessions import Session

LINK_SECONDS: Final = 300.0
MAX_BODY: Final = 16_384  # a typed secret, sealed, in base64
_SOCKET_SECONDS: Final = 30.0
_KINDS: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_PAGE: Final = (
    "index.html", "viewer.css", "viewer.js", "approvals.js", "arming.js", "audit.js", "authority.js", "cards.js",
    "draw.js", "history.js", "lineage.js", "make.js", "open.js", "panes.js", "polling.js", "reveal.js", "seal.js",
    "server.js", "sessions.js", "tell.js", "values.js",
)  # fmt: skip
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), display-capture=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class _Refusal(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ViewerServer:
    """The page and what it may ask. `find` gives the sessions it may look into."""

    def __init__(self, find: Callable[[], list[Session]] | None = None) -> None:
        self._find = find or (lambda: sessions.running("page"))
        self._files = {"/" + name: (_file(name), _kind(name)) for name in _PAGE}
        self._files["/"] = self._files.pop("/index.html")
        self._lock = threading.Lock()
        self._known: dict[str, Session] = {}  # what the page was told of last
        self._token: str | None = None
        self._token_ends = 0.0
        self._cookie: str | None = None
        self._key: str | None = None
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.viewer = self
        self.port: int = self._http.server_address[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        self.cookie_name = f"capkernel-view-{self.port}"  # cookies do not know ports

    def link(self) -> str:
        """A fresh address to open; the one before stops working."""
        with self._lock:
            self._token, self._token_ends = secrets.token_urlsafe(32), time.monotonic() + LINK_SECONDS
            # In the fragment: browsers send it to nobody.
            return f"{self.origin}/#{self._token}"

    def serve(self) -> None:
        """Until `close`."""
        self._http.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    # ── what the page asks ───────────────────────────────────────────────────────────────────────────────────────────

    def file(self, path: str) -> tuple[bytes, str]:
        if path not in self._files:
            raise _Refusal(404, "there is nothing here")
        return self._files[path]

    def open(self, asked: Asked) -> tuple[dict[str, Any], str]:
        """The token for a key and a cookie; whoever held them before is out."""
        with self._lock:
            # A wrong one does not end it: 256 bits cannot be guessed, and others on this machine could lock us out.
            if self._token is None or time.monotonic() > self._token_ends or not _same(asked.token, self._token):
                raise _Refusal(
                    403, "this link was used, has expired or is wrong: press Enter in the terminal for a new one"
                )
            self._token = None
            self._cookie, self._key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
            return {"key": self._key}, self._cookie

    def require(self, cookie: str, key: str) -> None:
        with self._lock:
            held = self._cookie is not None and self._key is not None
            if not held or not _same(cookie, self._cookie or "") or not _same(key, self._key or ""):
                raise _Refusal(
                    403, "this tab is not the one that the link opened: press Enter in the terminal for a new one"
                )

    def answer(self, path: str, asked: Asked) -> dict[str, Any]:
        if path == "/api/sessions":
            found = self._find()
            with self._lock:
                self._known = {session.name: session for session in found}
            return {"sessions": [answers.session(session, self._waiting(session)) for session in found]}
        with self._open(asked.session) as link:
            return answers.answer(path, asked, link)

    def _open(self, name: str) -> Link:
        with self._lock:
            known = self._known.get(name)
        for session in [known] if known is not None else self._find():
            if session.name == name:
                link = Link.open(session.runtime, "page")
                if link.welcome.session == name:
                    return link
                link.close()
        raise _Refusal(404, "this session has ended")

    def _waiting(self, session: Session) -> int:
        """How many questions wait in it."""
        with contextlib.suppress(LinkRefused, OSError), Link.open(session.runtime, "page") as link:
            return len(link.questions().questions)
        return 0


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    viewer: ViewerServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Silent: a traceback could show what was asked."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "capkernel"
    sys_version = ""
    timeout = _SOCKET_SECONDS
    server: _Server

    def do_GET(self) -> None:
        with self._refusals():
            self._require_host()
            body, kind = self.server.viewer.file(self.path)
            self._send(200, body, kind)

    def do_POST(self) -> None:
        with self._refusals():
            viewer = self.server.viewer
            self._require_host()
            self._require_own_page()
            asked = self._body()
            if self.path == "/api/open":
                said, cookie = viewer.open(asked)
                text = f"{viewer.cookie_name}={cookie}; HttpOnly; SameSite=Strict; Path=/api"
                self._send_json(200, said, {"Set-Cookie": text})
                return
            viewer.require(self._cookie(), self.headers.get("X-Capkernel-Key", ""))
            self._send_json(200, viewer.answer(self.path, asked))

    @contextlib.contextmanager
    def _refusals(self) -> Any:
        try:
            yield
        except _Refusal as refusal:
            self.close_connection = True
            self._send_json(refusal.status, {"error": str(refusal)})
        except Unasked as problem:
            self.close_connection = True
            self._send_json(400, {"error": str(problem)})
        except (LinkRefused, OSError) as problem:
            self.close_connection = True
            said = (
                str(problem) if isinstance(problem, LinkRefused) else "the session cannot be reached: it may have ended"
            )
            with contextlib.suppress(OSError):
                self._send_json(502, {"error": said})

    def _require_host(self) -> None:
        # DNS rebinding: a page of another name may resolve to this address, but it cannot say that it is us.
        if self.headers.get_all("Host") != [f"127.0.0.1:{self.server.viewer.port}"]:
            raise _Refusal(421, "this is the viewer of capkernel; it answers to its own address only")

    def _require_own_page(self) -> None:
        site = self.headers.get("Sec-Fetch-Site")
        if self.headers.get_all("Origin") != [self.server.viewer.origin] or site not in (None, "same-origin"):
            raise _Refusal(403, "only the viewer's own page may ask")
        if self.headers.get("Content-Type") != "application/json":
            raise _Refusal(415, "requests are application/json")

    def _body(self) -> Asked:
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") is not None:  # two readings of where a request ends
            raise _Refusal(411, "a request says its length")
        if not (length.isascii() and length.isdigit()) or len(length) > 6 or int(length) > MAX_BODY:
            raise _Refusal(413, f"a request has at most {MAX_BODY} bytes")
        try:
            return msgspec.json.decode(self.rfile.read(int(length)), type=Asked)
        except (msgspec.DecodeError, ValueError):
            raise _Refusal(400, "not a request of this page") from None

    def _cookie(self) -> str:
        try:
            held = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return ""
        found = held.get(self.server.viewer.cookie_name)
        return found.value if found is not None else ""

    def _send_json(self, status: int, said: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(said).encode("ascii"), "application/json", headers)

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        length = {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in {**length, **_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """What is no request at all: the parent would answer with a page of its own, without our headers."""
        self.close_connection = True
        self._send_json(code, {"error": "not a request of this page"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the parent's name
        """Nothing is logged."""


def _file(name: str) -> bytes:
    return (importlib.resources.files("capkernel.viewer") / "page" / name).read_bytes()


def _kind(name: str) -> str:
    return f"{_KINDS[name[name.rindex('.') :]]}; charset=utf-8"


def _same(given: str, held: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), held.encode("ascii"))
