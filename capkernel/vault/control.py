"""The control link in the kernel's event loop: frames with descriptors, an unbounded queue out, a callback in.

The queue is bounded by the client's count of posts and bytes, not here: a bound that depends on the vault's progress
would be a clock.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.vault import FromKeeper

_CHUNK = 1 << 18
_BUFFERS = 64  # frames per system call
_MAX_BODY = 4 << 20  # a sealed rendering with pictures


class ControlLink:
    """Belongs to the running event loop. `broken` is called once, when the other end is gone or breaks the protocol."""

    def __init__(
        self, link: socket.socket, received: Callable[[FromKeeper], None], broken: Callable[[str], None]
    ) -> None:
        self._link = link
        self._received = received
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[memoryview, int | None]] = deque()
        self._scheduled = False
        self._writing = False
        self._closed = False
        self._reader: FrameReader[Any] = FrameReader(FromKeeper, max_body=_MAX_BODY, max_blob=0)
        link.setblocking(False)
        self._loop.add_reader(link, self._readable)

    @classmethod
    def pair(
        cls, received: Callable[[FromKeeper], None], broken: Callable[[str], None]
    ) -> tuple[ControlLink, socket.socket]:
        """A link, and the socket for the keeper (the caller closes it)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours, received, broken), theirs

    def runner_pair(self) -> tuple[socket.socket, socket.socket]:
        """Two ends of a runner link; the caller closes both."""
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def send(self, message: Any, blob: bytes = b"", descriptor: int | None = None) -> None:
        """Queue a message; `descriptor` is duplicated. Raises LocalProtocolError for what has no frame."""
        if self._closed:
            return
        frame = memoryview(encode(message, blob))
        self._queue.append((frame, None if descriptor is None else os.dup(descriptor)))
        if not self._scheduled and not self._writing:
            self._scheduled = True
            self._loop.call_soon(self._first_write)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._link)
        self._loop.remove_writer(self._link)
        self._link.close()
        for _, descriptor in self._queue:
            if descriptor is not None:
                os.close(descriptor)
        self._queue.clear()

    def _first_write(self) -> None:
        self._scheduled = False
        if not self._closed:
            self._write()

    def _write(self) -> None:
        try:
            self._send_some()
        except BlockingIOError:
            pass
        except OSError as problem:
            self._fail(f"the keeper cannot be reached: {problem.strerror}")
            return
        if bool(self._queue) != self._writing:
            self._writing = bool(self._queue)
            if self._writing:
                self._loop.add_writer(self._link, self._write)
            else:
                self._loop.remove_writer(self._link)

    def _send_some(self) -> None:
        """One system call: the frames up to the next one with a descriptor, or that one alone."""
        first, descriptor = self._queue[0]
        if descriptor is not None:
            sent = socket.send_fds(self._link, [first], [descriptor])
            os.close(descriptor)
            self._queue[0] = (first, None)
        else:
            buffers: list[memoryview] = []
            for frame, other in self._queue:
                if other is not None or len(buffers) == _BUFFERS:
                    break
                buffers.append(frame)
            sent = self._link.sendmsg(buffers)
        while self._queue and sent >= len(self._queue[0][0]):
            sent -= len(self._queue.popleft()[0])
        if sent:
            self._queue[0] = (self._queue[0][0][sent:], None)

    def _readable(self) -> None:
        try:
            data = self._link.recv(_CHUNK)
            if not data:
                self._fail("the keeper process ended")
                return
            self._reader.feed(data)
            for message, _ in self._reader.frames():
                self._received(message)
                if self._closed:
                    return
        except BlockingIOError:
            pass
        except OSError as problem:
            self._fail(f"the keeper cannot be reached: {problem.strerror}")
        except RemoteProtocolError as problem:
            self._fail(str(problem))

    def _fail(self, why: str) -> None:
        self.close()
        self._broken(why)
