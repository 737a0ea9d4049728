"""Records: for each execution its code and what it put out, as two files. Off unless the policy says `[records] keep`.

Rule 1: what is written passed the firewall and `redact`, so it holds masks where a cell held secrets.
Rule 2: a record never breaks or delays a cell: a thread of its own writes; what cannot be written is a line in the log.
Rule 3: files are made, never opened again: 0600, O_EXCL, O_NOFOLLOW, relative to a directory that was opened once. It
is below the user's state directory, which no grant of the broker reaches.
Rule 4: bounded: one file, what waits to be written, one session (the oldest go), and how many sessions are kept.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import platformdirs

from capkernel.kernel.redact import redacted

if TYPE_CHECKING:  # the firewall takes long to import, and a session that starts does not wait for it
    from capkernel.kernel.firewall import Output

MAX_FILE: Final = 262_144  # bytes of one file: masking them holds up the kernel for less than a second
MAX_WAITING: Final = 64  # executions that the disk is behind
SESSIONS_KEPT: Final = 200
CUT: Final = "\n[record cut here]\n"
_READ: Final = 2 * MAX_FILE  # characters that are looked at: masking comes first, so that no half of a key is left
_CLOSE_SECONDS = 5.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # it would stand between a name and its value
_CLEAN = re.compile(r"[^A-Za-z0-9_-]")
_log = logging.getLogger("capkernel")


class RecordsUnavailable(Exception):
    """The policy wants records, and they cannot be written. The text says where and why."""


def directory_ambient() -> Path:
    """Where records are kept: `records` in the user's state directory.

    Ambient authority: reads the environment and the home directory.
    """
    return Path(platformdirs.user_state_dir("capkernel", appauthor=False)) / "records"


def clean_session(session: str) -> str:
    """A session's name as a part of a file's: letters, digits, `-` and `_`, at most 64; `unknown` when none is left."""
    kept = _CLEAN.sub("", session)[:64]
    return kept if kept.strip("-_") else "unknown"


@dataclass
class Transcript:
    """What one execution puts out, as text. Bounded."""

    parts: list[str] = field(default_factory=list)
    size: int = 0
    cut: bool = False

    def add(self, output: Output) -> None:
        """An output as it went to the client: streams, and `text/plain` of all else."""
        content = output.content
        match output.kind:
            case "stream":
                text = content.get("text")
            case "execute_result" | "display_data" | "update_display_data":
                text = f"{content.get('data', {}).get('text/plain', '')}\n"
            case _:
                return  # an error is said by the reply
        if isinstance(text, str) and not self.cut:
            self.parts.append(text[: _READ - self.size])
            self.size += len(text)
            self.cut = self.size > _READ

    def result(self, reply: dict[str, Any]) -> str:
        """`status: success` or `status: failure`, what was put out, and the error of a failure."""
        ok = reply.get("status") == "ok"
        text = f"status: {'success' if ok else 'failure'}\n{''.join(self.parts)}"
        self.parts.clear()  # what threads still print is not recorded
        self.cut = True
        if ok:
            return text
        said = f"{reply.get('ename', '')}: {reply.get('evalue', '')}"
        trace = [line for line in reply.get("traceback", ()) if isinstance(line, str)]
        return "\n".join([text, f"Error: {said}", *trace])


class Recorder:
    """The records of one session. Construct with `open_ambient`; `record` and `close` from any thread."""

    def __init__(self, fd: int, session: str, max_bytes: int) -> None:
        """fd: the session's own directory, ours from now on. max_bytes: of all files in it."""
        self._fd = fd
        self._session = clean_session(session)
        self._max_bytes = max_bytes
        self._written: deque[tuple[tuple[str, str], int]] = deque()
        self._bytes = 0
        self._number = 0
        self._waiting: deque[tuple[str, float, str, str]] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="capkernel-records", daemon=True)
        self._thread.start()

    @classmethod
    def open_ambient(cls, session: str, max_bytes: int, directory: Path | None = None) -> Recorder:
        """Make the session's directory, 0700, and remove those of the oldest sessions. Raises RecordsUnavailable.

        Ambient authority: creates a directory in the user's state directory.
        """
        where = directory_ambient() if directory is None else directory
        try:
            where.mkdir(parents=True, exist_ok=True, mode=0o700)
            _forget_oldest(where, SESSIONS_KEPT - 1)
            above = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                name = clean_session(session)
                os.mkdir(name, 0o700, dir_fd=above)
                fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            finally:
                os.close(above)
        except OSError as problem:
            raise RecordsUnavailable(
                f"the policy asks for records, and {where} cannot be written ({os.strerror(problem.errno or 0)}): "
                "make it writable, or take `keep` out of [records]"
            ) from None
        return cls(fd, session, max_bytes)

    def record(self, code: str, result: str) -> None:
        """Keep one execution. Returns at once; when the disk is too far behind, it is left out and the log says so."""
        with self._change:
            if self._closed:
                return
            self._number += 1
            if len(self._waiting) >= MAX_WAITING:
                _log.warning("execution %d is not recorded: the disk is %d behind", self._number, MAX_WAITING)
                return
            now = time.time()
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}"
            self._waiting.append((f"{stamp}_{self._number:04d}_{self._session}", now, code, result))
            self._change.notify_all()

    def close(self) -> None:
        """Write what waits, within a few seconds, and take no more. Twice is fine."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join(_CLOSE_SECONDS)

    def _write_all(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    break
                name, _, code, result = self._waiting.popleft()
            try:
                self._write(name, code, result)
            except Exception as problem:  # Rule 2; its text could hold what was to be written
                _log.warning("an execution is not recorded: %s", _why(problem))
        os.close(self._fd)

    def _write(self, name: str, code: str, result: str) -> None:
        names = (f"{name}.py", f"{name}.result")
        size = self._file(names[0], _bounded(code))
        size += self._file(names[1], _bounded(result))
        self._written.append((names, size))
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._written) > 1:
            old, freed = self._written.popleft()
            self._bytes -= freed
            for file in old:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file, dir_fd=self._fd)

    def _file(self, name: str, data: bytes) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=self._fd), "wb") as file:
            file.write(data)
        return len(data)


def _bounded(text: str) -> bytes:
    data = redacted(_COLOUR.sub("", text[:_READ])).encode("utf-8", "backslashreplace")
    if len(data) <= MAX_FILE and len(text) <= _READ:
        return data
    return data[:MAX_FILE].decode("utf-8", "ignore").encode() + CUT.encode()


def _forget_oldest(where: Path, keep: int) -> None:
    """Remove whole directories of sessions, the oldest first. A link in their place is not followed."""
    found = [entry for entry in os.scandir(where) if entry.is_dir(follow_symlinks=False)]
    found.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime)
    for entry in found[: max(0, len(found) - keep)]:
        shutil.rmtree(entry.path, ignore_errors=True)


def _why(problem: Exception) -> str:
    return os.strerror(problem.errno or 0) if isinstance(problem, OSError) else type(problem).__name__
