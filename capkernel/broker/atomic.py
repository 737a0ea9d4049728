"""Files that change all at once: written beside, then renamed over.

Rule 1: nothing here decides anything. The caller has judged the directory and the name.
Rule 2: temporary names start with `policy.defaults.TEMPORARY_PREFIX`, which is classified.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable

from capkernel.policy.defaults import TEMPORARY_PREFIX


def make_directories(base: int, parts: tuple[str, ...], mode: int = 0o777) -> int:
    """Make and open `parts` below the directory `base`, following no link. Returns a place descriptor; close it."""
    current = os.dup(base)
    try:
        for part in parts:
            try:
                os.mkdir(part, mode, dir_fd=current)
            except FileExistsError:
                pass  # someone else made it meanwhile; the open below says whether it is a directory
            following = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = following
    except BaseException:
        os.close(current)
        raise
    return current


def write_all(fd: int, data: bytes) -> None:
    """All of `data`, at the descriptor's place."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def replace(directory: int, name: str, data: bytes, before_rename: Callable[[], None]) -> None:
    """Make `name` in `directory` hold exactly `data`. `before_rename` may raise to leave everything as it was."""
    temporary = _written(directory, data, _permissions(directory, name))
    try:
        before_rename()
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        remove(directory, temporary)
        raise
    sync_directory(directory)


def create(directory: int, name: str, data: bytes, before_naming: Callable[[], None]) -> None:
    """Make a new file `name` that holds `data`. Raises FileExistsError when the name is taken."""
    temporary = _written(directory, data, None)
    try:
        before_naming()
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    finally:
        remove(directory, temporary)
    sync_directory(directory)


def _written(directory: int, data: bytes, mode: int | None) -> str:
    """The name of a new temporary file with `data`, on the disk."""
    temporary = temporary_name()
    fd = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=directory
    )
    try:
        write_all(fd, data)
        if mode is not None:
            os.fchmod(fd, mode)
        os.fsync(fd)
    except BaseException:
        remove(directory, temporary)
        raise
    finally:
        os.close(fd)
    return temporary


def unlisted(directory: int) -> tuple[int, str | None]:
    """A new file of mode 0600 open for writing, without a name where the file system can do that (O_TMPFILE)."""
    try:
        return os.open(f"/proc/self/fd/{directory}", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), None
    except OSError as problem:
        if problem.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    name = temporary_name()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=directory), name


def give_name(fd: int, directory: int) -> str:
    """A temporary name in `directory` for a file that `unlisted` made without one."""
    name = temporary_name()
    os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=directory, follow_symlinks=True)
    return name


def sync_directory(directory: int) -> None:
    """Put the names in a directory on the disk."""
    fd = os.open(f"/proc/self/fd/{directory}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(directory: int, name: str) -> None:
    """Take a temporary name away, if it is still there."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass


def temporary_name() -> str:
    return TEMPORARY_PREFIX + secrets.token_hex(8)


def _permissions(directory: int, name: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found.st_mode) & 0o777  # a set-user-id bit was meant for the old content
