"""Secrets that the policy takes from the environment, on their way through the kernel's clean start.

The policy is not known before the start, so the front puts the whole environment into a file in memory, whose
descriptor it hands on. The kernel takes the variables that the policy names out of it and closes it.

Rule 1: standard library only: the front imports this.
Rule 2: no value becomes an object of the kernel: it is copied from file to file in memory, and read by the vault.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping


def hold(environment: Mapping[bytes, bytes]) -> int:
    """A descriptor of a file in memory with all of it, for `take`. Raises OSError."""
    fd = os.memfd_create("capkernel-environment")
    with os.fdopen(os.dup(fd), "wb") as out:
        out.write(b"\0" + b"".join(name + b"=" + value + b"\0" for name, value in environment.items()))
    return fd


def take(held: int, wanted: Mapping[str, str]) -> dict[str, int]:
    """Descriptors of the values of the variables that are there, by the secret's name. wanted: name → variable. Closes
    `held`."""
    found: dict[str, int] = {}
    try:
        if not wanted:
            return found
        with mmap.mmap(held, 0, prot=mmap.PROT_READ) as environment:
            for name, variable in wanted.items():
                key = b"\0" + variable.encode("ascii") + b"="
                at = environment.find(key)
                if at < 0:
                    continue
                start = at + len(key)
                found[name] = _copied(held, start, environment.find(b"\0", start))
        return found
    finally:
        os.close(held)


def _copied(held: int, start: int, end: int) -> int:
    fd = os.memfd_create("capkernel-secret")
    while start < end:
        start += os.sendfile(fd, held, start, end - start)
    return fd
