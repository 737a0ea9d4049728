"""The checker process: `python -P -s -E -m capkernel.checker.main --fd N --profile standard`.

Rule 1: it answers a question or it ends. An error inside the checker is no verdict, so the process ends without one,
and the kernel refuses the cell.
Rule 2: nothing it prints holds a value out of a cell: of an internal error, only its type and place.
Rule 3: no check outlives its alarm, even when nobody is left to kill the process.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NoReturn

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)

from capkernel.checker import cache
from capkernel.checker.builds import mypy_version
from capkernel.checker.captures import CaptureSession
from capkernel.checker.engine import Engine
from capkernel.checker.looking.looker import Looker
from capkernel.checker.profiles import PROFILES
from capkernel.checker.protocol import (
    Accepted,
    Check,
    Commit,
    Committed,
    Discard,
    FromChecker,
    Look,
    Looked,
    Progress,
    Rejected,
    Started,
    ToChecker,
)
from capkernel.checker.rehearsal import Rehearsal
from capkernel.checker.session import CheckerSession
from capkernel.checker.subset import check_subset
from capkernel.diagnostics.model import Diagnostic, Span
from capkernel.wire.errors import ProtocolError
from capkernel.wire.frames import FrameReader, encode

_STACK_BYTES = 128 * 1024 * 1024
_RECURSION = 2500
_CRASHED = 70  # EX_SOFTWARE
_COLLECT_AFTER = 64  # checks


def main() -> None:
    """Serve one kernel over one inherited socket until it closes."""
    arguments = _arguments()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are for the cell
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # see _alarm
    _limit(resource.RLIMIT_AS, arguments.memory_mb * 1024 * 1024)
    _limit(resource.RLIMIT_CORE, 0)  # a core file would hold source text
    sys.setrecursionlimit(_RECURSION)
    # mypy is compiled: its recursion uses the C stack, and a main thread's is small.
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=_guarded, args=(arguments,), name="checker")
    thread.start()
    thread.join()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="capkernel.checker.main")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--profile", choices=sorted(PROFILES), required=True)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--memory-mb", type=int, default=4096)
    parser.add_argument("--wall-seconds", type=float, default=5.0)
    return parser.parse_args()


def _guarded(arguments: argparse.Namespace) -> None:
    try:
        link = _Link(socket.socket(fileno=arguments.fd))
        session, engine = _start(link, arguments)
        _serve(link, session, engine, arguments.wall_seconds)
    except (ProtocolError, OSError) as problem:
        _end(f"the link to the kernel failed: {type(problem).__name__}", 1)
    except BaseException as problem:
        _end(_without_values(problem), _CRASHED)


def _start(link: _Link, arguments: argparse.Namespace) -> tuple[CheckerSession, Engine]:
    started = time.monotonic()
    profile = PROFILES[arguments.profile]
    place = _cache(link, arguments.cache)
    # The first cell need not wait for libraries that it may not use: they are loaded when there is nothing to do.
    engine = Engine(place, profile, libraries=() if place is not None else None)
    session = CheckerSession(engine, profile, check_subset, CaptureSession())
    link.send(Started(mypy_version(), time.monotonic() - started))
    return session, engine


def _cache(link: _Link, place: Path | None) -> Path | None:
    def tell(line: str) -> None:
        link.send(Progress(line))

    wanted = cache.directory() if place is None else place
    if cache.is_built(wanted):
        return wanted
    try:
        return cache.build_cache(tell, wanted)
    except OSError as problem:
        tell(f"the type cache cannot be kept ({type(problem).__name__}): every start takes this long")
        return None


def _serve(link: _Link, session: CheckerSession, engine: Engine, wall_seconds: float) -> None:
    checks = 0
    rehearsal = Rehearsal(session, engine.preload)
    looker = Looker(engine)
    while True:
        while rehearsal.patience is not None and not link.is_waiting(rehearsal.patience):
            rehearsal.step()
        if checks >= _COLLECT_AFTER and not link.is_waiting():
            gc.collect()
            checks = 0
        message = link.receive()
        if message is None:
            return
        if isinstance(message, Check):
            checks += 1
            verdict = _check(link, session, message, wall_seconds)
            link.send(verdict)
            if isinstance(verdict, Rejected) and verdict.parting:
                _end("the type checker failed at a repair", _CRASHED)
        elif isinstance(message, Commit):
            session.commit(message.cell, frozenset(message.bound), frozenset(message.deleted), raised=message.raised)
            link.send(Committed(message.cell))
        elif isinstance(message, Discard):
            session.discard(message.cell)
            link.send(Committed(message.cell))
        else:
            checks += 1
            link.send(_look(looker, message, wall_seconds))


def _check(link: _Link, session: CheckerSession, message: Check, wall_seconds: float) -> Accepted | Rejected:
    signal.alarm(int(wall_seconds * 2) + 5)
    try:
        return session.check(message.cell, message.text, message.names, trial=message.trial)
    except MemoryError:
        # The verdict is sure; what is left in memory is not.
        problem = too_much(message.cell, "checking this cell used all the memory it may")
        link.send(Rejected(message.cell, (problem,), parting=True))
        _end("out of memory", _CRASHED)
    finally:
        signal.alarm(0)


def _look(looker: Looker, message: Look, wall_seconds: float) -> Looked:
    signal.alarm(int(wall_seconds * 2) + 5)
    try:
        return looker.answer(message)
    finally:
        signal.alarm(0)


def too_much(cell: int, message: str) -> Diagnostic:
    return Diagnostic("too-much-work", message, cell, Span(1, 0, 1, 1), help="split the cell")


class _Link:
    """The kernel, at the other end of the socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._reader: FrameReader[ToChecker] = FrameReader(ToChecker)
        self._ready: list[ToChecker] = []

    def send(self, message: FromChecker) -> None:
        self._stream.sendall(encode(message))

    def receive(self) -> ToChecker | None:
        """The next message, None when the kernel is gone."""
        while not self._ready:
            data = self._stream.recv(65536)
            if not data:
                return None
            self._reader.feed(data)
            self._ready.extend(message for message, _blob in self._reader.frames())
        return self._ready.pop(0)

    def is_waiting(self, seconds: float = 0.02) -> bool:
        """Whether a question is there, or comes so soon."""
        return bool(self._ready) or bool(select.select([self._stream], [], [], seconds)[0])


def _without_values(problem: BaseException) -> str:
    place = traceback.extract_tb(problem.__traceback__)[-1:]
    where = f" at {os.path.basename(place[0].filename)}:{place[0].lineno}" if place else ""
    return f"the checker failed: {type(problem).__name__}{where}"


def _end(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr, flush=True)  # noqa: T201
    os._exit(code)


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (wanted, hard))


if __name__ == "__main__":
    main()
