"""Plain data as bytes: the closed codec for everything that enters the vault or is captured by a function.

Rule 1: exact types only. A subclass could carry code or be read differently at the other end, so `type(v) is int`.
Rule 2: `decode` makes values of the closed set and nothing else, whatever the bytes are; its one exception is BadValue.
Rule 3: numpy and pandas are imported only when such a value occurs, so a process that holds but never decodes values
(the keeper) never loads them.
Rule 4: no exception text holds a value or a dict key (a column's label is named: it is what has to be changed).

Layout: `CKV1`, flags (1 byte: numpy, pandas needed), handle table (count, then sized ASCII names), one tagged value.
Handles stand in the table so that the vault can read which ones a value refers to without walking it. Items that are
coded one by one, and a pandas object, have their size before them, so that they can be passed over (`wire.types`).
Equal objects that were shared come back as separate copies; cycles are refused as too deep. Arrays come back C-ordered
and writeable. `bool`, `int`, `str` and so on keep their type; sets may come back in another order.
"""

from __future__ import annotations

import enum
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from capkernel.wire import _scalars
from capkernel.wire._codec import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_HANDLES,
    MAX_NODES,
    USES_NUMPY,
    USES_PANDAS,
    BadValue,
    Reader,
    Unsendable,
    Writer,
    little,
    type_text,
)

__all__ = ["BadValue", "Unsendable", "decode", "encode", "handles", "libraries", "pair", "text_of", "type_name"]

Buffer = bytes | bytearray | memoryview

_MAGIC = b"CKV1"
_PACK_FROM = 8  # shorter sequences are coded one by one: packing would cost more than it saves
EACH, FLOATS, INTS, STRS = range(4)
_SEQUENCES: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"e", frozenset: b"z"}
_DICT, HANDLE, ARRAY, SCALAR, PANDAS = b"d", b"H", b"a", b"n", b"p"


def encode(value: object, *, handle_of: Callable[[object], str | None] | None = None) -> bytes:
    """The bytes of `value`. Raises Unsendable, which names the place inside it and the type that has no encoding.

    `handle_of` gives the vault handle of a Classified object, None for anything else; without it a Classified is
    unsendable like any other object.
    """
    out = Writer(handle_of)
    _put(out, value, 0)
    head = [_MAGIC, bytes((out.flags,)), struct.pack("<H", len(out.handles))]
    head += [bytes((len(name),)) + name.encode("ascii") for name in out.handles]
    return b"".join(head + out.parts)


def decode(data: Buffer, *, classified: Callable[[str], object] | None = None) -> object:
    """The value in `data`, all of it fresh objects. Raises BadValue when it is not one.

    `classified` makes the object for a handle; without it a value that refers to handles is a BadValue.
    """
    try:
        source = opened(data)[1]
        source.classified = classified
        value = _get(source, 0)
        if source.left():
            raise BadValue(f"{source.left()} bytes follow the value")
        return value
    except BadValue:
        raise
    except Exception as problem:  # whatever a constructor says of hostile bytes: it is a bad value, never a crash
        raise BadValue(f"not an encoded value ({type(problem).__name__})") from None


def handles(data: Buffer) -> tuple[str, ...]:
    """The vault handles that the encoded value refers to. Raises BadValue."""
    return opened(data)[1].handles


def libraries(data: Buffer) -> tuple[str, ...]:
    """Which of numpy and pandas decoding needs, by the header's word. Raises BadValue."""
    flags = opened(data)[0]
    return tuple(name for bit, name in ((USES_NUMPY, "numpy"), (USES_PANDAS, "pandas")) if flags & bit)


def type_name(data: Buffer) -> str:
    """The type of the encoded value, by its first tag. Raises BadValue."""
    source = opened(data)[1]
    name = _NAMES.get(bytes(source.take(1)))
    if name is None:
        raise BadValue("an unknown tag")
    return name


def is_text(data: Buffer) -> bool:
    """Whether this is an encoded str, by its first tag; False for what is no encoded value."""
    try:
        return type_name(data) == "str"
    except BadValue:
        return False


def text_of(data: Buffer) -> str | bytes | None:
    """The value when it is a str or bytes, else None. Raises BadValue. Never imports anything."""
    source = opened(data)[1]
    if bytes(source.data[source.at : source.at + 1]) not in (b"s", b"b"):
        return None
    value = decode(data)
    return value if isinstance(value, str | bytes) else None


