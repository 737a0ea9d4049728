"""The Jupyter server extension: what the card in the page asks, passed on to the kernels that this server launched.

Loaded by a Jupyter server in whose environment capkernel is installed (`etc/jupyter/jupyter_server_config.d`). The only
part that imports jupyter_server. `handlers` has the rules.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "capkernel.viewer.jupyter"}]


def _load_jupyter_server_extension(server: Any) -> None:
    from jupyter_server.utils import url_path_join

    from capkernel.kernel import provisioner
    from capkernel.viewer.jupyter.handlers import ROUTES, Desk
    from capkernel.viewer.jupyter.pairing import Pairing, on_terminal

    desk = Desk(server, Pairing(on_terminal))
    base = server.web_app.settings["base_url"]
    routes = [(url_path_join(base, "capkernel", name), handler, {"desk": desk}) for name, handler in ROUTES.items()]
    server.web_app.add_handlers(".*$", routes)
    # Only now: a kernel that gets a secret has a page that can use it.
    provisioner.hand_over()
