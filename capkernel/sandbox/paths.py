"""Which paths an isolated interpreter needs to read: libraries, fonts, time zones, and nothing of the user's.

Rule 1: never the home directory, the working directory, the notebook's directory or the root.
Rule 2: an entry of `sys.path` is added only when it is a library directory by its place (below a prefix) or by its name
(`site-packages`, `dist-packages`). Any other entry may be a project with secrets in it (a development checkout that a
`.pth` file or an editable install put there), so of such an entry only this package's own directory is added: what is
imported already keeps importing its own modules from there, the rest of the checkout stays closed. Other packages
that are installed in place must be named by the operator, as extra read paths of the profile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Final

LIBRARY_DIRECTORY_NAMES: Final = ("site-packages", "dist-packages")

_SYSTEM: Final = (
    "/usr/lib", "/lib", "/lib64", "/usr/lib64", "/usr/lib32", "/usr/libexec", "/usr/local/lib", "/usr/local/lib64",
    "/nix/store",
    "/usr/share/fonts", "/usr/local/share/fonts", "/usr/share/fontconfig", "/etc/fonts", "/var/cache/fontconfig",
    "/usr/share/zoneinfo", "/etc/localtime", "/usr/share/locale", "/usr/share/i18n", "/usr/share/matplotlib",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/dev/urandom", "/dev/random", "/dev/zero",
    "/sys/devices/system/cpu", "/sys/devices/system/node", "/proc/cpuinfo", "/proc/meminfo",
    "/proc/sys/vm/overcommit_memory",
    "/proc/self/maps",  # the C library reads it to find its own stack; it tells a process about itself only
)  # fmt: skip

_PREFIX_SHARES: Final = ("fonts", "zoneinfo", "fontconfig", "locale")
WRITABLE_FILES: Final = ("/dev/null",)


def default_read_paths() -> tuple[str, ...]:
    """The existing paths to read, sorted, without those below another one of the list."""
    found = {path for path in _candidates() if os.path.exists(path)}
    return tuple(without_nested(found))


def without_nested(paths: Iterable[str]) -> list[str]:
    """These paths, sorted, but for those that lie below another one."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(is_below(path, other) for other in kept):
            kept.append(path)
    return kept


def is_below(path: str, directory: str) -> bool:
    """True when `path` is `directory` or lies below it, by text."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def package_directory() -> str:
    """The directory of the package this module belongs to."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _candidates() -> Iterator[str]:
    yield from _SYSTEM
    prefixes = {os.path.abspath(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix) if prefix}
    for prefix in sorted(prefixes):
        if prefix == "/":
            continue
        yield os.path.join(prefix, "lib")
        yield os.path.join(prefix, "lib64")
        yield os.path.join(prefix, "pyvenv.cfg")
        for share in _PREFIX_SHARES:
            yield os.path.join(prefix, "share", share)
        yield os.path.join(prefix, "etc", "fonts")
    for entry in sys.path:
        if entry and os.path.isabs(entry) and _is_library(os.path.normpath(entry), prefixes):
            yield os.path.normpath(entry)
    yield package_directory()


def _is_library(entry: str, prefixes: Iterable[str]) -> bool:
    if os.path.basename(entry) in LIBRARY_DIRECTORY_NAMES:
        return True
    return any(is_below(entry, os.path.join(prefix, part)) for prefix in prefixes for part in ("lib", "lib64"))