def pair(left: bytes, right: bytes) -> bytes:
    """The encoded tuple of two encoded values, without decoding them. Raises BadValue, also for values with handles."""
    flags, first = opened(left)
    more, second = opened(right)
    if first.handles or second.handles:
        raise BadValue("values that refer to handles cannot be paired")
    if first.left() + second.left() > MAX_BYTES:
        raise BadValue("the pair is too large")
    head = (
        _MAGIC,
        bytes((flags | more,)),
        b"\0\0",
        _SEQUENCES[tuple],
        struct.pack("<IBq", 2, EACH, first.left() + second.left()),
    )
    return b"".join((*head, left[first.at :], right[second.at :]))


def opened(data: Buffer) -> tuple[int, Reader]:
    """The flags, and a reader that stands at the value."""
    source = Reader(memoryview(data), None)
    if source.left() > MAX_BYTES + (1 << 17):
        raise BadValue("too many bytes for one value")
    if source.take(4) != _MAGIC:
        raise BadValue("the first bytes are not those of an encoded value")
    flags = source.u8()
    if flags & ~(USES_NUMPY | USES_PANDAS):
        raise BadValue("unknown flags")
    count: int = struct.unpack("<H", source.take(2))[0]
    if count > MAX_HANDLES:
        raise BadValue("too many handles")
    found = []
    for _ in range(count):
        name = bytes(source.take(source.u8()))
        if not name or not name.isascii() or not name.isalnum():
            raise BadValue("a handle that is none")
        found.append(name.decode("ascii"))
    if len(set(found)) != len(found):
        raise BadValue("a handle that stands twice in the table")
    source.handles = tuple(found)
    return flags, source


# ── encoding ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _put(out: Writer, value: object, depth: int) -> None:
    out.nodes += 1
    if depth > MAX_DEPTH:
        raise Unsendable(f"nested deeper than {MAX_DEPTH} levels (or containing itself)")
    if out.nodes > MAX_NODES:
        raise Unsendable(f"more than {MAX_NODES} parts; use a numpy array or a DataFrame")
    kind = type(value)
    put = _scalars.PUT.get(kind)
    if put is not None:
        put(out, value)
    elif kind in _SEQUENCES:
        out.raw(_SEQUENCES[kind])
        _put_items(out, tuple(value), depth, "[{}]")  # type: ignore[arg-type]
    elif kind is dict:
        pairs = tuple(value.items())  # type: ignore[attr-defined]
        out.raw(_DICT)
        _put_items(out, tuple([key for key, _ in pairs]), depth, "{{key {}}}")
        _put_items(out, tuple([item for _, item in pairs]), depth, "{{{}}}")
    elif not (_put_handle(out, value) or _put_library_object(out, value, depth)):
        raise Unsendable(_why_not(value))


def _put_items(out: Writer, items: tuple[Any, ...], depth: int, step: str) -> None:
    """A count, how the items are packed, and the items. `step` names a place in an Unsendable, by position only."""
    out.u32(len(items))
    kinds = set(map(type, items)) if len(items) >= _PACK_FROM else set()
    if kinds == {float}:
        out.u8(FLOATS)
        out.raw(little(array("d", items)))
        return
    if kinds == {str}:
        out.u8(STRS)
        out.strings(items)
        return
    if kinds == {int}:
        try:
            packed = array("q", items)
        except OverflowError:
            pass
        else:
            out.u8(INTS)
            out.raw(little(packed))
            return
    out.u8(EACH)
    mark = out.begin_sized()
    for index, item in enumerate(items):
        try:
            _put(out, item, depth + 1)
        except Unsendable as problem:
            raise problem.within(step.format(index)) from None
    out.end_sized(mark)


def _put_handle(out: Writer, value: object) -> bool:
    name = out.handle_of(value) if out.handle_of is not None else None
    if name is None:
        return False
    if not (name.isascii() and name.isalnum() and len(name) < 256):
        raise Unsendable("a Classified with a handle that is none")
    index = out.handles.setdefault(name, len(out.handles))
    if index >= MAX_HANDLES:
        raise Unsendable(f"more than {MAX_HANDLES} different Classified values")
    out.raw(HANDLE)
    out.u32(index)
    return True


