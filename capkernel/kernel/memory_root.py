"""A root in memory: a private directory in a file system that has no disk (tmpfs), gone when its session is.

The broker serves it like any other root, by the same rules; see docs/adr/0006-a-root-in-memory.md.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from capkernel.broker.room import MAX_BYTES, Room
from capkernel.kernel import runtime_dir
from capkernel.policy.model import Policy

_IN_MEMORY = ("tmpfs", "ramfs")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # only a directory of our own in it is used


class NoMemoryRoot(RuntimeError):
    """There is no file system in memory where a private directory can be made."""


@dataclass(frozen=True)
class MemoryRoot:
    """path: the root. room: what it may hold. lock: keeps the next session from sweeping it away."""

    path: Path
    room: Room
    lock: int

    @classmethod
    def make(cls) -> MemoryRoot:
        """A new, empty one. Raises NoMemoryRoot."""
        for parent in (runtime_dir.parent_directory(), f"{_SHARED_MEMORY}/capkernel-{os.getuid()}"):
            if not is_in_memory(os.path.dirname(parent)):
                continue
            with contextlib.suppress(OSError):
                session, lock = runtime_dir.make(parent)
                path = os.path.join(session, "files")
                os.mkdir(path, 0o700)
                space = os.statvfs(path)
                # Others live here too: at most half of what is free.
                free = space.f_bavail * space.f_frsize // 2
                path = os.path.realpath(path)
                return cls(Path(path), Room(path, min(MAX_BYTES, free) if space.f_blocks else MAX_BYTES), lock)
        raise NoMemoryRoot(
            "files.memory = true, and this machine has no tmpfs where a private directory can be made: set "
            f"XDG_RUNTIME_DIR to one, or mount {_SHARED_MEMORY}"
        )

    def granted_by(self, policy: Policy) -> Policy:
        """`policy` with this root and no other. Where it grants no files at all, it still grants none."""
        if not policy.files.roots:
            return policy
        return replace(policy, files=msgspec.structs.replace(policy.files, roots=(".",)), base_dir=self.path)

    def close(self) -> None:
        """Take it away, with all in it."""
        runtime_dir.remove(str(self.path.parent))
        with contextlib.suppress(OSError):
            os.close(self.lock)


def is_in_memory(directory: str) -> bool:
    """Whether the file system of a directory has no disk. False when that cannot be told."""
    try:
        device = os.stat(directory).st_dev
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                fields, _, rest = line.partition(" - ")
                if fields.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                    return rest.split()[0] in _IN_MEMORY
    except (OSError, IndexError):
        return False
    return False
