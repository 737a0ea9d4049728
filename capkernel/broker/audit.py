"""What was asked, decided and done: JSON lines that can only grow.

Rule 1: a line is written before its effect. When it cannot be written, the effect is refused.
Rule 2: a line holds who, what, where and the decision; never content, never a path of the host.
Rule 3: each line holds the SHA-256 of the one before, so a change or a hole inside the file shows. What a chain cannot
show is a cut at the end; keep `head` elsewhere to see that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import platformdirs

START: Final = "0" * 64
MAX_TEXT: Final = 4096
RECENT: Final = 200
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,128}")


class AuditUnavailable(Exception):
    """The audit cannot be written; effects are refused."""


@dataclass(frozen=True)
class AuditCheck:
    """lines: how many are sound. broken: the 1-based line at which the chain breaks, or None. head: the last hash."""

    lines: int
    broken: int | None
    head: str


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

    @property
    def session(self) -> str:
        return self._session

    def recent(self, count: int) -> list[str]:
        """The last lines of this session, at most RECENT, oldest first; kept here so that nobody has to read files."""
        with self._lock:
            return list(self._recent)[-count:] if count > 0 else []

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
        except OSError as problem:
            raise AuditUnavailable(
                f"the audit in {where} cannot be written ({os.strerror(problem.errno or 0)}), so no effect is allowed: "
                "make the directory writable"
            ) from None
        return cls(fd, session)

    def record(
        self, what: str, decision: str, *, cell: int | None, path: str = "", reason: str = "", who: str = "cell"
    ) -> None:
        """Add one line. what: e.g. "files.read". decision: "allowed", "denied" or "done". Raises AuditUnavailable."""
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
            entry["previous"] = self.head
            # ASCII: a lone surrogate or a line separator in a path cannot break the line or the encoding.
            line = json.dumps(entry, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
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
            self.head = hashlib.sha256(line[:-1]).hexdigest()

    def sync(self) -> None:
        """Put what is written on the disk. Called at the end of a cell. Raises AuditUnavailable."""
        with self._lock:
            if self._fd is None:
                return
            try:
                os.fsync(self._fd)
            except OSError as problem:
                self._give_up()
                raise AuditUnavailable(_unwritable(problem)) from None

    def close(self) -> None:
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def verify(path: Path) -> AuditCheck:
    """Whether every line of an audit follows from the one before. Reads the file line by line."""
    head, number = START, 0
    with open(path, "rb") as lines:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                return AuditCheck(number, number + 1, head)
            whole = line.endswith(b"\n") and isinstance(entry, dict)
            if not whole or entry.get("previous") != head or entry.get("n") != number:
                return AuditCheck(number, number + 1, head)
            head = hashlib.sha256(line[:-1]).hexdigest()
            number += 1
    return AuditCheck(number, None, head)


def _unwritable(problem: OSError) -> str:
    return f"the audit cannot be written ({os.strerror(problem.errno or 0)}), so no effect is allowed"
