"""What a locked process gives up besides files and calls: namespaces, capabilities, limits, being dumped or traced."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
from typing import Final

from . import libc
from .levels import SandboxError
from .profile import Profile

_NEW_USER: Final = 0x10000000
_NEW_NAMESPACES: Final = _NEW_USER | 0x40000000 | 0x08000000 | 0x04000000  # USER | NET | IPC | UTS
_NEW_MOUNTS: Final = 0x00020000
_HIDING_MOUNT: Final = 1 | 2 | 4 | 8  # MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
_CAPABILITY_VERSION_3: Final = 0x20080522
_MAX_CAPABILITY: Final = 63
_EMPTY: Final = 0


def leave_namespaces() -> str:
    """Try to move into own user, network, IPC and UTS namespaces. Returns "" or why it did not work.

    The user id is mapped to itself, so that files keep their owners' names. The process must be single-threaded.
    """
    user, group = os.geteuid(), os.getegid()
    error = libc.unshare(_NEW_NAMESPACES)
    if error:
        return libc.describe(error)
    # Failing is harmless: ids then show as the overflow id, rights stay the same.
    with contextlib.suppress(OSError):
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    return ""


def cover_proc() -> str:
    """Put an empty file system over /proc, in a mount namespace of this process. Returns "" or why it did not work.

    For bubblewrap on a kernel without Landlock: bubblewrap's own first process could otherwise be written through
    /proc/1/mem. The process must be single-threaded.
    """
    error = libc.unshare(_NEW_USER | _NEW_MOUNTS)
    if not error:
        error = libc.mount("tmpfs", "/proc", "tmpfs", _HIDING_MOUNT)
    return libc.describe(error) if error else ""


def has_own_network() -> bool:
    """True when this process sees no network interface but the loopback one."""
    try:
        with open("/proc/self/net/dev", encoding="ascii", errors="replace") as table:
            names = [line.split(":")[0].strip() for line in table.readlines()[2:]]
    except OSError:
        return False
    return all(name == "lo" for name in names)


def set_limits(profile: Profile) -> None:
    """No core files, a bound on the size of files, no locked memory, and bounds on the memory when the profile says."""
    import resource  # not on Windows

    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, profile.file_limit), (resource.RLIMIT_MEMLOCK, 0)]
    if profile.memory_bytes is not None:
        limits.append((resource.RLIMIT_AS, profile.memory_bytes))
    if profile.data_bytes is not None:
        limits.append((resource.RLIMIT_DATA, profile.data_bytes))
    for which, value in limits:
        hard = resource.getrlimit(which)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(which, (wanted, wanted))
        except (OSError, ValueError) as error:
            raise SandboxError(f"sandbox: a resource limit was refused: {error}") from None


def limits_hold(profile: Profile) -> bool:
    """True when soft and hard limits are at most what `set_limits` asked for."""
    import resource

    wanted = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, profile.file_limit), (resource.RLIMIT_MEMLOCK, 0)]
    if profile.memory_bytes is not None:
        wanted.append((resource.RLIMIT_AS, profile.memory_bytes))
    if profile.data_bytes is not None:
        wanted.append((resource.RLIMIT_DATA, profile.data_bytes))
    for which, value in wanted:
        for actual in resource.getrlimit(which):
            if actual == resource.RLIM_INFINITY or actual > value:
                return False
    return True


def drop_capabilities() -> None:
    """Empty the ambient, bounding, inheritable, permitted and effective sets; works as root and as any other user.

    Without CAP_SETPCAP the bounding set cannot be emptied; it only matters at exec, which no_new_privs and the filter
    close, so that is no error.
    """
    libc.prctl(libc.PR_CAP_AMBIENT, libc.PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(_MAX_CAPABILITY + 1):
        result, error = libc.prctl(libc.PR_CAPBSET_DROP, capability)
        if result < 0 and error in (errno.EINVAL, errno.EPERM):
            break
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0), 8)
    nothing = ctypes.create_string_buffer(struct.pack("<6I", *([_EMPTY] * 6)), 24)
    result, error = _capability_call("capset", header, nothing)
    if result < 0:
        raise SandboxError(f"sandbox: the capabilities could not be dropped: {libc.describe(error)}")


def has_no_capabilities() -> bool:
    """True when effective, permitted and inheritable sets are empty."""
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0), 8)
    data = ctypes.create_string_buffer(b"\xff" * 24, 24)
    result, _ = _capability_call("capget", header, data)
    return result == 0 and data.raw == bytes(24)


def has_empty_bound() -> bool:
    """True when no capability could be gained by exec either."""
    for capability in range(_MAX_CAPABILITY + 1):
        result, _ = libc.prctl(libc.PR_CAPBSET_READ, capability)
        if result < 0:
            return capability > 0
        if result != 0:
            return False
    return True


def _capability_call(name: str, *buffers: ctypes.Array[ctypes.c_char]) -> tuple[int, int]:
    ctypes.set_errno(0)
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    result = int(function(*buffers))
    return result, ctypes.get_errno() if result == -1 else 0


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
