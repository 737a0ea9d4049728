"""A folder that becomes a link while the broker works: swapped at every step of it, and by a process that never stops.

The check that others make, `realpath` and then `open`, loses both ways, first. Nothing here is timed: the swaps at each
step are counted calls, and the loops end when both sides have done enough.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.wire.worker import Invoke

SECRET = b"what lies behind the link"
HARMLESS = b"what lies in the folder"
BOUND = 60  # seconds, for what takes less than one
ROUNDS = 60  # of each operation, while a process swaps

pytestmark = pytest.mark.timeout(300)


@dataclass
class Swing:
    """`swing` is a folder or a link, `spare` what it is not at the moment."""

    project: Path
    behind: Path  # where the link leads

    def build(self) -> None:
        self.behind.mkdir(exist_ok=True)
        (self.behind / "x.txt").write_bytes(SECRET)
        (self.project / "swing").mkdir()
        (self.project / "swing" / "x.txt").write_bytes(HARMLESS)
        (self.project / "spare").symlink_to(os.path.relpath(self.behind, self.project))

    def swap(self) -> None:
        for old, new in (("swing", "third"), ("spare", "swing"), ("third", "spare")):
            _rename(self.project / old, self.project / new)

    @property
    def folder(self) -> Path:
        swing = self.project / "swing"
        return self.project / "spare" if swing.is_symlink() else swing

    def reset(self) -> None:
        if (self.project / "swing").is_symlink():
            self.swap()
        for found in self.folder.iterdir():
            found.rmdir() if found.is_dir() else found.unlink()
        (self.folder / "x.txt").write_bytes(HARMLESS)

    def untouched(self) -> bool:
        """Whether nothing behind the link was made, changed or taken away."""
        return {p.name: p.read_bytes() for p in self.behind.iterdir() if p.is_file()} == {"x.txt": SECRET} and len(
            list(self.behind.iterdir())
        ) == 1


_rename = os.rename


@pytest.fixture(params=["outside", "classified"])
def swing(request: pytest.FixtureRequest, project: Path) -> Swing:
    behind = project.parent / "outside-of-it" if request.param == "outside" else project / "secrets" / "folder"
    behind.parent.mkdir(exist_ok=True)
    made = Swing(project, behind)
    made.build()
    return made


# ── what is raced ────────────────────────────────────────────────────────────────────────────────────────────────────


def naive_read(swing: Swing) -> bytes:
    path = swing.project / "swing" / "x.txt"
    real = os.path.realpath(path)
    inside = real.startswith(f"{swing.project}/") and "/secrets/" not in real
    if not inside:
        raise PermissionError(path)
    os.stat(path)
    return b"" if not os.path.exists(path) else _content(os.open(path, os.O_RDONLY))


def naive_delete(swing: Swing) -> bytes:
    if "/swing/" not in os.path.realpath(swing.project / "swing" / "x.txt"):
        raise PermissionError
    os.stat(swing.project)
    os.unlink(swing.project / "swing" / "x.txt")
    return b""


def _content(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def _search(session: Any, scope: str) -> bytes:
    """As `grep_recursive` does it: the files below, then their content."""
    top = session.access(scope, "swing")
    names = session.result(Invoke(top, "files"))[0]
    _sizes, content = session.result(Invoke(top, "read_many", "", "", tuple(names)))
    return bytes(content)


def _walk(session: Any, scope: str) -> bytes:
    found = b""
    for handle, name in session.do(scope, "swing", "walk"):
        found += name.encode() + session.result(Invoke(handle, "read_bytes"))[1]
    return found


def _children(session: Any, scope: str) -> bytes:
    return b"".join(session.result(Invoke(h, "read_bytes"))[1] for h, _ in session.do(scope, "swing", "children"))


OPERATIONS: dict[str, Callable[[Any, str], Any]] = {
    "read": lambda session, scope: session.do(scope, "swing/x.txt", "read_bytes"),
    "size": lambda session, scope: str(session.do(scope, "swing/x.txt", "size")).encode(),
    "open": lambda session, scope: session.result(Invoke(session.access(scope, "swing/x.txt"), "open_read"))[1],
    "children": _children,
    "walk": _walk,
    "search": _search,
    "write": lambda session, scope: session.do(scope, "swing/x.txt", "write", b"new"),
    "create": lambda session, scope: session.do(scope, "swing/y.txt", "create", b"new"),
    "append": lambda session, scope: session.do(scope, "swing/x.txt", "append", b"more"),
    "mkdir": lambda session, scope: session.do(scope, "swing/made", "mkdir"),
    "delete": lambda session, scope: session.do(scope, "swing/x.txt", "delete"),
}
LENGTH = str(len(SECRET)).encode()


def attempt(session: Any, name: str) -> bool:
    """One try in a scope of its own. Whether it was let through; fails when it saw what lies behind the link."""
    scope = session.open(".")
    try:
        found = OPERATIONS[name](session, scope)
    except (OSError, CapabilityDenied):
        return False
    finally:
        session.close_scope(scope)
    if isinstance(found, bytes):
        assert SECRET not in found
        assert name != "size" or found != LENGTH
    return True


# ── a swap at every step ─────────────────────────────────────────────────────────────────────────────────────────────

STEPS = ("open", "fstat", "stat", "lstat", "readlink", "scandir", "listdir", "replace", "rename", "link", "unlink",
         "mkdir", "dup")  # fmt: skip


class Steps:
    """Counts the calls into the operating system, and swaps before number `at`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, swing: Swing) -> None:
        from capkernel.broker import confine

        self._swing = swing
        self.count = 0
        self.at: int | None = None
        self._busy = False
        for name in STEPS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))
        monkeypatch.setattr(confine, "_openat2", self._counted(confine._openat2))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if not self._busy and self.at is not None:
                if self.count == self.at:
                    self._busy = True
                    self._swing.swap()
                    self._busy = False
                self.count += 1
            return call(*arguments, **options)

        return counted

    def each(self, run: Callable[[], None], prepare: Callable[[], None]) -> int:
        """`run` with a swap before its first call, its second one, … Returns how many there were."""
        at = 0
        while True:
            self.at = None
            prepare()
            self.count, self.at = 0, at
            try:
                run()
            finally:
                self.at = None
            if self.count <= at:
                return at
            at += 1


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, swing: Swing) -> Steps:
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    return Steps(monkeypatch, swing)