def _put_library_object(out: Writer, value: object, depth: int) -> bool:
    """numpy and pandas objects; one exists only where its library was imported."""
    if "numpy" in sys.modules:
        from capkernel.wire import _arrays

        if _arrays.is_array(value):
            out.flags |= USES_NUMPY
            out.raw(ARRAY)
            _arrays.put_array(out, value)
            return True
        if _arrays.is_scalar(value):
            out.flags |= USES_NUMPY
            out.raw(SCALAR)
            _arrays.put_scalar(out, value)
            return True
    if "pandas" in sys.modules:
        from capkernel.wire import _frames

        kind = _frames.kind_of(value)
        if kind is not None:
            out.flags |= USES_NUMPY | USES_PANDAS
            out.raw(PANDAS)
            mark = out.begin_sized()
            _frames.put(out, value, kind, depth, _put)
            out.end_sized(mark)
            return True
    return False


def _why_not(value: object) -> str:
    kind = type_text(value)
    if isinstance(value, type):
        return "a class; only plain data is sent"
    if isinstance(value, enum.Enum):
        return f"an enum member ({kind}); this version sends no session classes: pass its .value"
    if hasattr(type(value), "__dataclass_fields__"):
        return f"a dataclass ({kind}); this version sends no session classes: pass a dict or a tuple of its fields"
    if callable(value):
        return f"a {kind}; functions are sent only as the argument of map, or by name inside it"
    for plain in (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict):
        if isinstance(value, plain):
            return f"a {kind}, a subclass of {plain.__name__}; convert it with {plain.__name__}(...)"
    return f"a value of type {kind}; only plain data, numpy arrays and pandas frames are sent"


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _get(source: Reader, depth: int) -> Any:
    source.nodes += 1
    if depth > MAX_DEPTH or source.nodes > MAX_NODES:
        raise BadValue("nested too deep, or too many parts")
    tag = bytes(source.take(1))
    scalar = _scalars.GET.get(tag)
    if scalar is not None:
        return scalar[1](source)
    get = _NESTED.get(tag)
    if get is None:
        raise BadValue(f"an unknown tag at offset {source.at - 1}")
    return get[1](source, depth)


def _get_items(source: Reader, depth: int) -> Sequence[Any]:
    count = source.u32()
    packing = source.u8()
    if packing == EACH:
        end = source.begin_sized()
        if count > end - source.at:
            raise BadValue("more items are announced than bytes are there")
        items = [_get(source, depth + 1) for _ in range(count)]
        source.end_sized(end)
        return items
    if packing == FLOATS:
        return source.many("d", count)
    if packing == INTS:
        return source.many("q", count)
    if packing == STRS:
        items = source.strings(count)
        if None in items:
            raise BadValue("a missing string")
        return items
    raise BadValue("an unknown packing")


def _get_set(source: Reader, depth: int) -> set[Any]:
    items = _get_items(source, depth)
    made = set(items)
    if len(made) != len(items):
        raise BadValue("a set with equal elements")
    return made


def _get_dict(source: Reader, depth: int) -> dict[Any, Any]:
    keys = _get_items(source, depth)
    items = _get_items(source, depth)
    made = dict(zip(keys, items, strict=True))
    if len(made) != len(keys):
        raise BadValue("a dict with equal keys")
    return made


def _get_handle(source: Reader, _: int) -> object:
    index = source.u32()
    if source.classified is None or index >= len(source.handles):
        raise BadValue("a reference to a handle that is not there")
    return source.classified(source.handles[index])


def _get_array(source: Reader, _: int) -> Any:
    from capkernel.wire import _arrays

    return _arrays.get_array(source)


def _get_scalar(source: Reader, _: int) -> Any:
    from capkernel.wire import _arrays

    return _arrays.get_scalar(source)


def _get_pandas(source: Reader, depth: int) -> Any:
    from capkernel.wire import _frames

    end = source.begin_sized()
    made = _frames.get(source, depth, _get)
    source.end_sized(end)
    return made


_NESTED: dict[bytes, tuple[str, Callable[[Reader, int], Any]]] = {
    b"l": ("list", lambda source, depth: list(_get_items(source, depth))),
    b"t": ("tuple", lambda source, depth: tuple(_get_items(source, depth))),
    b"e": ("set", _get_set),
    b"z": ("frozenset", lambda source, depth: frozenset(_get_set(source, depth))),
    _DICT: ("dict", _get_dict),
    HANDLE: ("Classified", _get_handle),
    ARRAY: ("numpy array", _get_array),
    SCALAR: ("numpy scalar", _get_scalar),
    PANDAS: ("pandas object", _get_pandas),
}
_NAMES: dict[bytes, str] = {
    **{tag: name for tag, (name, _) in _scalars.GET.items()},
    **{tag: name for tag, (name, _) in _NESTED.items()},
}
