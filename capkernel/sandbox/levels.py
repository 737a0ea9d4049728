"""Sandbox levels and the named properties they are made of.

Rule 1: a level is a set of *proved properties*, never a version number or a list of mechanisms: a property is true only
when the locked process itself tried the thing and failed (see `selftest`).
Rule 2: an unknown property name never raises a level.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class SandboxError(RuntimeError):
    """The process could not be isolated as promised; it must not run untrusted code."""


FILES_CLOSED: Final = "files_closed"  # no user or system file outside the read set can be opened
WRITES_CLOSED: Final = "writes_closed"  # nothing can be created outside the scratch directory
PROCESS_FILES_CLOSED: Final = "process_files_closed"  # memory and environment of other processes, through /proc
SOCKETS_CLOSED: Final = "sockets_closed"
SIGNALS_CLOSED: Final = "signals_closed"
EXEC_CLOSED: Final = "exec_closed"
FORKS_CLOSED: Final = "forks_closed"  # no process creation, but for the exact fork flags when the profile asks for them
TRACING_CLOSED: Final = "tracing_closed"
KERNEL_INTERFACES_CLOSED: Final = "kernel_interfaces_closed"  # namespaces, keyrings, io_uring, bpf, shared memory, ...
PROCESS_ORACLES_CLOSED: Final = "process_oracles_closed"  # no call tells whether another process exists
NO_NEW_PRIVILEGES: Final = "no_new_privileges"
NO_CAPABILITIES: Final = "no_capabilities"
RESOURCE_LIMITS: Final = "resource_limits"
UNDUMPABLE: Final = "undumpable"

METADATA_HIDDEN: Final = "metadata_hidden"  # stat() of files outside the read set says "no such file"
OWN_PROCESS_TREE: Final = "own_process_tree"

# Told, but no condition of a level: nothing depends on them once the calls above are refused.
LANDLOCK_SCOPES: Final = "landlock_scopes"
OWN_NETWORK: Final = "own_network"
CAPABILITY_BOUND_EMPTY: Final = "capability_bound_empty"

SECCOMP_PROPERTIES: Final[frozenset[str]] = frozenset({
    SOCKETS_CLOSED, SIGNALS_CLOSED, EXEC_CLOSED, FORKS_CLOSED, TRACING_CLOSED, KERNEL_INTERFACES_CLOSED,
    PROCESS_ORACLES_CLOSED,
})  # fmt: skip
FILE_PROPERTIES: Final[frozenset[str]] = frozenset({FILES_CLOSED, WRITES_CLOSED, PROCESS_FILES_CLOSED})
PROCESS_PROPERTIES: Final[frozenset[str]] = frozenset({NO_NEW_PRIVILEGES, NO_CAPABILITIES, RESOURCE_LIMITS, UNDUMPABLE})
STANDARD_PROPERTIES: Final[frozenset[str]] = SECCOMP_PROPERTIES | FILE_PROPERTIES | PROCESS_PROPERTIES
FULL_PROPERTIES: Final[frozenset[str]] = STANDARD_PROPERTIES | {METADATA_HIDDEN, OWN_PROCESS_TREE}
ALL_PROPERTIES: Final[frozenset[str]] = FULL_PROPERTIES | {LANDLOCK_SCOPES, OWN_NETWORK, CAPABILITY_BOUND_EMPTY}


class Level(enum.IntEnum):
    """How far a process is isolated. Ordered: `level >= Level.STANDARD` is the usual demand."""

    NONE = 0
    PARTIAL = 1
    STANDARD = 2
    FULL = 3

    @property
    def label(self) -> str:
        """The name used in policy files, banners and reports: `"standard"`."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Level:
        """The level with this label. Raises ValueError for any other text."""
        for level in cls:
            if level.label == text:
                return level
        raise ValueError(f"unknown sandbox level; use one of {', '.join(level.label for level in cls)}")


def level_of(properties: Mapping[str, bool]) -> Level:
    """The highest level whose every property is proved."""
    proved = {name for name, value in properties.items() if value is True}
    if proved >= FULL_PROPERTIES:
        return Level.FULL
    if proved >= STANDARD_PROPERTIES:
        return Level.STANDARD
    # One whole half in force is worth naming: either no way to files, or no way to sockets and processes.
    if proved >= PROCESS_PROPERTIES | SECCOMP_PROPERTIES or proved >= PROCESS_PROPERTIES | FILE_PROPERTIES:
        return Level.PARTIAL
    return Level.NONE


def missing_for(level: Level, properties: Mapping[str, bool]) -> tuple[str, ...]:
    """The properties that `level` needs and that are not proved, in a fixed order."""
    needed = {Level.FULL: FULL_PROPERTIES, Level.STANDARD: STANDARD_PROPERTIES}.get(level, frozenset[str]())
    return tuple(sorted(name for name in needed if properties.get(name) is not True))
