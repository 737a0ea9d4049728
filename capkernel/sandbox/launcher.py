"""Starting the processes around the kernel: clean environment, no inherited descriptors, no orphans, bubblewrap when
it works.

Rule 1: a child gets the environment it is given and nothing of the caller's; only the named descriptors; /dev/null as
standard input; its own session.
Rule 2: no child survives the kernel: it is killed by the operating system when the thread that started it ends. That
thread is one that lives as long as the process (`_Launcher`), or a child started from a pool thread would die with
the pool.
Rule 3: a process id is signalled only while it is certain to be the child's (a pidfd, or an unreaped leader).
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import select
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

from . import bubblewrap, landlock, libc, seccomp
from .levels import Level, SandboxError
from .profile import Profile

_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
# By name, not by prefix: LC_* is a known way to carry other things through ssh.
_LOCALE: Final = (
    "LANG", "LANGUAGE", "TZ", "LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT",
    "LC_MESSAGES", "LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME",
)  # fmt: skip
_LOCALE_VALUE: Final = re.compile(r"[A-Za-z0-9_.@:/+,<>-]{1,64}")
_FORBIDDEN_PREFIXES: Final = ("PYTHON", "MYPY", "IPYTHON", "LD_")
_FORBIDDEN: Final = ("BASH_ENV", "ENV", "GCONV_PATH")
_KILL_SECONDS: Final = 10.0

Stream = int | IO[bytes] | None


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of every process around the kernel: a fixed PATH, locale and time zone, and `extra`.

    Raises ValueError when `extra` names a variable that steers interpreters, loaders or mypy.
    """
    environment = {"PATH": _PATH}
    for name in _LOCALE:
        value = os.environ.get(name, "")
        if _LOCALE_VALUE.fullmatch(value):
            environment[name] = value
    for name, value in (extra or {}).items():
        if name.upper().startswith(_FORBIDDEN_PREFIXES) or name in _FORBIDDEN:
            raise ValueError(f"the variable {name} must not be given to a process of the kernel")
        environment[name] = value
    return environment


def interpreter_argv(module: str, *args: str) -> list[str]:
    """The command that runs a module of ours: no working directory, user site or PYTHON* variables."""
    if not sys.executable or not os.path.isabs(sys.executable):
        raise SandboxError("sandbox: the path of the Python interpreter is not known")
    return [sys.executable, "-P", "-s", "-E", "-m", module, *args]


