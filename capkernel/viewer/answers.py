"""What the page may ask of a session, and the answers as JSON.

Rule 1: every text that comes from a cell goes out through `visible`; code and lists keep their lines.
Rule 2: what is sealed passes through as it is; nothing here can open it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from capkernel.viewer.link import Link
from capkernel.viewer.sessions import Session
from capkernel.wire.shown_text import visible
from capkernel.wire.view import Authority, Question, Step, UsedFunction, ValueLine

AUDIT_LINES: Final = 300
_AUDIT_KEYS: Final = ("time", "who", "cell", "what", "decision", "path", "reason", "authority")


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request. Each path reads what it needs.

    made: how many values the page knows of, -1 for none. key, sealed: base64. seen: of an opened release.
    """

    token: str = ""
    session: str = ""
    handle: str = ""
    key: str = ""
    made: int = -1
    words: str = ""
    who: Literal["", "person"] = ""
    question: str = ""
    allow: bool = False
    seen: str = ""
    sealed: str = ""


class Unasked(Exception):
    """Not a request that has an answer. The text says why; it holds nothing of the request."""


def answer(path: str, asked: Asked, link: Link) -> dict[str, Any]:
    """Of the session at the other end. Raises Unasked, LinkRefused, OSError."""
    made = _ANSWERS.get(path)
    if made is None:
        raise Unasked("there is nothing here")
    return made(link, asked)


def session(found: Session, waiting: int) -> dict[str, Any]:
    """waiting: how many questions it has for the person."""
    where = visible(found.directory)
    return {"name": found.name, "directory": where, "pid": found.pid, "started": found.started, "waiting": waiting}


def _state(link: Link, asked: Asked) -> dict[str, Any]:
    """What is new: the values only when there are others than the page knows of."""
    questions = link.questions()
    newest = link.values(1)
    said: dict[str, Any] = {
        "made": newest.made,
        "total": newest.total,
        "values": None,
        "authority": _authority(link.authority()),
        "questions": [_question(one) for one in questions.questions],
        "denied": [visible(text) for text in questions.denied],
    }
    if asked.made != newest.made:
        found = link.values(words=asked.words)
        said |= {"made": found.made, "total": found.total, "values": [_value(value) for value in found.values]}
    return said


def _lineage(link: Link, asked: Asked) -> dict[str, Any]:
    found = link.lineage(asked.handle)
    return {
        "steps": [_step(step) for step in found.steps],
        "children": [_value(value) for value in found.children],
        "cut": found.cut,
    }


def _reveal(link: Link, asked: Asked) -> dict[str, Any]:
    return {"sealed": _text(link.reveal(asked.handle, _bytes(asked.key)))}


def _audit(link: Link, asked: Asked) -> dict[str, Any]:
    return {"lines": [_audit_line(line) for line in link.audit(AUDIT_LINES, asked.who, asked.words)]}


def _decide(link: Link, asked: Asked) -> dict[str, Any]:
    return {"allowed": link.decide(asked.question, asked.allow, asked.seen)}


def _released(link: Link, asked: Asked) -> dict[str, Any]:
    return {"sealed": _text(link.released(asked.question, _bytes(asked.key)))}


def _secret(link: Link, asked: Asked) -> dict[str, Any]:
    return {"allowed": link.give_secret(asked.question, _bytes(asked.sealed))}


def _forget(link: Link, _: Asked) -> dict[str, Any]:
    return {"count": link.forget_denied()}


_ANSWERS: Final[dict[str, Callable[[Link, Asked], dict[str, Any]]]] = {
    "/api/state": _state,
    "/api/lineage": _lineage,
    "/api/reveal": _reveal,
    "/api/audit": _audit,
    "/api/decide": _decide,
    "/api/released": _released,
    "/api/secret": _secret,
    "/api/forget": _forget,
}


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unasked("not base64") from None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _lines(code: str) -> str:
    return "\n".join(visible(line) for line in code.split("\n"))


def _value(value: ValueLine) -> dict[str, Any]:
    return {
        "handle": value.handle,
        "cell": value.cell,
        "how": value.how,
        "type": visible(value.type),
        "origins": [visible(origin) for origin in value.origins],
        "label": visible(value.label),
        "name": visible(value.name),
        "code": _lines(value.code),
        "codeCell": value.code_cell,
        "parents": list(value.parents),
    }


def _step(step: Step) -> dict[str, Any]:
    return _value(step.value) | {"functions": [_function(function) for function in step.functions]}


def _function(function: UsedFunction) -> dict[str, Any]:
    return {"name": visible(function.name), "cell": function.cell, "source": _lines(function.source)}


def _authority(said: Authority) -> dict[str, Any]:
    return {
        "cell": said.cell,
        "line": visible(said.line),
        "handles": said.handles,
        "held": [visible(text) for text in said.held],
    }


def _question(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "kind": visible(question.kind),
        "cell": question.cell,
        "asked": question.asked,
        "expires": question.expires,
        "needs": question.needs,
        "title": visible(question.title),
        "facts": [[visible(name), visible(text)] for name, text in question.facts],
        "reason": visible(question.reason),
        "handle": question.handle,
        "key": _text(question.key),
    }


def _audit_line(line: str) -> dict[str, Any]:
    entry = json.loads(line)
    return {
        key: visible(entry[key]) if isinstance(entry[key], str) else entry[key] for key in _AUDIT_KEYS if key in entry
    }
