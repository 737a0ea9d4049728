"""Blocking work off the event loop, without losing what it holds.

Rule 1: a step has a thread to itself while it runs, and none keeps the process alive, so a file system that hangs costs
the cell that asked, and neither another cell's effects nor the end of the session.
Rule 2: a thread that has nothing to do waits a while for the next step, and is never given one while it has another.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

MAX_IDLE: Final = 8
IDLE_SECONDS: Final = 10.0

T = TypeVar("T")


async def run_whole(step: Callable[[], T]) -> T:
    """Run `step` in a thread to its end, also when the caller is cancelled meanwhile.

    A thread cannot be stopped: a caller that went on at once would close descriptors the thread still uses, or lose
    one that it returns. The cancellation is delivered at the caller's next `await`. Whoever must not wait for the
    caller for ever waits with a bound, and leaves it.
    """
    work = _started(step)
    cancelled = False
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled = not work.cancelled()
        except BaseException:
            break  # of the step; told below
    if cancelled:
        current = asyncio.current_task()
        if current is not None:
            current.cancel()
    return work.result()


def in_background(step: Callable[[], None]) -> None:
    """Run `step` some time, for nobody to wait for: on an event loop, after what is ready to run there. It must not
    raise."""

    def run() -> Callable[[], None]:
        step()
        return lambda: None

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        _crew.take(run)
    else:
        loop.call_soon(_crew.take, run)


def _started(step: Callable[[], T]) -> asyncio.Future[T]:
    loop = asyncio.get_running_loop()
    work: asyncio.Future[T] = loop.create_future()

    def settle(result: tuple[T] | BaseException) -> None:
        if work.done():  # cancelled with its loop
            return
        if isinstance(result, BaseException):
            work.set_exception(result)
        else:
            work.set_result(result[0])

    def run() -> Callable[[], None]:
        result: tuple[T] | BaseException
        try:
            result = (step(),)
        except BaseException as problem:
            result = problem

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the session has ended meanwhile
                loop.call_soon_threadsafe(settle, result)

        return tell

    _crew.take(run)
    return work


class _Crew:
    """Threads for steps. A step returns what tells its result, which is called when the thread is free again."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], Callable[[], None]]]] = []
        self._lock = threading.Lock()

    def take(self, step: Callable[[], Callable[[], None]]) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="capkernel-effect", daemon=True).start()
        inbox.put(step)

    def _serve(self, inbox: SimpleQueue[Callable[[], Callable[[], None]]]) -> None:
        while True:
            try:
                step = inbox.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                continue  # it was chosen just now: the step is on its way
            tell = step()
            del step  # what it holds must not live as long as the thread is idle
            with self._lock:
                stays = len(self._idle) < MAX_IDLE
                if stays:
                    self._idle.append(inbox)
            tell()
            del tell
            if not stays:
                return


_crew = _Crew()
