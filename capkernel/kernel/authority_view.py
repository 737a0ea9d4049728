"""How the authority of a cell is shown: one muted line before its outputs, and a key in their metadata.

Rule 1: the metadata key `capkernel` comes from here only; the firewall lets none of a worker's metadata through but the
sizes of images.
Rule 2: a cell that can do nothing shows nothing.
"""

from __future__ import annotations

import html
from typing import Any, Final

from capkernel.kernel.firewall import Output

KEY: Final = "capkernel"
_DISPLAYS: Final = frozenset(("display_data", "update_display_data", "execute_result"))


def line_output(line: str) -> Output:
    """The line as an output of its own. `"kind": "authority"` in its metadata tells it from what the cell displays."""
    bundle = {
        "text/plain": line,
        "text/html": f'<small style="color: var(--jp-ui-font-color2, #767676)">{html.escape(line)}</small>',
    }
    metadata = {KEY: {"authority": line, "kind": "authority"}}
    return Output("display_data", {"data": bundle, "metadata": metadata, "transient": {}})


def with_authority(output: Output, line: str) -> Output:
    """An output of a cell with the line in its metadata, where a notebook keeps it."""
    if not line or output.kind not in _DISPLAYS or KEY in output.content["metadata"]:
        return output
    metadata = {**output.content["metadata"], KEY: {"authority": line}}
    return Output(output.kind, {**output.content, "metadata": metadata})


def message_metadata(line: str) -> dict[str, Any] | None:
    """The same for the message around it, also of kinds that have no metadata in a notebook."""
    return {KEY: {"authority": line}} if line else None
