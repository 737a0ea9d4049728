"""Classified: a secret a cell can compute with and never see.

In the worker it is a random 128-bit number and a static type; the value is in the vault. No operation here waits for
the vault, and none answers anything, so success, failure, time and size cannot be seen.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Never, TypeVar, final

from capkernel.api import membrane
from capkernel.wire.values import encode
from capkernel.wire.worker import Classify, MapClassified, MaskShown, ZipClassified

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@final
class Classified(Generic[T_co]):
    """A secret of type T. Shown as `Classified[str](***)`. Lives across cells.

    ``key = fs.read_classified(".env"); n = key.map(str.strip).map(len)``
    """

    __slots__ = ("_handle", "_type")
    _handle: str
    _type: str

    def __init__(self, _: Never, /) -> None:
        raise TypeError("a Classified value comes from read_classified, classify or map, never from a constructor")

    def map(self, f: Callable[[T_co], U], /) -> Classified[U]:
        """Apply a pure function inside the vault. Returns at once; a failure there is seen by the person only."""
        return _map(self, f, flat=False)

    def flat_map(self, f: Callable[[T_co], Classified[U]], /) -> Classified[U]:
        """Like `map`, for a function that returns a Classified."""
        return _map(self, f, flat=True)

    def zip(self, other: Classified[U], /) -> Classified[tuple[T_co, U]]:
        """Both values as one pair."""
        if type(other) is not Classified:
            raise TypeError(f"zip takes a Classified, got {type(other).__name__}")
        made = adopt(secrets.token_hex(16))
        membrane.current().post(ZipClassified(made._handle, self._handle, other._handle, made._type))
        return made

    def __repr__(self) -> str:
        # Whoever shows a mask (print, display, a log, a traceback) asks for its text, so here.
        membrane.current().post(MaskShown(self._handle))
        return f"Classified[{self._type}](***)"

    def __format__(self, _spec: str, /) -> str:
        return repr(self)  # the spec could not change what is not there

    def __copy__(self) -> Classified[T_co]:
        return self

    def __deepcopy__(self, _memo: object) -> Classified[T_co]:
        return self

    def __reduce__(self) -> Never:
        raise TypeError("a Classified value cannot be pickled: it exists only in its session's vault")


_NO_OBSERVABLE = """
    bool len iter contains lt le gt ge eq ne hash int float complex index bytes getitem call
    add radd sub rsub mul rmul truediv rtruediv floordiv mod rmod pow neg pos abs
""".split()


def _refuse(*_: object) -> Never:
    raise TypeError("a Classified value has no truth value, order, length, equality, hash or arithmetic: use .map(...)")


# Set from outside the class, so that the checker and completion see only what a cell may use.
for _name in _NO_OBSERVABLE:
    setattr(Classified, f"__{_name}__", _refuse)


_dropped: deque[str] = deque()


def _note_drop(gone: Classified[Any]) -> None:
    # Called at any point of any thread: it appends to a list, and nothing else.
    handle = getattr(gone, "_handle", None)
    if handle is not None:
        _dropped.append(handle)


setattr(Classified, "__del__", _note_drop)


def take_dropped(most: int) -> tuple[str, ...]:
    """Worker side only: the handles of values that nothing refers to any more, each once, at most so many."""
    return tuple(_dropped.popleft() for _ in range(min(most, len(_dropped))))


def classify(value: T, /, *, label: str | None = None) -> Classified[T]:
    """Move plain data into the vault. What is not plain data is refused here, with the place in it that is not."""
    blob = encode(value)
    made = adopt(secrets.token_hex(16))
    membrane.current().post(Classify(made._handle, "" if label is None else str(label), made._type), blob)
    return made


def adopt(handle: str) -> Classified[Any]:
    """A Classified for a handle the vault knows or will know. Worker side only; a made-up handle designates nothing."""
    made: Classified[Any] = object.__new__(Classified)
    made._handle = handle
    made._type = membrane.current().mask_type()
    return made


def _map(source: Classified[Any], f: Callable[[Any], Any], *, flat: bool) -> Classified[Any]:
    function, captured = membrane.current().describe(f)
    made = adopt(secrets.token_hex(16))
    membrane.current().post(MapClassified(made._handle, source._handle, function, flat, made._type), captured)
    return made
