"""Profile (what a process may still do) and Report (what was proved), with their JSON forms.

Rule 1: a profile never grants the root directory, and every path in it is absolute and normal.
Rule 2: both JSON forms are closed: an unknown key, a wrong type or an oversized text is an error. The report crosses
from an untrusted process to the kernel, so its level is recomputed from the properties and its sizes are bounded.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Final

from .levels import ALL_PROPERTIES, Level, level_of

ROLES: Final[tuple[str, ...]] = ("worker", "keeper", "runner")
MAX_JSON: Final = 256 * 1024  # characters
MAX_PATHS: Final = 256
MAX_PATH: Final = 4096
MAX_NOTES: Final = 64
MAX_NOTE: Final = 500
SCRATCH_FILE_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True)
class Profile:
    """What a process may still do after `lock_down`.

    role: "worker", "keeper" or "runner". read: read-only paths beyond `default_read_paths()`. scratch: a directory with
    write rights, or None. memory_bytes: RLIMIT_AS (address space, bytes), or None for no limit. data_bytes: RLIMIT_DATA
    (private writable memory, bytes: what it allocated), or None for no limit. allow_fork: exactly the flags of the C
    library's fork(), and waiting for children. file_bytes: RLIMIT_FSIZE in bytes, the size to which any file can grow;
    None means 0 without a scratch directory and 256 MiB with one.

    Raises ValueError for a relative or root path, an unknown role or a negative size.
    """

    role: str
    read: tuple[str, ...] = ()
    scratch: str | None = None
    memory_bytes: int | None = None
    allow_fork: bool = False
    file_bytes: int | None = None
    data_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"unknown sandbox role; use one of {', '.join(ROLES)}")
        if len(self.read) > MAX_PATHS:
            raise ValueError(f"a sandbox profile has at most {MAX_PATHS} read paths")
        for path in self.read:
            _check_path(path, "read")
        if self.scratch is not None:
            _check_path(self.scratch, "scratch")
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise ValueError("memory_bytes must be positive")
        if self.data_bytes is not None and self.data_bytes <= 0:
            raise ValueError("data_bytes must be positive")
        if self.file_bytes is not None and self.file_bytes < 0:
            raise ValueError("file_bytes must not be negative")

    @property
    def file_limit(self) -> int:
        """RLIMIT_FSIZE in bytes."""
        if self.file_bytes is not None:
            return self.file_bytes
        return 0 if self.scratch is None else SCRATCH_FILE_BYTES

    def to_json(self) -> str:
        return json.dumps({
            "role": self.role, "read": list(self.read), "scratch": self.scratch, "memory_bytes": self.memory_bytes,
            "allow_fork": self.allow_fork, "file_bytes": self.file_bytes,
            "data_bytes": self.data_bytes,
        })  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """The profile written by `to_json`. Raises ValueError when the text is anything else."""
        raw = _object(
            text, {"role", "read", "scratch", "memory_bytes", "allow_fork", "file_bytes", "data_bytes"}, "profile"
        )
        scratch = raw["scratch"]
        if scratch is not None and not isinstance(scratch, str):
            raise ValueError("profile: scratch must be a path or null")
        return cls(
            role=_text(raw["role"], "role"),
            read=tuple(_text(item, "read") for item in _list(raw["read"], "read")),
            scratch=scratch,
            memory_bytes=_integer(raw["memory_bytes"], "memory_bytes"),
            allow_fork=_boolean(raw["allow_fork"], "allow_fork"),
            file_bytes=_integer(raw["file_bytes"], "file_bytes"),
            data_bytes=_integer(raw["data_bytes"], "data_bytes"),
        )


@dataclass(frozen=True)
class Report:
    """What `lock_down` proved: the level, the Landlock version in force (0 for none) and every property by name."""

    level: Level
    landlock_abi: int
    properties: dict[str, bool] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps({
            "level": self.level.label, "landlock_abi": self.landlock_abi, "properties": self.properties,
            "notes": list(self.notes),
        })  # fmt: skip

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report written by `to_json`. Raises ValueError for unknown properties, or a level they do not carry."""
        raw = _object(text, {"level", "landlock_abi", "properties", "notes"}, "report")
        properties = raw["properties"]
        if not isinstance(properties, dict):
            raise ValueError("report: properties must be an object")
        for name, value in properties.items():
            if name not in ALL_PROPERTIES or not isinstance(value, bool):
                raise ValueError("report: unknown property, or one that is not true or false")
        notes = _list(raw["notes"], "notes")
        if len(notes) > MAX_NOTES or any(not isinstance(note, str) or len(note) > MAX_NOTE for note in notes):
            raise ValueError("report: too many notes, or one that is too long")
        abi = _integer(raw["landlock_abi"], "landlock_abi")
        if abi is None or abi < 0:
            raise ValueError("report: landlock_abi must be a number from 0 on")
        level = Level.parse(_text(raw["level"], "level"))
        if level != level_of(properties):
            raise ValueError("report: the level does not follow from the properties")
        return cls(level=level, landlock_abi=abi, properties=dict(properties), notes=tuple(notes))


def _check_path(path: str, what: str) -> None:
    if not os.path.isabs(path) or os.path.normpath(path) != path or "\0" in path or len(path) > MAX_PATH:
        raise ValueError(f"profile: every {what} path must be absolute and normal")
    if os.path.realpath(path) == "/":
        raise ValueError(f"profile: a {what} path must not be the root directory")


def _object(text: str, keys: set[str], what: str) -> dict[str, Any]:
    if len(text) > MAX_JSON:
        raise ValueError(f"{what}: text is too long")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{what}: not JSON") from None
    if not isinstance(raw, dict) or set(raw) != keys:
        raise ValueError(f"{what}: not an object with exactly the keys {', '.join(sorted(keys))}")
    return raw


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{key} must be text")
    return value


def _list(value: object, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{key} must be a list")
    return value


def _integer(value: object, key: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{key} must be a whole number or null")
    return value


def _boolean(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false")
    return value
