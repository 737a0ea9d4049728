"""What a cell put out, gathered from Jupyter's messages, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import nbformat
from nbformat.notebooknode import NotebookNode

from capkernel.diagnostics.render_json import MIME_TYPE

Outcome = Literal["ok", "error", "refused"]


def outcome_of(reply: dict[str, Any], outputs: list[NotebookNode]) -> tuple[Outcome, str]:
    """How the cell ended, and why if not well. `outputs`: what the kernel sent for it."""
    if reply["status"] == "ok":
        return "ok", ""
    # Only the kernel can put out this mime type, so a cell cannot pass an exception off as a refusal.
    refused = any(_is_refusal(output.get("data", {}).get(MIME_TYPE)) for output in outputs)
    why = f"{reply.get('ename', 'error')}: {reply.get('evalue', '')}"
    return ("refused" if refused else "error"), why


def _is_refusal(bundle: Any) -> bool:
    # The same type carries the warnings of a cell that ran.
    found = bundle.get("diagnostics") if isinstance(bundle, dict) else None
    return isinstance(found, list) and any(entry.get("severity") == "error" for entry in found)


class CellOutputs:
    """Jupyter's output messages as notebook outputs: streams joined, display ids updated, clear_output obeyed."""

    def __init__(self, watch: Callable[[NotebookNode], None]) -> None:
        self.outputs: list[NotebookNode] = []
        self._watch = watch
        self._by_display_id: dict[str, list[NotebookNode]] = {}
        self._clear_next = False

    def add(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "clear_output":
            if content.get("wait"):
                self._clear_next = True
            else:
                self.outputs.clear()
            return
        display_id = content.get("transient", {}).get("display_id")
        if kind == "update_display_data":
            for shown in self._by_display_id.get(display_id, ()):
                shown["data"], shown["metadata"] = content["data"], content["metadata"]
            return
        if kind not in {"stream", "display_data", "execute_result", "error"}:
            return
        if self._clear_next:
            self.outputs.clear()
            self._clear_next = False
        output: NotebookNode = nbformat.v4.output_from_msg(message)  # type: ignore[no-untyped-call]
        self._watch(output)
        last = self.outputs[-1] if self.outputs else None
        if kind == "stream" and last is not None and last.output_type == "stream" and last.name == output.name:
            last["text"] += output.text
            return
        self.outputs.append(output)
        if display_id is not None:
            self._by_display_id.setdefault(display_id, []).append(output)
