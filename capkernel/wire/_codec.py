"""The reader and writer under `wire.values`: bounded buffers, the exceptions, the tags.

Rule 1: the reader checks every length against the bytes that are left before it allocates or slices.
Rule 2: exception texts hold places, types and counts, never a value and never a dict key.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

MAX_BYTES = 255 * 1024 * 1024  # of one encoded value; with its header it fits one frame
MAX_DEPTH = 64
MAX_NODES = 10_000_000  # values coded one by one; packed sequences and arrays count as one
MAX_HANDLES = 1024

USES_NUMPY = 1
USES_PANDAS = 2

_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_LITTLE = sys.byteorder == "little"


class Unsendable(TypeError):
    """A value, or a part of one, that no encoding exists for. Names the place inside the value and the type."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path

    def within(self, step: str) -> Unsendable:
        """The same refusal seen from the container: `step` is where the part stands in it."""
        return Unsendable(self.problem, step + self.path)

    def __str__(self) -> str:
        return f"the value{' at ' + self.path if self.path else ''} cannot be sent: {self.problem}"


class BadValue(ValueError):
    """Bytes that are not an encoded value."""


class EncodeValue(Protocol):
    def __call__(self, out: Writer, value: object, depth: int) -> None: ...


class Writer:
    """Bytes of one value in the making."""

    def __init__(self, handle_of: Callable[[object], str | None] | None) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.nodes = 0
        self.flags = 0
        self.handles: dict[str, int] = {}
        self.handle_of = handle_of

    def room(self, count: int) -> None:
        """Refuse now what would not fit."""
        if self.size + count > MAX_BYTES:
            raise Unsendable(f"more than {MAX_BYTES} bytes encoded")

    def raw(self, data: bytes) -> None:
        self.room(len(data))
        self.size += len(data)
        self.parts.append(data)

    def u8(self, number: int) -> None:
        self.raw(bytes((number,)))

    def u32(self, number: int) -> None:
        if number >= 1 << 32:
            raise Unsendable("a part has 2**32 or more elements")
        self.raw(_U32.pack(number))

    def i64(self, number: int) -> None:
        self.raw(_I64.pack(number))

    def sized(self, data: bytes) -> None:
        """A length and that many bytes."""
        self.u32(len(data))
        self.raw(data)

    def text(self, text: str) -> None:
        self.sized(text.encode("utf-8", "surrogatepass"))

    def strings(self, items: Sequence[str | None]) -> None:
        """Many strings as one block: lengths in characters (`MISSING` for None), then all of them as UTF-8."""
        lengths = array("I", [MISSING if item is None else len(item) for item in items])
        self.raw(little(lengths))
        self.text("".join([item for item in items if item is not None]))

    def begin_sized(self) -> tuple[int, int]:
        """Leave room for the size of what follows, which `end_sized` fills in."""
        self.parts.append(b"")
        self.size += _I64.size
        return len(self.parts) - 1, self.size

    def end_sized(self, mark: tuple[int, int]) -> None:
        place, start = mark
        self.parts[place] = _I64.pack(self.size - start)

    def integer(self, number: int) -> None:
        self.sized(number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True))


MISSING = 0xFFFFFFFF


class Reader:
    """A cursor over untrusted bytes."""

    def __init__(self, data: memoryview, classified: Callable[[str], object] | None) -> None:
        self.data = data
        self.at = 0
        self.nodes = 0
        self.handles: tuple[str, ...] = ()
        self.classified = classified

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, count: int) -> memoryview:
        start = self.at
        end = start + count
        if end > len(self.data):
            raise BadValue(f"{count} bytes are announced at offset {start} and {len(self.data) - start} are there")
        self.at = end
        return self.data[start:end]

    def u8(self) -> int:
        return self.take(1)[0]

    def u32(self) -> int:
        number: int = _U32.unpack(self.take(4))[0]
        return number

    def i64(self) -> int:
        number: int = _I64.unpack(self.take(8))[0]
        return number

    def begin_sized(self) -> int:
        """Where what follows ends, by the size before it."""
        size = self.i64()
        if not 0 <= size <= self.left():
            raise BadValue("a size that does not fit")
        return self.at + size

    def end_sized(self, end: int) -> None:
        if self.at != end:
            raise BadValue("a part that is not of its size")

    def sized(self) -> memoryview:
        return self.take(self.u32())

    def text(self) -> str:
        return str(self.sized(), "utf-8", "surrogatepass")

    def integer(self) -> int:
        return int.from_bytes(self.sized(), "little", signed=True)

    def many(self, letter: str, count: int) -> Sequence[Any]:
        """`count` packed numbers of the one-letter struct format."""
        return struct.unpack(f"<{count}{letter}", self.take(count * struct.calcsize("<" + letter)))

    def strings(self, count: int) -> list[str | None]:
        lengths = self.many("I", count)
        whole = self.text()
        made: list[str | None] = []
        at = 0
        for length in lengths:
            if length == MISSING:
                made.append(None)
                continue
            end = at + length
            made.append(whole[at:end])
            at = end
        if at != len(whole):
            raise BadValue("a block of strings does not add up")
        return made


def little(numbers: array[Any]) -> bytes:
    """The bytes of an array in little-endian order."""
    if not _LITTLE:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def type_text(value: object) -> str:
    """`module.Name` of a value's type, for a message."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