def test_the_naive_check_loses_to_one_swap(steps: Steps, swing: Swing) -> None:
    seen, lost = [], []

    def read() -> None:
        with contextlib.suppress(OSError):
            seen.append(naive_read(swing))

    def delete() -> None:
        with contextlib.suppress(OSError):
            naive_delete(swing)
        lost.append(not swing.untouched())
        (swing.behind / "x.txt").write_bytes(SECRET)

    assert steps.each(read, swing.reset) >= 3
    assert SECRET in seen
    assert HARMLESS in seen
    steps.each(delete, swing.reset)
    assert True in lost
    assert False in lost


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("begins", ["folder", "link"])
def test_a_swap_at_any_step_leads_nowhere(
    session: Any, opener: str, steps: Steps, swing: Swing, name: str, begins: str
) -> None:
    let_through = []

    def prepare() -> None:
        swing.reset()
        if begins == "link":
            swing.swap()

    def run() -> None:
        let_through.append(attempt(session, name))
        assert swing.untouched()

    assert steps.each(run, prepare) >= 4
    # The last run had no swap: the folder is worked in, the link is refused.
    assert let_through[-1] is (begins == "folder")


# ── a process that swaps and swaps ───────────────────────────────────────────────────────────────────────────────────

# Both names change in one step (RENAME_EXCHANGE): while one was free, a write could make a folder of that name.
SWAPPER = """
import ctypes, mmap, os, struct, sys
os.chdir(sys.argv[1])
parent = os.getppid()
here, exchange = -100, 2
rename = ctypes.CDLL(None).renameat2
with open(sys.argv[2], "r+b") as file:
    count = mmap.mmap(file.fileno(), 8)
    number = 0
    while os.getppid() == parent:
        if rename(here, b"swing", here, b"spare", exchange) != 0:
            sys.exit("the names could not be exchanged")
        number += 1
        count[:8] = struct.pack("<Q", number)
"""


class Swapper:
    def __init__(self, swing: Swing, counter: Path) -> None:
        counter.write_bytes(bytes(8))
        with open(counter, "r+b") as file:
            self._count = mmap.mmap(file.fileno(), 8)
        self._process = subprocess.Popen([sys.executable, "-c", SWAPPER, str(swing.project), str(counter)])

    @property
    def swaps(self) -> int:
        return int(struct.unpack("<Q", self._count[:8])[0])

    def go_on(self, swaps: int) -> None:
        """Wait until it has swapped so many times in all."""
        end = time.monotonic() + BOUND
        while self.swaps < swaps:
            assert self._process.poll() is None, "the swapper ended"
            assert time.monotonic() < end, "the swapper stands still"
            time.sleep(0.001)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def swapper(swing: Swing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swapper]:
    made = Swapper(swing, tmp_path_factory.mktemp("swapper") / "count")
    yield made
    made.stop()


def test_the_naive_check_loses_to_a_process(swing: Swing, swapper: Swapper) -> None:
    end = time.monotonic() + BOUND
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if naive_read(swing) == SECRET:
                return
        os.sched_yield()
    pytest.fail("the attack is not what this machine lets happen")


@pytest.fixture
def folder(swing: Swing) -> int:
    """A descriptor of the folder, from before anything is swapped."""
    return os.open(swing.project / "swing", os.O_PATH | os.O_DIRECTORY)


def test_a_process_that_swaps_gains_nothing(
    session: Any, opener: str, swing: Swing, folder: int, swapper: Swapper
) -> None:
    tried = 0
    for _ in range(ROUNDS):
        for name in OPERATIONS:
            # By its descriptor, for the names are never to be trusted here.
            os.close(os.open("x.txt", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
            attempt(session, name)
            tried += 1
    os.close(folder)
    swapper.go_on(tried)
    swapper.stop()
    assert swing.untouched()
