"""The person's side of a session without its processes: the kernel's socket, the real queue of questions, and a vault
that renders, seals, releases and receives with the real code in this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from capkernel.broker.approvals import Approvals, Granted
from capkernel.broker.audit import AuditLog
from capkernel.broker.ledger import Ledger
from capkernel.kernel.view import ViewServer
from capkernel.policy.decision import AskPerson, Denied
from capkernel.vault.entries import Entry
from capkernel.vault.person import Releases, TypedSecrets, exact, why_not
from capkernel.vault.render import rendered
from capkernel.vault.seal import seal
from capkernel.viewer.sessions import Session
from capkernel.wire.shown import Release, release_name, release_to_json
from capkernel.wire.values import encode

WAIT = 30.0


class AskingVault:
    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.typed = TypedSecrets()
        self.received: dict[str, str] = {}
        self._releases = Releases()

    async def reveal(self, handle: str, key: bytes) -> bytes:
        return seal(rendered(self.values[handle]).encode(), key, handle)

    def origins(self, handle: str) -> frozenset[str] | None:
        return frozenset(("file:secrets/a.txt",)) if handle in self.values else None

    async def show_release(self, handle: str, key: bytes) -> bytes:
        entry = self._entry(handle)
        problem = why_not(entry)
        shown = Release(problem=problem) if problem else self._releases.shown(handle, entry, exact(self.values[handle]))
        return seal(release_to_json(shown), key, release_name(handle))

    async def release(self, handle: str, seen: str) -> bytes | None:
        return self._entry(handle).blob if self._releases.take(handle, seen) else None

    async def receive(self, handle: str, sealed: bytes) -> bool:
        text = self.typed.open(handle, sealed)
        if text is not None:
            self.received[handle] = text
        return text is not None

    def _entry(self, handle: str) -> Entry:
        return Entry(state="value", blob=encode(self.values[handle]))


class AskingBroker:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self.running: int | None = 3

    def live(self) -> tuple[int | None, tuple[str, ...], int]:
        return self.running, (), 2

    def authority(self) -> tuple[str, tuple[str, ...]]:
        return "may: read data/a.csv · nothing else", ("the folder data",)


class AskingSession:
    """Belongs to its own thread; the methods may be called from any."""

    def __init__(self, folder: Path, seconds: float, number: int = 1) -> None:
        self.runtime = folder / f"session-{number}"
        self.runtime.mkdir(mode=0o700)
        self.broker = AskingBroker()
        self.vault = AskingVault()
        self.audit = AuditLog.open_ambient(f"{number:x}" * 32, folder / "audit")
        self._seconds = seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._run(self._start()).result(WAIT)

    def close(self) -> None:
        self._run(self._close()).result(WAIT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT)
        self._loop.close()

    @property
    def found(self) -> Session:
        return Session(self.audit.session, "/notes", os.getpid(), 1.0, str(self.runtime))

    def classified(self, handle: str, value: object, label: str = "") -> None:
        """A value of the session."""
        self.vault.values[handle] = value
        self.do(lambda: self.broker.ledger.classified(handle, 1, label, encode(value)))

    def do(self, act: Callable[[], object]) -> None:
        """On the session's own thread, now."""

        async def once() -> None:
            act()

        self._run(once()).result(WAIT)

    def ask(self, question: AskPerson, cell: int | None = 3) -> concurrent.futures.Future[Granted | Denied]:
        """As the broker does for a cell: what comes of it."""
        return self._run(self.approvals.ask(question, cell))

    def expect(self, handle: str) -> bytes:
        return self.vault.typed.expect(handle)

    def end_cell(self, cell: int) -> None:
        self._loop.call_soon_threadsafe(self.approvals.end_cell, cell)

    def decisions(self) -> list[str]:
        """The lines of the audit about the person's own acts."""
        return self.audit.recent(100, "person")

    def _run(self, work: object) -> concurrent.futures.Future[object]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)  # type: ignore[arg-type]

    async def _start(self) -> None:
        self.approvals = Approvals(self.audit, self.vault, self._seconds)
        self._server = ViewServer(self.runtime, Path("/notes"), self.broker, self.vault, self.audit, self.approvals)
        await self._server.start()

    async def _close(self) -> None:
        self.approvals.close()
        links = list(self._server._links)
        await self._server.close()
        await asyncio.gather(*links, return_exceptions=True)
        await asyncio.sleep(0)  # what they closed is closed in the next round
        self.audit.close()
        links = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*links, return_exceptions=True)


@contextmanager
def asking_session(folder: Path, *, seconds: float = 300.0, number: int = 1) -> Iterator[AskingSession]:
    made = AskingSession(folder, seconds, number)
    made.start()
    try:
        yield made
    finally:
        made.close()
