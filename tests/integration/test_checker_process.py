"""The checker as a process of its own: it answers or it is replaced, and the session is never lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from capkernel.checker import cache
from capkernel.checker.client import CheckerClient, CheckerUnavailable
from capkernel.checker.protocol import Accepted, Rejected

COMMAND = [sys.executable, "-P", "-s", "-E", "-m", "capkernel.checker.main"]
WALL = 3.0

# A union of n literal strings and n comparisons: minutes of work for a type checker, nothing for Python.
BOMB = (
    "from typing import Literal\n"
    f"def f(x: Literal[{', '.join(repr(f'v{n}') for n in range(400))}]) -> int:\n"
    + "".join(f"    if x == 'v{n}':\n        return {n}\n" for n in range(400))
    + "    return 0\n"
)


class Processes:
    """Starts checkers, remembers them, ends what is left of them."""

    def __init__(self, directory: Path, command: list[str] = COMMAND) -> None:
        self.command = command
        self.errors = directory / "stderr"
        self.started: list[subprocess.Popen[bytes]] = []

    def spawn(self, descriptors: list[int], arguments: list[str]) -> subprocess.Popen[bytes]:
        with self.errors.open("ab") as stderr:
            process = subprocess.Popen(
                [*self.command, *arguments],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                cwd="/",
                env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
            )
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait(10)


@pytest.fixture(scope="module")
def cache_directory() -> Path:
    return cache.build_cache(print)


@pytest.fixture
def processes(tmp_path: Path):
    made = Processes(tmp_path)
    yield made
    made.end()


@asynccontextmanager
async def checker(processes: Processes, place: Path | None, **options: object) -> AsyncIterator[CheckerClient]:
    settings = {"profile": "standard", "wall_seconds": WALL, "cache_directory": place, **options}
    client = CheckerClient(processes.spawn, **settings)
    try:
        await client.start()
        yield client
    finally:
        await client.close()


def run(body: Callable[[], Awaitable[None]], seconds: float = 60) -> None:
    """Everything here ends in bounded time, or the test fails."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await body()

    asyncio.run(bounded())


async def accept(client: CheckerClient, cell: int, text: str) -> Accepted:
    verdict = await client.check(cell, text)
    assert isinstance(verdict, Accepted), verdict
    await client.commit(cell, tuple(verdict.names))
    return verdict


async def codes(client: CheckerClient, cell: int, text: str) -> list[str]:
    verdict = await client.check(cell, text)
    return [diagnostic.code for diagnostic in verdict.diagnostics] if isinstance(verdict, Rejected) else []


async def until(fact: Callable[[], object], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.01)


