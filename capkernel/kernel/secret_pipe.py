"""The pipe through which a kernel gets its viewer secret. Standard library only: what Jupyter starts uses it as well.

Rule 1: a descriptor that is not the end of a pipe is not touched: its number came on a command line.
Rule 2: what is read is gone from the pipe, and the pipe is closed, whatever was in it.
"""

from __future__ import annotations

import contextlib
import os
import stat

_FIRST = 3  # below are the standard streams


def checked(fd: int | None) -> int | None:
    """`fd` when it is the end of a pipe, None for anything else."""
    if fd is None or fd < _FIRST:
        return None
    try:
        return fd if stat.S_ISFIFO(os.fstat(fd).st_mode) else None
    except OSError:
        return None


def read_once(fd: int | None, length: int) -> bytes | None:
    """The `length` bytes that were written to the pipe before we were started, which is then closed. None when it is
    no pipe, or has something else in it."""
    pipe = checked(fd)
    if pipe is None:
        return None
    try:
        os.set_blocking(pipe, False)
        found = os.read(pipe, length + 1)
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(pipe)
    return found if len(found) == length else None
