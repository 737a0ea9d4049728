"""Pictures of a value: made anew from pixels, bounded, and never an exception, whatever the bytes are."""

from __future__ import annotations

import base64
import builtins
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image as pillow
from PIL.PngImagePlugin import PngInfo

from capkernel.vault import pictures, render
from capkernel.vault.pictures import of_array, of_bytes
from capkernel.wire.shown import MAX_JSON_BYTES, Bytes, Image, Items, Table, Text, from_json

ROOM = 1_400_000


def written(kind: str, size: tuple[int, int] = (32, 20), mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    pillow.linear_gradient("L").resize(size).convert(mode).save(out, kind, **options)
    return out.getvalue()


def drawn(image: Image | None) -> Any:
    """The PNG that is sent, opened; it holds nothing but pixels."""
    assert image is not None
    data = base64.b64decode(image.png)
    opened = pillow.open(io.BytesIO(data), formats=("PNG",))
    opened.load()
    assert opened.info in ({}, {"transparency": 0})
    return opened


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_each_format_comes_out_as_a_png_of_its_size(kind: str) -> None:
    found = of_bytes(written(kind), ROOM)
    assert found is not None
    assert (found.format, found.width, found.height, found.note) == (kind, 32, 20, "")
    assert drawn(found).size == (32, 20)


def test_what_rides_along_is_not_in_it() -> None:
    riding = b"canary-in-a-comment"
    text = PngInfo()
    text.add_text("Comment", riding.decode())
    originals = [
        written("PNG", pnginfo=text, icc_profile=riding) + riding,
        written("JPEG", comment=riding, icc_profile=riding) + riding,
        written("GIF", comment=riding) + riding,
    ]
    for original in originals:
        assert riding in original
        found = of_bytes(original, ROOM)
        assert found is not None
        assert riding not in base64.b64decode(found.png)
        drawn(found)


def png(width: int, height: int, data: bytes) -> bytes:
    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(data, 9)) + part(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(60_000, 60_000), (2**31 - 1, 1), (20_000, 20_000)])
def test_a_picture_that_unpacks_to_too_much_is_not_unpacked(
    width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import PngImagePlugin

    unpacked: list[str] = []
    before = PngImagePlugin.PngImageFile.load
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", lambda self: (unpacked.append("yes"), before(self))[1])
    of_bytes(png(8, 8, bytes(8 * 25)), ROOM)
    assert unpacked, "the check sees an unpacking"
    unpacked.clear()
    found = of_bytes(png(width, height, bytes(1_000_000)), ROOM)
    assert found is not None
    assert (found.width, found.height, found.png) == (width, height, "")
    assert "not drawn" in found.note
    assert not unpacked


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_cut_and_damaged_bytes_are_said_to_be_so(kind: str) -> None:
    whole = written(kind, (200, 200))
    for data in (whole[: len(whole) // 2], whole[:20], whole[:30] + bytes(len(whole) - 30)):
        found = of_bytes(data, ROOM)
        assert found is not None
        assert found.png == ""
        assert found.note.startswith(("damaged or cut off", "more than"))


def test_every_cut_and_many_flips_of_a_picture_are_survived() -> None:
    whole = written("GIF", (6, 6))
    for at in range(len(whole)):
        assert of_bytes(whole[:at], ROOM) is None or at >= 6
        of_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :], ROOM)


def test_a_large_picture_is_made_smaller_and_says_so() -> None:
    found = of_bytes(written("JPEG", (3000, 2000)), ROOM)
    assert found is not None
    assert (found.width, found.height) == (3000, 2000)
    shown = drawn(found)
    assert shown.width * shown.height <= pictures.SHOWN_PIXELS
    assert found.note == f"drawn as {shown.width} × {shown.height}"


def test_noise_is_made_smaller_until_it_fits() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (900, 900, 3), dtype=np.uint8)
    found = of_array(noise, 400_000)
    assert found is not None
    assert 0 < len(found.png) * 3 // 4 <= 400_000
    assert of_array(noise, 10) == Image("array", 900, 900, note="no room is left for it: not drawn")


