"""What the Jupyter page may ask of the server: is there a reveal, what is this value, show it to this key, pair.

Rule 1: the server holds ciphertext only: the frame in the page made the key, the vault seals to it.
Rule 2: each request has a login cookie, no token, and comes from a script of our own page (`own_page`); every refusal
has a name, and no text here holds a value, a key or a code.
Rule 3: bodies are at most MAX_BODY bytes, and are read after the checks. Nothing of a body is logged.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, TypeVar

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import JupyterHandler
from tornado import web
from tornado.httputil import HTTPServerRequest

from capkernel.viewer import frame
from capkernel.viewer.jupyter import own_page, pair_page
from capkernel.viewer.jupyter.kernels import NoKernel, NoPage, launched, open_link
from capkernel.viewer.jupyter.pairing import NotPaired, Pairing
from capkernel.viewer.jupyter.shared import why_shared
from capkernel.viewer.link import Link, LinkRefused
from capkernel.wire.shown_text import visible

MAX_BODY: Final = 4096
SHOWN_SECONDS: Final = 30
_THREADS: Final = 8
_STATUS: Final = {"no-such-value": 404, "reveal-off": 409, "pairing-needed": 428}

T = TypeVar("T")
B = TypeVar("B", bound=msgspec.Struct)
KernelId = Annotated[str, msgspec.Meta(pattern="^[0-9A-Za-z_-]{1,64}$")]


class _Kernel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel: KernelId


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel: KernelId
    handle: str


class _Reveal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel: KernelId
    handle: str
    key: str


class _Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str


class Refusal(web.HTTPError):
    """A refusal with a name, as the page reads it."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(status)
        self.name = name
        self.message = message


class Desk:
    """What the handlers of one server share."""

    def __init__(self, server: Any, pairing: Pairing) -> None:
        self.server = server
        self.pairing = pairing
        self.cookie = f"capkernel-paired-{server.port}"  # cookies do not know ports
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="capkernel-view")
        self._reveals: dict[str, int] = {}

    async def ask(self, kernel: str, question: Callable[[Link], T]) -> T:
        """Put a question to a kernel. Raises Refusal."""
        try:
            launch = launched(self.server.kernel_manager, kernel)
        except NoKernel:
            raise Refusal(410, "kernel-gone", "This kernel has ended: its values are gone with it.") from None
        except NoPage as problem:
            raise Refusal(409, "reveal-off", str(problem)) from None

        def asked() -> T:
            with open_link(launch) as link:
                return question(link)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, asked)
        except LinkRefused as problem:
            name = problem.name or "kernel-unreachable"
            raise Refusal(_STATUS.get(name, 502), name, str(problem)) from None
        except OSError:
            raise Refusal(
                502, "kernel-unreachable", "The kernel does not answer: it may be starting or ending."
            ) from None

    def counted(self, kernel: str) -> int:
        """How many values of this kernel were shown, with the one that was just."""
        alive = self.server.kernel_manager.list_kernel_ids()
        self._reveals = {name: count for name, count in self._reveals.items() if name in alive}
        self._reveals[kernel] = self._reveals.get(kernel, 0) + 1
        return self._reveals[kernel]


@web.stream_request_body
class _Handler(JupyterHandler):
    """Who may ask at all; the body is read when that is clear. `desk` is given with the route."""

    request: HTTPServerRequest
    auth_resource = "kernels"

    def __init_subclass__(cls) -> None:
        if {"get", "post", "prepare"} & set(cls.__dict__):
            raise TypeError("answer in `show` or `answer`, which are reached when the request was admitted")

    def initialize(self, desk: Desk) -> None:
        self.desk = desk
        self._body = bytearray()
        self._refusal: web.HTTPError | None = Refusal(403, "not-this-page", "not admitted")

    async def prepare(self, *, _redirect_to_login: Any = False) -> None:
        connection: Any = self.request.connection
        connection.set_max_body_size(MAX_BODY)
        # A refusal waits for the body: an answer to half a request may not reach the one who asked.
        try:
            await self._admit(_redirect_to_login)
        except web.HTTPError as refusal:
            self._refusal = refusal
        else:
            self._refusal = None

    async def _admit(self, redirect_to_login: bool) -> None:
        """Raises HTTPError for a request that is not answered."""
        if own_page.has_token(self.request):
            raise Refusal(403, "token", own_page.TOKEN)
        asks = self.request.method not in ("GET", "HEAD")
        why = own_page.not_from_our_page(self.request) if asks else ""
        if why:
            raise Refusal(403, "not-this-page", why)
        await super().prepare(_redirect_to_login=redirect_to_login)
        if self.token_authenticated:
            raise Refusal(403, "token", own_page.TOKEN)
        user = self.current_user
        if user is None or not await ensure_async(self.authorizer.is_authorized(self, user, "execute", "kernels")):
            raise Refusal(403, "not-this-page", "Log in to Jupyter first, as somebody who may run its kernels.")
        if asks:
            self._check_xsrf()

    async def get(self) -> None:
        await self._answered(self.show)

    async def post(self) -> None:
        await self._answered(self.answer)

    async def _answered(self, method: Callable[[], Awaitable[None]]) -> None:
        if self._refusal is not None:
            raise self._refusal
        await method()

    async def show(self) -> None:
        """Answer an admitted GET."""
        raise web.HTTPError(405)

    async def answer(self) -> None:
        """Answer an admitted POST."""
        raise web.HTTPError(405)

    def _check_xsrf(self) -> None:
        # Tornado's own check, also where the server was told not to make it.
        try:
            web.RequestHandler.check_xsrf_cookie(self)
        except web.HTTPError:
            raise Refusal(403, "not-this-page", "The X-XSRFToken is not that of this page: reload it.") from None

    def data_received(self, chunk: bytes) -> None:
        self._body += chunk

    def asked(self, kind: type[B]) -> B:
        """The body of a request. Raises Refusal."""
        try:
            return msgspec.json.decode(bytes(self._body), type=kind)
        except (msgspec.DecodeError, ValueError):
            raise Refusal(400, "not-a-request", "This is not a request of capkernel's card.") from None

    @property
    def identity(self) -> str:
        name: str = self.current_user.username
        return name

    @property
    def paired(self) -> bool:
        return self.desk.pairing.holds(self.identity, self.get_cookie(self.desk.cookie) or "")

    @property
    def pair_url(self) -> str:
        return f"{self.base_url}capkernel/pair"

    def say(self, said: dict[str, Any]) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(said))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        refusal = kwargs.get("exc_info", (None, None, None))[1]
        name, message = ("failed" if status_code >= 500 else "not-this-page", "Not answered.")
        if isinstance(refusal, Refusal):
            name, message = refusal.name, refusal.message
        self.say(
            {"error": name, "message": message} | ({"pair_url": self.pair_url} if name == "pairing-needed" else {})
        )

    @property
    def content_security_policy(self) -> str:
        return "default-src 'none'; frame-ancestors 'none'"

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Referrer-Policy", "no-referrer")


