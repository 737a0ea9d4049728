"""A Jupyter server with our extension whose checks of a request are switched off, to see what they stop."""

from __future__ import annotations

import sys
from typing import Any

from jupyter_server.auth import User
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.serverapp import main

from capkernel.viewer.jupyter import handlers, own_page, pairing


async def _anybody(self: Any, *_: Any, **__: Any) -> None:
    self._refusal = None
    self.current_user = self._jupyter_current_user = User("anybody")


def _unprotect() -> None:
    own_page.has_token = lambda _request: False
    own_page.not_from_our_page = lambda _request: ""
    own_page.is_own_visit = lambda _request: True
    handlers._Handler.prepare = _anybody  # type: ignore[method-assign]
    handlers._Handler._check_xsrf = lambda _self: None  # type: ignore[method-assign]
    JupyterHandler.check_xsrf_cookie = lambda _self: None  # type: ignore[method-assign]
    pairing.Pairing.holds = lambda *_: True  # type: ignore[method-assign]


if __name__ == "__main__":
    _unprotect()
    sys.exit(main())  # type: ignore[no-untyped-call]
