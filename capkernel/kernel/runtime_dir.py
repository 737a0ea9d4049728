"""The session's own directory: empty, private, gone when the session is. Standard library only.

Rule 1: nobody else can have put anything in it: it is made with mode 0700 in a directory that is ours alone.
Rule 2: what a killed kernel leaves is swept by the next: a session holds a lock on its directory as long as it lives.
Rule 3: a process is ended only when it is a bubblewrap of ours that names the directory of a session that is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import tempfile

_LOCK = "alive"


def parent_directory() -> str:
    """`$XDG_RUNTIME_DIR/capkernel` when that is ours, else `capkernel-UID` in the temporary directory."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and _is_ours(runtime):
        return os.path.join(runtime, "capkernel")
    return os.path.join(tempfile.gettempdir(), f"capkernel-{os.getuid()}")


def make(parent: str | None = None) -> tuple[str, int]:
    """A fresh session directory, and the descriptor that keeps it locked while it is open. Sweeps old ones.

    parent: `parent_directory()` unless given. Raises OSError when no private directory can be had.
    """
    parent = parent_directory() if parent is None else parent
    with contextlib.suppress(FileExistsError):
        os.mkdir(parent, 0o700)
    if not _is_ours(parent):
        raise PermissionError(f"{parent} belongs to someone else or others may write to it: remove it")
    _sweep(parent)
    made = tempfile.mkdtemp(prefix="session-", dir=parent)
    lock = os.open(os.path.join(made, _LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return made, lock


def remove(directory: str) -> None:
    """Remove a session directory and all in it."""
    shutil.rmtree(directory, ignore_errors=True)


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _sweep(parent: str) -> None:
    for name in os.listdir(parent):
        directory = os.path.join(parent, name)
        if not name.startswith("session-") or not _is_ours(directory):
            continue
        try:
            lock = os.open(os.path.join(directory, _LOCK), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # being made right now
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its session lives
        else:
            _end_waiting(directory)
            remove(directory)
        finally:
            os.close(lock)


def _end_waiting(directory: str) -> None:
    """End the bubblewrap processes of a session that is gone. They end with its kernel, but one whose kernel was killed
    while it made its own child waits for ever to be told to go on."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit() or not _names(name, directory):
            continue
        try:
            process = os.pidfd_open(int(name))
        except OSError:
            continue
        try:
            if _names(name, directory):  # still: the number was not given to another one meanwhile
                signal.pidfd_send_signal(process, signal.SIGKILL)
        except OSError:
            continue
        finally:
            os.close(process)


def _names(pid: str, directory: str) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return False
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            program, *arguments = file.read(1_000_000).split(b"\0")
    except (OSError, ValueError):
        return False
    prefix = os.fsencode(directory) + b"/"
    return os.path.basename(program) == b"bwrap" and any(argument.startswith(prefix) for argument in arguments)
