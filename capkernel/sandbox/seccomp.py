"""The system-call allow-list of a locked process, and its installation.

Rule 1: allow-list. What is not named here is refused with EPERM; a wrong architecture kills.
Rule 2: a call that Landlock cannot mediate and that changes a file by path (chmod, chown, utime, truncate, setxattr,
mount) is never allowed in its real form. The chmod and utime family answers success without being made, because
shutil.copy and IPython call it on files in the scratch directory and only care that it does not raise.
Rule 3: a call that takes a process id is allowed for the caller itself only.
Rule 4: sockets exist only as inherited, or as a *stream* socketpair (event loops wake themselves with one). A
datagram pair could send to any path-named socket of the machine.
Rule 5: any change here needs a regression test that shows the attack without the filter and its failure with it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys
from typing import Final

from . import libc
from .bpf import ALLOW, ARCHITECTURES, Architecture, Condition, Rule, assemble, errno_action, pack
from .levels import SandboxError

_EPERM: Final = errno_action(errno.EPERM)
_ENOSYS: Final = errno_action(errno.ENOSYS)
_PRETEND: Final = errno_action(0)
_NO_ATTRIBUTES: Final = errno_action(errno.ENOTSUP)

SECCOMP_SET_MODE_FILTER: Final = 1
SECCOMP_MODE_FILTER: Final = 2

# CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD: what fork() of the C library asks for, and nothing else.
FORK_FLAGS: Final = 0x1200011
# pthread_create() of glibc, and of musl (which adds the ignored CLONE_DETACHED).
THREAD_FLAGS: Final[tuple[int, ...]] = (0x3D0F00, 0x7D0F00)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ALWAYS: Final = _names("""
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range dup dup2 dup3
stat lstat fstat newfstatat statx access faccessat faccessat2 readlink readlinkat getdents getdents64 getcwd fstatfs
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 pipe pipe2
timerfd_create timerfd_settime timerfd_gettime signalfd4 fsync fdatasync ftruncate fadvise64 readahead
mmap mprotect munmap mremap madvise brk mincore msync mlock munlock membarrier
futex futex_waitv futex_wake futex_wait futex_requeue set_robust_list rseq set_tid_address
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack restart_syscall pause
sched_yield sched_get_priority_max sched_get_priority_min getcpu
clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getitimer setitimer alarm
getpid getppid gettid getuid geteuid getgid getegid getgroups getresuid getresgid getpgrp getrusage getrlimit
uname sysinfo getrandom exit exit_group umask
sendmsg recvmsg recvfrom shutdown getsockopt getsockname getpeername
""")

# Path calls that Landlock mediates; useless without a directory to write in, so refused there outright.
_SCRATCH: Final = _names("unlink unlinkat mkdir mkdirat rmdir rename renameat renameat2 fallocate flock")

_PRETENDED: Final = _names("chmod fchmod fchmodat fchmodat2 utime utimes futimesat utimensat")
# shutil.copystat ignores "not supported", but not "not permitted".
_UNSUPPORTED: Final = _names(
    "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr "
    "removexattr lremovexattr fremovexattr"
)

# F_DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, OFD_{GETLK,SETLK,SETLKW}, DUPFD_CLOEXEC, {SET,GET}PIPE_SZ,
# {ADD,GET}_SEALS. Not F_SETOWN, F_SETOWN_EX, F_SETSIG: with O_ASYNC they send a signal of choice to a process of
# choice.
_FCNTL: Final = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032, 1033, 1034)
_IOCTL: Final = (0x5421, 0x541B, 0x5401, 0x5413, 0x5450, 0x5451)  # FIONBIO FIONREAD TCGETS TIOCGWINSZ FIONCLEX FIOCLEX
_PRCTL: Final = (
    libc.PR_SET_NAME, libc.PR_GET_NAME, libc.PR_SET_VMA, libc.PR_GET_DUMPABLE, libc.PR_GET_NO_NEW_PRIVS,
    libc.PR_GET_SECCOMP,
)  # fmt: skip
_SOCKET_OPTIONS: Final = (7, 8, 20, 21, 66, 67)  # SO_SNDBUF SO_RCVBUF SO_{RCV,SND}TIMEO, old and new

_AF_UNIX: Final = 1
_STREAM_TYPES: Final = (1, 0o4001, 0o2000001, 0o2004001)  # SOCK_STREAM, with SOCK_NONBLOCK, SOCK_CLOEXEC, both

_O_TRUNC: Final = 0o1000
_O_PATH: Final = 0o10000000
_O_ACCMODE: Final = 3


def current_architecture() -> Architecture | None:
    """The machine this process runs on, or None when the filter has no table for it (or the process is not 64-bit)."""
    if sys.platform != "linux" or struct.calcsize("P") != 8:
        return None
    machine = os.uname().machine
    return next((item for item in ARCHITECTURES if item.name == machine), None)


def lock_rules(pid: int, *, allow_fork: bool, scratch: bool) -> list[Rule]:
    """The rules of a locked process whose own id is `pid`."""
    rules = [Rule(name) for name in _ALWAYS]
    rules += [Rule(name) for name in _SCRATCH if scratch]
    rules += [Rule(name, _PRETEND) for name in _PRETENDED]
    rules += [Rule(name, _NO_ATTRIBUTES) for name in _UNSUPPORTED]
    rules += [_open_rule("open", 1), _open_rule("openat", 2)]
    rules += [Rule("clone3", _ENOSYS), Rule("openat2", _ENOSYS)]  # the C library falls back to clone and openat
    rules += [
        _any_of("fcntl", 1, _FCNTL),
        _any_of("ioctl", 1, _IOCTL),
        Rule("setsockopt", when=tuple((Condition(1, 1), Condition(2, option)) for option in _SOCKET_OPTIONS)),
        Rule("sendto", when=((Condition(4, 0, wide=True),),)),  # no destination
        Rule("socketpair", when=tuple((Condition(0, _AF_UNIX), Condition(1, kind)) for kind in _STREAM_TYPES)),
    ]
    own = (0, pid)
    for name in ("getsid", "getpgid", "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_getscheduler"):
        rules.append(_any_of(name, 0, own))
    # A robust-list head of another thread is read with ptrace rights; 0 is the caller.
    rules.append(_any_of("get_robust_list", 0, (0,)))
    rules.append(Rule("getpriority", when=((Condition(0, 0), Condition(1, 0)),)))
    rules += [_any_of("kill", 0, (pid,)), _any_of("tgkill", 0, (pid,))]
    read_only = Condition(2, 0, wide=True)
    limits = tuple((Condition(0, item), read_only) for item in own)
    rules.append(Rule("prlimit64", when=(*limits, (Condition(0, 0),)) if allow_fork else limits))
    flags = (FORK_FLAGS, *THREAD_FLAGS) if allow_fork else THREAD_FLAGS
    rules.append(Rule("clone", when=tuple((Condition(0, item, wide=True),) for item in flags)))
    options = tuple((Condition(0, option),) for option in _PRCTL)
    # A forked job may ask to die with its parent; never to outlive it.
    dies = (Condition(0, libc.PR_SET_PDEATHSIG), Condition(1, signal.SIGKILL))
    rules.append(Rule("prctl", when=(*options, dies) if allow_fork else options))
    if allow_fork:
        # A forked job sets its own limits (they can only shrink: soft equals hard) and stacks `deny_fork_rules`.
        rules += [Rule("wait4"), Rule("waitid")]
        rules.append(Rule("seccomp", when=((Condition(0, SECCOMP_SET_MODE_FILTER), Condition(1, 0)),)))
    return rules


def deny_fork_rules(pid: int) -> list[Rule]:
    """Rules of the filter that a forked job stacks on the first one: no further process, no further filter.

    Its default is to allow, for the first filter already refuses all that is not on the list.
    """
    return [
        Rule("clone", when=tuple((Condition(0, item, wide=True),) for item in THREAD_FLAGS), otherwise=_EPERM),
        Rule("clone3", _ENOSYS),
        *(Rule(name, _EPERM) for name in ("fork", "vfork", "execve", "execveat", "seccomp", "ptrace")),
        Rule("prctl", _EPERM, when=((Condition(0, libc.PR_SET_SECCOMP),),), otherwise=ALLOW),
        # The first filter names its own process: the parent. A job must not signal it.
        Rule("kill", when=((Condition(0, pid),),), otherwise=_EPERM),
        Rule("tgkill", when=((Condition(0, pid),),), otherwise=_EPERM),
    ]


def compile_lock(architecture: Architecture, pid: int, *, allow_fork: bool, scratch: bool) -> bytes:
    """The packed filter of `lock_rules`."""
    return pack(assemble(lock_rules(pid, allow_fork=allow_fork, scratch=scratch), architecture, _EPERM))


def compile_deny_fork(architecture: Architecture, pid: int) -> bytes:
    """The packed filter of `deny_fork_rules`."""
    return pack(assemble(deny_fork_rules(pid), architecture, ALLOW))


def install(architecture: Architecture, program: bytes) -> int:
    """Put the filter on this thread (it needs no_new_privs). Returns 0 or the errno."""
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog { u16 len; struct sock_filter *filter; } with the pointer's natural alignment
    header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer)), 16)
    number = architecture.numbers["seccomp"]
    result, error = libc.system_call(number, SECCOMP_SET_MODE_FILTER, 0, header)
    return 0 if result == 0 else error


def deny_fork() -> None:
    """Take from this forked child the right to create processes, for good, and bind its life to its parent's.

    Threads stay possible. The child ends at once when its parent is gone already. Raises SandboxError when the filter
    is not in force afterwards, or the profile did not allow forking in the first place.
    """
    architecture = current_architecture()
    if architecture is None:
        raise SandboxError("sandbox: no system call filter for this machine, so a forked job cannot be contained")
    libc.required_prctl("binding a forked job to its parent", libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # nobody's child any more: the parent ended before the line above
        os._exit(1)
    error = install(architecture, compile_deny_fork(architecture, os.getpid()))
    if error:
        raise SandboxError(f"sandbox: the filter of a forked job was refused: {libc.describe(error)}")
    try:
        child = os.fork()
    except OSError:
        return
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    raise SandboxError("sandbox: a forked job could still fork")


def _any_of(name: str, argument: int, values: tuple[int, ...]) -> Rule:
    return Rule(name, when=tuple((Condition(argument, value),) for value in values))


def _open_rule(name: str, flags: int) -> Rule:
    """open(2) but for three flag patterns that get past Landlock.

    O_TRUNC with O_RDONLY empties a file for which only reading is granted (before Landlock version 3); access mode 3
    asks Landlock for nothing; an O_PATH descriptor is a handle to any file at all.
    """
    return Rule(
        name,
        _EPERM,
        when=(
            (Condition(flags, _O_TRUNC, mask=_O_ACCMODE | _O_TRUNC),),
            (Condition(flags, _O_ACCMODE, mask=_O_ACCMODE),),
            (Condition(flags, _O_PATH, mask=_O_PATH),),
        ),
        otherwise=ALLOW,
    )
