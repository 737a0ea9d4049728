"""The static type of a captured value, as far as plain data can be described, and whether encoded bytes agree with it.

Rule 1: closed. A type is one of NAMES, with arguments where it is a container; whatever else a checker knows is `any`,
which everything agrees with.
Rule 2: nothing is decoded. Tags, counts and dtype texts are read; text, numbers and arrays are passed over by their
sizes. At most MAX_LOOKED_AT parts of one set of captured values are looked at; a longer container is believed beyond.
Rule 3: what mypy lets a name of a type hold agrees with it: an int in a float, a numpy scalar in the number it derives
from. So an honest cell's value never fails.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from capkernel.wire._codec import BadValue, Reader
from capkernel.wire._scalars import SKIP
from capkernel.wire.values import ARRAY, EACH, FLOATS, HANDLE, INTS, PANDAS, SCALAR, STRS, opened

MAX_LOOKED_AT: Final = 20_000
MAX_DEPTH: Final = 6  # of a description; deeper parts are `any`

_SCALARS: Final[dict[str, tuple[bytes, ...]]] = {
    # name → the scalar tags that a name of that type can hold
    "None": (b"N",),
    "bool": (b"Y", b"?"),
    "int": (b"Y", b"?", b"i", b"I"),
    "float": (b"Y", b"?", b"i", b"I", b"f"),
    "complex": (b"Y", b"?", b"i", b"I", b"f", b"c"),
    "str": (b"s",),
    "bytes": (b"b", b"B"),  # mypy may promote a bytearray
}
_NUMPY_KINDS: Final[dict[str, str]] = {"bool": "b", "int": "biu", "float": "biuf", "complex": "biufc"}
_CONTAINERS: Final = {"list": b"l", "tuple": b"t", "set": b"e", "frozenset": b"z", "dict": b"d"}
_PANDAS_KINDS: Final = {"DataFrame": 0, "Series": 1}
NAMES: Final = frozenset((*_SCALARS, *_CONTAINERS, *_PANDAS_KINDS, "ndarray", "union", "items", "any"))


class TypeNode(msgspec.Struct, frozen=True, array_like=True):
    """`list[int]` is ("list", (int,)); `dict` has two arguments, `tuple` one per item, `union` its alternatives. A
    tuple of any length is ("tuple", (("items", (int,)),)). No arguments: they are not known."""

    name: str
    args: tuple[TypeNode, ...] = ()


ANY: Final = TypeNode("any")


def union(nodes: list[TypeNode]) -> TypeNode:
    """One of these. `any` when one of them is."""
    distinct = list(dict.fromkeys(nodes))
    if not distinct or ANY in distinct:
        return ANY
    return distinct[0] if len(distinct) == 1 else TypeNode("union", tuple(distinct))


def shown(node: TypeNode) -> str:
    """As a person writes it."""
    if node.name == "union":
        return " | ".join(shown(item) for item in node.args)
    if node.name == "items":
        return f"{shown(node.args[0])}, ..." if node.args else "..."
    return f"{node.name}[{', '.join(map(shown, node.args))}]" if node.args else node.name


class Mismatch(Exception):
    """A captured value is not of its static type. Names the capture and the type, never the value."""


def check_captured(captured: bytes, expected: dict[tuple[str, str], TypeNode]) -> None:
    """Compare captured data (`wire.vault.FunctionBundle` says its shape) with static types by (group, name); the group
    is "globals", "closure", or the function's id for one of "closures". A name without a type may hold anything.

    Raises Mismatch, or BadValue for bytes that are not captured data.
    """
    try:
        look = _Look(opened(captured)[1])
        for group in look.dict_of_str():
            if group in ("globals", "closure", "applied"):
                look.names(group, expected)
            elif group == "closures":
                for function in look.dict_of_str():
                    look.names(function, expected)
            else:
                raise BadValue("captured data of another shape")
        if look.source.left():
            raise BadValue("bytes follow the captured data")
    except (UnicodeDecodeError, RecursionError):
        raise BadValue("not captured data") from None


class _Look:
    """A walk over one encoded value."""

    def __init__(self, source: Reader) -> None:
        self.source = source
        self._left = MAX_LOOKED_AT

    def dict_of_str(self) -> list[str]:
        """The keys of a dict whose keys are text, in order; the reader then stands before the first value."""
        if self._tag() != _CONTAINERS["dict"]:
            raise BadValue("captured data that is no dict")
        keys = self._keys()
        count, packing, _ = self._head()
        if count != len(keys) or (packing != EACH and keys):
            # Packed values are numbers or texts, never a dict; names of plain packed values are handled by `names`.
            raise BadValue("captured data of another shape")
        return keys

    def names(self, group: str, expected: dict[tuple[str, str], TypeNode]) -> None:
        """A dict of names; every value is compared."""
        if self._tag() != _CONTAINERS["dict"]:
            raise BadValue("captured names that are no dict")
        keys = self._keys()
        start = self.source.at
        count, packing, _ = self._head()
        if count != len(keys):
            raise BadValue("a dict with another number of values than keys")
        for key in keys:
            node = expected.get((group, key), ANY)
            if packing != EACH:
                agrees = _packed_agrees(packing, node)
            else:
                agrees = self.agrees(node)
            if not agrees:
                raise Mismatch(f"`{key}` is not {shown(node)}")
        if packing != EACH:
            self.source.at = start
            self._skip_items()

    def agrees(self, node: TypeNode, depth: int = 0) -> bool:
        """Whether the value at the reader is of the type; the reader then stands behind it."""
        if depth > 2 * MAX_DEPTH or self._left <= 0:
            self._skip()
            return True
        self._left -= 1
        if node.name == "union":
            at = self.source.at
            for item in node.args:
                self.source.at = at
                if self.agrees(item, depth + 1):
                    return True
            return False
        if node.name == "any":
            self._skip()
            return True
        at = self.source.at
        tag = self._tag()
        if tag == SCALAR:
            agrees = self._scalar_agrees(node)
        elif tag == ARRAY:
            agrees = node.name == "ndarray"
        elif tag == PANDAS:
            agrees = self._pandas_agrees(node)
        elif node.name in _SCALARS:
            agrees = tag in _SCALARS[node.name]
        elif node.name in _CONTAINERS:
            if tag != _CONTAINERS[node.name]:
                return False
            return self._mapping_agrees(node, depth) if node.name == "dict" else self._items_agree(node, depth)
        else:
            agrees = False
        self.source.at = at
        self._skip()
        return agrees

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _tag(self) -> bytes:
        return bytes(self.source.take(1))

    def _head(self) -> tuple[int, int, int]:
        """Count, packing and, for items coded one by one, where they end."""
        count, packing = self.source.u32(), self.source.u8()
        end = 0
        if packing == EACH:
            end = self.source.begin_sized()
            if count > end - self.source.at:
                raise BadValue("items that do not fit")
        return count, packing, end

    def _keys(self) -> list[str]:
        count, packing, end = self._head()
        if packing == STRS:
            found = self.source.strings(count)
            return [name for name in found if name is not None]
        names: list[str] = []
        if packing == EACH:
            for _ in range(count):
                if self._tag() != b"s":
                    raise BadValue("captured names that are no text")
                names.append(self.source.text())
            if self.source.at != end:
                raise BadValue("items of another size")
            return names
        raise BadValue("captured names that are no text")

    def _items_agree(self, node: TypeNode, depth: int) -> bool:
        wanted = node.args
        at = self.source.at
        count, packing, end = self._head()
        each = wanted[0] if wanted else ANY
        if node.name == "tuple" and wanted and each.name != "items":
            if count != len(wanted):
                return False
            each = union(list(wanted)) if packing != EACH else ANY
            if packing == EACH:
                return all(self.agrees(item, depth + 1) for item in wanted)
        elif each.name == "items":
            each = each.args[0] if each.args else ANY
        if packing != EACH:
            self.source.at = at
            self._skip_items()
            return count == 0 or _packed_agrees(packing, each)
        if each is not ANY and each.name != "any":
            for _ in range(count):
                if self._left <= 0:
                    break
                if not self.agrees(each, depth + 1):
                    return False
        self.source.at = end
        return True

    def _mapping_agrees(self, node: TypeNode, depth: int) -> bool:
        key, value = node.args if len(node.args) == 2 else (ANY, ANY)
        sequence = TypeNode("list", (key,)), TypeNode("list", (value,))
        return self._items_agree(sequence[0], depth) and self._items_agree(sequence[1], depth)

    def _scalar_agrees(self, node: TypeNode) -> bool:
        kind = self.source.u8()
        if kind == 0:
            return node.name == "str"
        if kind == 1:
            return node.name == "bytes"
        dtype = self.source.text()
        if node.name == "ndarray":  # numpy gives a scalar where its stubs say an array
            return True
        return dtype[1:2] in _NUMPY_KINDS.get(node.name, "")

    def _pandas_agrees(self, node: TypeNode) -> bool:
        self.source.begin_sized()
        return self.source.u8() == _PANDAS_KINDS.get(node.name, -1)

    # ── passing over ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _skip(self) -> None:
        tag = self._tag()
        if tag == _CONTAINERS["dict"]:
            self._skip_items()
            self._skip_items()
        elif tag in _CONTAINERS.values():
            self._skip_items()
        elif tag == HANDLE:
            self.source.u32()
        elif tag == ARRAY:
            self.source.sized()
            self.source.take(8 * self.source.u8())
            self.source.sized()
        elif tag == SCALAR:
            self._skip_numpy_scalar()
        elif tag == PANDAS:
            self.source.at = self.source.begin_sized()
        elif tag in SKIP:
            SKIP[tag](self.source)
        else:
            raise BadValue("an unknown tag")

    def _skip_numpy_scalar(self) -> None:
        if self.source.u8() in (0, 1):
            self.source.sized()
            return
        size = re.fullmatch(r"[|<>][biufcmM](\d{1,2})(?:\[.{1,12}\])?", self.source.text())
        if size is None:
            raise BadValue("a dtype outside the closed set")
        self.source.take(int(size[1]))

    def _skip_items(self) -> None:
        count, packing, end = self._head()
        if packing == EACH:
            self.source.at = end
        elif packing in (FLOATS, INTS):
            self.source.take(8 * count)
        elif packing == STRS:
            self.source.take(4 * count)
            self.source.sized()
        else:
            raise BadValue("an unknown packing")


def _packed_agrees(packing: int, node: TypeNode) -> bool:
    tag = {FLOATS: b"f", INTS: b"i", STRS: b"s"}.get(packing, b"")
    if node.name == "union":
        return any(_packed_agrees(packing, item) for item in node.args)
    return node.name == "any" or tag in _SCALARS.get(node.name, ())
