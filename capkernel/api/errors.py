"""The exceptions an effect can raise in a cell, and how a Failure from the broker becomes one of them.

No exception carries an inner object: only a message, and for OSErrors the number and the path the cell itself gave.
"""

from __future__ import annotations

from capkernel.wire.worker import Failure


class CapabilityDenied(PermissionError):
    """The policy, or the plan of the running cell, does not allow this effect."""


class CapabilityRevoked(RuntimeError):
    """The capability's block has ended; it designates nothing any more."""


_OS_ERRORS: dict[str, type[OSError]] = {
    "FileNotFoundError": FileNotFoundError,
    "FileExistsError": FileExistsError,
    "IsADirectoryError": IsADirectoryError,
    "NotADirectoryError": NotADirectoryError,
    "PermissionError": PermissionError,
    "OSError": OSError,
}
_PLAIN_ERRORS: dict[str, type[Exception]] = {
    "CapabilityRevoked": CapabilityRevoked,
    "ValueError": ValueError,
    "TypeError": TypeError,
}


def exception_from(failure: Failure) -> Exception:
    """The exception that tells a cell of `failure`; an unknown kind becomes a RuntimeError."""
    if failure.kind == "CapabilityDenied":
        return CapabilityDenied(failure.message)
    if failure.kind == "UnicodeDecodeError":
        return ValueError(failure.message)
    os_error = _OS_ERRORS.get(failure.kind)
    if os_error is not None:
        return os_error(failure.errno, failure.message, failure.filename or None)
    return _PLAIN_ERRORS.get(failure.kind, RuntimeError)(failure.message)
