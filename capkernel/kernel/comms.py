"""Comms: what passes between a front end's widgets and the worker when the policy says `output.active`.

Rule 1: a message passes only for a comm that is open here, under a bounded id; at most `MOST_COMMS` are open. The list
is the kernel's own: it answers `comm_info_request`, and when the worker ends, it knows what ended with it.
Rule 2: a message is JSON and a bounded number of buffers. What is sent out counts against its cell's output limit.
Rule 3: nothing here gives a callback authority: it runs while no cell is open, so the broker does nothing for it.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

from capkernel.kernel.firewall import Output, as_json, without_own
from capkernel.wire.worker import COMM_KINDS, Comm, CommKind

MOST_COMMS: Final = 10_000
MOST_BUFFERS: Final = 1_000
MOST_BYTES: Final = 16 * 1024 * 1024  # of one message of a front end
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LONGEST_TARGET: Final = 200


class Comms:
    """The open comms of a session, by id, with their targets."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}

    def info(self, target: str | None) -> dict[str, dict[str, str]]:
        """What `comm_info_reply` says. From any thread."""
        known = list(self._open.items())
        return {comm: {"target_name": name} for comm, name in known if target is None or name == target}

    def from_worker(self, message: Comm, blob: bytes) -> Output | None:
        """What goes out for `message`; None when it does not belong to a comm that may be."""
        if len(message.buffers) > MOST_BUFFERS or not self._belongs(message.kind, message.comm, message.target):
            return None
        data, metadata = as_json(message.data), without_own(message.metadata)
        if data is None or not isinstance(metadata, dict):
            return None
        try:
            buffers = tuple(message.parts(blob))
        except ValueError:
            return None
        content: dict[str, Any] = {"comm_id": message.comm, "data": data}
        if message.kind == "comm_open":
            module = message.module
            content |= {"target_name": message.target, "target_module": module[:_LONGEST_TARGET] if module else None}
        return Output(message.kind, content, metadata, buffers)

    def sent(self, output: Output) -> None:
        """`output` of `from_worker` went out, and was not cut: now the clients know of it, too."""
        if output.kind == "comm_open":
            self._open[output.content["comm_id"]] = output.content["target_name"]
        elif output.kind == "comm_close":
            self._open.pop(output.content["comm_id"], None)

    def from_client(
        self, request: int, parent: dict[str, Any], content: Any, metadata: Any, buffers: Any
    ) -> tuple[Comm, bytes] | None:
        """The message for the worker, and its blob; None for what is no message of a comm that may be.

        parent: the header of the client's message. The rest is what came with it, of any shape.
        """
        kind, parts = parent.get("msg_type"), [bytes(part) for part in buffers or ()]
        if kind not in COMM_KINDS or not isinstance(content, dict) or len(parts) > MOST_BUFFERS:
            return None
        comm, target, data = content.get("comm_id"), content.get("target_name", ""), content.get("data", {})
        if not isinstance(comm, str) or not isinstance(target, str) or not isinstance(data, dict):
            return None
        if not self._belongs(cast(CommKind, kind), comm, target):
            return None
        made = Comm(
            request, cast(CommKind, kind), comm, data, target, None, metadata if isinstance(metadata, dict) else {},
            tuple(map(len, parts)), str(parent.get("msg_id", ""))[:_LONGEST_TARGET],
        )  # fmt: skip
        blob = b"".join(parts)
        try:
            size = len(msgspec.json.encode((data, made.metadata)))
        except (TypeError, ValueError, RecursionError):
            return None
        if size + len(blob) > MOST_BYTES:
            return None
        if kind == "comm_open":
            self._open[comm] = target
        elif kind == "comm_close":
            self._open.pop(comm, None)
        return made, blob

    def clear(self) -> list[str]:
        """The ids that were open; none is any more: their other end is gone."""
        gone = list(self._open)
        self._open.clear()
        return gone

    def _belongs(self, kind: CommKind, comm: str, target: str) -> bool:
        if kind != "comm_open":
            return comm in self._open
        room = len(self._open) < MOST_COMMS and comm not in self._open
        return room and _ID.fullmatch(comm) is not None and 0 < len(target) <= _LONGEST_TARGET
