"""`sys.stdout` and `sys.stderr` of a cell: text gathered for a moment, then published.

Text belongs to the request that was running when it was written. A background thread's text goes to the latest cell, as
in ipykernel; a background task's to the cell that started it.
"""

from __future__ import annotations

import codecs
import io
import threading
from contextvars import ContextVar
from typing import Any

from capkernel.wire.worker import Published
from capkernel.worker.channel import Channel
from capkernel.worker.interrupts import Interrupts, block_in_this_thread
from capkernel.worker.session import request_of, sendable

GATHER_SECONDS = 0.05
_FLUSH_AT = 64 * 1024  # characters
_PIECE = 1024 * 1024  # characters in one message


class CellStream(io.TextIOBase):
    """A text stream whose writes become `stream` messages."""

    def __init__(self, name: str, channel: Channel, interrupts: Interrupts, gatherer: Gatherer) -> None:
        self._name = name
        self._channel = channel
        self._interrupts = interrupts
        self._gatherer = gatherer
        self._lock = threading.RLock()
        self._parts: list[str] = []
        self._size = 0
        self._for_request = 0
        self._latest = 0
        self._current: ContextVar[int] = ContextVar(f"request of {name}")
        self.buffer = _Bytes(self)
        gatherer.add(self)

    encoding = "utf-8"
    errors = "replace"

    @property
    def name(self) -> str:
        return f"<{self._name}>"

    def set_parent(self, parent: Any) -> None:
        self._latest = request_of(parent)
        self._current.set(self._latest)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        # Where C code writes: a pipe the kernel reads, so this text arrives too, only not in step with ours.
        return 1 if self._name == "stdout" else 2

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        request = self._current.get(self._latest)
        with self._lock:
            if request != self._for_request:
                self.flush()
                self._for_request = request
            self._parts.append(text)
            self._size += len(text)
            full = self._size >= _FLUSH_AT
        if full:
            self.flush()
        else:
            self._gatherer.wake()
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        # The lock first: while the gatherer is sending, nothing is left here, and the cell's end must still not
        # overtake what it sends.
        with self._interrupts.shield(), self._lock:
            if not self._parts:
                return
            text = "".join(self._parts)
            self._parts.clear()
            self._size = 0
            for start in range(0, len(text), _PIECE):
                self._publish(text[start : start + _PIECE])

    def _publish(self, text: str) -> None:
        if not text.isascii():
            text = sendable(text)
        self._channel.send(Published(self._for_request, "stream", {"name": self._name, "text": text}))


class _Bytes(io.RawIOBase):
    """`stdout.buffer`: bytes decoded with replacement."""

    def __init__(self, stream: CellStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._stream.write(self._decoder.decode(raw))
        return len(raw)

    def flush(self) -> None:
        self._stream.flush()


class Gatherer:
    """A thread that flushes what was written a moment ago, so that a long cell shows its progress."""

    def __init__(self) -> None:
        self._streams: list[CellStream] = []
        self._written = threading.Event()
        self._pause = threading.Event()  # never set; waiting on it is a sleep that no signal cuts short

    def add(self, stream: CellStream) -> None:
        self._streams.append(stream)

    def start(self) -> None:
        threading.Thread(target=self._run, name="stream gatherer", daemon=True).start()

    def wake(self) -> None:
        if not self._written.is_set():
            self._written.set()

    def _run(self) -> None:
        block_in_this_thread()
        while True:
            self._written.wait()
            self._written.clear()
            self._pause.wait(GATHER_SECONDS)
            for stream in self._streams:
                stream.flush()
