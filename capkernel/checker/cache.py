"""mypy's cache of the library: built once per installation, so that a checker starts in half a second.

Rule 1: the directory is ours alone (0700), under the user's cache directory; a checker trusts what is in it.
Rule 2: it appears whole or not at all: built beside its place and renamed.
Rule 3: what a cell imports is never written to it. Only a changed API is, by the first start that sees it.

Run `python -P -s -E -m capkernel.checker.cache` to build it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from capkernel.version import __version__

_STAMP = "built"
_PREFIX_LINE = 3  # of the stamp: sys.prefix
_RECIPE = 2  # a new number makes every cache stale: after a change of options or of what `builds` preloads
# Their type information decides whether the cache fits; a version change makes it stale.
_DISTRIBUTIONS = (
    "mypy", "typing_extensions", "msgspec", "numpy", "pandas", "pandas-stubs", "matplotlib", "scipy", "polars", "sympy",
    "pillow", "scikit-learn", "seaborn", "networkx", "requests", "httpx",
)  # fmt: skip
# Built into the cache when installed, loaded only when a cell imports them.
_ON_DEMAND = ("polars", "sympy", "PIL.Image", "networkx", "requests", "httpx", "IPython.display")

_SUBMODULES = (
    "concurrent.futures", "curses.ascii", "email.message", "email.mime.text", "html.parser", "http.client",
    "http.server",
    "importlib.metadata", "importlib.resources", "logging.handlers", "multiprocessing.pool", "unittest.mock",
    "urllib.error", "urllib.parse", "urllib.robotparser", "xml.dom.minidom", "xml.etree.ElementTree", "xml.sax",
)  # fmt: skip
_NEVER = frozenset(("antigravity", "this", "idlelib", "turtledemo", "lib2to3", "tkinter", "turtle"))

Progress = Callable[[str], None]


def directory() -> Path:
    """Where the cache of this interpreter, with this mypy and this capkernel, belongs. It need not exist."""
    import platformdirs

    where = hashlib.sha256(os.fsencode(sys.prefix)).hexdigest()[:8]
    name = f"mypy-{_version('mypy')}-{sys.implementation.cache_tag}-{__version__}-{where}"
    return Path(platformdirs.user_cache_dir("capkernel", appauthor=False)) / name


def is_built(place: Path) -> bool:
    """Whether `place` holds a cache that fits what is installed now, and that nobody else could have written."""
    try:
        status = place.stat()
        stamp = (place / _STAMP).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        return False
    return stamp == _installed()


def build_cache(progress: Progress, place: Path | None = None) -> Path:
    """Build the cache unless it is there already; returns its place.

    Takes up to half a minute. Raises OSError when the place cannot be written.
    """
    target = directory() if place is None else place
    if is_built(target):
        return target
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_one(target):
        if is_built(target):
            return target
        _build(target, progress)
        _remove_orphans(target)
    return target


def _remove_orphans(target: Path) -> None:
    """Caches beside `target` whose interpreter is gone: virtual environments come and go, and each had its own."""
    for stamp in target.parent.glob(f"mypy-*/{_STAMP}"):
        try:
            prefix = stamp.read_text("utf-8").splitlines()[_PREFIX_LINE]
            if os.path.isabs(prefix) and not os.path.lexists(prefix):
                stamp.unlink()  # first: what is half removed is no cache
                shutil.rmtree(stamp.parent, ignore_errors=True)
                stamp.parent.with_name(f"{stamp.parent.name}.lock").unlink(missing_ok=True)
        except (OSError, UnicodeDecodeError, IndexError):
            continue


def _build(target: Path, progress: Progress) -> None:
    from capkernel.checker.builds import WarmBuild, present_libraries

    started = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))  # 0700
    try:
        libraries = present_libraries()
        extra = [name for name in _ON_DEMAND if _importable(name)]
        named = ", ".join(name.partition(".")[0] for name in [*libraries, *extra])
        extra += _standard_library()
        progress(f"reading the types of the standard library, {named}: once, up to a minute")
        WarmBuild(work, libraries=[*libraries, *extra])
        # Modules that import each other in a circle settle in a second pass.
        WarmBuild(work, libraries=[*libraries, *extra])
        WarmBuild(work, libraries=libraries)
        (work / _STAMP).write_text(_installed(), "utf-8")
        old = target.with_name(f"{work.name}.old")
        if target.exists():
            target.rename(old)
        work.rename(target)
        shutil.rmtree(old, ignore_errors=True)
        progress(f"done in {time.monotonic() - started:.0f} s")
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _only_one(target: Path) -> Iterator[None]:
    descriptor = os.open(target.with_name(f"{target.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _installed() -> str:
    versions = [f"{name} {_version(name)}" for name in _DISTRIBUTIONS]
    # Sources of our own are not in it: mypy sees by itself when they change, and they are few.
    recipe = f"recipe {_RECIPE} {_ON_DEMAND} {_SUBMODULES}"
    return "\n".join([f"capkernel {__version__}", recipe, sys.version, sys.prefix, *versions])


def _standard_library() -> list[str]:
    """Every public module; those without a stub are passed over."""
    return [name for name in sorted(sys.stdlib_module_names - _NEVER) if not name.startswith("_")] + list(_SUBMODULES)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name.partition(".")[0]) is not None


if __name__ == "__main__":
    build_cache(lambda line: print(line, flush=True))  # noqa: T201
