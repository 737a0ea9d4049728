"""The keeper's links: to the kernel, to the runner, and to the process of the running job.

Rule 1: the kernel is trusted and always reads, so writing to it may wait. The runner and the job are not waited
for: what they do not read or answer in time costs them their job, or the runner its life.
Rule 2: a job's answer counts only together with the runner's word that its process ended well.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
import time
from collections import deque

from capkernel.vault.descriptors import DescriptorQueue
from capkernel.vault.job import GRACE_SECONDS
from capkernel.vault.keeper import Keeper
from capkernel.vault.runner import IMPORTED_HERE, libraries_of
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.states import RunnerLink
from capkernel.wire.vault import (
    Ended,
    Fill,
    FromJob,
    FromKeeper,
    FromRunner,
    Job,
    KeeperReady,
    NewRunner,
    Piece,
    Poisoned,
    Result,
    RunnerLost,
    RunnerReady,
    SecureFile,
    ToKeeper,
    Write,
)

_CHUNK = 1 << 20
_WITH_DESCRIPTOR = (NewRunner, Fill, Write, SecureFile)
_MAX_JOB_BODY = 4096
_MAX_RUNNER_BODY = 1 << 20
_RUNNER_GRACE = GRACE_SECONDS + 5.0  # seconds beyond a job's own before the runner counts as lost
_LOST = "the process that ran it was lost"
_IMPORT_SECONDS = 30.0  # a runner may have to import numpy and pandas first


class _JobLink:
    """The stream to one job's process. Sends the pieces, collects the answer, never blocks."""

    def __init__(self, job: Job, stream: socket.socket, pieces: list[tuple[Piece, bytes]]) -> None:
        self.number = job.number
        imports = not IMPORTED_HERE.keys().isdisjoint({*job.libraries, *libraries_of(job.bundle)})
        grace = _RUNNER_GRACE + (_IMPORT_SECONDS if imports else 0.0)
        self.deadline = time.monotonic() + job.seconds + grace
        self.stream = stream
        self._outgoing = deque(memoryview(encode(piece, blob)) for piece, blob in pieces)
        self._reader: FrameReader[Result | Poisoned] = FrameReader(
            FromJob, max_body=_MAX_JOB_BODY, max_blob=job.result_bytes
        )
        self.answer: tuple[Result | Poisoned, bytes] | None = None
        self.broken = False
        self.ended = False
        self.registered = False

    @property
    def interest(self) -> int:
        writing = selectors.EVENT_WRITE if self._outgoing else 0
        return writing | selectors.EVENT_READ

    def write(self) -> None:
        try:
            while self._outgoing:
                head = self._outgoing[0]
                sent = self.stream.send(head[:_CHUNK])
                if sent == len(head):
                    self._outgoing.popleft()
                else:
                    self._outgoing[0] = head[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()  # it is gone; the runner will say so

    def read(self) -> None:
        try:
            while not self.ended:
                data = self.stream.recv(_CHUNK)
                if not data:
                    self.ended = True
                    return
                self._take(data)
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True

    def _take(self, data: bytes) -> None:
        if self.broken:
            return
        try:
            self._reader.feed(data)
            for frame in self._reader.frames():
                self.broken = self.broken or self.answer is not None
                self.answer = frame
        except RemoteProtocolError:
            self.broken = True


class _Loop:
    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._descriptors = DescriptorQueue(link)
        self._reader: FrameReader[ToKeeper] = FrameReader(ToKeeper)
        self._selector = selectors.DefaultSelector()
        self._selector.register(link, selectors.EVENT_READ)
        self._keeper = Keeper(tell=self._tell, start=self._start)
        self._runner: socket.socket | None = None
        self._runner_ready = False
        self._runner_turns = RunnerLink()
        self._runner_reader = _runner_reader()
        self._job: _JobLink | None = None

    def run(self) -> None:
        while True:
            timeout = None if self._job is None else max(0.0, self._job.deadline - time.monotonic())
            for key, mask in self._selector.select(timeout):
                if key.fileobj is self._link:
                    if not self._from_kernel():
                        return
                elif key.fileobj is self._runner:
                    self._from_runner()
                elif self._job is not None and key.fileobj is self._job.stream:
                    self._from_job(mask)
            if self._job is not None and time.monotonic() > self._job.deadline:
                self._lose_runner()

    # ── kernel ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, message: FromKeeper) -> None:
        self._link.sendall(encode(message))

    def _from_kernel(self) -> bool:
        data = self._descriptors.receive()
        if not data:
            return False
        self._reader.feed(data)
        for message, blob in self._reader.frames():
            descriptor = self._descriptors.take() if isinstance(message, _WITH_DESCRIPTOR) else None
            if isinstance(message, NewRunner):
                assert descriptor is not None
                self._adopt_runner(message.generation, descriptor)
            else:
                self._keeper.accept(message, blob, descriptor)
        return True

    # ── runner ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _adopt_runner(self, generation: int, descriptor: int) -> None:
        self._drop_runner()
        if self._job is not None:
            self._finish(None, _LOST)
        self._runner = socket.socket(fileno=descriptor)
        self._runner.settimeout(5.0)
        self._runner_reader = _runner_reader()
        self._runner_turns = RunnerLink()
        self._selector.register(self._runner, selectors.EVENT_READ)
        self._keeper.runner_generation = generation

    def _from_runner(self) -> None:
        assert self._runner is not None
        try:
            data = self._runner.recv(65536)
            if not data:
                raise EOFError
            self._runner_reader.feed(data)
            for message, _ in self._runner_reader.frames():
                self._runner_turns.received(message)
                if isinstance(message, RunnerReady):
                    self._runner_ready = True
                    self._tell(RunnerReady(message.report, self._keeper.runner_generation))
                    self._keeper.advance()
                else:
                    self._ended(message)
        except (EOFError, OSError, RemoteProtocolError):
            self._lose_runner()

    def _lose_runner(self) -> None:
        self._drop_runner()
        self._tell(RunnerLost(self._keeper.runner_generation))
        if self._job is not None:
            self._finish(None, _LOST)

    def _drop_runner(self) -> None:
        self._runner_ready = False
        if self._runner is not None:
            self._selector.unregister(self._runner)
            self._runner.close()
            self._runner = None

    # ── job ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, job: Job, pieces: list[tuple[Piece, bytes]]) -> bool:
        if self._runner is None or not self._runner_ready or self._job is not None or self._runner_has_ended():
            return False
        self._runner_turns.sending(job.number)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        link = _JobLink(job, ours, pieces)
        try:
            frame = memoryview(encode(job))
            sent = socket.send_fds(self._runner, [frame], [theirs.fileno()])
            self._runner.sendall(frame[sent:])
        except OSError:
            # The runner died unseen. Its end will be read from the link, and the next one gets this job.
            ours.close()
            self._runner_ready = False
            with contextlib.suppress(OSError):
                self._runner.shutdown(socket.SHUT_RDWR)
            return False
        finally:
            theirs.close()
        self._job = link
        self._selector.register(ours, link.interest)
        link.registered = True
        return True

    def _runner_has_ended(self) -> bool:
        """Whether the end of the link is there to be read: a job sent now would be lost for nothing."""
        assert self._runner is not None
        watch = select.poll()
        watch.register(self._runner, 0)
        return bool(watch.poll(0))

    def _from_job(self, mask: int) -> None:
        job = self._job
        assert job is not None
        if mask & selectors.EVENT_WRITE:
            job.write()
        if mask & selectors.EVENT_READ:
            job.read()
        if job.ended:
            self._forget(job)  # the runner's word is still to come
        else:
            self._selector.modify(job.stream, job.interest)

    def _forget(self, job: _JobLink) -> None:
        if job.registered:
            self._selector.unregister(job.stream)
            job.registered = False

    def _ended(self, message: Ended) -> None:
        job = self._job
        assert job is not None
        job.read()  # what it sent before it ended
        if message.problem:
            self._finish(None, message.problem)
        elif job.broken or job.answer is None:
            self._finish(None, "process ended without a result")
        elif isinstance(job.answer[0], Poisoned):
            self._finish(None, job.answer[0].reason[:200], job.answer[0].place[:200])
        else:
            self._finish(job.answer[1])

    def _finish(self, result: bytes | None, reason: str = "", place: str = "") -> None:
        job, self._job = self._job, None
        assert job is not None
        self._forget(job)
        job.stream.close()
        self._keeper.job_done(result, reason, place)


def _runner_reader() -> FrameReader[RunnerReady | Ended]:
    return FrameReader(FromRunner, max_body=_MAX_RUNNER_BODY, max_blob=0)


def serve(link: socket.socket, report: str) -> None:
    """Returns when the kernel is gone. All values end with the process, also when it can hold no more of them."""
    link.setblocking(True)
    try:
        link.sendall(encode(KeeperReady(report)))
        _Loop(link).run()
    except (OSError, EOFError, RemoteProtocolError, MemoryError):  # half a message may be read: there is no going on
        os._exit(1)
