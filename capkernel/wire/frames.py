"""Frames on a stream: two lengths, one typed message, one raw blob.

Rule 1: this module does no I/O; it turns bytes into frames and frames into bytes, and is the same for every link.
Rule 2: every length is checked against its bound before a byte of the body is kept, so a peer cannot make us hold
more than `max_body + max_blob` bytes.
Rule 3: bodies are msgpack decoded into closed msgspec types. Nothing here, ever, unpickles.

Layout: ``<II`` (body length, blob length), body, blob. Bulk data (file contents, encoded values) travels as the blob,
because copying megabytes through msgpack costs more than the read itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError

_HEADER = struct.Struct("<II")

MAX_BODY = 32 * 1024 * 1024
MAX_BLOB = 256 * 1024 * 1024

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct, blob: bytes | bytearray | memoryview = b"") -> bytes:
    """One frame, ready to send. Raises LocalProtocolError when a bound is exceeded or a field cannot be encoded."""
    try:
        body = _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise LocalProtocolError(f"{type(message).__name__} cannot be encoded: {problem}") from None
    if len(body) > MAX_BODY or len(blob) > MAX_BLOB:
        raise LocalProtocolError(f"{type(message).__name__} of {len(body)}+{len(blob)} bytes exceeds the frame bound")
    return b"".join((_HEADER.pack(len(body), len(blob)), body, blob))


class FrameReader(Generic[T]):
    """Feed bytes in, take `(message, blob)` pairs out.

    `kinds` is the closed union of message types this end may receive; anything else is a RemoteProtocolError.
    """

    def __init__(self, kinds: Any, *, max_body: int = MAX_BODY, max_blob: int = MAX_BLOB) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kinds)
        self._buffer = bytearray()
        self._max_body = max_body
        self._max_blob = max_blob

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self._buffer += data

    @property
    def pending(self) -> bool:
        """Whether there are bytes of a frame that is not complete, or was not taken out."""
        return bool(self._buffer)

    def frames(self) -> Iterator[tuple[T, bytes]]:
        """The frames that are complete so far. Raises RemoteProtocolError on the first bad one."""
        while len(self._buffer) >= _HEADER.size:
            body_length, blob_length = _HEADER.unpack_from(self._buffer)
            if body_length > self._max_body or blob_length > self._max_blob:
                raise RemoteProtocolError(f"a frame of {body_length}+{blob_length} bytes exceeds the bound")
            start = _HEADER.size
            end = start + body_length + blob_length
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                body = bytes(view[start : start + body_length])
                blob = bytes(view[start + body_length : end])
            del self._buffer[:end]
            try:
                message = self._decoder.decode(body)
            except (msgspec.DecodeError, RecursionError, ValueError) as problem:
                raise RemoteProtocolError(f"a message that is not of this link: {_redact(problem)}") from None
            yield message, blob


def _redact(problem: Exception) -> str:
    # msgspec names the field and the types, never the value; keep it short all the same.
    return str(problem)[:200]
