"""Effects that do not happen, on their way to the cell.

Rule 1: what reaches the worker names a path as the cell wrote it, never a path of the host, and no content.
Rule 2: an exception that nobody foresaw tells the worker its type only.
"""

from __future__ import annotations

import os

from capkernel.wire.worker import Failure

_OS_KINDS = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


class EffectError(Exception):
    """An effect that is refused or failed, ready to be told to the cell."""

    def __init__(self, kind: str, message: str, errno: int = 0, filename: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.errno = errno
        self.filename = filename

    def failure(self) -> Failure:
        return Failure(self.kind, self.message, self.errno, self.filename)


def denied(reason: str) -> EffectError:
    return EffectError("CapabilityDenied", reason)


def revoked(what: str = "this capability") -> EffectError:
    return EffectError("CapabilityRevoked", f"{what} is no longer granted: use it inside its `with request_*` block")


def os_failure(problem: OSError, path: str) -> EffectError:
    """The same operating system error for `path`, the cell's own word for the file."""
    number = problem.errno or 0
    kind = next((known.__name__ for known in _OS_KINDS if isinstance(problem, known)), "OSError")
    return EffectError(kind, os.strerror(number) if number else "the operation failed", number, path)
