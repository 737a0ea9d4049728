"""Images of a cell, taken apart and put together again: what a browser draws, and nothing that rides along.

Rule 1: only the parts named here are kept. Comments, profiles, metadata, animation and what follows the end are not.
Rule 2: an image that says it is larger than `MOST_PIXELS` is dropped: a few bytes can unpack to more than a page's
memory.
"""

from __future__ import annotations

import re
import zlib

MOST_PIXELS = 64_000_000
MOST_SIDE = 32_000  # pixels

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_PARTS = frozenset(
    {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"bKGD", b"sBIT"}
)
_JPEG_FRAMES = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended, progressive: what browsers draw
_JPEG_PARTS = frozenset({0xC4, 0xDB, 0xDD, 0xDA, 0xE0, 0xEE}) | _JPEG_FRAMES  # tables, restarts, scans, JFIF, Adobe
_SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)


def clean_png(raw: bytes) -> bytes | None:
    """`raw` with only what is drawn, or None when it is no PNG of bearable size."""
    if not raw.startswith(_PNG):
        return None
    kept, at, drawn = [_PNG], len(_PNG), False
    while at + 12 <= len(raw):
        size = int.from_bytes(raw[at : at + 4], "big")
        end = at + 12 + size
        kind, part = raw[at + 4 : at + 8], raw[at:end]
        if end > len(raw) or zlib.crc32(part[4:-4]) != int.from_bytes(part[-4:], "big"):
            return None
        if (kind == b"IHDR") != (at == len(_PNG)):
            return None  # it comes first, and once
        if kind == b"IHDR" and (size != 13 or not _bearable(part[8:12], part[12:16])):
            return None
        if kind in _PNG_PARTS:
            kept.append(part)
            drawn = drawn or kind == b"IDAT"
        elif kind[:1].isupper():
            return None  # it says that it cannot be drawn without this part
        if kind == b"IEND":
            return b"".join(kept) if drawn and size == 0 else None
        at = end
    return None


def clean_jpeg(raw: bytes) -> bytes | None:
    """`raw` with only what is drawn, or None when it is no JPEG of bearable size."""
    if not raw.startswith(b"\xff\xd8"):
        return None
    kept, at, framed, drawn = [b"\xff\xd8"], 2, False, False
    while at + 2 <= len(raw) and raw[at] == 0xFF:
        marker = raw[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker == 0xD9:
            return b"".join([*kept, b"\xff\xd9"]) if drawn else None
        size = int.from_bytes(raw[at + 2 : at + 4], "big")
        end = at + 2 + size
        if size < 2 or end > len(raw):
            return None
        if marker in _JPEG_FRAMES:
            if framed or size < 9 or not _bearable(raw[at + 7 : at + 9], raw[at + 5 : at + 7]):
                return None
            framed = True
        elif 0xC0 <= marker <= 0xCF and marker != 0xC4:
            return None  # lossless, arithmetic, hierarchical
        if marker == 0xDA:
            if not framed:
                return None
            drawn = True
            found = _SCAN_END.search(raw, end)
            if found is None:
                return None
            end = found.start()
        if marker in _JPEG_PARTS:
            kept.append(raw[at:end])
        at = end
    return None


def _bearable(width: bytes, height: bytes) -> bool:
    across, down = int.from_bytes(width, "big"), int.from_bytes(height, "big")
    return 0 < across <= MOST_SIDE and 0 < down <= MOST_SIDE and across * down <= MOST_PIXELS
