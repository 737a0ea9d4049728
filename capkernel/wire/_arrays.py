"""numpy arrays and scalars in the encoding of `wire.values`: a dtype of a closed grammar, a shape, C-ordered bytes.

Rule 1: no dtype that holds objects, fields or Python code; a dtype is written and read as one short text.
Rule 2: a shape is multiplied out and compared with the bytes that are there before numpy allocates.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from capkernel.wire._codec import BadValue, Reader, Unsendable, Writer

_DTYPE = re.compile(
    r"[|<>](?:b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|S[1-9]\d{0,8}|U[1-9]\d{0,7}"
    r"|[mM]8(?:\[[1-9]?\d{0,8}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?)"
)
_MAX_DIMENSIONS = 32
_TEXT_SCALARS: dict[type, int] = {np.str_: 0, np.bytes_: 1}
_NUMBER_SCALAR = 2


def is_array(value: object) -> bool:
    return type(value) is np.ndarray


def is_scalar(value: object) -> bool:
    return isinstance(value, np.generic) and type(value) is value.dtype.type


def dtype_text(dtype: np.dtype[Any]) -> str:
    """The text of a dtype of the closed grammar. Raises Unsendable for any other, with what to do."""
    if dtype.kind == "O":
        raise Unsendable("a numpy array of objects; convert it with .astype(...) or .tolist()")
    if dtype.names is not None or dtype.subdtype is not None or dtype.kind == "V":
        raise Unsendable("a structured numpy array; send its fields one by one")
    text = dtype.str
    if not _DTYPE.fullmatch(text) or np.dtype(text) != dtype:
        raise Unsendable(f"a numpy array of dtype {dtype.name}")
    return text


def put_array(out: Writer, value: Any) -> None:
    out.text(dtype_text(value.dtype))
    if value.ndim > _MAX_DIMENSIONS:
        raise Unsendable(f"a numpy array of more than {_MAX_DIMENSIONS} dimensions")
    out.u8(value.ndim)
    for length in value.shape:
        out.i64(length)
    if value.nbytes:  # checked here, so that a too large array is not copied first
        out.room(value.nbytes)
    out.sized(value.tobytes(order="C"))


def get_array(source: Reader) -> Any:
    dtype = _get_dtype(source)
    dimensions = source.u8()
    if dimensions > _MAX_DIMENSIONS:
        raise BadValue("an array of too many dimensions")
    shape = tuple(source.i64() for _ in range(dimensions))
    data = source.sized()
    count = 1
    for length in shape:
        if not 0 <= length <= 1 << 40:
            raise BadValue("an array with an impossible length")
        count *= length
    if count * dtype.itemsize != len(data):
        raise BadValue("the shape of an array does not fit its bytes")
    made = np.frombuffer(data, dtype=dtype, count=count).reshape(shape).copy()
    _validate(made)
    return made


def _get_dtype(source: Reader) -> np.dtype[Any]:
    text = source.text()
    if not _DTYPE.fullmatch(text):
        raise BadValue("a dtype outside the closed set")
    dtype = np.dtype(text)
    if dtype.itemsize == 0 or dtype.hasobject or dtype.kind not in "biufcmMSU":
        raise BadValue("a dtype outside the closed set")
    return dtype


def _validate(made: Any) -> None:
    """Bit patterns that numpy would trip over later: booleans that are neither, code points beyond Unicode."""
    if made.size == 0:
        return
    if made.dtype.kind == "b" and made.view(np.uint8).max() > 1:
        raise BadValue("a boolean that is neither true nor false")
    if made.dtype.kind == "U":
        points = np.ascontiguousarray(made).reshape(-1).view(np.dtype(np.uint32).newbyteorder(made.dtype.byteorder))
        if points.max() > 0x10FFFF:
            raise BadValue("a code point beyond Unicode")


def put_scalar(out: Writer, value: Any) -> None:
    kind = _TEXT_SCALARS.get(type(value), _NUMBER_SCALAR)
    out.u8(kind)
    if kind == 0:
        out.text(str(value))
    elif kind == 1:
        out.sized(bytes(value))
    else:
        out.text(dtype_text(value.dtype))
        out.raw(value.tobytes())


def get_scalar(source: Reader) -> Any:
    kind = source.u8()
    if kind == 0:
        return np.str_(source.text())
    if kind == 1:
        return np.bytes_(bytes(source.sized()))
    if kind != _NUMBER_SCALAR:
        raise BadValue("an unknown kind of scalar")
    dtype = _get_dtype(source)
    if dtype.kind in "SU":
        raise BadValue("a text scalar as a number")
    made = np.frombuffer(source.take(dtype.itemsize), dtype=dtype, count=1).copy()
    _validate(made)
    return made[0]
