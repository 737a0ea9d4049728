"""Do others have this Jupyter page as well? Then nothing is shown in it before the person has paired."""

from __future__ import annotations

import os
from typing import Any, Final

_COLLABORATION: Final = frozenset(
    {"jupyter_collaboration", "jupyter_server_ydoc", "jupyter_rtc_core", "jupyter_server_documents"}
)


def why_shared(server: Any) -> str:
    """Why the page of this ServerApp counts as shared, "" when it does not."""
    if not server.identity_provider.auth_enabled:
        return "This server asks nobody who they are."
    packages = server.extension_manager.extensions
    loaded = sorted(name for name in _COLLABORATION if name in packages and packages[name].enabled)
    if loaded:
        return f"{loaded[0]} lets several people work in this page."
    # Whether a Hub has shared this server with others, only the Hub knows.
    hub = type(server.identity_provider).__module__.partition(".")[0] == "jupyterhub"
    if hub or os.environ.get("JUPYTERHUB_SERVICE_PREFIX"):
        return "JupyterHub can share this server."
    return ""
