"""The streams of a cell: what was written is sent before the cell's end, whoever sends it."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, cast

from capkernel.worker.streams import CellStream, Gatherer


class SlowChannel:
    """Takes a message only when it may, as a full socket does."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.begun = threading.Event()
        self.may = threading.Event()

    def send(self, message: Any) -> None:
        self.begun.set()
        assert self.may.wait(5)
        self.sent.append(message.content["text"])


class NoInterrupts:
    def shield(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def test_a_flush_waits_for_what_another_thread_is_sending() -> None:
    channel = SlowChannel()
    stream = CellStream("stdout", cast("Any", channel), cast("Any", NoInterrupts()), Gatherer())
    stream.write("started\n")
    gatherer = threading.Thread(target=stream.flush)
    gatherer.start()
    assert channel.begun.wait(5)
    sent_by_then: list[list[str]] = []

    def end_of_cell() -> None:
        stream.flush()
        sent_by_then.append(list(channel.sent))

    ending = threading.Thread(target=end_of_cell)
    ending.start()
    ending.join(0.2)
    assert not sent_by_then, "the end of the cell must not overtake its output"
    channel.may.set()
    ending.join(5)
    gatherer.join(5)
    assert sent_by_then == [["started\n"]]