def test_only_the_first_frame_of_an_animation() -> None:
    out = io.BytesIO()
    frames = [pillow.new("RGB", (9, 9), colour) for colour in ("red", "blue", "green")]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    found = of_bytes(out.getvalue(), ROOM)
    assert found is not None
    assert found.note == "the first frame of an animation"
    assert drawn(found).convert("RGB").getpixel((4, 4)) == (255, 0, 0)


def test_a_photograph_is_turned_as_it_says() -> None:
    exif = pillow.Exif()
    exif[0x0112] = 6
    found = of_bytes(written("JPEG", (40, 10), exif=exif), ROOM)
    assert found is not None
    assert (found.width, found.height) == (10, 40)
    assert drawn(found).size == (10, 40)


@pytest.mark.parametrize(
    ("array", "mode"),
    [
        (np.zeros((8, 9), np.uint8), "L"),
        (np.ones((8, 9), bool), "L"),
        (np.zeros((8, 9, 1), np.uint8), "L"),
        (np.zeros((8, 9, 3), np.uint8), "RGB"),
        (np.zeros((8, 9, 4), np.uint8), "RGBA"),
        (np.full((8, 9, 3), 0.5), "RGB"),
        (np.zeros((9, 8, 3), np.uint8).transpose(1, 0, 2), "RGB"),
    ],
)
def test_an_array_that_looks_like_a_picture(array: Any, mode: str) -> None:
    shown = drawn(of_array(array, ROOM))
    assert (shown.size, shown.mode) == ((9, 8), mode)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((8, 9)),
        np.zeros((8, 9), np.int64),
        np.zeros((8, 9, 2), np.uint8),
        np.full((8, 9, 3), 2.0),
        np.full((8, 9, 3), np.nan),
        np.zeros((3, 900), np.uint8),
        np.zeros((0, 9, 3), np.uint8),
        np.zeros(9, np.uint8),
        np.zeros((8, 9, 3), complex),
    ],
)
def test_an_array_that_does_not(array: Any) -> None:
    assert of_array(array, ROOM) is None


def test_without_pillow_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "PIL":
            raise ImportError(name)
        return real(name, *rest, **named)

    data = written("PNG")
    monkeypatch.setattr(builtins, "__import__", without)
    for found in (of_bytes(data, ROOM), of_array(np.zeros((8, 8), np.uint8), ROOM)):
        assert found is not None
        assert found.png == ""
        assert "Pillow is not installed" in found.note


# ── in a rendering ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_bytes_carry_the_ways_to_see_them() -> None:
    picture = render.render(written("PNG"))
    assert isinstance(picture, Bytes)
    assert picture.picture is not None
    assert picture.text is None
    text = render.render(b'{"a": 1}')
    assert isinstance(text, Bytes)
    assert isinstance(text.text, Text)
    assert text.text.json is not None
    for other in (b"\xff\xfe", b"a\0b", b""):
        shown = render.render(other)
        assert isinstance(shown, Bytes)
        assert (shown.text, shown.picture) == (None, None)


def test_many_pictures_fit_one_rendering() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (1200, 1200, 3), dtype=np.uint8)
    text = render.rendered([noise] * 20)
    assert len(text) <= MAX_JSON_BYTES
    shown = from_json(text.encode())
    assert isinstance(shown, Items)
    kept = [part.picture for part in shown.items if isinstance(part, Table) and part.picture is not None]
    assert 1 <= len(kept) <= render.MAX_PICTURES
    assert sum(len(picture.png) for picture in kept) * 3 // 4 <= render.PICTURE_BYTES + 8


def test_the_plain_rendering_has_none() -> None:
    shown = from_json(render.rendered_plain(written("PNG")).encode())
    assert isinstance(shown, Bytes)
    assert shown.picture is None
