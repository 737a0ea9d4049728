"""Which requests count as those of the page's own scripts: every header that must say yes, one at a time."""

from __future__ import annotations

import pytest
from tornado.httputil import HTTPHeaders, HTTPServerRequest, RequestStartLine

from capkernel.viewer.jupyter import own_page

RIGHT = {
    "Host": "localhost:8888",
    "Origin": "http://localhost:8888",
    "Sec-Fetch-Site": "same-origin",
    "Sec-Fetch-Dest": "empty",
    "Content-Type": "application/json",
    "X-XSRFToken": "2|abc",
}


def request(
    *changes: tuple[str, str | None], uri: str = "/capkernel/reveal", method: str = "POST"
) -> HTTPServerRequest:
    headers = HTTPHeaders(RIGHT)
    for name, value in changes:
        headers.pop(name, None)
        if value is not None:
            headers[name] = value
    return HTTPServerRequest(start_line=RequestStartLine(method, uri, "HTTP/1.1"), headers=headers)


def test_our_page_passes() -> None:
    assert own_page.not_from_our_page(request()) == ""
    assert not own_page.has_token(request())


@pytest.mark.parametrize(
    "change",
    [
        ("Origin", "https://localhost:8888"),  # a proxy in front ends https
        ("Origin", "http://LOCALHOST:8888"),
        ("Content-Type", "application/json; charset=utf-8"),
    ],
)
def test_what_differs_and_is_right_passes(change: tuple[str, str]) -> None:
    assert own_page.not_from_our_page(request(change)) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),  # another port of localhost
        ("Sec-Fetch-Site", "none"),
        ("Sec-Fetch-Site", None),
        ("Sec-Fetch-Dest", "document"),  # a form
        ("Sec-Fetch-Dest", "iframe"),
        ("Sec-Fetch-Dest", None),
        ("Origin", "http://localhost:9999"),
        ("Origin", "http://127.0.0.1:8888"),
        ("Origin", "null"),
        ("Origin", "localhost:8888"),
        ("Origin", "file://localhost:8888"),
        ("Origin", "http://evil.example"),
        ("Origin", "http://localhost:8888@evil.example"),
        ("Origin", None),
        ("Host", "evil.example"),
        ("Content-Type", "text/plain"),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Content-Type", None),
        ("X-XSRFToken", None),
    ],
)
def test_each_check_refuses_alone(name: str, value: str | None) -> None:
    assert own_page.not_from_our_page(request((name, value)))


def test_a_header_given_twice_is_refused() -> None:
    for name in ("Origin", "Host", "Sec-Fetch-Site", "Sec-Fetch-Dest", "X-XSRFToken"):
        asked = request()
        asked.headers.add(name, RIGHT[name])
        assert own_page.not_from_our_page(asked), name


def test_a_token_is_seen_wherever_it_is() -> None:
    for asked in (
        request(("Authorization", "token abc")), request(("Authorization", "Bearer abc")),
        request(uri="/capkernel/reveal?token=abc"), request(uri="/capkernel/reveal?x=1&token="),
    ):  # fmt: skip
        # An empty one is dropped when the address is read, and so buys nothing either.
        assert own_page.has_token(asked) or asked.uri.endswith("token=")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("site", "place", "visit"),
    [
        ("same-origin", "document", True),
        ("none", "document", True),
        ("cross-site", "document", False),
        ("same-site", "document", False),
        ("same-origin", "iframe", False),
        ("same-origin", "empty", False),
        (None, None, False),
    ],
)
def test_the_pairing_page_is_for_visits(site: str | None, place: str | None, visit: bool) -> None:
    asked = request(("Sec-Fetch-Site", site), ("Sec-Fetch-Dest", place), method="GET", uri="/capkernel/pair")
    assert own_page.is_own_visit(asked) is visit
