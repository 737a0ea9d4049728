"""What no grant reaches, whatever the policy's roots say: the places the trusted side itself runs from and writes to.

Rule 1: a place is excluded by its path and by its identity (device, inode), so neither a bind mount nor another
spelling reaches it. Every directory from the file up to `/` is looked at.
Rule 2: a directory with a `pyvenv.cfg` is a Python environment and excluded: what is written there runs later.
Rule 3: a file with the name of a policy is excluded wherever it lies: it would speak for a later session.

Import paths that are no library directory (a checkout that an editable install put on `sys.path`) are not excluded as a
whole, because a notebook may live in one: there, files that Python would import cannot be written.
"""

from __future__ import annotations

import importlib.machinery
import os
import site
import stat
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import platformdirs
from jupyter_core import paths as jupyter_paths

from capkernel.policy.linked import LinkedFiles
from capkernel.policy.load import FILE_NAMES
from capkernel.policy.paths import below

_LIBRARY = "a library directory"
_SYSTEM = "a file system of the operating system"
_CODE = "the code of capkernel"
# What is there is no secret, and a second name of it is never written through (`broker.files` replaces or refuses).
_NOT_PRIVATE = frozenset({_LIBRARY, _SYSTEM, _CODE})
_EXCLUDED_NAMES = {"pyvenv.cfg": "a Python environment", **dict.fromkeys(FILE_NAMES, "a policy file")}
_KERNEL_FILE_SYSTEMS = ("/proc", "/sys", "/dev")
_IMPORTABLE = (*importlib.machinery.all_suffixes(), ".pth", ".egg-link")


