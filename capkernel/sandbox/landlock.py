"""Landlock: files, TCP, abstract sockets and signals closed by the kernel, with rights on named paths only.

Rule 1: every right that the running kernel knows is handled (so refused unless granted), and EXECUTE is granted
nowhere.
Rule 2: the caller gets the version that was applied; it decides nothing by version number, the self-test does.

Source: linux/landlock.h. Versions: 1 files, 2 REFER, 3 TRUNCATE, 4 TCP, 5 IOCTL_DEV, 6 scopes, 9 RESOLVE_UNIX.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Final

from . import libc
from .levels import SandboxError

# The same on every machine: from 403 on, system calls have one number.
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_CREATE_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
MAKE_DIR: Final = 1 << 7
MAKE_REG: Final = 1 << 8
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEV: Final = 1 << 15
RESOLVE_UNIX: Final = 1 << 16

_FILE_RIGHTS: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # what may be granted on a plain file
_READ: Final = READ_FILE | READ_DIR
_SCRATCH: Final = _READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER | TRUNCATE
_NET_TCP: Final = 0b11  # BIND_TCP | CONNECT_TCP
_SCOPES: Final = 0b11  # ABSTRACT_UNIX_SOCKET | SIGNAL


def version() -> int:
    """The Landlock version of the running kernel; 0 when there is none."""
    if sys.platform != "linux":
        return 0
    result, _ = libc.system_call(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    return max(result, 0)


def handled_rights(abi: int) -> int:
    """All file rights of this version."""
    rights = (1 << 13) - 1
    if abi >= 2:
        rights |= REFER
    if abi >= 3:
        rights |= TRUNCATE
    if abi >= 5:
        rights |= IOCTL_DEV
    if abi >= 9:
        rights |= RESOLVE_UNIX
    return rights


def ruleset_attribute(abi: int) -> bytes:
    """struct landlock_ruleset_attr, as long as this version knows it."""
    if abi >= 6:
        return struct.pack("<QQQ", handled_rights(abi), _NET_TCP, _SCOPES)
    if abi >= 4:
        return struct.pack("<QQ", handled_rights(abi), _NET_TCP)
    return struct.pack("<Q", handled_rights(abi))


def restrict(abi: int, *, read: Iterable[str], write_files: Iterable[str], scratch: str | None) -> None:
    """Put this thread (and what it forks) into a domain with these rights; it needs no_new_privs.

    `read`: directories (with all below) and files to read. `write_files`: single files to read and write (`/dev/null`).
    `scratch`: a directory with all but execution, links, sockets and devices. A path that does not exist is left out, a
    missing scratch directory is an error. Raises SandboxError when the kernel refuses anything else.
    """
    attribute = ctypes.create_string_buffer(ruleset_attribute(abi), len(ruleset_attribute(abi)))
    ruleset, error = libc.system_call(_CREATE_RULESET, attribute, len(attribute.raw), 0)
    if ruleset < 0:
        raise SandboxError(f"sandbox: Landlock refused the rule set: {libc.describe(error)}")
    try:
        handled = handled_rights(abi)
        for path in read:
            _allow(ruleset, path, _READ & handled, required=False)
        for path in write_files:
            _allow(ruleset, path, (READ_FILE | WRITE_FILE | TRUNCATE) & handled, required=False)
        if scratch is not None:
            _allow(ruleset, scratch, _SCRATCH & handled, required=True)
        result, error = libc.system_call(_RESTRICT_SELF, ruleset, 0)
        if result < 0:
            raise SandboxError(f"sandbox: Landlock could not be put in force: {libc.describe(error)}")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, *, required: bool) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if required:
            raise SandboxError(f"sandbox: the scratch directory cannot be opened: {error.strerror}") from None
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            if required:
                raise SandboxError("sandbox: the scratch path is not a directory")
            rights &= _FILE_RIGHTS
        # struct landlock_path_beneath_attr is packed: u64 allowed_access; s32 parent_fd;
        rule = ctypes.create_string_buffer(struct.pack("<Qi", rights, descriptor), 12)
        result, error_number = libc.system_call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
        # A kernel-internal file system (a pipe reached through /proc/self/fd) cannot carry a rule: leave it closed.
        if result < 0 and error_number != errno.EBADFD:
            raise SandboxError(f"sandbox: Landlock refused a path: {libc.describe(error_number)}")
    finally:
        os.close(descriptor)
