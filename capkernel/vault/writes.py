"""Values on their way into files: what a classified write puts behind a descriptor.

Rule 1: only str, as UTF-8, and bytes are written, whole or not at all beyond the limit; nothing else is decoded here.
Rule 2: a write waits until its value is settled, and is answered once, for the kernel and the person only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from capkernel.vault.descriptors import write_all
from capkernel.vault.entries import Entries, Entry
from capkernel.wire import values
from capkernel.wire.vault import Write, Written


@dataclass(slots=True)
class _Waiting:
    message: Write
    descriptor: int


class Writes:
    """`tell` sends a message to the kernel."""

    def __init__(self, entries: Entries, tell: Callable[[Written], None]) -> None:
        self._entries = entries
        self._tell = tell
        self._waiting: dict[str, list[_Waiting]] = {}

    def write(self, message: Write, descriptor: int) -> None:
        """Now, or when the value is known. The descriptor is taken over."""
        self._write(_Waiting(message, descriptor))

    def settled(self, handle: str) -> None:
        """The value is known now, or poison."""
        for waiting in self._waiting.pop(handle, []):
            self._write(waiting)

    def _write(self, waiting: _Waiting) -> None:
        entry = self._entries.get(waiting.message.handle)
        if entry is not None and entry.state == "pending":
            self._waiting.setdefault(waiting.message.handle, []).append(waiting)
            return
        try:
            self._tell(_written(waiting, entry))
        finally:
            os.close(waiting.descriptor)


def _written(waiting: _Waiting, entry: Entry | None) -> Written:
    ticket = waiting.message.ticket
    if entry is None or entry.state != "value":
        return Written(ticket, "poison")
    try:
        content = values.text_of(entry.blob)
        data = content.encode("utf-8") if isinstance(content, str) else content
    except (values.BadValue, UnicodeEncodeError):
        data = None
    if data is None:
        return Written(ticket, "not_text")
    if len(data) > waiting.message.limit_bytes:
        return Written(ticket, "too_large", len(data))
    try:
        write_all(waiting.descriptor, data)
    except OSError as problem:
        return Written(ticket, "failed", 0, problem.errno or 0)
    return Written(ticket, "written", len(data))
