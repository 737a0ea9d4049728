"""One entry of the person's secure output: a header line, then the value as lines of visible text.

Rule 1: nothing of a value is a line by itself: each of its lines begins with BAR, a header never does, so no value can
forge one. Every control, format and bidirectional character is shown by number, in headers as well.
Rule 2: an entry is one write to a descriptor that appends, at most MAX_ENTRY bytes. It begins with an empty line, so
it is whole also after one that the system cut.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from capkernel.vault.descriptors import is_regular
from capkernel.wire.shown import Shown
from capkernel.wire.shown_text import lines, visible, what

MAX_ENTRY: Final = 262_144
MAX_HEADER: Final = 2_000  # characters, before what is invisible is written out
BAR: Final = "| "
_CUT: Final = f"\n{BAR}[cut here: the entry is too long]"


def append_entry(descriptor: int | None, header: str, shown: Shown) -> int:
    """Write the entry: 0, or the errno of what the system refused. Never raises."""
    if descriptor is None:
        return errno.EBADF
    data = entry(header, shown)
    try:
        if not is_regular(descriptor):
            return errno.EBADF
        return 0 if os.write(descriptor, data) == len(data) else errno.ENOSPC
    except OSError as problem:
        return problem.errno or errno.EIO


def entry(header: str, shown: Shown) -> bytes:
    """The bytes of an entry."""
    head = f"\n== {visible(header[:MAX_HEADER])} | {what(shown)}"
    text = "\n".join([head, *(BAR + line for line in lines(shown))])
    data = text.encode("utf-8", "replace")
    if len(data) >= MAX_ENTRY:
        room = MAX_ENTRY - len(_CUT.encode()) - 1
        data = data[:room].decode("utf-8", "ignore").encode("utf-8") + _CUT.encode()
    return data + b"\n"
