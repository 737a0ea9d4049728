"""The page that asks for the pairing code. It can be in no frame, and loads and sends nothing but the code, to us."""

from __future__ import annotations

import functools
import html
import importlib.resources
import json


def document(nonce: str, xsrf: str, address: str, problem: str = "") -> str:
    """nonce: of this answer. xsrf: the token that the code is sent with. address: where to. problem: why there is no
    code now."""
    page = _page().replace("{nonce}", nonce).replace("{problem}", html.escape(problem))
    page = page.replace("{hidden}", "hidden" if problem else "")
    return page.replace("{xsrf}", _script_text(xsrf)).replace("{address}", _script_text(address))


def policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _script_text(text: str) -> str:
    """A text in a script in HTML."""
    return json.dumps(text).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def _page() -> str:
    return (importlib.resources.files("capkernel.viewer") / "page" / "pair.html").read_text("utf-8")
