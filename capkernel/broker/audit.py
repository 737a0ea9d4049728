"""What was asked, decided and done: JSON lines that can only grow.

Rule 1: a line is written before its effect. When it cannot be written, the effect is refused.
Rule 2: a line holds who, what, where and the decision; never content, never a path of the host.
Rule 3: each line holds the SHA-256 of the one before, so a change or a hole inside the file shows. A session that ends
says so in its last line; without it the kernel was killed, or lines were cut off. The chain has no key: who may write
the file can write all of it anew. Keep `head` elsewhere to see that.
Rule 4: a file belongs to one session. It is locked as long as its kernel runs, and is never opened a second time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import platformdirs

START: Final = "0" * 64
MAX_TEXT: Final = 4096
MAX_LINE: Final = 64 * 1024  # bytes; `record` writes less
RECENT: Final = 1_000  # lines, kept for the person
END: Final = "session.end"
Ending = Literal["ended", "running", "missing"]
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,128}")
_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class AuditUnavailable(Exception):
    """The audit cannot be written; effects are refused."""


@dataclass(frozen=True)
class AuditCheck:
    """lines: how many are sound. broken: the 1-based line at which the chain breaks, or None. head: the last hash.

    problem: what is wrong there, "" when nothing is. end: whether the session said that it ended, still runs, or
    neither: then it was killed, or lines at the end are missing, which nobody can tell apart.
    """

    lines: int
    broken: int | None
    head: str
    problem: str = ""
    end: Ending = "missing"


def directory_ambient() -> Path:
    """Where audits are kept: `audit` in the user's state directory.

    Ambient authority: reads the environment and the home directory.
    """
    return Path(platformdirs.user_state_dir("capkernel", appauthor=False)) / "audit"


class AuditLog:
    """The audit of one session. Thread-safe."""

    def __init__(self, fd: int, session: str) -> None:
        self._fd: int | None = fd
        self._session = session
        self._lock = threading.Lock()
        self._number = 0
        self.head = START
        self._recent: deque[str] = deque(maxlen=RECENT)
        self._person: deque[str] = deque(maxlen=RECENT)

    @property
    def session(self) -> str:
        return self._session

    def recent(self, count: int, who: str = "", words: str = "") -> list[str]:
        """The last lines of this session, oldest first; kept here so that nobody has to read files. At most RECENT are
        kept, and as many of the person's own (who="person"). words: only lines in which each of them stands."""
        wanted = words.lower().split()
        with self._lock:
            lines = list(self._person if who == "person" else self._recent)
        if wanted:
            lines = [line for line in lines if all(word in line.lower() for word in wanted)]
        return lines[-count:] if count > 0 else []

    @classmethod
    def open_ambient(cls, session: str, directory: Path | None = None) -> AuditLog:
        """A new file `<session>.jsonl`, mode 0600, in a directory of mode 0700. Raises AuditUnavailable.

        Ambient authority: creates a file in the user's state directory.
        """
        if not _SESSION.fullmatch(session):
            raise AuditUnavailable("a session's name is letters, digits, '-' and '_'")
        where = directory_ambient() if directory is None else directory
        try:
            where.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(where / f"{session}.jsonl", flags, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            raise AuditUnavailable(
                f"the audit in {where} cannot be written ({os.strerror(problem.errno or 0)}), so no effect is allowed: "
                "make the directory writable"
            ) from None
        return cls(fd, session)

    def record(
        self, what: str, decision: str, *, cell: int | None, path: str = "", reason: str = "", who: str = "cell",
        authority: str = "",
    ) -> None:  # fmt: skip
        """Add one line. what: e.g. "files.read". decision: "allowed", "denied" or "done". authority: for "cell", the
        line that says what the cell may do. Raises AuditUnavailable."""
        with self._lock:
            if self._fd is None:
                raise AuditUnavailable("the audit of this session is closed, so no effect is allowed")
            entry: dict[str, Any] = {
                "n": self._number,
                "time": round(time.time(), 6),
                "session": self._session,
                "who": who,
                "cell": cell,
                "what": what,
                "decision": decision,
                "path": path[:MAX_TEXT],
            }
            if reason:
                entry["reason"] = reason[:MAX_TEXT]
            if authority:
                entry["authority"] = authority[:MAX_TEXT]
            entry["previous"] = self.head
            # ASCII: a lone surrogate or a line separator in a path cannot break the line or the encoding.
            line = _encode(entry).encode("ascii") + b"\n"
            try:
                written = os.write(self._fd, line)
            except OSError as problem:
                self._give_up()
                raise AuditUnavailable(_unwritable(problem)) from None
            if written != len(line):
                # Half a line: what follows could not be told from it.
                self._give_up()
                raise AuditUnavailable("the audit is full, so no effect is allowed: free some space and restart")
            self._number += 1
            self._recent.append(line[:-1].decode("ascii"))
            if who == "person":
                self._person.append(self._recent[-1])
            self.head = hashlib.sha256(line[:-1]).hexdigest()

    def sync(self) -> None:
        """Put what is written on the disk. Called at the end of a cell. Raises AuditUnavailable."""
        with self._lock:
            if self._fd is None:
                return
            fd = os.dup(self._fd)
        try:
            os.fsync(fd)  # without the lock: nobody who records waits for the disk
        except OSError as problem:
            with self._lock:
                self._give_up()
            raise AuditUnavailable(_unwritable(problem)) from None
        finally:
            os.close(fd)

    def close(self) -> None:
        """Say that the session has ended, and write no more. Twice is fine."""
        with contextlib.suppress(AuditUnavailable):  # closed before, or no room: then the end stays unsaid
            self.record(END, "done", cell=None, who="kernel")
            self.sync()
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def verify(path: Path) -> AuditCheck:
    """Whether every line of an audit follows from the one before. Reads the file line by line. Raises OSError."""
    head, number, last = START, 0, ""
    with open(_opened(path), "rb") as lines:
        running = _is_locked(lines.fileno())
        while line := lines.readline(MAX_LINE + 1):
            entry = _entry(line)
            if entry is None:
                if running and not line.endswith(b"\n"):
                    break  # it is being written now
                return AuditCheck(number, number + 1, head, "it is not a whole line of an audit: cut or overwritten")
            if entry["n"] != number or entry["previous"] != head:
                broken, problem = _judged(entry, number, head, lines)
                return AuditCheck(number, broken, head, problem)
            head = hashlib.sha256(line[:-1]).hexdigest()
            number += 1
            last = str(entry.get("what"))
            if last == END and lines.peek(1):
                return AuditCheck(number, number + 1, head, "it follows the end of the session: it was added")
    return AuditCheck(number, None, head, "", "running" if running else "ended" if last == END else "missing")


def _opened(path: Path) -> int:
    # Neither a link nor a pipe that blocks: the directory is ours, but a mistake in it must not hang the command.
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _entry(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and type(entry.get("n")) is int and "previous" in entry else None


def _judged(entry: dict[str, Any], number: int, head: str, rest: Any) -> tuple[int, str]:
    """The first line that is wrong, and how. `entry` stands where line `number` (from 0) should."""
    place, stands = number + 1, entry["n"]
    if entry["previous"] == head:
        return place, "it was edited: its number is wrong"
    if stands == number:
        # Its own number is right, so what it points at is not what stands before it.
        return max(number, 1), "it was edited (or the link to it in the line after it was)"
    if stands < number:
        return place, f"it was moved or repeated: it is line {stands + 1} of the session"
    while line := rest.readline(MAX_LINE + 1):
        later = _entry(line)
        if later is not None and later["n"] == number:
            return place, f"it was moved: it is line {stands + 1} of the session"
    gone = stands - number
    return place, f"{gone} {'line was' if gone == 1 else 'lines were'} removed before it"


def _unwritable(problem: OSError) -> str:
    return f"the audit cannot be written ({os.strerror(problem.errno or 0)}), so no effect is allowed"