@dataclass(eq=False)
class Child:
    """A started process. `pid` is the interpreter, in the caller's namespace; `process` is it or its bubblewrap."""

    pid: int
    process: subprocess.Popen[bytes]
    level_expected: Level
    in_bwrap: bool = False
    _pidfd: int = field(default=-1, repr=False)

    def poll(self) -> int | None:
        """None while it runs, else the exit code; the negative signal number when a signal ended it."""
        return self._code(self.process.poll())

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the code as from `poll`. Raises subprocess.TimeoutExpired."""
        code = self._code(self.process.wait(timeout))
        assert code is not None
        return code

    def send_signal(self, number: int) -> bool:
        """Signal the interpreter itself (not a checkpoint or job it forked). False when it is gone."""
        try:
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self.process.returncode is None:
                os.kill(self.pid, number)
            else:
                return False
        except ProcessLookupError:
            return False
        return True

    def host_pid(self, inner: int) -> int | None:
        """The id in the caller's namespace of a process of this child that calls itself `inner`; None when there is
        none.
        """
        for name in os.listdir("/proc"):
            if name.isdigit() and _session_of(int(name)) == self.process.pid and _innermost_pid(int(name)) == inner:
                return int(name)
        return None

    def terminate_hard(self) -> None:
        """Kill the whole session (jobs and checkpoints too), reap it, and return when the interpreter is gone.

        Raises subprocess.TimeoutExpired when the operating system does not end it within ten seconds.
        """
        if self.process.returncode is None or _has_session(self.process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_KILL_SECONDS)
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            poller = select.poll()
            poller.register(self._pidfd, select.POLLIN)
            poller.poll(_KILL_SECONDS * 1000)
            os.close(self._pidfd)
            self._pidfd = -1
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def __del__(self) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._pidfd)

    def _code(self, code: int | None) -> int | None:
        # bubblewrap passes a death by signal on as 128 + its number
        if code is not None and self.in_bwrap and 128 < code < 128 + 65:
            return 128 - code
        return code


def launch(
    argv: Sequence[str],
    *,
    profile: Profile | None,
    pass_fds: Sequence[int],
    env: Mapping[str, str],
    cwd: str,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    use_bwrap: bool | None = None,
) -> Child:
    """Start a process: with a profile, one that will call `lock_down`; without, a trusted helper outside any sandbox.

    `use_bwrap` None uses bubblewrap when `prefers_bwrap`; True demands it. The caller closes its own `pass_fds`.
    Raises SandboxError when the program does not start or bubblewrap is demanded and does not work.
    """
    if not argv or not os.path.isabs(argv[0]) or not os.path.isabs(cwd):
        raise SandboxError("sandbox: program and working directory must be absolute paths")
    if profile is not None and profile.file_limit == 0:
        _require_no_file(stdout, stderr)
    wrapped = False
    if profile is not None and use_bwrap is not False:
        if use_bwrap and bubblewrap.why_not():
            raise SandboxError(f"sandbox: {bubblewrap.why_not()}")
        wrapped = True if use_bwrap else bubblewrap.suits(profile)
    elif use_bwrap:
        raise SandboxError("sandbox: bubblewrap needs a profile")
    expected = Level.NONE if profile is None else expected_level(with_bwrap=wrapped)

    if not wrapped or profile is None:
        process = _start(list(argv), pass_fds, env, cwd, stdout, stderr)
        return Child(process.pid, process, expected, _pidfd=_open_pidfd(process.pid))

    program = bubblewrap.find()
    if program is None:
        raise SandboxError("sandbox: bubblewrap has been removed")
    info, info_child = os.pipe()
    try:
        try:
            options = bubblewrap.arguments(
                profile, argv, cwd=cwd, info_fd=info_child, user_namespace=bubblewrap.uses_user_namespace()
            )
            process = _start([program, *options, "--", *argv], (*pass_fds, info_child), env, "/", stdout, stderr)
        finally:
            os.close(info_child)
        pid = bubblewrap.real_child(process, info)
    finally:
        os.close(info)
    return Child(pid, process, expected, in_bwrap=True, _pidfd=_open_pidfd(pid))


def prefers_bwrap(profile: Profile) -> bool:
    """Whether `launch` would use bubblewrap for this profile; the child must be told, for its `lock_down`."""
    return bubblewrap.suits(profile)


def _require_no_file(*streams: Stream) -> None:
    """A regular file cannot grow under RLIMIT_FSIZE 0, so the process would die at its first word."""
    for stream in streams:
        if stream is None:
            continue
        descriptor = stream if isinstance(stream, int) else stream.fileno()
        if descriptor >= 0 and stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise SandboxError("sandbox: the output of an isolated process must be a pipe, for its files cannot grow")


def expected_level(*, with_bwrap: bool) -> Level:
    """The level a process should prove on this machine, from the mechanisms there are; `survey` has the proved one."""
    files = landlock.version() > 0
    calls = seccomp.current_architecture() is not None
    if calls and (files or with_bwrap):
        return Level.FULL if with_bwrap else Level.STANDARD
    return Level.PARTIAL if files or calls or with_bwrap else Level.NONE


def _start(
    argv: list[str],
    pass_fds: Sequence[int],
    env: Mapping[str, str],
    cwd: str,
    stdout: Stream,
    stderr: Stream,
) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    linux = sys.platform == "linux"

    def bind_to_parent() -> None:
        # Runs between fork and exec, alone: one system call, no lock. bubblewrap does the same by itself, but only when
        # it has made its child: of a parent that ends before, it would never hear, and wait for ever.
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)

    if linux:
        libc.prctl(libc.PR_GET_DUMPABLE)  # resolves the symbol before the fork

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=dict(env), cwd=cwd, close_fds=True,
            pass_fds=tuple(pass_fds), start_new_session=True, preexec_fn=bind_to_parent if linux else None,
        )  # fmt: skip

    try:
        return _launcher().run(start)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SandboxError(f"sandbox: {os.path.basename(argv[0])} could not be started: {error}") from None


class _Launcher:
    """The one thread of this process that starts children; see Rule 2."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], _Answer]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="capkernel-launcher", daemon=True).start()

    def run(self, job: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        answer = _Answer()
        self._jobs.put((job, answer))
        answer.ready.wait()
        if answer.error is not None:
            raise answer.error
        assert answer.process is not None
        return answer.process

    def _serve(self) -> None:
        while True:
            job, answer = self._jobs.get()
            try:
                answer.process = job()
            except BaseException as error:  # handed to the caller, who raises it
                answer.error = error
            answer.ready.set()


@dataclass
class _Answer:
    ready: threading.Event = field(default_factory=threading.Event)
    process: subprocess.Popen[bytes] | None = None
    error: BaseException | None = None


_lock = threading.Lock()
_current: _Launcher | None = None


def _launcher() -> _Launcher:
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():  # a forked process has no such thread
            _current = _Launcher()
        return _current


def _open_pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _session_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as line:
            return int(line.read().rpartition(")")[2].split()[3])
    except (OSError, ValueError, IndexError):
        return -1


def _has_session(session: int) -> bool:
    return any(_session_of(int(name)) == session for name in os.listdir("/proc") if name.isdigit())


def _innermost_pid(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as table:
            line = next((line for line in table if line.startswith("NSpid:")), "")
        return int(line.split()[-1])
    except (OSError, ValueError, IndexError):
        return -1
