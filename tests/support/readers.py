"""An authorizer for tests: some people may look at kernels, and not run anything on them."""

from __future__ import annotations

from typing import Any

from jupyter_server.auth import Authorizer

HEADER = "X-Only-Reads"  # a request of such a person


class Readers(Authorizer):
    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        return action == "read" or HEADER not in handler.request.headers
