"""IPython's one way out, bent to our socket: every output of ipykernel goes through `Session.send`.

Nothing is signed and no ZMQ socket exists here; the kernel decides what becomes of a message.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel and IPython leave their methods without annotations)
from __future__ import annotations

from typing import Any, get_args, get_type_hints

from ipykernel.jsonutil import json_clean
from jupyter_client.session import Session

from capkernel.wire.errors import LocalProtocolError
from capkernel.wire.worker import Published
from capkernel.worker.channel import Channel

KINDS = frozenset(get_args(get_type_hints(Published)["kind"]))


class SocketSession(Session):
    """A Session whose messages leave as `Published` frames. `parent` headers carry our request number as `msg_id`."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(key=b"")
        self._channel = channel

    def send(
        self,
        stream: Any,  # noqa: ARG002
        msg_or_type: Any,
        content: Any = None,
        parent: Any = None,
        ident: Any = None,  # noqa: ARG002
        buffers: Any = None,  # noqa: ARG002
        track: bool = False,  # noqa: ARG002
        header: Any = None,  # noqa: ARG002
        metadata: Any = None,
    ) -> dict[str, Any]:
        if isinstance(msg_or_type, dict):
            kind = msg_or_type["header"]["msg_type"]
            content, metadata = msg_or_type["content"], msg_or_type.get("metadata")
            parent = msg_or_type.get("parent_header")
        else:
            kind = msg_or_type
        if kind in KINDS:
            self._publish(request_of(parent), kind, content or {}, metadata or {})
        return {"header": {"msg_type": kind}, "content": content or {}}

    def _publish(self, request: int, kind: Any, content: dict[str, Any], metadata: dict[str, Any]) -> None:
        try:
            self._channel.send(Published(request, kind, content, metadata))
        except LocalProtocolError as problem:
            # Lone surrogates, objects that slipped through, or too much: say what is lost instead of losing the cell.
            try:
                self._channel.send(Published(request, kind, sendable(content), {}))
            except LocalProtocolError:
                note = f"[output of kind {kind} not shown: {problem}]\n"
                self._channel.send(Published(request, "stream", {"name": "stderr", "text": note}))


def request_of(parent: Any) -> int:
    """The request number in a parent message or header; 0 for none."""
    if not isinstance(parent, dict):
        return 0
    identity = parent.get("header", parent).get("msg_id", "")
    return int(identity) if isinstance(identity, str) and identity.isdecimal() else 0


def sendable(value: Any) -> Any:
    """`value` with every text made valid UTF-8 and every odd object made plain."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {str(sendable(str(key))): sendable(item) for key, item in value.items()}
        case list() | tuple():
            return [sendable(item) for item in value]
        case None | bool() | int() | float():
            return value
        case _:
            return sendable(json_clean(value))
