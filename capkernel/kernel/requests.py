"""The closed list of requests: what their content must be, and how everything else is answered.

Rule 1: no request is left without an answer. Of an unknown type, malformed, or one that a handler of ours stumbles
over: the reply is an error. What is no request (a comm message) is dropped.
Rule 2: a handler sees content of the types below and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

Handler = Callable[[Any, Any, dict[str, Any]], Awaitable[None]]
Reply = Callable[[Any, Any, dict[str, Any], str, dict[str, Any]], None]  # stream, ident, parent, kind, content

REFUSED = (
    "debug_request", "usage_request", "create_subshell_request", "delete_subshell_request", "list_subshell_request",
)  # fmt: skip
ON_CONTROL = frozenset(
    (
        "kernel_info_request",
        "connect_request",
        "comm_info_request",
        "interrupt_request",
        "shutdown_request",
        "capkernel_state_request",
    )
)
"""The control channel is served by a thread of its own; what belongs to the session's loop is not asked there."""
_LONGEST_NAME = 100

# Fields a handler relies on; the ones in the second dict may be absent.
_NEEDED: dict[str, dict[str, tuple[type, ...]]] = {
    "execute_request": {"code": (str,)},
    "complete_request": {"code": (str,), "cursor_pos": (int, type(None))},
    "inspect_request": {"code": (str,), "cursor_pos": (int,)},
    "is_complete_request": {"code": (str,)},
    "history_request": {"hist_access_type": (str,), "output": (bool,), "raw": (bool,)},
    "shutdown_request": {"restart": (bool,)},
    "capkernel_check_request": {"code": (str,)},
}
_OPTIONAL: dict[str, dict[str, tuple[type, ...]]] = {
    "inspect_request": {"detail_level": (int,)},
    "comm_info_request": {"target_name": (str, type(None))},
    "history_request": {
        "session": (int, type(None)), "start": (int, type(None)), "stop": (int, type(None)), "n": (int, type(None)),
        "pattern": (str, type(None)), "unique": (bool,),
    },
}  # fmt: skip
_CLOSED = frozenset(("history_request",))  # whose content is passed on as arguments


class Requests(dict[str, Handler]):
    """The handlers of one channel. `get` never gives None: what is not in the list is refused."""

    def __init__(self, handlers: dict[str, Handler], reply: Reply) -> None:
        self._reply = reply
        super().__init__({kind: self._guarded(kind, handler) for kind, handler in handlers.items()})
        for kind in REFUSED:
            self[kind] = self.refuse

    def get(self, kind: object, default: object = None) -> Handler:  # noqa: ARG002
        found = super().get(kind) if isinstance(kind, str) else None
        return self.refuse if found is None else found

    def _guarded(self, kind: str, handler: Handler) -> Handler:
        async def guarded(stream: Any, ident: Any, parent: dict[str, Any]) -> None:
            if not kind.endswith("_request"):  # a comm message: it has no reply, and its handler looks for itself
                with contextlib.suppress(Exception):
                    await handler(stream, ident, parent)
                return
            problem = malformed(kind, parent.get("content"))
            if problem:
                self._reply(stream, ident, parent, kind, error("MalformedRequest", problem))
                return
            try:
                await handler(stream, ident, parent)
            except Exception as trouble:  # only its type: its text may hold what a cell or a person wrote
                why = f"capkernel failed on this request ({type(trouble).__name__})"
                self._reply(stream, ident, parent, kind, error("RequestFailed", why))

        return guarded

    async def refuse(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        kind = parent["header"].get("msg_type")
        if isinstance(kind, str) and kind.endswith("_request") and len(kind) <= _LONGEST_NAME:
            why = f"capkernel has no {kind.removesuffix('_request')} of this kind"
            self._reply(stream, ident, parent, kind, error("NotSupported", why))


def malformed(kind: str, content: object) -> str:
    """What is wrong with the content of a request; "" when nothing is."""
    if not isinstance(content, dict):
        return "the content of a message is an object"
    needed, optional = _NEEDED.get(kind, {}), _OPTIONAL.get(kind, {})
    for name, kinds in needed.items():
        if name not in content or type(content[name]) not in kinds:
            return f"{name} must be {_words(kinds)}"
    for name, kinds in optional.items():
        if name in content and type(content[name]) not in kinds:
            return f"{name} must be {_words(kinds)}"
    if kind in _CLOSED and not content.keys() <= needed.keys() | optional.keys():
        return "there is a field that this request does not have"
    return ""


def error(name: str, value: str) -> dict[str, Any]:
    return {"status": "error", "ename": name, "evalue": value, "traceback": [f"{name}: {value}"]}


def _words(kinds: tuple[type, ...]) -> str:
    words = {str: "text", int: "a number", bool: "true or false", type(None): "null"}
    return " or ".join(words[kind] for kind in kinds)
