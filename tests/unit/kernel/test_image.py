"""Images keep what is drawn and lose what rides along."""

from __future__ import annotations

import io
import zlib

import pytest
from PIL import Image

from capkernel.kernel.image import MOST_SIDE, clean_jpeg, clean_png

MARK = b"<script>alert(1)</script>"


def picture(mode: str = "RGB") -> Image.Image:
    drawn = Image.new(mode, (40, 30))
    for x in range(40):
        drawn.putpixel((x, x % 30), x if mode in ("L", "P") else (x * 6, 90, 200, 128)[: len(mode)])
    return drawn


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pixels(raw: bytes) -> bytes:
    return Image.open(io.BytesIO(raw)).convert("RGBA").tobytes()


def part(kind: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")


def with_part(png: bytes, added: bytes) -> bytes:
    return png[:33] + added + png[33:]


PNGS = {mode: saved(picture(mode), "png") for mode in ("RGB", "RGBA", "L", "P")}
JPEGS = {
    "plain": saved(picture(), "jpeg"),
    "progressive": saved(picture(), "jpeg", progressive=True),
    "grey": saved(picture("L"), "jpeg"),
    "four colours": saved(picture("RGB").convert("CMYK"), "jpeg"),
}


@pytest.mark.parametrize("mode", PNGS)
def test_a_png_looks_the_same(mode: str) -> None:
    cleaned = clean_png(PNGS[mode])
    assert cleaned is not None
    assert pixels(cleaned) == pixels(PNGS[mode])
    assert clean_png(cleaned) == cleaned


@pytest.mark.parametrize("kind", JPEGS)
def test_a_jpeg_looks_the_same(kind: str) -> None:
    cleaned = clean_jpeg(JPEGS[kind])
    assert cleaned is not None
    assert pixels(cleaned) == pixels(JPEGS[kind])
    assert clean_jpeg(cleaned) == cleaned


@pytest.mark.parametrize("kind", [b"tEXt", b"iTXt", b"zTXt", b"eXIf", b"iCCP", b"acTL", b"ruSt"])
def test_what_rides_along_in_a_png_is_dropped(kind: bytes) -> None:
    cleaned = clean_png(with_part(PNGS["RGB"], part(kind, MARK)))
    assert cleaned == clean_png(PNGS["RGB"])


def test_what_follows_an_image_is_dropped() -> None:
    assert clean_png(PNGS["RGB"] + MARK) == clean_png(PNGS["RGB"])
    assert clean_jpeg(JPEGS["plain"] + MARK) == clean_jpeg(JPEGS["plain"])


def test_comments_and_exif_of_a_jpeg_are_dropped() -> None:
    exif = Image.Exif()
    exif[0x010E] = MARK.decode()
    raw = saved(picture(), "jpeg", comment=MARK, exif=exif)
    assert raw.count(MARK) == 2
    cleaned = clean_jpeg(raw)
    assert cleaned is not None
    assert MARK not in cleaned
    assert pixels(cleaned) == pixels(raw)


def header(width: int, height: int) -> bytes:
    return part(b"IHDR", width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0]))


@pytest.mark.parametrize("size", [(60_000, 60_000), (MOST_SIDE + 1, 1), (0, 5), (2**31, 2**31), (9_000, 9_000)])
def test_an_image_larger_than_a_page_can_bear_is_dropped(size: tuple[int, int]) -> None:
    png = PNGS["RGB"]
    assert clean_png(png[:8] + header(*size) + png[33:]) is None
    jpeg = JPEGS["plain"]
    at = jpeg.index(b"\xff\xc0") + 5
    lie = (size[1] & 0xFFFF).to_bytes(2, "big") + (size[0] & 0xFFFF).to_bytes(2, "big")
    if size[0] < 2**16:
        assert clean_jpeg(jpeg[:at] + lie + jpeg[at + 4 :]) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\x89PNG\r\n\x1a\n", PNGS["RGB"][:-12], PNGS["RGB"][:50], PNGS["RGB"][:40] + b"x" + PNGS["RGB"][41:],
        b"\x89PNG\r\n\x1a\n" + PNGS["RGB"][33:], PNGS["RGB"][:33] + PNGS["RGB"][8:],
        with_part(PNGS["RGB"], part(b"EVIL", b"")),
        PNGS["RGB"][:8] + header(4, 4) + part(b"IEND", b""), JPEGS["plain"],
    ],
)  # fmt: skip
def test_what_is_no_png_is_dropped(raw: bytes) -> None:
    assert clean_png(raw) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\xff\xd8", b"\xff\xd8\xff\xd9", JPEGS["plain"][:-2], JPEGS["plain"][:100], PNGS["RGB"],
        JPEGS["plain"][:20] + MARK + JPEGS["plain"][20:], b"\xff\xd8\xff\xe0\x00\x00", b"\xff" * 1000,
        b"\xff\xd8" + b"\xff" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_jpeg_is_dropped(raw: bytes) -> None:
    assert clean_jpeg(raw) is None
