"""A broker over a real directory, driven as the kernel drives it, with a vault that writes down what it is told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capkernel.api.errors import exception_from
from capkernel.broker.audit import AuditLog
from capkernel.broker.broker import Broker
from capkernel.broker.room import Room
from capkernel.kernel.memory_root import MemoryRoot
from capkernel.policy import Exclusions, Policy, default_policy
from capkernel.vault.client import VaultQuota, WriteOutcome
from capkernel.wire.plan import Plan, ScopeSite, Span
from capkernel.wire.values import encode
from capkernel.wire.vault import FunctionBundle
from capkernel.wire.worker import Call, CloseScope, Invoke, OpenScope

ANY_ROOT = ScopeSite("file_system", None, 1, Span(1, 0, 1, 1))


def plan(*roots: str, sinks: tuple[str, ...] = ("write_classified",)) -> Plan:
    """A plan that lists these roots, or any root when there are none."""
    sites = tuple(ScopeSite("file_system", root, 1, Span(1, 0, 1, 1)) for root in roots) or (ANY_ROOT,)
    return Plan(scopes=sites, sinks=sinks)


class RecordingVault:
    """Fulfils `VaultPort`. `content`: what a write of a handle puts into the file, else the write is poison.
    `released`: what is given out for the number "seen"."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, bytes, str, str]] = []
        self.fills: list[tuple[str, bytes, str, str]] = []
        self.maps: list[tuple[str, str, FunctionBundle, bytes, bool]] = []
        self.spoils: list[tuple[str, str]] = []
        self.spoiled_origins: list[str] = []
        self.zips: list[tuple[str, str, str]] = []
        self.writes: list[tuple[str, int, int]] = []  # handle, links of the file when it was written, limit
        self.content: dict[str, bytes] = {}
        self.gate: asyncio.Event | None = None  # every write waits for it
        self.slow: dict[str, float] = {}  # handle → seconds its value takes to be known
        self.full = False
        self.drops: list[tuple[str, bool]] = []  # handle, whether it was shown
        self.life = 1
        self.expected: list[tuple[str, str, str]] = []
        self.received: list[tuple[str, bytes]] = []
        self.released: bytes | None = encode("the value")
        self.opens = True  # whether what the person typed can be opened

    def drop(self, handles: tuple[str, ...], shown: tuple[bool, ...]) -> None:
        self.drops += zip(handles, shown, strict=True)

    def origins(self, handle: str) -> frozenset[str] | None:
        return frozenset(("file:.env", "secret:KEY"))

    async def expect(self, handle: str, origin: str, label: str = "") -> bytes:
        self.expected.append((handle, origin, label))
        return b"k" * 32

    async def receive(self, handle: str, sealed: bytes) -> bool:
        self.received.append((handle, sealed))
        return self.opens

    async def show_release(self, handle: str, key: bytes) -> bytes:
        return handle.encode() + key

    async def release(self, handle: str, seen: str) -> bytes | None:
        return self.released if seen == "seen" else None

    def put(self, handle: str, blob: bytes, origin: str, label: str) -> None:
        self._count()
        self.puts.append((handle, blob, origin, label))

    def fill(self, handle: str, fd: int, kind: str, origin: str, label: str = "") -> None:
        self._count()
        self.fills.append((handle, os.pread(fd, 1 << 20, 0), kind, origin))

    def map(self, new: str, source: str, bundle: FunctionBundle, captured: bytes, flat: bool) -> None:
        self._count()
        self.maps.append((new, source, bundle, captured, flat))

    def spoil(self, new: str, reason: str, origin: str = "", *, text: bool = False) -> None:
        self._count()
        self.spoils.append((new, reason))
        self.spoiled_origins.append(origin)

    def zip(self, new: str, left: str, right: str) -> None:
        self._count()
        self.zips.append((new, left, right))

    def _count(self) -> None:
        if self.full:
            raise VaultQuota("too many posts")

    async def write(self, handle: str, fd: int, limit_bytes: int) -> WriteOutcome:
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(self.slow.get(handle, 0))
        self.writes.append((handle, os.fstat(fd).st_nlink, limit_bytes))
        data = self.content.get(handle)
        if data is None:
            return WriteOutcome("poison")
        os.write(fd, data)
        return WriteOutcome("written", len(data))


