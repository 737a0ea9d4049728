"""Descriptors over a stream socket: which message gets which, and reading and writing the files behind them.

Rule 1: a received descriptor is closed by whoever takes it, whatever happens.
Rule 2: only regular files are read and written, so that nobody can make the keeper wait on a pipe or a device.
"""

from __future__ import annotations

import array
import os
import socket
import stat
from collections import deque

from capkernel.wire.errors import RemoteProtocolError

_CHUNK = 1 << 20
_MAX_WAITING = 4096


class DescriptorQueue:
    """Receives from a socket; keeps the descriptors until the messages that own them are decoded."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._waiting: deque[int] = deque()

    def receive(self) -> bytes:
        """Up to a megabyte, empty at the end of the stream. Raises BlockingIOError as the socket does."""
        size = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        data, ancillary, flags, _ = self._link.recvmsg(_CHUNK, size, socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(payload[: len(payload) - len(payload) % found.itemsize])
                self._waiting.extend(found)
        if flags & socket.MSG_CTRUNC or len(self._waiting) > _MAX_WAITING:
            raise RemoteProtocolError("more descriptors than messages")
        return data

    def take(self) -> int:
        """The next descriptor; the caller closes it."""
        if not self._waiting:
            raise RemoteProtocolError("a message without its descriptor")
        return self._waiting.popleft()

    def close(self) -> None:
        while self._waiting:
            os.close(self._waiting.popleft())


def is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def read_bounded(descriptor: int, limit: int) -> bytes | None:
    """The whole file from its start, None when it has more than `limit` bytes. Raises OSError."""
    if not is_regular(descriptor):
        raise OSError("not a regular file")
    parts: list[bytes] = []
    offset = 0
    while True:
        part = os.pread(descriptor, min(_CHUNK, limit + 1 - offset), offset)
        if not part:
            return b"".join(parts)
        parts.append(part)
        offset += len(part)
        if offset > limit:
            return None


def write_all(descriptor: int, data: bytes) -> None:
    """Write at the descriptor's position. Raises OSError; part may then have been written."""
    if not is_regular(descriptor):
        raise OSError("not a regular file")
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[:_CHUNK]) :]
