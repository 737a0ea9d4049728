"""The person's secure output as a file: is it safe to append secrets there, and open it.

Rule 1: opened once, by the trusted side, as what is there: no link is followed, nothing waits, nothing is truncated.
Rule 2: what is not a regular file of this user with mode 0600 and one name is refused; so is a place that a cell could
ask for, or that another user could swap. Nothing is repaired: the reason says what to do.
Rule 3: before each use it is looked at again. A file that was removed, replaced or opened to others takes nothing more.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from capkernel.policy.model import Policy
from capkernel.policy.paths import is_below

MAX_BYTES: Final = 256 * 1024 * 1024
"""The file takes nothing more when it is as large as this."""


class SecureFileUnusable(Exception):
    """Nothing is written there. The text says why and what to do; it names no directory of the host."""


@dataclass(frozen=True)
class SecureFile:
    """The open file. fd: for appending only, open as long as the session."""

    fd: int
    path: str

    def look(self) -> None:
        """Raise SecureFileUnusable when it should not be appended to now. Blocks."""
        try:
            found = os.fstat(self.fd)
            named = os.stat(self.path, follow_symlinks=False)
        except OSError as problem:
            raise SecureFileUnusable(_gone(problem)) from None
        if not os.path.samestat(found, named):
            raise SecureFileUnusable("it was replaced since the session started: restart the kernel")
        _judge(found)

    def close(self) -> None:
        os.close(self.fd)


def open_ambient(path: Path, forbidden: Iterable[str]) -> SecureFile:
    """Open or make the file at the absolute `path`. Raises SecureFileUnusable.

    forbidden: directories that cells may reach. Ambient authority: opens a file by its name.
    """
    place = _place(path, forbidden)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(place, flags, 0o600)
    except OSError as problem:
        raise SecureFileUnusable(_why(problem)) from None
    try:
        _judge(os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return SecureFile(fd, place)


def problem_with_ambient(path: Path, forbidden: Iterable[str]) -> str:
    """Why `open_ambient` would refuse, or "". Makes and opens nothing.

    Ambient authority: looks at a file by its name.
    """
    try:
        place = _place(path, forbidden)
        try:
            found = os.stat(place, follow_symlinks=False)
        except FileNotFoundError:
            return (
                "" if os.access(os.path.dirname(place), os.W_OK | os.X_OK) else _why(PermissionError(errno.EACCES, ""))
            )
        if stat.S_ISLNK(found.st_mode):
            return _why(OSError(errno.ELOOP, ""))
        _judge(found)
    except OSError as problem:
        return _why(problem)
    except SecureFileUnusable as problem:
        return str(problem)
    return ""


def reachable(policy: Policy, base: Path | str | None) -> list[str]:
    """The directories in which a secure output would be within reach of cells. base: the notebook's, if known."""
    return [os.path.realpath(place) for place in (*policy.root_paths(), *(() if base is None else (base,)))]


def _place(path: Path, forbidden: Iterable[str]) -> str:
    """The path with the links of its directories resolved."""
    directory = os.path.realpath(path.parent)
    place = os.path.join(directory, path.name)
    # The file itself may be a link that leads into a root: it is not followed, and refused when it is opened.
    if any(is_below(place, root) for root in forbidden):
        raise SecureFileUnusable(
            "it lies where cells may ask for files (a root, or the notebook's directory): name a file outside of them, "
            "such as ~/capkernel-secrets.txt"
        )
    current = directory
    while True:
        try:
            found = os.stat(current)
        except OSError as problem:
            raise SecureFileUnusable(f"its directory cannot be used ({os.strerror(problem.errno or 0)})") from None
        if not stat.S_ISDIR(found.st_mode):
            raise SecureFileUnusable("its directory is none")
        if found.st_uid not in (0, os.geteuid()):
            raise SecureFileUnusable("a directory on the way to it belongs to someone else: choose another place")
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise SecureFileUnusable("a directory on the way to it can be changed by anyone: choose another place")
        if current == "/":
            return place
        current = os.path.dirname(current)


def _judge(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SecureFileUnusable("it is not a regular file: name another one")
    if found.st_uid != os.geteuid():
        raise SecureFileUnusable("it belongs to someone else: name another one")
    if stat.S_IMODE(found.st_mode) != 0o600:
        raise SecureFileUnusable(f"its mode is {stat.S_IMODE(found.st_mode):04o}: make it yours alone with chmod 600")
    if found.st_nlink != 1:
        raise SecureFileUnusable("it has another name as well (a hard link): name another one")
    if found.st_size >= MAX_BYTES:
        raise SecureFileUnusable(f"it has reached {MAX_BYTES >> 20} MB: move it away")


def _why(problem: OSError) -> str:
    if problem.errno == errno.ELOOP:
        return "it is a symbolic link: name the file itself"
    if problem.errno in (errno.EISDIR, errno.ENXIO):
        return "it is not a regular file: name another one"
    return f"it cannot be opened ({os.strerror(problem.errno or 0)})"


def _gone(problem: OSError) -> str:
    if problem.errno == errno.ENOENT:
        return "it was removed since the session started: restart the kernel"
    return f"it cannot be looked at ({os.strerror(problem.errno or 0)})"