class Session:
    def __init__(
        self, base: Path, policy: Policy | None, exclusions: Exclusions, audit_dir: Path, room: Room | None = None
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.vault = RecordingVault()
        self.audit = AuditLog.open_ambient("test", audit_dir)
        self.audit_file = audit_dir / "test.jsonl"
        self.broker = Broker(policy or default_policy(base), base, self.vault, self.audit, exclusions, room)
        self.number = 0

    def cell(self, allowed: Plan | None = None) -> None:
        self.number += 1
        self.broker.open_cell(self.number, plan() if allowed is None else allowed)

    def end(self) -> None:
        self.broker.close_cell()

    def result(self, effect: OpenScope | CloseScope | Invoke, blob: bytes = b"") -> tuple[Any, bytes]:
        """The value and blob of the answer, or the exception the cell would see."""
        answer, out = self.loop.run_until_complete(self.broker.call(Call(7, effect), blob))
        assert answer.call == 7
        if answer.error is not None:
            raise exception_from(answer.error)
        return answer.value, out

    def open(self, root: str = ".") -> str:
        handle = self.result(OpenScope("file_system", root))[0]
        assert isinstance(handle, str)
        return handle

    def close_scope(self, handle: str) -> None:
        self.result(CloseScope(handle))

    def access(self, scope: str, path: str) -> str:
        handle, _name = self.result(Invoke(scope, "access", path))[0]
        assert isinstance(handle, str)
        return handle

    def do(self, scope: str, path: str, method: str, blob: bytes = b"", secret: str = "") -> Any:
        """A method of the entry at `path`: its blob for read_bytes, its value otherwise."""
        value, out = self.result(Invoke(self.access(scope, path), method, "", secret), blob)
        return out if method == "read_bytes" else value

    def read(self, path: str, root: str = ".") -> bytes:
        """Read in a scope of its own."""
        scope = self.open(root)
        try:
            found = self.do(scope, path, "read_bytes")
            assert isinstance(found, bytes)
            return found
        finally:
            self.close_scope(scope)

    def settle(self) -> None:
        self.loop.run_until_complete(self.broker._sink.settle(5))

    def shut(self) -> None:
        self.loop.run_until_complete(self.broker.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class InProcess:
    """The membrane between the objects of a cell and a broker, without a worker."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def call(self, effect: OpenScope | CloseScope | Invoke, blob: bytes = b"") -> tuple[Any, bytes]:
        return self._session.result(effect, bytes(blob))

    def mask_type(self) -> str:
        return "str"


Start = Callable[..., Session]


@pytest.fixture
def start(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a session over the project: start(), start(policy), start(exclusions=...)."""
    running: list[Session] = []

    def begin(
        policy: Policy | None = None,
        *,
        base: Path | None = None,
        exclusions: Exclusions | None = None,
        room: Room | None = None,
    ) -> Session:
        audit_dir = tmp_path_factory.mktemp("audit")
        session = Session(base or project, policy, exclusions or Exclusions([]), audit_dir, room)
        running.append(session)
        return session

    yield begin
    for session in running:
        session.shut()


@pytest.fixture
def memory_root() -> Iterator[MemoryRoot]:
    """A root in memory, as a kernel makes it."""
    made = MemoryRoot.make()
    yield made
    made.close()


def start_in_memory(start: Start, root: MemoryRoot) -> Session:
    """A session whose files are in memory, in a place that lies in excluded ones."""
    places = [("/dev", "a file system"), (str(root.path.parent), "a directory of capkernel itself")]
    exclusions = Exclusions(places, granted=str(root.path))
    return start(root.granted_by(default_policy("/nowhere")), base=root.path, exclusions=exclusions, room=root.room)


@pytest.fixture
def session(start: Start) -> Session:
    """A session with a running cell that may ask for any root."""
    made = start()
    made.cell()
    return made


@pytest.fixture(params=["openat2", "walk"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to stay below a directory: the system call, and the walk for systems without it."""
    from capkernel.broker import confine

    if request.param == "walk":
        monkeypatch.setattr(confine, "openat2_works", lambda: False)
    elif not confine.openat2_works():
        pytest.fail("this machine has no openat2, so half of the confinement would go untested")
    return str(request.param)
