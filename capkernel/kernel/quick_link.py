"""The kernel's end of the quick link to one worker: a thread takes a small effect, does it and answers.

Rule 1: the worker's word is not trusted. It may have one call open, of QUICK_METHODS, of a bounded size and without
content; anything else ends it.
Rule 2: the event loop never waits for this thread. A file system that hangs costs the worker its quick link, nothing
else: it finds it busy and asks on the other.

Why: from the event loop to a thread and back are two threads to wake, which takes longer than to read a small file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.worker import QUICK_MAX_BODY, QUICK_METHODS, Call, CallResult, Failure, Invoke

LOOK_SECONDS: Final = 0.00025
"""How long the thread looks for the next call before it sleeps, when the last one came as soon: cells read files one
after the other. It gives way to every other thread while it looks."""

Serve = Callable[[int, Invoke], tuple[CallResult, bytes]]


class QuickLink:
    """Started once, when the worker may be served; closed when it ends. `serve` never raises."""

    def __init__(self, link: socket.socket, serve: Serve) -> None:
        self._link = link
        self._serve = serve
        self._buffer = memoryview(bytearray(QUICK_MAX_BODY))
        self._lock = threading.Lock()
        self._started = self._closed = False
        self._answered = 0.0  # when, by perf_counter
        self._looks = False

    def start(self, broken: Callable[[str], object]) -> None:
        """Serve from now on. `broken` is told, in the thread, how the worker broke the protocol."""
        with self._lock:
            if self._closed:
                return
            self._started = True
        threading.Thread(target=self._run, args=(broken,), name="capkernel-quick", daemon=True).start()

    def close(self) -> None:
        """Serve no more. An effect that is under way is not waited for."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._started:
                with contextlib.suppress(OSError):
                    self._link.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes it
            else:
                self._link.close()

    def _run(self, broken: Callable[[str], object]) -> None:
        reader: FrameReader[Call] = FrameReader(Call, max_body=QUICK_MAX_BODY, max_blob=0)
        try:
            while size := self._receive():
                reader.feed(self._buffer[:size])
                calls = [message for message, _ in reader.frames()]
                if len(calls) > 1 or (calls and reader.pending):
                    raise RemoteProtocolError("a second call before the answer to the first")
                for call in calls:
                    self._link.sendall(self._answer_to(call))
                    self._answered = time.perf_counter()
        except RemoteProtocolError as problem:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the session has ended meanwhile
                broken(f"it broke the protocol of the quick link: {problem}")
        except OSError:
            pass  # the worker ended or was ended; the other link tells
        finally:
            with self._lock:
                self._closed = True
                self._link.close()

    def _answer_to(self, call: Call) -> bytes:
        effect = call.effect
        if not isinstance(effect, Invoke) or effect.method not in QUICK_METHODS:
            raise RemoteProtocolError("a call that does not belong on it")
        result, content = self._serve(call.call, effect)
        try:
            return encode(result, content)
        except LocalProtocolError:
            failure = Failure("OSError", "the answer is too large to be handed over in one piece")
            return encode(CallResult(call.call, error=failure))

    def _receive(self) -> int:
        """What came, into the buffer; 0 at the end."""
        size = self._looked() if self._looks else None
        if size is None:
            size = self._link.recv_into(self._buffer)
        self._looks = time.perf_counter() - self._answered < LOOK_SECONDS
        return size

    def _looked(self) -> int | None:
        until = self._answered + LOOK_SECONDS
        while time.perf_counter() < until:
            try:
                return self._link.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                os.sched_yield()
        return None
