"""Proof, in the locked process itself, that what was promised is closed.

Rule 1: each probe is harmless when the thing is open, and answers differently then: calls are made with arguments
that the kernel would refuse with another errno (a process id that cannot exist, a null path), so "EPERM" can only be
the filter.
Rule 2: an unexpected answer counts as open.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Final

from . import levels, libc, privileges
from .bpf import Architecture
from .paths import is_below
from .profile import Profile
from .seccomp import SECCOMP_MODE_FILTER

_NOBODY: Final = 0x3FFFFFFF  # above the largest process id (2**22)
_BAD: Final = -1
_SHARED_PLACES: Final = ("/", "/tmp", "/var/tmp", "/dev/shm", "/dev")  # noqa: S108 - tried, never used

# property -> (call, arguments): every one must be refused by the filter
_PROBES: Final[dict[str, tuple[tuple[str, tuple[int, ...]], ...]]] = {
    levels.SOCKETS_CLOSED: (
        ("socket", (1, 1, 0)), ("socket", (1, 2, 0)), ("socket", (2, 1, 0)), ("socket", (2, 2, 0)),
        ("socket", (10, 1, 0)), ("socket", (16, 3, 0)), ("socket", (38, 5, 0)), ("socket", (40, 1, 0)),
        ("socketpair", (1, 2, 0, 0)), ("socketpair", (1, 5, 0, 0)), ("sendto", (_BAD, 0, 0, 0, 1, 110)),
        ("sendmmsg", (_BAD, 0, 0, 0)), ("connect", (_BAD, 0, 0)), ("bind", (_BAD, 0, 0)), ("listen", (_BAD, 0)),
        ("accept4", (_BAD, 0, 0, 0)),
    ),
    levels.SIGNALS_CLOSED: (
        ("kill", (_NOBODY, 0)), ("tgkill", (_NOBODY, _NOBODY, 0)), ("tkill", (_NOBODY, 0)),
        ("rt_sigqueueinfo", (_NOBODY, 0, 0)), ("rt_tgsigqueueinfo", (_NOBODY, _NOBODY, 0, 0)),
        ("pidfd_open", (_NOBODY, 0)), ("pidfd_send_signal", (_BAD, 0, 0, 0)), ("fcntl", (_BAD, 8, 0)),
        ("fcntl", (_BAD, 10, 0)), ("fcntl", (_BAD, 15, 0)),
    ),
    levels.EXEC_CLOSED: (("execve", (0, 0, 0)), ("execveat", (_BAD, 0, 0, 0, 0)), ("memfd_create", (0, 0))),
    levels.FORKS_CLOSED: (
        ("clone", (0x10000,)),  # CLONE_THREAD without what it needs
        ("clone", (0x10000000 | 0x200,)),  # CLONE_NEWUSER | CLONE_FS: never valid together
        ("clone3", (0, 0)),
    ),
    levels.TRACING_CLOSED: (
        ("ptrace", (16, _NOBODY, 0, 0)), ("process_vm_readv", (_NOBODY, 0, 0, 0, 0, 1)),
        ("process_vm_writev", (_NOBODY, 0, 0, 0, 0, 1)), ("kcmp", (_NOBODY, _NOBODY, 0, 0, 0)),
        ("pidfd_getfd", (_BAD, 0, 0)), ("process_madvise", (_BAD, 0, 0, 0, 0)),
    ),
    levels.KERNEL_INTERFACES_CLOSED: (
        ("unshare", (0,)), ("setns", (_BAD, 0)), ("mount", (0, 0, 0, 0, 0)), ("io_uring_setup", (0, 0)),
        ("bpf", (0xFFFF, 0, 0)), ("userfaultfd", (0xFFFFFF,)), ("perf_event_open", (0, 0, 0, 0, 0)),
        ("keyctl", (0xFFFF,)), ("add_key", (0, 0, 0, 0, 0)), ("inotify_init1", (0xFFFFFF,)), ("shmget", (0, 0, 0)),
        ("mq_open", (0, 0, 0, 0)), ("name_to_handle_at", (_BAD, 0, 0, 0, 0)), ("personality", (0xFFFFFFFF,)),
        ("openat2", (_BAD, 0, 0, 0)), ("truncate", (0, 0)), ("chdir", (0,)), ("chown", (0, 0, 0)),
        ("fchownat", (_BAD, 0, 0, 0, 0)), ("linkat", (_BAD, 0, _BAD, 0, 0)), ("mknodat", (_BAD, 0, 0, 0)),
    ),
    levels.PROCESS_ORACLES_CLOSED: (
        ("prlimit64", (_NOBODY, 7, 0, 0)), ("getsid", (_NOBODY,)), ("getpgid", (_NOBODY,)),
        ("sched_getaffinity", (_NOBODY, 0, 0)), ("sched_getscheduler", (_NOBODY,)), ("getpriority", (0, _NOBODY)),
        ("setpriority", (0, _NOBODY, 0)),
    ),
}  # fmt: skip


class FileCanaries:
    """Files and directories that must be closed after the lock, chosen (and tried) before it."""

    def __init__(self, allowed: Iterable[str], scratch: str | None, *, inside_bwrap: bool) -> None:
        self._allowed = [os.path.realpath(path) for path in (*allowed, *([scratch] if scratch else []))]
        self._scratch = os.path.realpath(scratch) if scratch else None
        homes = {os.path.expanduser("~"), _account_home()} - {"", "/"}
        reads = ["/etc/passwd", "/etc/hosts", "/etc/hostname", "/var", "/home", _working_directory(), *sorted(homes)]
        if not inside_bwrap:  # there, both are the mount namespace's own
            reads += ["/", "/proc", "/proc/self/environ", "/proc/self/mem"]
        self.reads = [path for path in dict.fromkeys(reads) if not self._is_allowed(path)]
        self.were_open = [path for path in self.reads if _can_open(path)]
        self.inside_bwrap = inside_bwrap
        parents = {os.getppid(), 1}
        self.process_files = [f"/proc/{pid}/{name}" for pid in sorted(parents) for name in ("mem", "environ", "maps")]
        places = [*_SHARED_PLACES, _working_directory(), sys.prefix, *sorted(homes), *allowed]
        self.places = [path for path in dict.fromkeys(places) if not self._is_scratch(path) and os.path.isdir(path)]

    def reads_closed(self) -> bool:
        # Outside bubblewrap a closed file proves something only if it was open before.
        return (self.inside_bwrap or bool(self.were_open)) and not any(self._is_open(path) for path in self.reads)

    def process_files_closed(self) -> bool:
        return not any(_can_open(path) for path in self.process_files)

    def writes_closed(self) -> bool:
        return not any(_can_create(place) for place in self.places)

    def _is_open(self, path: str) -> bool:
        if not _can_open(path):
            return False
        if not self.inside_bwrap or not os.path.isdir(path):
            return True
        # bubblewrap makes empty directories on the way to what it binds; only what else is in them counts.
        return any(not self._leads_to_allowed(os.path.join(path, name)) for name in os.listdir(path))

    def _leads_to_allowed(self, path: str) -> bool:
        return self._is_allowed(path) or any(is_below(other, path) for other in self._allowed)

    def _is_allowed(self, path: str) -> bool:
        return any(is_below(os.path.realpath(path), other) for other in self._allowed)

    def _is_scratch(self, path: str) -> bool:
        return self._scratch is not None and is_below(os.path.realpath(path), self._scratch)


def measure(
    profile: Profile, canaries: FileCanaries, architecture: Architecture | None, before_filter: dict[str, bool]
) -> dict[str, bool]:
    """Every property by name. `before_filter`: what had to be measured while the calls for it were still open."""
    properties = dict(before_filter)
    for name, probes in _PROBES.items():
        properties[name] = architecture is not None and all(_refused(architecture, *probe) for probe in probes)
    properties[levels.FORKS_CLOSED] = properties[levels.FORKS_CLOSED] and _fork_is(profile.allow_fork)
    properties[levels.SIGNALS_CLOSED] = properties[levels.SIGNALS_CLOSED] and _cannot_signal()
    properties[levels.FILES_CLOSED] = canaries.reads_closed()
    properties[levels.PROCESS_FILES_CLOSED] = canaries.process_files_closed()
    properties[levels.WRITES_CLOSED] = canaries.writes_closed()
    properties[levels.NO_NEW_PRIVILEGES] = libc.prctl(libc.PR_GET_NO_NEW_PRIVS)[0] == 1
    properties[levels.UNDUMPABLE] = libc.prctl(libc.PR_GET_DUMPABLE)[0] == 0
    properties[levels.RESOURCE_LIMITS] = privileges.limits_hold(profile)
    properties[levels.METADATA_HIDDEN] = all(
        _is_unknown(path) for path in ("/etc/passwd", "/etc/shadow", "/var/log", "/boot")
    )
    return properties


def filter_in_force() -> bool:
    """True when this thread runs under a seccomp filter."""
    return libc.prctl(libc.PR_GET_SECCOMP)[0] == SECCOMP_MODE_FILTER


def _refused(architecture: Architecture, name: str, arguments: tuple[int, ...]) -> bool:
    number = architecture.numbers.get(name)
    if number is None:
        return True  # the machine has no such call
    result, error = libc.system_call(number, *arguments)
    wanted = errno.ENOSYS if name in ("clone3", "openat2") else errno.EPERM
    return result == -1 and error == wanted


def _fork_is(allowed: bool) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
    except OSError:
        return not allowed
    if child == 0:
        os._exit(0)
    try:
        os.waitpid(child, 0)
    except OSError:
        return False
    return allowed


def _cannot_signal() -> bool:
    targets: list[Callable[[], object]] = [
        lambda: os.kill(os.getppid(), 0),
        lambda: os.kill(-1, 0),
        lambda: os.kill(0, 0),
        lambda: os.killpg(os.getpgrp(), 0),
    ]
    for attempt in targets:
        try:
            attempt()
        except OSError:
            continue
        return False
    return True


def _can_open(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    os.close(descriptor)
    return True


def _can_create(directory: str) -> bool:
    path = os.path.join(directory, f".capkernel-selftest-{os.getpid()}")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    os.close(descriptor)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return True


def _is_unknown(path: str) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it has been removed
        return "/"


def _account_home() -> str:
    try:
        import pwd  # not on Windows

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return ""
