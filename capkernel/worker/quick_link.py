"""The worker's end of the quick link: the thread that asks sends, and takes the answer itself.

On the other link an answer is read by a thread and handed to the one that waits; waking threads takes longer than most
effects. Here one call is open at a time. Who finds the link busy takes the other one, so nobody waits for somebody
else's effect.

Rule 1: an interrupt ends the wait for an answer, never a frame that is half sent or half read. The answer is still owed
then; it is dropped when it comes, and until then the link is busy.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from typing import Final

from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.worker import QUICK_MAX_BODY, Call, CallResult
from capkernel.worker.interrupts import Interrupts

_CHUNK: Final = 256 * 1024
LOOK_SECONDS: Final = 0.0002
"""How long a thread looks for its answer before it sleeps: a small file is read in half of it, and to be woken on an
idle core can take as long again. It gives way to every other thread while it looks."""


class QuickLink:
    """One call at a time. From any thread."""

    def __init__(self, link: socket.socket, interrupts: Interrupts) -> None:
        self._link = link
        self._interrupts = interrupts
        self._reader: FrameReader[CallResult] = FrameReader(CallResult)
        self._buffer = memoryview(bytearray(_CHUNK))
        self._one = threading.Lock()
        self._owed = False  # the answer to a call whose caller was interrupted
        self._closed = False
        self._readable = select.poll()
        self._readable.register(link, select.POLLIN)

    def call(self, call: Call) -> tuple[CallResult, bytes] | None:
        """Ask the broker and wait for its answer; None when the call must take the other link. It may have been asked
        then, when this one broke: what is asked here changes nothing."""
        frame = encode(call)
        if len(frame) > QUICK_MAX_BODY:
            return None
        with self._interrupts.shield():
            if not self._one.acquire(blocking=False):
                return None
            try:
                if self._closed or (self._owed and self._arrived() is None):
                    return None
                self._link.sendall(frame)
                self._owed = True
                answer = self._answer()
                return None if answer[0].elsewhere else answer
            except (OSError, RemoteProtocolError):
                # The kernel ends this link and the process with it, or is gone: the other link tells which.
                self._closed = True
                return None
            finally:
                self._one.release()

    def _answer(self) -> tuple[CallResult, bytes]:
        answer = self._arrived()
        until = time.perf_counter() + LOOK_SECONDS
        while answer is None and time.perf_counter() < until:
            os.sched_yield()
            answer = self._arrived()
        while answer is None:
            with self._interrupts.lowered():
                self._readable.poll()
            answer = self._arrived()
        return answer

    def _arrived(self) -> tuple[CallResult, bytes] | None:
        """The answer, when all of it is here."""
        while True:
            try:
                size = self._link.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not size:
                raise ConnectionResetError
            self._reader.feed(self._buffer[:size])
            for answer in self._reader.frames():
                self._owed = False
                return answer
