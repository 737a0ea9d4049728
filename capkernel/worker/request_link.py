"""The worker's end of the request link. The main thread reads it, in its loop: it serves what comes, and a thread that
read for it would have to be woken first, and then to wake it.

Rule 1: an interrupt that comes after a cell is meant for it, wherever the cell is: in the socket, half read, or waiting
for its turn. The kernel sends the cell first.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import FrameReader
from capkernel.wire.worker import Comm, Evaluate, Execute, Request
from capkernel.worker.interrupts import Interrupts

_CHUNK = 256 * 1024


class RequestLink:
    """Made and read in the main thread. When the kernel is gone, the process ends."""

    def __init__(self, link: socket.socket, interrupts: Interrupts) -> None:
        link.setblocking(False)
        self._link = link
        self._interrupts = interrupts
        self._reader: FrameReader[Request] = FrameReader(Request)
        self._reading = False
        self._readable = select.poll()
        self._readable.register(link, select.POLLIN)
        interrupts.watch(self._coming)

    def fileno(self) -> int:
        return self._link.fileno()

    def read(self, take: Callable[[Request, bytes], None]) -> None:
        """Hand over the requests that have come; of a large one, perhaps only the beginning has."""
        with self._interrupts.shield():
            self._reading = True
            found = self._found()
            if any(isinstance(request, Execute | Evaluate | Comm) for request, _ in found):
                self._interrupts.expect()
            self._reading = False
            if not self._coming():
                self._interrupts.forget()
            for request, blob in found:
                take(request, blob)

    def _found(self) -> list[tuple[Request, bytes]]:
        try:
            if data := self._link.recv(_CHUNK):
                self._reader.feed(data)
                return list(self._reader.frames())
        except BlockingIOError:
            return []
        except (OSError, RemoteProtocolError, MemoryError):
            pass
        os._exit(0)  # no kernel, no purpose; and nothing here is worth an orderly end

    def _coming(self) -> bool:
        """Whether there is something of a request that was not handed over."""
        return self._reading or self._reader.pending or bool(self._readable.poll(0))
