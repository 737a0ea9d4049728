"""Blocking work off the event loop, without losing what it holds.

Rule 1: a step has a thread of its own that does not keep the process alive, so a file system that hangs costs the cell
that asked, and neither another cell's effects nor the end of the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

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
            await asyncio.wait({work})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        current = asyncio.current_task()
        if current is not None:
            current.cancel()
    return work.result()


def in_background(step: Callable[[], None]) -> None:
    """Run `step` some time, for nobody to wait for. It must not raise."""
    threading.Thread(target=step, name="capkernel-background", daemon=True).start()


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

    def run() -> None:
        result: tuple[T] | BaseException
        try:
            result = (step(),)
        except BaseException as problem:
            result = problem
        with contextlib.suppress(RuntimeError):  # the loop is closed: the session has ended meanwhile
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="capkernel-effect", daemon=True).start()
    return work
