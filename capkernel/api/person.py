"""What only the person gives: a secret, and a secret's value.

Both wait until the person has decided, in `capkernel view` or `capkernel approve`, and raise CapabilityDenied when the
answer is no or there is none in time. The time that the cell may take stands still meanwhile; an interrupt ends the
wait.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from capkernel.api import membrane
from capkernel.api.classified import Classified, adopt
from capkernel.wire.values import decode
from capkernel.wire.worker import AskRelease, AskSecret

T = TypeVar("T")


def request_secret(name: str, /, *, label: str | None = None) -> Classified[str]:
    """The secret of this name, from the policy or typed by the person. Asked for once in a session.

    ``key = request_secret("API_KEY", label="to read the weather")``
    """
    said = "" if label is None else _text(label, "a label")
    handle, _ = membrane.current().call(AskSecret(_text(name, "the name of a secret"), said))
    return adopt(handle)


def request_declassify(secret: Classified[T], reason: str, /) -> T:
    """The value itself, when the person has seen exactly it and allows it. For small results: at most 4 KiB, of
    Python's own types.

    ``rows = request_declassify(table.map(len), "to say how many customers there are")``
    """
    if type(secret) is not Classified:
        raise TypeError(f"request_declassify takes a Classified, got {type(secret).__name__}")
    asked = AskRelease(cast("Classified[Any]", secret)._handle, _text(reason, "a reason"))
    return cast("T", decode(membrane.current().call(asked)[1]))


def _text(value: object, what: str) -> str:
    if type(value) is not str:
        raise TypeError(f"{what} is a str, got {type(value).__name__}")
    return value
