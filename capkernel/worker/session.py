"""IPython's one way out, bent to our socket: every output and comm message of ipykernel goes through `Session.send`.

Nothing is signed and no ZMQ socket exists here; the kernel decides what becomes of a message.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel and IPython leave their methods without annotations)
from __future__ import annotations

from typing import Any, get_args, get_type_hints

from ipykernel.jsonutil import json_clean
from jupyter_client.session import Session
from msgspec.structs import replace

from capkernel.wire.errors import LocalProtocolError
from capkernel.wire.worker import COMM_KINDS, Comm, Published
from capkernel.worker.channel import Channel

REQUEST = "capkernel_request"  # in a header: our number. Its msg_id is the client's, which widgets tell the page
KINDS = frozenset(get_args(get_type_hints(Published)["kind"]))


class SocketSession(Session):
    """A Session whose messages leave as `Published` and `Comm` frames. `parent` headers carry our request number."""

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
        buffers: Any = None,
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
        if kind in COMM_KINDS:
            self._tell(request_of(parent), kind, content or {}, metadata or {}, buffers or ())
        if kind in KINDS:
            self._publish(request_of(parent), kind, content or {}, metadata or {})
        return {"header": {"msg_type": kind}, "content": content or {}}

    def _tell(self, request: int, kind: Any, content: dict[str, Any], metadata: dict[str, Any], buffers: Any) -> None:
        parts = [bytes(memoryview(part).cast("B")) for part in buffers]
        lengths = tuple(len(part) for part in parts)
        made = Comm(
            request, kind, str(content.get("comm_id", "")), content.get("data"), str(content.get("target_name", "")),
            content.get("target_module"), metadata, lengths,
        )  # fmt: skip
        try:
            self._channel.send(made, b"".join(parts))
        except LocalProtocolError:  # lone surrogates, or too much
            try:
                self._channel.send(replace(made, data=sendable(made.data), metadata={}), b"".join(parts))
            except LocalProtocolError as problem:
                note = f"[a widget's message not sent: {problem}]\n"
                self._channel.send(Published(request, "stream", {"name": "stderr", "text": note}))

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
    number = parent.get("header", parent).get(REQUEST, 0)
    return number if type(number) is int else 0


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