class State(_Handler):
    async def answer(self) -> None:
        kernel = self.asked(_Kernel).kernel
        shared = why_shared(self.desk.server)
        try:
            page = await self.desk.ask(kernel, Link.page)
            off, pairing = page.off, page.pairing or bool(shared)
        except Refusal as refusal:
            if refusal.name != "reveal-off":
                raise
            off, pairing = refusal.message, False
        if off:
            reveal, why = "view", off
        elif pairing and not self.paired:
            reveal, why = "pair", shared or "The policy wants a paired page (viewer.pairing)."
        else:
            reveal, why = "card", ""
        self.say({"reveal": reveal, "why": why, "pair_url": self.pair_url, "paired": self.paired})


class About(_Handler):
    async def answer(self) -> None:
        asked = self.asked(_Value)
        said = await self.desk.ask(asked.kernel, lambda link: link.about(asked.handle))
        value = said.value
        self.say({
            "type": visible(value.type), "origins": [visible(origin) for origin in value.origins],
            "label": visible(value.label), "cell": value.cell, "how": value.how, "high": said.high,
        })  # fmt: skip


class Reveal(_Handler):
    async def answer(self) -> None:
        asked = self.asked(_Reveal)
        try:
            key = base64.b64decode(asked.key, validate=True)
        except (binascii.Error, ValueError):
            raise Refusal(400, "not-a-request", "This is not a key.") from None
        paired = self.paired
        shared = why_shared(self.desk.server)
        if shared and not paired:
            raise Refusal(428, "pairing-needed", f"{shared} Pair it first.")
        sealed = await self.desk.ask(asked.kernel, lambda link: link.reveal_in_page(asked.handle, key, paired=paired))
        count = self.desk.counted(asked.kernel)
        self.say({"sealed": base64.b64encode(sealed).decode("ascii"), "count": count, "seconds": SHOWN_SECONDS})


class Waiting(_Handler):
    """How many questions wait for the person: a number, and nowhere in a page a way to answer."""

    async def answer(self) -> None:
        self.say({"count": await self.desk.ask(self.asked(_Kernel).kernel, Link.waiting)})


class Pair(_Handler):
    """The page that asks for the code, which is printed now; and the code."""

    async def show(self) -> None:
        if not own_page.is_own_visit(self.request):
            raise Refusal(403, "not-this-page", "Open this page in a tab of its own.")
        problem = ""
        try:
            self.desk.pairing.begin(self.identity)
        except NotPaired as found:
            problem = str(found)
            self.set_status(403)
        nonce = secrets.token_urlsafe(16)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", pair_page.policy(nonce))
        self.set_header("Cross-Origin-Opener-Policy", "same-origin")
        self.set_header("X-Frame-Options", "DENY")
        self.finish(pair_page.document(nonce, self.xsrf_token.decode("ascii"), self.pair_url, problem))

    async def answer(self) -> None:
        code = "".join(self.asked(_Code).code.split())
        try:
            paired = self.desk.pairing.finish(self.identity, code)
        except NotPaired as problem:
            raise Refusal(403, "code", str(problem)) from None
        self.set_cookie(
            self.desk.cookie, paired, path=f"{self.base_url}capkernel", httponly=True, samesite="Strict",
            secure=self.request.protocol == "https",
        )  # fmt: skip
        self.say({"paired": True})


class Frame(_Handler):
    """The document in which the card shows a value."""

    async def show(self) -> None:
        document, headers = frame.document()
        for name, value in headers.items():
            self.set_header(name, value)
        self.finish(document)


ROUTES: Final = {
    "frame": Frame, "state": State, "about": About, "reveal": Reveal, "waiting": Waiting, "pair": Pair,
}  # fmt: skip
