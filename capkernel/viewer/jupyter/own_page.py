"""Which requests come from the person's own Jupyter page.

Rule 1: a request that brings the API token is refused, whatever else it brings: pages do not need it, and programs have
it. (A program that turns the token into a login cookie first, and forges the rest, is not told from a page here: that
is what pairing is for.)
Rule 2: every check must say yes; what a browser would have said and is missing counts as no.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest

TOKEN: Final = "Requests with a token are not answered here: this is for the page of a person who logged in."  # noqa: S105


def has_token(request: HTTPServerRequest) -> bool:
    return "Authorization" in request.headers or "token" in request.arguments


def not_from_our_page(request: HTTPServerRequest) -> str:
    """Why a POST is not one of our page's own scripts, "" when it is."""
    headers = request.headers
    if headers.get_list("Sec-Fetch-Site") != ["same-origin"] or headers.get_list("Sec-Fetch-Dest") != ["empty"]:
        return "Only a script of this Jupyter page may ask; a page that is not https or localhost cannot."
    origins, hosts = headers.get_list("Origin"), headers.get_list("Host")
    if len(origins) != 1 or len(hosts) != 1:
        return "Only a script of this Jupyter page may ask."
    origin = urlsplit(origins[0])
    # Behind a proxy that ends https the scheme here is another one than the browser's.
    if origin.scheme not in ("http", "https") or not origin.netloc or origin.netloc.lower() != hosts[0].lower():
        return "Only a script of this Jupyter page may ask."
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return "A request is application/json."
    if len(headers.get_list("X-XSRFToken")) != 1:
        return "A request brings the page's X-XSRFToken."
    return ""


def is_own_visit(request: HTTPServerRequest) -> bool:
    """Whether a GET shows a page of ours at the top of a tab, and no other site sent the person there."""
    site, place = request.headers.get_list("Sec-Fetch-Site"), request.headers.get_list("Sec-Fetch-Dest")
    return site in (["same-origin"], ["none"]) and place == ["document"]
