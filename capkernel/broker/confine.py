"""Open paths below a directory, and say what was opened.

Rule 1: nothing is decided about a string and then opened. A path is opened first, as a mere place (O_PATH: no read, no
write, no side effect on a FIFO or device); what was opened is judged by its canonical path and its inode; and what is
read or written afterwards is that same object, reached through its descriptor.
Rule 2: every open of a cell's path goes through `open_beneath`: the operating system itself refuses a path that leaves
the directory (openat2 with RESOLVE_BENEATH). Where it lacks that call, no link is followed at all.

Linux, with /proc. Elsewhere `canonical_path` fails, and with it every effect.
"""

from __future__ import annotations

import ctypes
import errno
import os
import posixpath
import stat
from functools import lru_cache
from typing import Final

from capkernel.broker.failures import EffectError, denied

MAX_PATH: Final = 4096
MAX_PARTS: Final = 256
MAX_NAME: Final = 255

_SYS_OPENAT2: Final = 437  # the same on every architecture
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_BENEATH: Final = 0x08
_RETRIES: Final = 64

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Escape(OSError):
    """The path leaves its directory, or could not be followed without taking the risk."""


def checked_path(text: str) -> str:
    """A relative POSIX path without empty and `.` parts, "." for the directory itself.

    `..` stays in: what it means depends on links, and only the system call knows. Raises an EffectError (ValueError for
    what can be no path, CapabilityDenied for an absolute one).
    """
    if "\0" in text:
        raise EffectError("ValueError", "a path cannot contain NUL")
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        raise EffectError("ValueError", "a path is Unicode text without lone surrogates") from None
    if len(raw) >= MAX_PATH:
        raise EffectError("OSError", os.strerror(errno.ENAMETOOLONG), errno.ENAMETOOLONG, text[:64] + "...")
    if text.startswith("/"):
        raise denied("a path is relative to the granted root; ask for another root with request_file_system(root)")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if len(parts) > MAX_PARTS or any(len(part.encode("utf-8")) > MAX_NAME for part in parts):
        raise EffectError("OSError", os.strerror(errno.ENAMETOOLONG), errno.ENAMETOOLONG, text[:64] + "...")
    return "/".join(parts) or "."


def lexical(path: str) -> str | None:
    """`path` with `..` taken out as text, or None when that climbs above its start."""
    flat = posixpath.normpath(path)
    return None if flat == ".." or flat.startswith(("../", "/")) else flat


def open_beneath(directory: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path` below `directory`, or raise Escape (leaves it), or another OSError. Always close-on-exec."""
    if openat2_works():
        return _openat2(directory, path, flags, mode)
    return walk_beneath(directory, path, flags, mode)


def open_directory_ambient(path: str) -> int:
    """A place descriptor for a directory named by the operator's policy.

    Ambient authority: opens any absolute path. Never call it with a word of a cell.
    """
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def canonical_path(fd: int) -> str:
    """Where the opened object is now: absolute, links resolved. FileNotFoundError when it has no name any more."""
    path = os.readlink(f"/proc/self/fd/{fd}")
    if not path.startswith("/"):
        raise FileNotFoundError(errno.ENOENT, "the opened object has no path")
    if path.endswith(" (deleted)"):
        # Either a file of that very name, or the kernel's word for one that is gone.
        opened = os.fstat(fd)
        try:
            named = os.lstat(path)
        except OSError:
            raise FileNotFoundError(errno.ENOENT, "the file is gone") from None
        if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino):
            raise FileNotFoundError(errno.ENOENT, "the file is gone")
    return path


def reopen(fd: int, flags: int) -> int:
    """The very object behind a place descriptor, now for reading or writing. Never blocks on a FIFO."""
    return os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


@lru_cache(maxsize=1)
def openat2_works() -> bool:
    """False on a Linux before 5.6, and in containers whose seccomp filter refuses the call."""
    here = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(here, ".", os.O_PATH, 0))
    except OSError as problem:
        if problem.errno in (errno.ENOSYS, errno.EPERM):
            return False
        raise
    finally:
        os.close(here)
    return True


@lru_cache(maxsize=64)
def _how(flags: int, mode: int) -> _OpenHow:
    return _OpenHow(flags, mode, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)  # which the call only reads


def _openat2(directory: int, path: str, flags: int, mode: int) -> int:
    how = _how(flags | os.O_CLOEXEC, mode)
    raw = os.fsencode(path)
    number = 0
    for _ in range(_RETRIES):
        fd = int(_libc.syscall(_SYS_OPENAT2, directory, raw, ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number == errno.EAGAIN:
            continue  # something was renamed while `..` was followed; the kernel could not be sure
        if number == errno.EINTR:
            continue
        break
    if number in (errno.EXDEV, errno.EAGAIN):
        raise Escape(number, "the path leaves its root")
    raise OSError(number, os.strerror(number))


def walk_beneath(directory: int, path: str, flags: int, mode: int = 0) -> int:
    """`open_beneath` part by part, following no link. What `..` leads back from is opened as well: where that is a
    link, `..` is elsewhere."""
    if path.startswith("/"):
        raise Escape(errno.EXDEV, "the path leaves its root")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    way = [os.dup(directory)]  # the directories from `directory` down
    try:
        for part in parts[:-1] if parts and parts[-1] != ".." else parts:
            if part != "..":
                way.append(_step(way[-1], part))
            elif len(way) > 1:
                os.close(way.pop())
            else:
                raise Escape(errno.EXDEV, "the path leaves its root")
        name = parts[-1] if parts and parts[-1] != ".." else "."
        fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=way[-1])
        if flags & os.O_PATH and stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            raise Escape(errno.ELOOP, "links are not followed on this system")
        return fd
    except OSError as problem:
        if problem.errno == errno.ELOOP and not isinstance(problem, Escape):
            raise Escape(errno.ELOOP, "links are not followed on this system") from None
        raise
    finally:
        for held in way:
            os.close(held)


def _step(directory: int, name: str) -> int:
    """The directory of this name, which is no link."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    kind = os.fstat(fd).st_mode
    if stat.S_ISDIR(kind):
        return fd
    os.close(fd)
    if stat.S_ISLNK(kind):
        raise Escape(errno.ELOOP, "links are not followed on this system")
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
