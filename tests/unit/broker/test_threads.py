"""Steps in threads: whole, also when the caller is cancelled; one that hangs holds up no other."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from capkernel.broker import threads
from capkernel.broker.threads import run_whole


@pytest.fixture(autouse=True)
def crew(monkeypatch: pytest.MonkeyPatch) -> threads._Crew:
    """Threads of this test alone, which do not go while it runs."""
    made = threads._Crew()
    monkeypatch.setattr(threads, "_crew", made)
    monkeypatch.setattr(threads, "IDLE_SECONDS", 600.0)
    return made


def test_one_after_the_other_use_one_thread() -> None:
    async def steps() -> list[int]:
        return [await run_whole(threading.get_ident) for _ in range(50)]

    assert len(set(asyncio.run(steps()))) == 1


def test_a_step_that_hangs_holds_up_no_other() -> None:
    free = threading.Event()

    async def steps() -> list[int]:
        hanging = [asyncio.ensure_future(run_whole(lambda: free.wait(30))) for _ in range(20)]
        await asyncio.sleep(0)
        done = [await run_whole(lambda: 7) for _ in range(50)]
        assert not any(one.done() for one in hanging)
        free.set()
        assert all(await asyncio.gather(*hanging))
        return done

    assert asyncio.run(steps()) == [7] * 50


def test_the_result_and_the_exception_are_those_of_the_step() -> None:
    def fails() -> None:
        raise FileNotFoundError("here")

    async def steps() -> None:
        with pytest.raises(FileNotFoundError, match="here"):
            await run_whole(fails)
        assert await run_whole(lambda: "still") == "still"

    asyncio.run(steps())


def test_a_cancelled_caller_waits_for_its_step_and_is_cancelled_then() -> None:
    free, ended = threading.Event(), threading.Event()

    def step() -> None:
        free.wait(30)
        ended.set()

    async def caller() -> None:
        await run_whole(step)
        assert ended.is_set()
        await asyncio.sleep(30)  # where it is told

    async def steps() -> None:
        task = asyncio.ensure_future(caller())
        await asyncio.sleep(0)
        task.cancel()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(steps())


def test_an_idle_thread_holds_nothing_of_its_last_step() -> None:
    class Content:
        pass

    seen: list[weakref.ref[Content]] = []

    async def steps() -> None:
        made = await run_whole(Content)
        seen.append(weakref.ref(made))
        del made
        await run_whole(lambda: None)  # the thread has let go by then

    asyncio.run(steps())
    assert seen[0]() is None


def test_few_idle_threads_are_kept(crew: threads._Crew) -> None:
    barrier = threading.Barrier(20)

    async def steps() -> None:
        await asyncio.gather(*(run_whole(lambda: barrier.wait(30)) for _ in range(20)))

    asyncio.run(steps())
    assert len(crew._idle) <= threads.MAX_IDLE


def test_an_idle_thread_goes_after_a_while(crew: threads._Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.01)

    async def steps() -> threading.Thread:
        return await run_whole(threading.current_thread)

    thread = asyncio.run(steps())
    thread.join(30)
    assert not thread.is_alive()
    assert crew._idle == []
    assert asyncio.run(steps()) is not thread