class Exclusions:
    """The excluded places of this process, as they were when it was made.

    places: absolute path → what it is, for the message. imports: directories whose importable files are not writable.
    granted: the root of a session whose files are in memory; it lies in places that are excluded, and nothing else is
    granted.
    """

    def __init__(self, places: Iterable[tuple[str, str]], imports: Iterable[str] = (), *, granted: str = "") -> None:
        self._granted = granted
        self._paths: dict[str, str] = {}
        self._inodes: dict[tuple[int, int], str] = {}
        for path, what in places:
            resolved = os.path.realpath(path)
            if resolved == "/":
                continue  # a broken environment; excluding everything would hide the reason
            self._paths[resolved] = what
            try:
                found = os.stat(resolved)
            except OSError:
                continue  # not there yet: the path alone stands for it
            self._inodes[found.st_dev, found.st_ino] = what
        self._parents = {os.path.dirname(path) for path in self._paths}
        self._numbers = {number for _device, number in self._inodes}
        private = [path for path, what in self._paths.items() if what not in _NOT_PRIVATE]
        self._linked = LinkedFiles([path for path in private if os.path.isdir(path)], but=granted)
        self._imports = tuple(sorted({os.path.realpath(path) for path in imports}))
        self._within = lru_cache(maxsize=4_096)(self._place_around)
        self.imported_from = lru_cache(maxsize=4_096)(self._imported_from)

    @classmethod
    def ambient(
        cls, policy_file: Path | None = None, more: Iterable[tuple[str, str]] = (), *, granted: str = ""
    ) -> Exclusions:
        """The places of this very process. more: those that only its starter knows. granted: as of the class.

        Ambient authority: looks at this process's import path, environment and home directory.
        """
        return cls([*_ambient_places(policy_file), *more], _ambient_imports(), granted=granted)

    def find_linked(self, status: os.stat_result) -> str | None:
        """Why an opened object is excluded because of another name it has, or None."""
        return "another name of a file in an excluded directory" if self._linked.has(status) else None

    def find(self, path: str, identity: tuple[int, int] | None = None) -> str | None:
        """Why the canonical absolute `path` is excluded, or None. `identity`: (device, inode) of what was opened."""
        return self.find_below(path, "/", None, identity)

    def find_below(
        self, path: str, top: str, status: os.stat_result | None, identity: tuple[int, int] | None = None
    ) -> str | None:
        """The same for a path below a directory that `find` has let pass: those above it are not looked at again.

        status: of the object itself, when it was opened.
        """
        if status is not None:
            identity = (status.st_dev, status.st_ino)
        if identity is not None and identity in self._inodes:
            return self._inodes[identity]
        around = self._within(path)
        if around is not None:
            return around
        current, known = path, status is not None and not stat.S_ISDIR(status.st_mode)
        while True:
            found = _by_name(current) if known else self._of_directory(current)
            if found is not None:
                return found
            if current in (top, "/", "", self._granted):
                return None
            current, known = current.rpartition("/")[0] or "/", False

    def among(self, directory: str, fd: int, entries: Sequence[os.DirEntry[str]]) -> set[str]:
        """Names of the entries that are excluded, of an opened directory that is not excluded itself."""
        left_out = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and
                    self._is_environment(fd, entry.name)}  # fmt: skip
        if directory in self._parents:
            prefix = directory.rstrip("/") + "/"
            left_out.update(entry.name for entry in entries if prefix + entry.name in self._paths)
        if not self._numbers.isdisjoint(map(os.DirEntry.inode, entries)):
            device = os.fstat(fd).st_dev
            left_out.update(entry.name for entry in entries if (device, entry.inode()) in self._inodes)
        text = "\0".join([entry.name for entry in entries]).casefold()
        if any(name in text for name in _EXCLUDED_NAMES):
            left_out.update(entry.name for entry in entries if entry.name.casefold() in _EXCLUDED_NAMES)
        return left_out

    def named_among(self, directory: str, names: Sequence[str]) -> set[str]:
        """Which of these names in a directory that is not excluded are excluded as names, whatever is there."""
        prefix = directory.rstrip("/") + "/"
        there = directory in self._parents
        return {
            name for name in names if name.casefold() in _EXCLUDED_NAMES or (there and prefix + name in self._paths)
        }

    def is_place(self, status: os.stat_result) -> bool:
        """Whether the opened object itself is an excluded place."""
        return (status.st_dev, status.st_ino) in self._inodes

    def _is_environment(self, parent: int, name: str) -> bool:
        try:
            found = os.stat(
                name, dir_fd=parent, follow_symlinks=False
            )  # its own number when something is mounted there
            if (found.st_dev, found.st_ino) in self._inodes:
                return True
            os.stat(f"{name}/pyvenv.cfg", dir_fd=parent, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _imported_from(self, path: str) -> bool:
        """Whether the trusted process could import a file of this name from this place."""
        name = path.rsplit("/", 1)[-1].casefold()
        return name.endswith(_IMPORTABLE) and any(below(path, place) is not None for place in self._imports)

    def _place_around(self, path: str) -> str | None:
        """The excluded place that this path names or lies in, as a path."""
        while path not in ("/", "", self._granted):
            if path in self._paths:
                return self._paths[path]
            path = os.path.dirname(path)
        return None

    def _of_directory(self, path: str) -> str | None:
        named = _by_name(path)
        if named is not None:
            return named
        try:
            found = os.lstat(path)
        except OSError:
            return None
        if (found.st_dev, found.st_ino) in self._inodes:
            return self._inodes[found.st_dev, found.st_ino]
        if stat.S_ISDIR(found.st_mode) and os.path.lexists(path + "/pyvenv.cfg"):
            return "a Python environment"
        return None


def _by_name(path: str) -> str | None:
    return _EXCLUDED_NAMES.get(path.rsplit("/", 1)[-1].casefold())


def _ambient_places(policy_file: Path | None) -> list[tuple[str, str]]:
    places = [(path, _SYSTEM) for path in _KERNEL_FILE_SYSTEMS]
    own = platformdirs.PlatformDirs("capkernel", appauthor=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an unset XDG_RUNTIME_DIR; its stand-in is excluded as well
        directories = (
            own.user_cache_dir, own.user_config_dir, own.user_state_dir, own.user_data_dir, own.user_runtime_dir,
            own.site_config_dir,
        )  # fmt: skip
    places += [(path, "a directory of capkernel itself") for path in directories]
    # Where sessions live when there is no XDG_RUNTIME_DIR (`kernel.runtime_dir`): sockets, secrets of viewers.
    places.append((os.path.join(tempfile.gettempdir(), f"capkernel-{os.getuid()}"), "a directory of capkernel itself"))
    places.append((str(Path(__file__).resolve().parent.parent), _CODE))
    if policy_file is not None:
        places.append((str(policy_file), "the policy file"))
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    libraries |= {*site.getsitepackages(), site.getusersitepackages()}
    libraries |= {entry for entry in sys.path if _is_library(entry)}
    places += [(path, _LIBRARY) for path in libraries if path]
    home = str(Path.home())
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    # All places that Jupyter could be told to use: our environment has lost the variables that choose among them.
    jupyter = {
        os.path.join(home, ".jupyter"), os.path.join(config, "jupyter"), os.path.join(data, "jupyter"),
        jupyter_paths.jupyter_config_dir(), jupyter_paths.jupyter_data_dir(),
        jupyter_paths.jupyter_runtime_dir(), *jupyter_paths.jupyter_config_path(), *jupyter_paths.jupyter_path(),
    }  # fmt: skip
    places += [(path, "Jupyter's own configuration") for path in jupyter]
    ipython = {
        os.path.join(home, ".ipython"), os.path.join(config, "ipython"), os.environ.get("IPYTHONDIR", ""),
        "/etc/ipython", "/usr/local/etc/ipython",
    }  # fmt: skip
    places += [(path, "IPython's own configuration") for path in ipython if path]
    return places


def _ambient_imports() -> list[str]:
    return [entry for entry in sys.path if entry and os.path.isdir(entry) and not _is_library(entry)]


def _is_library(entry: str) -> bool:
    parts = Path(entry).parts
    return "site-packages" in parts or "dist-packages" in parts or Path(entry).name.startswith("python3")
