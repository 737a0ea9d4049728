"""Blocking work off the event loop, without losing what it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_whole(step: Callable[[], T]) -> T:
    """Run `step` in a thread to its end, also when the caller is cancelled meanwhile.

    A thread cannot be stopped: a caller that went on at once would close descriptors the thread still uses, or lose
    one that it returns. The cancellation is delivered at the caller's next `await`.
    """
    work = asyncio.ensure_future(asyncio.to_thread(step))
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
