"""A classified value as the person may see it: a closed tree of inert text, as JSON, and how it is sealed.

Rule 1: everything in it is data for a text node, or a PNG that was made from pixels (`Image`). There is no markup, no
address and no type that a reader must build.
Rule 2: it is bounded when it is made (`vault.render`) and decoded into these types only, by every reader.

It travels sealed to a key of the reader: HPKE base mode of RFC 9180 with X25519, HKDF-SHA256 and AES-256-GCM, `info` as
`seal_info` says, the encapsulated key (32 bytes) before the ciphertext.
"""

from __future__ import annotations

import msgspec

MAX_JSON_BYTES = 3_000_000  # of one rendering
KEY_BYTES = 32
MAX_RELEASED = 4096  # bytes of the encoding of a value that a person may release
MAX_TYPED = 8192  # bytes of a secret that a person types, as UTF-8


def seal_info(handle: str) -> bytes:
    """Binds a sealed rendering to the handle it was asked for."""
    return b"capkernel-view-1|" + handle.encode("ascii")


def release_name(handle: str) -> str:
    """In place of the handle, for `seal_info`: what would be released of it, which is no rendering."""
    return f"release|{handle}"


def secret_name(handle: str) -> str:
    """In place of the handle, for `seal_info`: what a person types, on its way to the vault."""
    return f"secret|{handle}"


class Text(msgspec.Struct, tag="text", tag_field="kind", frozen=True, omit_defaults=True):
    """`length` characters, of which `text` holds the first. `json`: the same as a tree, when it is an object or a list
    of JSON; numbers keep the digits they are written with."""

    text: str
    length: int
    json: Shown | None = None


class Number(msgspec.Struct, tag="number", tag_field="kind", frozen=True):
    """`text` is the number as Python writes it: JSON's own numbers would lose digits."""

    type: str
    text: str


class Bool(msgspec.Struct, tag="bool", tag_field="kind", frozen=True):
    value: bool


class Nothing(msgspec.Struct, tag="none", tag_field="kind", frozen=True):
    """None."""


class Image(msgspec.Struct, tag="image", tag_field="kind", frozen=True, omit_defaults=True):
    """A picture of `width` × `height` pixels (0 × 0 when not known). format: what it was, "array" for an array.

    png: base64 of a PNG that was made anew from its pixels, maybe smaller; "" when it is not drawn. `note` says why, or
    what is missing.
    """

    format: str
    width: int
    height: int
    png: str = ""
    note: str = ""


class Bytes(msgspec.Struct, tag="bytes", tag_field="kind", frozen=True, omit_defaults=True):
    """`length` bytes, of which `hex` holds the first. Other ways to see them: `text` when they are UTF-8, and `picture`
    when they are one."""

    type: str
    hex: str
    length: int
    text: Text | None = None
    picture: Image | None = None


class Atom(msgspec.Struct, tag="atom", tag_field="kind", frozen=True):
    """A value without parts that is no number: a date, a UUID, a range, a time stamp."""

    type: str
    text: str


class Items(msgspec.Struct, tag="items", tag_field="kind", frozen=True):
    """A list, tuple or set of `count` items, of which `items` holds the first."""

    type: str
    items: tuple[Shown, ...]
    count: int


class Pairs(msgspec.Struct, tag="pairs", tag_field="kind", frozen=True):
    """A dict of `count` entries, of which `keys` and `items` hold the first."""

    keys: tuple[Shown, ...]
    items: tuple[Shown, ...]
    count: int


class Table(msgspec.Struct, tag="table", tag_field="kind", frozen=True, omit_defaults=True):
    """The first rows and columns of an array or a frame of this `shape`. `index` stands before the rows. `picture`: an
    array that looks like one, for who wants to see it so."""

    type: str
    shape: tuple[int, ...]
    columns: tuple[str, ...]
    index: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    picture: Image | None = None


class Cut(msgspec.Struct, tag="cut", tag_field="kind", frozen=True):
    """A part that is not shown, because there is too much."""


class Poison(msgspec.Struct, tag="poison", tag_field="kind", frozen=True):
    """There is no value. `reason`: an exception type or a limit; `place`: a cell and line."""

    reason: str
    place: str = ""


class Pending(msgspec.Struct, tag="pending", tag_field="kind", frozen=True):
    """The value is still being computed."""


class Unknown(msgspec.Struct, tag="unknown", tag_field="kind", frozen=True):
    """The vault has no such value (any more)."""


Shown = Text | Number | Bool | Nothing | Bytes | Image | Atom | Items | Pairs | Table | Cut | Poison | Pending | Unknown


class Release(msgspec.Struct, frozen=True):
    """The exact value that a release would give to the cell, for the person who decides.

    text: the whole value as a Python expression in printable ASCII, everything else escaped. type: of the value itself.
    length: bytes of its encoding, at most MAX_RELEASED. seen: what `wire.view.Decide` must bring to allow it. problem:
    why there is nothing to release ("" when there is); text and seen are empty then.
    """

    text: str = ""
    type: str = ""
    length: int = 0
    seen: str = ""
    problem: str = ""


_encoder = msgspec.json.Encoder()
_release: msgspec.json.Decoder[Release] = msgspec.json.Decoder(Release)
_decoder: msgspec.json.Decoder[Shown] = msgspec.json.Decoder(Shown)


def to_json(shown: Shown) -> bytes:
    return _encoder.encode(shown)


def release_to_json(release: Release) -> bytes:
    return _encoder.encode(release)


def release_from_json(data: bytes) -> Release:
    """Raises ValueError for anything that is none, without quoting it."""
    try:
        return _release.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise ValueError("not a rendering of a release") from None


def from_json(data: bytes) -> Shown:
    """Raises ValueError for anything that is no rendering, without quoting it."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise ValueError("not a rendering of a value") from None
