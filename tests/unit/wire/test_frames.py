"""Frames on a stream: whole, in pieces, and the bounds."""

from __future__ import annotations

import struct

import msgspec
import pytest

from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.vault import Count, Put, Zip


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    sent = [(Put("a", "o"), b"\0" * 10), (Zip("c", "a", "b"), b""), (Put("d", "o", "l"), b"xyz")]
    stream = b"".join(encode(message, blob) for message, blob in sent)
    for step in (1, 7, len(stream)):
        reader: FrameReader[Put | Zip] = FrameReader(Put | Zip)
        got = []
        for at in range(0, len(stream), step):
            reader.feed(stream[at : at + step])
            got.extend(reader.frames())
        assert got == sent


def test_an_announced_length_beyond_the_bound_is_refused_at_the_header() -> None:
    for lengths in ((11, 0), (0, 21), (2**32 - 1, 2**32 - 1)):
        reader: FrameReader[Put] = FrameReader(Put, max_body=10, max_blob=20)
        reader.feed(struct.pack("<II", *lengths))
        with pytest.raises(RemoteProtocolError, match="exceeds the bound"):
            list(reader.frames())


@pytest.mark.parametrize("body", [b"", b"\xc1", msgspec.msgpack.encode({"type": "evil"}), msgspec.msgpack.encode([1]),
                                  encode(Count(1))[8:], b"\x91" * 5000])  # fmt: skip
def test_bodies_of_other_kinds_are_refused(body: bytes) -> None:
    reader: FrameReader[Put | Zip] = FrameReader(Put | Zip)
    reader.feed(struct.pack("<II", len(body), 0) + body)
    with pytest.raises(RemoteProtocolError):
        list(reader.frames())


def test_a_refusal_does_not_repeat_the_content() -> None:
    reader: FrameReader[Count] = FrameReader(Count)
    body = msgspec.msgpack.encode({"type": "count", "ticket": "canary"})
    reader.feed(struct.pack("<II", len(body), 0) + body)
    with pytest.raises(RemoteProtocolError) as refusal:
        list(reader.frames())
    assert "canary" not in str(refusal.value)


def test_what_cannot_be_encoded_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError):
        encode(Count(2**70))
    with pytest.raises(LocalProtocolError):
        encode(Put("\ud800", "o"))
