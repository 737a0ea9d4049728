"""What the person has trusted: which content of which policy file, in a file of the user's own.

Rule 1: an entry is a canonical path and the SHA-256 of the bytes; both must be the same for the entry to count.
Rule 2: the store counts only when it is a regular file of this user that nobody else may read or write (mode 0600),
reached without a link at its end. Anything else trusts nothing, and says so. A repository cannot ship such a file.
Rule 3: a store inside the directory whose policy it would speak for counts for nothing there.
Rule 4: it changes all at once, under a lock.

The text of what was trusted is kept too: when the file changes or goes, what it narrowed still holds (`resolve`), so
that a pulled commit cannot take a person's own classified patterns away.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import platformdirs

from capkernel.policy.load import MAX_BYTES, Source
from capkernel.policy.paths import is_below

STORE_NAME: Final = "trust.json"
MAX_ENTRIES: Final = 1000
_MAX_STORE: Final = 16 * MAX_BYTES
_SHA256 = re.compile(r"[0-9a-f]{64}")


class TrustError(Exception):
    """The store cannot be used. The text says why and what to do."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """path: canonical. trusted: when, UTC. text: the content, as it was trusted."""

    path: str
    sha256: str
    trusted: str
    text: str


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    files: tuple[Entry, ...]


@dataclass(frozen=True)
class TrustStore:
    """What is trusted now. problem: why the store counts for nothing, or ""."""

    directory: Path
    entries: tuple[Entry, ...] = ()
    problem: str = ""

    def entry(self, place: Path) -> Entry | None:
        """What was trusted at this canonical path."""
        if is_below(os.path.realpath(self.directory), str(place.parent)):
            return None
        return next((entry for entry in self.entries if entry.path == str(place)), None)

    def trusts(self, source: Source) -> bool:
        """Whether exactly this content was trusted at its place."""
        entry = self.entry(source.file)
        return entry is not None and entry.sha256 == source.sha256


def directory_ambient() -> Path:
    """Where the store is kept: the user's configuration directory.

    Ambient authority: reads the environment and the home directory.
    """
    return Path(platformdirs.user_config_dir("capkernel", appauthor=False))


def canonical_place(file: Path | str) -> Path:
    """The path under which a policy file is trusted: links resolved but for its own name."""
    absolute = Path(os.path.abspath(file))
    return Path(os.path.realpath(absolute.parent)) / absolute.name


def read_store(directory: Path) -> TrustStore:
    """The store in `directory`. Never raises: one that must not be used has a problem and no entries."""
    try:
        folder = _open_directory(directory)
    except FileNotFoundError:
        return TrustStore(directory)
    except (OSError, TrustError) as problem:
        return TrustStore(directory, (), _words(problem))
    try:
        return TrustStore(directory, _read(folder))
    except FileNotFoundError:
        return TrustStore(directory)
    except (OSError, TrustError) as problem:
        return TrustStore(directory, (), _words(problem))
    finally:
        os.close(folder)


def trust(directory: Path, source: Source) -> None:
    """Trust exactly this content at its (canonical) place. Raises TrustError."""
    try:
        text, path = source.data.decode("utf-8"), os.fsencode(source.file).decode("utf-8")
    except UnicodeError:
        raise TrustError("the path and the content of a trusted policy are UTF-8 text") from None
    if is_below(os.path.realpath(directory), str(source.file.parent)):
        raise TrustError(
            f"the trust store ({directory}) is inside of the directory of this policy, so it cannot vouch for it: "
            "name the policy with --policy or $CAPKERNEL_POLICY"
        )
    entry = Entry(path, source.sha256, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text)

    def change(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        others = tuple(known for known in entries if known.path != path)
        if len(others) >= MAX_ENTRIES:
            raise TrustError(f"{MAX_ENTRIES} files are trusted; untrust some (capkernel policy untrust FILE)")
        return (*others, entry)

    _change(directory, change)


def untrust(directory: Path, place: Path) -> bool:
    """Forget what was trusted at this canonical path. False when nothing was. Raises TrustError."""
    if not any(entry.path == str(place) for entry in _usable(read_store(directory)).entries):
        return False
    _change(directory, lambda entries: tuple(entry for entry in entries if entry.path != str(place)))
    return True


def _usable(store: TrustStore) -> TrustStore:
    if store.problem:
        raise TrustError(f"{store.directory / STORE_NAME}: {store.problem}")
    return store


def _change(directory: Path, change: Callable[[tuple[Entry, ...]], tuple[Entry, ...]]) -> None:
    try:
        if not directory.is_absolute():
            raise TrustError("the configuration directory is a relative path: set XDG_CONFIG_HOME to an absolute one")
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = _open_directory(directory)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # ends with the descriptor
            try:
                entries = _read(folder)
            except FileNotFoundError:
                entries = ()
            data = msgspec.json.format(msgspec.json.encode(_Stored(1, change(entries))), indent=1)
            if len(data) > _MAX_STORE:
                raise TrustError(f"the trust store has at most {_MAX_STORE} bytes; untrust some files")
            _replace(folder, data + b"\n")
        finally:
            os.close(folder)
    except OSError as problem:
        raise TrustError(f"{directory / STORE_NAME}: {_words(problem)}") from None


def _open_directory(directory: Path) -> int:
    if not directory.is_absolute():
        raise TrustError("the configuration directory is a relative path: set XDG_CONFIG_HOME to an absolute one")
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.fstat(fd)
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        os.close(fd)
        raise TrustError("the directory belongs to someone else or others may write to it: chmod go-w it")
    return fd


def _read(folder: int) -> tuple[Entry, ...]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(STORE_NAME, flags, dir_fd=folder)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise TrustError("the trust store is no regular file, so nothing is trusted: remove it")
        if found.st_uid != os.getuid() or found.st_mode & 0o077 or found.st_nlink != 1:
            raise TrustError(
                "the trust store is not yours alone, so nothing is trusted: look into it, then chmod 600 or remove it"
            )
        data = file.read(_MAX_STORE + 1)
    if len(data) > _MAX_STORE:
        raise TrustError("the trust store is too large, so nothing is trusted: remove it")
    try:
        stored = msgspec.json.decode(data, type=_Stored)
    except (ValueError, RecursionError):  # no text of the file goes into the message
        raise TrustError("the trust store is damaged, so nothing is trusted: remove it and trust again") from None
    sound = stored.version == 1 and all(
        entry.path.startswith("/") and _SHA256.fullmatch(entry.sha256) for entry in stored.files
    )
    if not sound:
        raise TrustError("the trust store is of another version, so nothing is trusted: remove it and trust again")
    return stored.files


def _replace(folder: int, data: bytes) -> None:
    temporary = f".{STORE_NAME}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with open(fd, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, STORE_NAME, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _words(problem: Exception) -> str:
    if isinstance(problem, OSError):
        return f"{os.strerror(problem.errno or 0)}, so nothing is trusted"
    return str(problem)
