"""One job: a forked process that applies one function to one value, and its supervision by the runner.

Rule 1: the runner sees no value and runs nothing of a user; all of it happens in the forked process, which has lost the
right to fork, holds no descriptor but its stream to the keeper, and ends with the job.
Rule 2: the runner has no right to kill. A job ends itself: an alarm whose default action is death, a CPU limit, a
memory limit. One that outlives them all (only native code can) makes the runner give up: it exits, and the kernel kills
the whole session of processes.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import time

from capkernel.sandbox import deny_fork
from capkernel.vault.apply import failure_of, run
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.vault import Job, Piece, Poisoned, Result

GRACE_SECONDS = 2.0  # a job may outlive its alarm by this before the runner gives up
_CHUNK = 1 << 20
_CPU_MARGIN = 2  # seconds


class JobOutlivedItsLimits(Exception):
    """The process ignores its alarm. The runner must exit so that the kernel kills them both."""


class KeeperGone(Exception):
    """The link to the keeper closed while the job ran."""


def perform(job: Job, stream: int, *, link: int, address_space: int) -> str:
    """Run the job in a process of its own and wait for its end. Returns "" or why it cannot have answered.

    `stream`: the job's descriptor, closed here. `link`: the descriptor that tells of the keeper's end. `address_space`:
    bytes this process has mapped now.
    """
    alive, held = os.pipe()  # `held` is the child's: `alive` ends with it
    try:
        child = os.fork()
    except OSError:
        os.close(held)
        os.close(alive)
        os.close(stream)
        return "no process could be made for it"
    if child == 0:
        _in_child(job, stream, held, address_space)
    os.close(held)
    os.close(stream)
    try:
        return _verdict(_await(child, alive, link, time.monotonic() + job.seconds + GRACE_SECONDS))
    finally:
        os.close(alive)


def _in_child(job: Job, stream: int, held: int, address_space: int) -> None:
    """Never returns."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, job.seconds)
        _close_all_but(stream, held)
        deny_fork()
        _limit(resource.RLIMIT_CPU, int(job.seconds) + _CPU_MARGIN)
        _limit(resource.RLIMIT_AS, address_space + job.memory_bytes)
        link = socket.socket(fileno=stream)
        try:
            answer: Result | Poisoned = Result()
            data = _applied(job, link)
            if len(data) > job.result_bytes:
                answer, data = Poisoned("result too large"), b""
        except BaseException as problem:
            answer, data = Poisoned(*failure_of(problem)), b""
        link.sendall(encode(answer, data))
        os._exit(0)
    finally:  # a second failure, while reporting the first: the runner sees a process that has not answered
        os._exit(1)


def _applied(job: Job, link: socket.socket) -> bytes:
    pieces: list[tuple[Piece, bytes]] = []
    reader: FrameReader[Piece] = FrameReader(Piece)
    while len(pieces) < job.pieces:
        data = link.recv(_CHUNK)
        if not data:
            raise EOFError
        reader.feed(data)
        pieces.extend(reader.frames())
    if len(pieces) != job.pieces or job.pieces < 2:
        raise RemoteProtocolError("a job with another number of pieces")
    held = {piece.handle: blob for piece, blob in pieces[2:]}
    return run(job.bundle, pieces[0][1], pieces[1][1], held, flat=job.flat)


def _close_all_but(*kept: int) -> None:
    last = 2
    for descriptor in sorted(kept):
        os.closerange(last + 1, descriptor)
        last = descriptor
    os.closerange(last + 1, 65536)  # one close_range(2) where it exists


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _await(child: int, alive: int, link: int, deadline: float) -> int:
    """The exit status of the child, once it has one."""
    watch = select.poll()
    watch.register(alive, 0)  # only its end is of interest, and is always reported
    watch.register(link, 0)
    while True:
        left = deadline - time.monotonic()
        events = dict(watch.poll(max(left, 0.0) * 1000))
        if link in events:
            raise KeeperGone
        if alive in events:
            return _reap(child, deadline)
        if left <= 0:
            raise JobOutlivedItsLimits


def _reap(child: int, deadline: float) -> int:
    pause = 0.0002
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == child:
            return status
        if time.monotonic() > deadline:
            raise JobOutlivedItsLimits
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def _verdict(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (signal.SIGALRM, signal.SIGXCPU):
            return "time limit"
        try:
            return f"process ended by {signal.Signals(number).name}"
        except ValueError:
            return "process ended by a signal"
    return "" if os.WEXITSTATUS(status) == 0 else "process ended without a result"
