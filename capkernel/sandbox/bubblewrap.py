"""bubblewrap as the outer layer: own mount, process, network and IPC namespaces around an isolated process.

Rule 1: the mount namespace holds what the process may read, what its interpreter needs to start, its scratch
directory, and nothing else; all but the scratch directory is read-only.
Rule 2: whether bubblewrap works is found by running it with these very arguments, never by looking at versions.
Rule 3: the programs looked for are in fixed places, never on the caller's PATH.
Rule 4: no user namespace where it can be done without (as root). The memory of a program that is started inside one
belongs to that namespace, and the kernel gives every process of the namespace's owner all rights over it:
PR_SET_DUMPABLE 0 then no longer keeps other programs of the same user from reading it. A process that holds secrets
and can only have bubblewrap with a user namespace is better off without (`suits`).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final

from .levels import SandboxError
from .paths import default_read_paths, is_below, without_nested
from .profile import Profile

_PLACES: Final = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
_OWN: Final = ("/proc", "/dev")  # the namespace has its own
_ALL_NAMESPACES: Final = ("--unshare-all",)
_NO_USER_NAMESPACE: Final = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
_MAX_LINKS: Final = 40
_TRY_SECONDS: Final = 20.0
_START_SECONDS: Final = 20.0
_MAX_INFO: Final = 65536


def find() -> str | None:
    """The absolute path of the bubblewrap program, or None."""
    if sys.platform != "linux":
        return None
    for place in (*_PLACES, os.path.join(sys.prefix, "bin", "bwrap")):
        if os.access(place, os.X_OK) and os.path.isfile(place):
            return place
    return None


def why_not() -> str:
    """Why bubblewrap cannot be used here, or "" when it works. Runs it once in the life of the process."""
    return _tried()[0]


def suits(profile: Profile) -> bool:
    """True when a process of this role gains by bubblewrap: a worker always, one that holds secrets see Rule 4."""
    return not why_not() and (profile.role == "worker" or not uses_user_namespace())


def uses_user_namespace() -> bool:
    """True when bubblewrap works here only with a user namespace."""
    return _tried()[1]


@cache
def _tried() -> tuple[str, bool]:
    if os.name == "posix" and os.geteuid() == 0 and not _try(user_namespace=False):
        return "", False
    return _try(user_namespace=True), True


def _try(*, user_namespace: bool) -> str:
    program = find()
    if program is None:
        return "bubblewrap (bwrap) is not installed"
    if not sys.executable:
        return "this interpreter does not know its own path"
    trial = [sys.executable, "-I", "-S", "-c", "pass"]
    command = [
        program,
        *arguments(Profile("worker"), trial, cwd="/", info_fd=None, user_namespace=user_namespace),
        "--",
        *trial,
    ]
    try:
        done = subprocess.run(
            command, env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, timeout=_TRY_SECONDS, close_fds=True, cwd="/", check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap could not be run: {type(error).__name__}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"bubblewrap does not work here: {(lines[-1] if lines else f'exit code {done.returncode}')[:300]}"


def arguments(
    profile: Profile, argv: Sequence[str], *, cwd: str, info_fd: int | None, user_namespace: bool
) -> list[str]:
    """The options of bubblewrap for this profile and command, without the program and the command themselves."""
    options = list(_ALL_NAMESPACES if user_namespace else _NO_USER_NAMESPACE)
    # Without a user namespace lock_down needs this one to empty the bounding set; then it drops it too.
    keep = [] if user_namespace else ["--cap-add", "CAP_SETPCAP"]
    options += ["--die-with-parent", "--cap-drop", "ALL", *keep, "--proc", "/proc", "--dev", "/dev"]
    if info_fd is not None:
        options += ["--info-fd", str(info_fd)]
    chain = list(_links(argv[0]))
    real = os.path.realpath(argv[0])
    binds = [path for path in (*default_read_paths(), *profile.read) if not _is_own(path) and os.path.exists(path)]
    # A path with a link in it must exist in both forms: programs resolve their own place.
    binds += [os.path.realpath(path) for path in binds]
    for path in without_nested([*binds, real]):
        options += ["--ro-bind", path, path]
    bound = without_nested([*binds, real])
    for link in chain:
        if not any(is_below(link, path) for path in bound):
            options += ["--symlink", os.readlink(link), link]
    if profile.scratch is not None:
        options += ["--bind", profile.scratch, profile.scratch]
        bound.append(profile.scratch)
    if not any(is_below(cwd, path) for path in bound) and cwd != "/":
        options += ["--dir", cwd]
    options += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", cwd]
    return options


def real_child(process: subprocess.Popen[bytes], info: int) -> int:
    """The process id, in the caller's namespace, of the command that this bubblewrap started.

    bubblewrap tells the id of the first process of the new namespace, which only reaps; the command is that one's
    child.
    Raises SandboxError when bubblewrap ends before it started the command.
    """
    deadline = time.monotonic() + _START_SECONDS
    first = _first_process(info, deadline)
    while first is not None and time.monotonic() < deadline:
        children = children_of(first)
        if children:
            return min(children)
        if process.poll() is not None:
            break
        time.sleep(0.0005)
    process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    raise SandboxError(
        f"sandbox: bubblewrap ended (exit code {process.returncode}) before it started the process; "
        "run `capkernel doctor`"
    )


def children_of(pid: int) -> list[int]:
    """The ids of the children of a process; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listing:
            return [int(word) for word in listing.read().split()]
    except FileNotFoundError:
        if not os.path.exists(f"/proc/{pid}"):
            return []
    except OSError:
        return []
    # A kernel without the children file: look at every process's parent.
    return [other for other in _process_ids() if _parent_of(other) == pid]


def _first_process(info: int, deadline: float) -> int | None:
    text = b""
    poller = select.poll()  # select() fails in a process with many descriptors
    poller.register(info, select.POLLIN)
    while len(text) < _MAX_INFO:
        if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return None
        part = os.read(info, 4096)
        text += part
        try:
            pid = json.loads(text)["child-pid"]
        except (ValueError, KeyError, TypeError):
            if not part:
                return None
            continue
        return pid if isinstance(pid, int) and pid > 1 else None
    return None


def _process_ids() -> Iterable[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as line:
            return int(line.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def _links(path: str) -> Iterator[str]:
    """The symbolic links from this program to the file it is, in order."""
    for _ in range(_MAX_LINKS):
        if not os.path.islink(path):
            return
        yield path
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))


def _is_own(path: str) -> bool:
    return any(is_below(path, place) for place in _OWN)
