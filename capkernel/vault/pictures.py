"""Pictures for the person's eyes: bytes that are one, and arrays that look like one, as a PNG made anew from pixels.

Runs in a job's own process, as all rendering does: a decoder meets hostile bytes there, within that process's limits.

Rule 1: nothing of the original but its pixels goes on: no text, profile, position, animation, or what follows the end.
Rule 2: the size is read and judged before a pixel is decoded (MOST_PIXELS), and what is shown is at most SHOWN_PIXELS.
Rule 3: Pillow does it, and only the four formats named here. Without Pillow, and for what it cannot read, the note says
so; no exception leaves this module.
"""

from __future__ import annotations

import base64
import io
import warnings
from typing import Any, Final

from capkernel.wire.shown import Image

MOST_PIXELS: Final = 64_000_000
MOST_SIDE: Final = 32_000
SHOWN_PIXELS: Final = 1_500_000
LEAST_SIDE: Final = 4  # of an array: a smaller one is a table of numbers

_NO_PILLOW = "Pillow is not installed where the kernel runs, so it is not drawn"
_TOO_MANY = f"more than {MOST_PIXELS // 1_000_000} million pixels: not drawn"
_SHRINK = 0.5  # in pixels


def format_of(data: bytes | bytearray) -> str:
    """PNG, JPEG, GIF or WEBP by the first bytes; "" for anything else."""
    head = bytes(data[:12])
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "GIF"
    return "WEBP" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""


def of_bytes(data: bytes | bytearray, room: int) -> Image | None:
    """The picture that these bytes are, as a PNG of at most `room` bytes; None when they are none."""
    kind = format_of(data)
    if not kind:
        return None
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        return Image(kind, 0, 0, note=_NO_PILLOW)
    width = height = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning could quote what it is about
            PIL.Image.MAX_IMAGE_PIXELS = None  # judged here, below
            opened = PIL.Image.open(io.BytesIO(data), formats=(kind,))
            width, height = opened.size
            if not (0 < width <= MOST_SIDE and 0 < height <= MOST_SIDE and width * height <= MOST_PIXELS):
                return Image(kind, width, height, note=_TOO_MANY)
            moving = getattr(opened, "is_animated", False)  # counting the frames would read them all
            if kind == "JPEG":
                opened.draft("RGB", _fitting(width, height, SHOWN_PIXELS))  # decodes no more than is needed
            opened.load()
            flat = opened.convert("RGBA" if "A" in opened.mode or "transparency" in opened.info else "RGB")
            turned = PIL.ImageOps.exif_transpose(flat) if opened.getexif() else flat
            if (turned.width > turned.height) != (flat.width > flat.height):
                width, height = height, width
            note = "the first frame of an animation" if moving else ""
            return _encoded(kind, width, height, turned, room, note)
    except MemoryError:
        return Image(kind, width, height, note="it needs more memory than a job has: not drawn")
    except Exception as problem:
        # The name of the type only: a decoder's text may quote what it read.
        return Image(kind, width, height, note=f"damaged or cut off: not drawn ({type(problem).__name__})")


def of_array(array: Any, room: int) -> Image | None:
    """The picture that a numpy array may be: bytes or truth values in two dimensions, or with 1, 3 or 4 channels;
    with 3 or 4 channels also floats from 0 to 1. None for any other."""
    kind, shape = array.dtype.kind, array.shape
    channels = shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4) or min(shape[:2]) < LEAST_SIDE:
        return None
    if not (array.dtype.name in ("uint8", "bool") or (kind == "f" and channels > 1)):
        return None
    height, width = int(shape[0]), int(shape[1])
    if max(height, width) > MOST_SIDE or height * width > MOST_PIXELS:
        return None
    step = max(1, int((height * width / (4 * SHOWN_PIXELS)) ** 0.5))
    pixels = array[::step, ::step]
    if kind == "f":
        if not (pixels.min() >= 0 and pixels.max() <= 1):  # also when one of them is not a number
            return None
        pixels = pixels * 255
    elif kind == "b":
        pixels = pixels * 255
    try:
        import PIL.Image
    except ImportError:
        return Image("array", width, height, note=_NO_PILLOW)
    try:
        mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
        made = PIL.Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), pixels.astype("uint8").tobytes(order="C"))
        return _encoded("array", width, height, made, room, "")
    except Exception as problem:
        return Image("array", width, height, note=f"not drawn ({type(problem).__name__})")


def _encoded(kind: str, width: int, height: int, picture: Any, room: int, note: str) -> Image:
    """As a PNG without anything beside the pixels, made smaller until it fits."""
    picture.info = {}
    pixels = float(min(SHOWN_PIXELS, 4 * room))  # even a plain picture takes some bytes
    while pixels >= 64:
        across, down = _fitting(picture.width, picture.height, pixels)
        fitting = picture if (across, down) == picture.size else picture.resize((across, down))
        fitting.info = {}
        out = io.BytesIO()
        fitting.save(out, "PNG")
        if out.tell() <= room:
            said = f"drawn as {across} × {down}" if (across, down) != (width, height) else ""
            text = base64.b64encode(out.getvalue()).decode("ascii")
            return Image(kind, width, height, text, "; ".join(filter(None, (note, said))))
        pixels = across * down * min(_SHRINK, 0.8 * room / out.tell())
    return Image(kind, width, height, note="no room is left for it: not drawn")


def _fitting(width: int, height: int, pixels: float) -> tuple[int, int]:
    """The size with about the same proportions and at most so many pixels."""
    scale = min(1.0, (pixels / (width * height)) ** 0.5)
    return max(1, int(width * scale)), max(1, int(height * scale))