async def busy(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process is seen to work."""
    watched = psutil.Process(process.pid)
    before = sum(watched.cpu_times()[:2])
    await until(lambda: sum(watched.cpu_times()[:2]) > before + 0.2, "the checker is at work")


def test_a_session(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            verdict = await accept(client, 1, "x = 1\ndef f(n: int) -> int:\n    return n + x\n")
            assert verdict.names["x"] == "int"
            assert await codes(client, 2, "f()") == ["call-arg"]
            assert await codes(client, 2, "print(nope)") == ["unbound-name"]
            assert (await accept(client, 2, "f(x)")).last_type == "int"
            gone = await client.check(3, "del x")
            assert isinstance(gone, Accepted)
            await client.commit(3, (), ("x",))
            assert await codes(client, 4, "x") == ["unbound-name"]
            assert isinstance(await client.check(5, "y = 1"), Accepted)
            await client.discard(5)
            assert await codes(client, 6, "y") == ["unbound-name"]
            await client.discard(99)
            with pytest.raises(KeyError):
                await client.commit(99, ())
        assert processes.started[0].poll() is not None

    run(body)


def test_it_starts_quickly(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        client = CheckerClient(processes.spawn, profile="standard", cache_directory=cache_directory)
        try:
            started = await client.start()
        finally:
            await client.close()
        assert started.mypy.startswith("2.4.")
        assert started.seconds < 5  # half a second where nothing else runs

    run(body)


def test_the_rules_are_really_there(processes: Processes, cache_directory: Path) -> None:
    """Neither the safe subset nor the capture checker can be left out of the process."""

    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            assert await codes(client, 1, "eval('1')") == ["unsafe-feature"]
            escape = "with request_file_system('data') as fs:\n    kept = fs\n"
            found = await codes(client, 2, escape + "kept.root\n")
            assert "capability-escape" in found
            assert await codes(client, 3, "if 0:\n    print(1)") == ["untyped-code"]

    run(body)


def test_a_cell_that_takes_too_long(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            await accept(client, 1, "x = 'kept'")
            start = time.monotonic()
            assert await codes(client, 2, BOMB) == ["too-much-work"]
            assert time.monotonic() - start < WALL + 2
            assert (await accept(client, 3, "x")).last_type == "str"
        assert len(processes.started) == 2
        assert processes.started[0].poll() is not None

    run(body)


def test_a_killed_checker_is_replaced(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            for number in range(1, 30):
                await accept(client, number, f"v{number} = {number}\nclass C{number}:\n    a: int = v{number}\n")
            waiting = await client.check(30, "w = C1()")
            assert isinstance(waiting, Accepted)
            processes.started[0].kill()
            processes.started[0].wait(10)
            assert await codes(client, 31, "w") == ["unbound-name"]  # w has not run yet
            await client.commit(30, ("w",))
            assert (await accept(client, 31, "w.a + v29")).last_type == "int"

    run(body)


def test_killed_in_the_middle_of_a_question(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            await accept(client, 1, "x = 1")
            question = asyncio.create_task(client.check(2, BOMB))
            await busy(processes.started[0])
            processes.started[0].kill()
            verdict = await question
            assert isinstance(verdict, Rejected)
            assert [diagnostic.code for diagnostic in verdict.diagnostics] == ["checker-unavailable"]
            assert (await accept(client, 2, "x")).last_type == "int"

    run(body)


def test_killed_again_and_again(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            await accept(client, 1, "x = 1")
            for cell in range(2, 5):
                processes.started[-1].kill()
                processes.started[-1].wait(10)
                assert (await accept(client, cell, "x")).last_type == "int"

    run(body)


def test_killed_while_it_is_told_what_ran(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            assert isinstance(await client.check(1, "x = 1"), Accepted)
            processes.started[0].kill()
            await client.commit(1, ("x",))
            assert (await accept(client, 2, "x")).last_type == "int"

    run(body)


def test_a_question_nobody_waits_for(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            await accept(client, 1, "x = 1")
            question = asyncio.create_task(client.check(2, BOMB))
            await busy(processes.started[0])
            question.cancel()
            with pytest.raises(asyncio.CancelledError):
                await question
            assert (await accept(client, 2, "x")).last_type == "int"

    run(body)


def test_text_that_is_no_text(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            assert await codes(client, 1, "'\ud800'") == ["syntax"]
            assert await codes(client, 1, "x = 1\0") == ["syntax"]
            assert await codes(client, 1, "#" * 300_000) == ["too-much-work"]
            assert await codes(client, 1, "#" * 40_000_000) == ["syntax"]
            assert await codes(client, 1, "-" * 50_000 + "1") == ["too-much-work"]
            assert await codes(client, 1, "1") == []
        assert len(processes.started) == 1

    run(body)


def test_questions_of_two_tasks(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            verdicts = await asyncio.gather(*(client.check(number, f"{number}") for number in range(1, 20)))
            assert [verdict.cell for verdict in verdicts] == list(range(1, 20))
            assert all(isinstance(verdict, Accepted) for verdict in verdicts)

    run(body)


def test_out_of_memory(processes: Processes, cache_directory: Path) -> None:
    large = "y = [" + "(1,[2]),\n" * 28000 + "]\n"  # takes the checker more than 100 MB

    async def body() -> None:
        async with checker(processes, cache_directory, wall_seconds=20.0) as client:
            await accept(client, 1, "x = 1")
            assert await codes(client, 2, large) == []  # there is nothing wrong with it
            processes.started[0].kill()
            processes.started[0].wait(10)
            await accept(client, 3, "x")
            limited = psutil.Process(processes.started[1].pid)
            room = limited.memory_info().vms + 16 * 2**20
            limited.rlimit(psutil.RLIMIT_AS, (room, room))
            assert (await codes(client, 4, large))[0] in ("too-much-work", "checker-unavailable")
            assert (await accept(client, 4, "x")).last_type == "int"

    run(body)


# Says its verdict, that it will end, and then takes its time about it.
PARTING = """
import socket, sys, time
from capkernel.checker.protocol import Rejected, Started, ToChecker
from capkernel.wire.frames import FrameReader, encode
link, reader = socket.socket(fileno=int(sys.argv[2])), FrameReader(ToChecker)
link.sendall(encode(Started("", 0.0)))
while True:
    reader.feed(link.recv(65536))
    for message, _blob in reader.frames():
        link.sendall(encode(Rejected(message.cell, (), parting=True)))
        time.sleep(60)
"""


def test_a_parting_answer_is_the_last_that_is_asked_of_the_process(processes: Processes, cache_directory: Path) -> None:
    processes.command = [sys.executable, "-c", PARTING]

    async def body() -> None:
        async with checker(processes, cache_directory, wall_seconds=20.0) as client:
            processes.command = COMMAND
            assert isinstance(await client.check(1, "x = 1"), Rejected)
            await accept(client, 2, "x = 1")
            assert len(processes.started) == 2

    run(body)


def test_the_kernel_is_gone(processes: Processes, cache_directory: Path) -> None:
    async def body() -> None:
        client = CheckerClient(processes.spawn, profile="standard", cache_directory=cache_directory)
        await client.start()
        assert client._link is not None
        client._link._writer.close()  # as when the kernel dies: nobody kills, the socket closes
        for _ in range(500):
            if processes.started[0].poll() is not None:
                break
            await asyncio.sleep(0.01)
        assert processes.started[0].poll() == 0

    run(body)


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",  # says nothing
        "import sys; sys.exit(3)",  # ends
        "import socket, sys; socket.socket(fileno=int(sys.argv[2])).sendall(b'garbage that is no frame' * 100)",
        "import socket, sys, time; s = socket.socket(fileno=int(sys.argv[2])); s.sendall(b'\\xff' * 8); time.sleep(60)",
    ],
)
def test_something_else_answers(tmp_path: Path, program: str) -> None:
    processes = Processes(tmp_path, [sys.executable, "-c", program])

    async def body() -> None:
        client = CheckerClient(processes.spawn, profile="standard", wall_seconds=1.0, start_seconds=1.0)
        try:
            with pytest.raises(CheckerUnavailable):
                await client.start()
            assert await codes(client, 1, "1") == ["checker-unavailable"]
        finally:
            await client.close()

    try:
        run(body)
        assert all(process.poll() is not None for process in processes.started)
    finally:
        processes.end()


def test_nothing_can_be_started() -> None:
    def spawn(descriptors: list[int], arguments: list[str]) -> subprocess.Popen[bytes]:
        raise RuntimeError("no process")

    async def body() -> None:
        client = CheckerClient(spawn, profile="standard")
        with pytest.raises(CheckerUnavailable, match="RuntimeError"):
            await client.start()
        assert await codes(client, 1, "1") == ["checker-unavailable"]
        await client.close()

    run(body)


def test_a_wrong_answer_is_no_answer(tmp_path: Path) -> None:
    """A process that says Started, then a verdict about another cell, is not believed."""
    program = (
        "import socket, sys\n"
        "from capkernel.checker.protocol import Accepted, Started\n"
        "from capkernel.wire.frames import encode\n"
        "from capkernel.wire.plan import NOTHING\n"
        "link = socket.socket(fileno=int(sys.argv[2]))\n"
        "link.sendall(encode(Started('2.4.1', 0.0)))\n"
        "link.recv(65536)\n"
        "link.sendall(encode(Accepted(77, NOTHING)))\n"
        "link.recv(65536)\n"
    )
    processes = Processes(tmp_path, [sys.executable, "-c", program])

    async def body() -> None:
        client = CheckerClient(processes.spawn, profile="standard", wall_seconds=1.0, start_seconds=10.0)
        try:
            await client.start()
            assert await codes(client, 1, "1") == ["checker-unavailable"]
        finally:
            await client.close()

    try:
        run(body)
    finally:
        processes.end()


def test_an_internal_error_says_no_value(processes: Processes, cache_directory: Path, tmp_path: Path) -> None:
    """The process ends without a verdict, and what it prints is a type and a place."""
    program = (
        "from capkernel.checker import main\n"
        "def broken(module, cell, text):\n"
        "    raise KeyError(text)\n"
        "main.check_subset = broken\n"
        "main.main()\n"
    )
    processes.command = [sys.executable, "-P", "-s", "-E", "-c", program]

    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            assert await codes(client, 1, "key = 'sk-secret'") == ["checker-unavailable"]

    run(body)
    assert processes.started[0].wait(10) == 70
    said = processes.errors.read_text()
    assert "KeyError" in said
    assert "sk-secret" not in said


def test_a_crash_in_the_middle_of_a_session(processes: Processes, cache_directory: Path) -> None:
    """An internal error for one text: refused, never accepted; the next process knows the session."""
    program = (
        "from capkernel.checker import main\n"
        "rules = main.check_subset\n"
        "def sometimes(module, cell, text):\n"
        "    if 'crash' in text:\n        raise AssertionError\n"
        "    return rules(module, cell, text)\n"
        "main.check_subset = sometimes\n"
        "main.main()\n"
    )
    processes.command = [sys.executable, "-P", "-s", "-E", "-c", program]

    async def body() -> None:
        async with checker(processes, cache_directory) as client:
            await accept(client, 1, "class C:\n    n: int = 1\nx = C()")
            await accept(client, 2, "y = x.n")
            for number in range(3, 5):
                assert await codes(client, number, "crash = 1") == ["checker-unavailable"]
                assert await codes(client, number, "crash") == ["checker-unavailable"]
                assert await codes(client, number, "eval('1')") == ["unsafe-feature"]
                assert (await accept(client, number, "x.n + y")).last_type == "int"
        assert len(processes.started) == 5
        assert all(process.wait(10) == 70 for process in processes.started[:4])

    run(body)


def test_no_rules_no_start(processes: Processes, cache_directory: Path) -> None:
    """A missing capture checker is an error at the start, never skipped."""
    program = (
        "import sys\nsys.modules['capkernel.checker.captures'] = None\n"
        "from capkernel.checker.main import main\nmain()\n"
    )
    processes.command = [sys.executable, "-P", "-s", "-E", "-c", program]

    async def body() -> None:
        client = CheckerClient(processes.spawn, profile="standard", cache_directory=cache_directory)
        try:
            with pytest.raises(CheckerUnavailable):
                await client.start()
        finally:
            await client.close()

    run(body)
    assert "captures" in processes.errors.read_text()


def test_a_checker_that_has_checked_much_is_replaced_while_idle(
    processes: Processes, cache_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capkernel.checker.client._IDLE_SECONDS", 1000.0)

    async def body() -> None:
        async with checker(processes, cache_directory, recycle_after=5) as client:
            await accept(client, 1, "kept = 1")
            for number in range(2, 8):
                assert await codes(client, number, "nothing_here") == ["unbound-name"]
            assert len(processes.started) == 1  # it was never idle
            monkeypatch.setattr("capkernel.checker.client._IDLE_SECONDS", 0.0)
            assert isinstance(await client.check(8, "late = kept + 1"), Accepted)  # and runs while they change
            await until(lambda: processes.started[0].poll() is not None, "the old one is gone")
            assert len(processes.started) == 2
            await client.commit(8, ("late",))
            assert (await accept(client, 9, "kept + late")).last_type == "int"  # the new one knows the session

    run(body)


def test_nobody_waits_for_the_new_checker(
    processes: Processes, cache_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never idle, so replaced at twice the number; until the new one is ready, the old one answers."""
    monkeypatch.setattr("capkernel.checker.client._IDLE_SECONDS", 1000.0)

    async def body() -> None:
        async with checker(processes, cache_directory, recycle_after=5) as client:
            await accept(client, 1, "kept = 1")
            answered_by_the_old = 0
            number = 1
            while processes.started[0].poll() is None:
                number += 1
                both = len(processes.started) == 2
                assert (await accept(client, number, f"v{number} = kept")).names == {f"v{number}": "int"}
                answered_by_the_old += both
                await asyncio.sleep(0.01)
            assert answered_by_the_old > 1
            assert (await accept(client, number + 1, f"v{number}")).last_type == "int"

    run(body)


def test_a_new_checker_that_does_not_start_changes_nothing(
    processes: Processes, cache_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capkernel.checker.client._IDLE_SECONDS", 0.0)

    async def body() -> None:
        async with checker(processes, cache_directory, recycle_after=2) as client:
            await accept(client, 1, "kept = 1")
            processes.command = [sys.executable, "-c", "import sys; sys.exit(3)"]
            await accept(client, 2, "kept")
            await until(lambda: len(processes.started) > 1 and processes.started[1].poll() is not None, "it has ended")
            assert (await accept(client, 3, "kept")).last_type == "int"
            assert processes.started[0].poll() is None

    run(body)


def test_another_mypy(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capkernel.checker.pinned.installed", lambda: "2.5.0")

    async def body() -> None:
        client = CheckerClient(processes.spawn, profile="standard")
        with pytest.raises(CheckerUnavailable, match=r"needs mypy 2\.4\.\*, and mypy 2\.5\.0 is installed"):
            await client.start()
        verdict = await client.check(1, "1")
        assert isinstance(verdict, Rejected)
        assert "pip install 'mypy==2.4.*'" in verdict.diagnostics[0].message
        await client.close()

    run(body)
    assert processes.started == []
