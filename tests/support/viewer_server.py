"""The page that `capkernel view` serves, in a thread of the test; and pages that are not ours."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from capkernel.viewer.web import ViewerServer


@contextmanager
def viewer_server(*find: Any) -> Iterator[ViewerServer]:
    """find: what `ViewerServer` finds sessions with, if not as a person's own would."""
    made = ViewerServer(*find)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield made
    finally:
        made.close()
        thread.join(10)


@contextmanager
def page_elsewhere(body: str) -> Iterator[str]:
    """The address of a page on another port of 127.0.0.1: to a browser, of the same site."""

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = body.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}/"
    finally:
        made.shutdown()
        made.server_close()
        thread.join(10)
