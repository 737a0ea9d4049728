"""The C library calls that the sandbox needs, as typed functions. Linux only, but importable everywhere.

Rule 1: no `ctypes.util.find_library`: it starts compilers and linkers as child processes. `CDLL(None)` is the library
that the interpreter itself is linked with.
Rule 2: every argument is passed as a 64-bit word, so that no upper half is left undefined.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Final

from .levels import SandboxError

PR_SET_PDEATHSIG: Final = 1
PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4
PR_SET_NAME: Final = 15
PR_GET_NAME: Final = 16
PR_GET_SECCOMP: Final = 21
PR_SET_SECCOMP: Final = 22
PR_CAPBSET_READ: Final = 23
PR_CAPBSET_DROP: Final = 24
PR_SET_NO_NEW_PRIVS: Final = 38
PR_GET_NO_NEW_PRIVS: Final = 39
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
PR_SET_VMA: Final = 0x53564D41

_WORD: Final = (1 << 64) - 1


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    library.prctl.restype = ctypes.c_int
    return library


def system_call(number: int, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> tuple[int, int]:
    """Make one raw system call with up to six words or buffers. Returns (result, errno); errno is 0 on success."""
    words: list[object] = []
    for argument in arguments:
        if isinstance(argument, int):
            words.append(ctypes.c_ulong(argument & _WORD))
        else:
            words.append(argument)
    words.extend(ctypes.c_ulong(0) for _ in range(6 - len(words)))
    ctypes.set_errno(0)
    result = int(_library().syscall(ctypes.c_long(number), *words))
    return result, ctypes.get_errno() if result == -1 else 0


def prctl(option: int, first: int = 0, second: int = 0, third: int = 0, fourth: int = 0) -> tuple[int, int]:
    """prctl(2). Returns (result, errno)."""
    ctypes.set_errno(0)
    words = [ctypes.c_ulong(word & _WORD) for word in (first, second, third, fourth)]
    result = int(_library().prctl(ctypes.c_int(option), *words))
    return result, ctypes.get_errno() if result == -1 else 0


def required_prctl(what: str, option: int, first: int = 0) -> None:
    """prctl(2) that must succeed. Raises SandboxError naming `what`."""
    result, error = prctl(option, first)
    if result < 0:
        raise SandboxError(f"sandbox: {what} failed: {describe(error)}")


def unshare(flags: int) -> int:
    """unshare(2). Returns 0 or the errno."""
    ctypes.set_errno(0)
    result = int(_library().unshare(ctypes.c_int(flags)))
    return ctypes.get_errno() if result == -1 else 0


def mount(source: str, target: str, kind: str, flags: int) -> int:
    """mount(2) without data. Returns 0 or the errno."""
    ctypes.set_errno(0)
    words = [ctypes.c_char_p(text.encode()) for text in (source, target, kind)]
    result = int(_library().mount(*words, ctypes.c_ulong(flags), None))
    return ctypes.get_errno() if result == -1 else 0


def describe(error: int) -> str:
    """`EPERM (Operation not permitted)`."""
    return f"{errno.errorcode.get(error, str(error))} ({os.strerror(error)})"
