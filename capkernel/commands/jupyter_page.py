"""What `capkernel doctor` says of secrets in the Jupyter page: whether a server of this environment can show them."""

from __future__ import annotations

import importlib.util
import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_core.paths import jupyter_config_path, jupyter_path

from capkernel.bridge.launch import KERNEL_NAME
from capkernel.kernel.provisioner import NAME
from capkernel.wire.shown_text import visible

EXTENSION = "capkernel.viewer.jupyter"
LABEXTENSION = "@capkernel/card"
_GROUP = "jupyter_client.kernel_provisioners"


def line_ambient() -> str:
    """One line of visible text.

    Ambient authority: reads Jupyter's configuration and the kernelspecs.
    """
    if importlib.util.find_spec("jupyter_server") is None:
        return "secrets in the Jupyter page: no Jupyter server in this environment; `capkernel view` shows them"
    wrong = [*_server_problems(), *_kernelspec_problems()]
    if wrong:
        return f"secrets in the Jupyter page: not shown: {'; '.join(wrong)}. `capkernel view` shows them in any case"
    return "secrets in the Jupyter page: shown, on request, by a Jupyter server of this environment"


def provisioner_registered() -> bool:
    """Whether servers of this environment have our provisioner."""
    return bool(entry_points(group=_GROUP, name=NAME))


def _server_problems() -> list[str]:
    found = []
    if not extension_enabled([Path(place) for place in jupyter_config_path()]):
        found.append(f"the server extension is off (jupyter server extension enable {EXTENSION})")
    if not provisioner_registered():
        found.append(f"the provisioner {NAME} is not registered here (pip install capkernel in this environment)")
    if not any((Path(place) / LABEXTENSION / "package.json").is_file() for place in jupyter_path("labextensions")):
        found.append("the card for JupyterLab is not installed here (pip install capkernel in this environment)")
    return found


def _kernelspec_problems() -> list[str]:
    try:
        spec: Any = KernelSpecManager().get_kernel_spec(KERNEL_NAME)
    except NoSuchKernel:
        return ["there is no kernelspec (capkernel install --sys-prefix)"]
    if spec.metadata.get("kernel_provisioner", {}).get("provisioner_name") != NAME:
        where = visible(str(spec.resource_dir))
        return [f"the kernelspec in {where} names no provisioner: remove it, and run capkernel install --sys-prefix"]
    return []


def extension_enabled(places: list[Path]) -> bool:
    """Whether these directories, the first of which wins, switch the server extension on."""
    enabled = False
    for place in reversed(places):
        for file in [*sorted((place / "jupyter_server_config.d").glob("*.json")), place / "jupyter_server_config.json"]:
            try:
                said = json.loads(file.read_text("utf-8"))["ServerApp"]["jpserver_extensions"][EXTENSION]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            enabled = said is True
    return enabled
