"""The worker's end of its link: a thread reads, any thread sends, waiting threads are woken by number.

The loop of the main thread is free to run a cell for hours; answers still arrive, because this thread takes them.
Requests come on a link of their own (`request_link`).
"""

from __future__ import annotations

import os
import socket
import threading
from itertools import count
from queue import SimpleQueue
from typing import Any

import msgspec

from capkernel.api.errors import exception_from
from capkernel.wire.errors import LocalProtocolError, RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.worker import (
    MAX_BODY_FROM_WORKER,
    QUICK_METHODS,
    Answer,
    Call,
    CallResult,
    Effect,
    InputReply,
    InputRequest,
    Invoke,
    Shutdown,
)
from capkernel.worker.interrupts import Interrupts, block_in_this_thread
from capkernel.worker.quick_link import QuickLink

_CHUNK = 256 * 1024


class Channel:
    """Sends messages whole and hands out what arrives. When the kernel is gone, the process ends."""

    def __init__(self, link: socket.socket, interrupts: Interrupts, quick: QuickLink) -> None:
        self._link = link
        self._interrupts = interrupts
        self._quick = quick
        self._sending = threading.Lock()
        self._numbers = count(1)
        self._calls: dict[int, SimpleQueue[tuple[CallResult, bytes]]] = {}
        self._inputs: SimpleQueue[InputReply] = SimpleQueue()

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="kernel link", daemon=True).start()

    def send(self, message: msgspec.Struct, blob: bytes | bytearray | memoryview = b"") -> None:
        """Send one message. Raises LocalProtocolError when it is too big or holds what the wire cannot carry."""
        frame = encode(message, blob)
        if len(frame) - len(blob) > MAX_BODY_FROM_WORKER:
            raise LocalProtocolError(f"a message of {len(frame) - len(blob):,} bytes is too large for the kernel")
        with self._interrupts.shield(), self._sending:
            self._link.sendall(frame)

    def call(self, effect: Effect, blob: bytes = b"") -> tuple[Any, bytes]:
        """Ask the broker and wait for its answer. An interrupt ends the wait, not the effect."""
        number = next(self._numbers)
        if isinstance(effect, Invoke) and effect.method in QUICK_METHODS and not blob:
            answer = self._quick.call(Call(number, effect))
            if answer is not None:
                return _value(*answer)
        box: SimpleQueue[tuple[CallResult, bytes]] = SimpleQueue()
        self._calls[number] = box
        try:
            self.send(Call(number, effect), blob)
            result, content = box.get()
        finally:
            self._calls.pop(number, None)
        return _value(result, content)

    def ask(self, request: int, prompt: str, *, password: bool) -> str:
        """What the person types. Raises EOFError when there is no answer to be had."""
        while not self._inputs.empty():  # the answer to a question that an interrupt ended
            self._inputs.get_nowait()
        self.send(InputRequest(request, prompt, password))
        while True:
            reply = self._inputs.get()
            if reply.request != request:
                continue
            if reply.value is None:
                raise EOFError("no answer: the front end gave none")
            return reply.value

    def _read(self) -> None:
        block_in_this_thread()
        reader: FrameReader[Answer] = FrameReader(Answer)
        try:
            while data := self._link.recv(_CHUNK):
                reader.feed(data)
                for message, blob in reader.frames():
                    self._take(message, blob)
        except (OSError, RemoteProtocolError, MemoryError):
            pass
        os._exit(0)  # no kernel, no purpose; and nothing here is worth an orderly end

    def _take(self, message: Answer, blob: bytes) -> None:
        match message:
            case CallResult():
                box = self._calls.get(message.call)
                if box is not None:
                    box.put((message, blob))
            case InputReply():
                self._inputs.put(message)
            case Shutdown():
                os._exit(0)


def _value(result: CallResult, content: bytes) -> tuple[Any, bytes]:
    if result.error is not None:
        raise exception_from(result.error)
    return result.value, content


__all__ = ["Channel", "LocalProtocolError"]
