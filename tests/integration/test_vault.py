"""The vault with its real processes: work, poison, isolation, losses, and where cleartext never is."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from memory import readable

from capkernel.sandbox import Profile, Report, clean_environment, interpreter_argv
from capkernel.sandbox.levels import Level
from capkernel.vault import processes as vault_processes
from capkernel.vault.client import DuplicateHandle, VaultClient, VaultQuota, WriteOutcome
from capkernel.vault.launch import keeper_profile, runner_profile, spawners
from capkernel.vault.processes import VaultFailed
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import encode as encode_frame
from capkernel.wire.plan import CodeKey, FreeName, PureFunction
from capkernel.wire.values import BadValue, encode
from capkernel.wire.vault import Count, Described, FunctionBundle, Limits, Result

NOTHING = encode({"globals": {}, "closure": {}})
LIMITS = Limits(job_seconds=2.0, job_memory_bytes=512 * 1024**2)


def function(name: str, source: str, *free: FreeName, line: int = 1, cell: int = 1) -> PureFunction:
    return PureFunction(
        CodeKey(cell, line, name, (line, 0, line, 9)), "lambda" if name == "<lambda>" else "def", name, source, free
    )


def bundle(source: str, *free: FreeName) -> FunctionBundle:
    made = function("<lambda>", source, *free)
    return FunctionBundle(made.key, "", (made,))


def module(name: str, target: str | None = None) -> FreeName:
    return FreeName(name, "module", target or name)


class Handle:
    def __init__(self, name: str) -> None:
        self.name = name


def captured(**names: object) -> bytes:
    return encode({"globals": names, "closure": {}}, handle_of=lambda it: getattr(it, "name", None))


class Vault:
    """A running vault with shorthands."""

    def __init__(self, client: VaultClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def put(self, value: object, origin: str = "", label: str = "") -> str:
        handle = self.new()
        self.client.put(handle, encode(value), origin, label)
        return handle

    def map(self, source: str, made: FunctionBundle, data: bytes = NOTHING, *, flat: bool = False) -> str:
        handle = self.new()
        self.client.map(handle, source, made, data, flat)
        return handle

    async def read(self, handle: str, limit: int = 1 << 20) -> tuple[WriteOutcome, bytes]:
        """What a classified write of the handle puts into a file."""
        path = self.folder / handle
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            return await asyncio.wait_for(self.client.write(handle, descriptor, limit), 60), path.read_bytes()
        finally:
            os.close(descriptor)

    async def text(self, handle: str) -> str:
        outcome, content = await self.read(handle)
        assert outcome.kind == "written", (outcome, await self.client.describe(handle))
        return content.decode()

    async def settled(self, handle: str) -> Described:
        await asyncio.wait_for(self.client.settle(), 60)
        return await self.client.describe(handle)


@asynccontextmanager
async def running(folder: Path, *, wrapped: bool = False, **options: Any) -> AsyncIterator[Vault]:
    keeper, runner = spawners(keeper_profile(), runner_profile(), cwd=str(folder), use_bwrap=wrapped)
    client = VaultClient(spawn_keeper=keeper, spawn_runner=runner, **({"limits": LIMITS} | options))
    await client.start()
    try:
        yield Vault(client, folder)
    finally:
        await client.close()


Body = Callable[[Vault], Awaitable[None]]


def in_vault(folder: Path, body: Body, **options: Any) -> None:
    async def main() -> None:
        async with running(folder, **options) as vault:
            await body(vault)

    asyncio.run(main())


WALLS = [False, pytest.param(True, marks=pytest.mark.bwrap)]


# ── work ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wrapped", WALLS)
def test_both_processes_prove_their_level(tmp_path: Path, wrapped: bool) -> None:
    async def body(vault: Vault) -> None:
        for name in ("keeper", "runner"):
            report = Report.from_json(vault.client.reports[name])
            assert report.level >= (Level.FULL if wrapped else Level.STANDARD)

    in_vault(tmp_path, body, wrapped=wrapped)


@pytest.mark.parametrize("wrapped", WALLS)
def test_values_functions_and_sinks(tmp_path: Path, wrapped: bool) -> None:
    async def body(vault: Vault) -> None:
        first = vault.put("  Ab ", "file a")
        table = vault.map(first, FunctionBundle(table="builtins.str.strip"))
        assert await vault.text(table) == "Ab"
        fact = function("fact", "def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)\n",
                        FreeName("fact", "function", function=CodeKey(1, 5, "fact", (5, 0, 5, 9))), line=5)  # fmt: skip
        entry = function("<lambda>", "lambda s: str(fact(len(s)) + k + b)",
                         FreeName("fact", "function", function=fact.key), FreeName("k", "data"),
                         FreeName("b", "data"))  # fmt: skip
        data = encode({"globals": {"k": 100, "b": 0}, "closure": {"b": 1000}})
        counted = vault.map(table, FunctionBundle(entry.key, "", (entry, fact)), data)
        assert await vault.text(counted) == "1102"
        assert (await vault.read(vault.map(first, bundle("lambda s: s.encode()"))))[1] == b"  Ab "
        when = vault.put(datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")))  # the job reads the zone's file
        assert await vault.text(vault.map(when, bundle("lambda d: d.isoformat()"))) == "2024-07-01T00:00:00+02:00"

    in_vault(tmp_path, body, wrapped=wrapped)


def test_zip_flat_map_and_lineage(tmp_path: Path) -> None:
    async def body(vault: Vault) -> None:
        a, b, c = vault.put("a", "file a"), vault.put("b", "file b"), vault.put("c", "file c", "label c")
        pair = vault.new()
        vault.client.zip(pair, a, b)
        free = (FreeName("c", "classified"), FreeName("sep", "data"))
        flat = vault.map(
            pair,
            bundle("lambda p: c.map(lambda x: sep.join((*p, x)))", *free),
            captured(c=Handle(c), sep="-"),
            flat=True,
        )
        assert await vault.text(flat) == "a-b-c"
        found = await vault.settled(flat)
        assert found.origins == ("file a", "file b", "file c")
        assert found.labels == ("label c",)
        assert found.parents == (pair, c)
        assert vault.client.origins(flat) == {"file a", "file b", "file c"}
        assert vault.client.origins("never") is None
        only = vault.map(a, bundle("lambda x: x"))
        assert vault.client.origins(only) == {"file a"}

    in_vault(tmp_path, body)


def test_numpy_and_pandas_in_captured_data_arguments_and_results(tmp_path: Path) -> None:
    async def body(vault: Vault) -> None:
        frame = vault.put(pd.DataFrame({"k": ["x", "y", "x"], "v": [1, 2, 3]}))
        sums = vault.map(frame, bundle("lambda d: d.groupby('k').v.sum()"))
        data = captured(weights=np.array([10, 1]))
        text = vault.map(
            sums, bundle("lambda s: str(int((s.to_numpy() * weights).sum()))", FreeName("weights", "data")), data
        )
        assert await vault.text(text) == "42"
        # a large product runs OpenBLAS code in a process that was forked after numpy was imported
        blas = bundle("lambda n: str((np.ones((n, n)) @ np.ones((n, n))).sum())", module("np", "numpy"))
        assert await vault.text(vault.map(vault.put(400), blas)) == str(400.0**3)
        assert (await vault.client.status()).types == {"pandas object": 2, "str": 2, "int": 1}

    in_vault(tmp_path, body)


def test_the_keeper_never_loads_numpy_the_runner_loads_it_when_needed(tmp_path: Path) -> None:
    def maps(pid: int | None) -> bool:
        return "_multiarray_umath" in Path(f"/proc/{pid}/maps").read_text()

    async def body(vault: Vault) -> None:
        assert await vault.text(vault.map(vault.put(1), bundle("lambda x: str(x)"))) == "1"
        assert not maps(vault.client.runner_pid)
        assert await vault.text(vault.map(vault.put(np.arange(3)), bundle("lambda x: str(x.sum())"))) == "3"
        assert maps(vault.client.runner_pid)
        assert len(os.listdir(f"/proc/{vault.client.runner_pid}/task")) == 1
        assert not maps(vault.client.keeper_pid)

    in_vault(tmp_path, body)


# ── poison ───────────────────────────────────────────────────────────────────────────────────────────────────────────

POISONS = [
    ("lambda x: 1 / 0", "ZeroDivisionError"),
    ("lambda x: exit()", "SystemExit"),
    ("lambda x: __import__('os')._exit(0)", "process ended without a result"),
    ("lambda x: __import__('os')._exit(7)", "process ended without a result"),
    ("lambda x: [0 for _ in iter(int, 1) if _]", "time limit"),  # runs on and on, but eats no memory
    ("lambda x: __import__('time').sleep(100)", "time limit"),
    ("lambda x: (lambda f: f(f))(lambda f: f(f))", "RecursionError"),
    ("lambda x: bytes(10**10)", "MemoryError"),
    ("lambda x: [bytes(50_000_000) for _ in range(20)]", "MemoryError"),
    ("lambda x: __import__('ctypes').string_at(0)", "process ended by SIGSEGV"),  # as if the checker were off
    ("lambda x: __import__('os').abort()", "process ended by SIGSEGV"),  # it may not even signal itself
    ("lambda x: object()", "Unsendable"),
    ("lambda x: (y for y in [x])", "Unsendable"),
    ("lambda x: x +", "SyntaxError"),
    ("lambda x: undefined_name", "NameError"),
]


def test_every_kind_of_failure_is_poison_for_one_handle(tmp_path: Path) -> None:
    async def body(vault: Vault) -> None:
        source = vault.put("alive")
        made = [(vault.map(source, bundle(text)), reason) for text, reason in POISONS]
        derived = vault.map(made[0][0], bundle("lambda x: 1"))
        late = vault.map(source, bundle("lambda x: x.upper()"))
        assert await vault.text(late) == "ALIVE"
        for handle, reason in made:
            found = await vault.client.describe(handle)
            assert (found.state, found.reason) == ("poison", reason)
            assert (await vault.read(handle)) == (WriteOutcome("poison"), b"")
        assert (await vault.client.describe(derived)).reason == "ZeroDivisionError"
        assert (await vault.client.describe(made[0][0])).place == "cell 1, line 1"
        assert (await vault.client.status()).runner_generation == 1  # none of this cost the runner

    in_vault(tmp_path, body)


def test_a_result_beyond_the_bound_is_poison(tmp_path: Path) -> None:
    async def body(vault: Vault) -> None:
        source = vault.put(10_000)
        assert (await vault.settled(vault.map(source, bundle("lambda n: 'x' * n")))).reason == "result too large"
        assert await vault.text(vault.map(source, bundle("lambda n: 'x' * 10"))) == "x" * 10

    in_vault(tmp_path, body, limits=Limits(result_bytes=1000))


def test_a_job_that_ignores_its_alarm_costs_the_runner_and_nothing_else(tmp_path: Path) -> None:
    deaf = "lambda x: (__import__('signal').pthread_sigmask(0, range(1, 64)), __import__('time').sleep(60))"

    async def body(vault: Vault) -> None:
        source = vault.put("kept")
        first = vault.client.runner_pid
        bad, good = vault.map(source, bundle(deaf)), vault.map(source, bundle("lambda x: x + '!'"))
        assert await vault.text(good) == "kept!"
        assert (await vault.client.describe(bad)).reason == "the process that ran it was lost"
        assert vault.client.runner_pid != first
        assert gone([first])  # the deaf job went with it

    in_vault(tmp_path, body, limits=Limits(job_seconds=0.5))


def session_members(session: int | None) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split() if name.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[3]) == session and fields[0] != "Z":
            found.append(int(name))
    return found


def test_put_of_nonsense_is_poison_on_use(tmp_path: Path) -> None:
    async def body(vault: Vault) -> None:
        vault.client.put("bad", b"nonsense", "o")
        vault.client.put("worse", b"CKV1\0\0\0s\xff\0\0\0", "o")  # a good start, cut off
        for handle in ("bad", "worse"):
            found = await vault.settled(vault.map(handle, bundle("lambda x: x")))
            assert found.state == "poison"

    in_vault(tmp_path, body)


# ── isolation ────────────────────────────────────────────────────────────────────────────────────────────────────────

ATTACKS = {
    "open": "lambda path: open(path).read()",
    "list": "lambda path: ','.join(__import__('os').listdir(__import__('os').path.dirname(path)))",
    "write": "lambda path: open(path + '.new', 'w').write('x')",
    "socket": "lambda path: __import__('socket').socket() and 'made'",
    "unix socket": "lambda path: __import__('socket').socket(__import__('socket').AF_UNIX) and 'made'",
    "fork": "lambda path: __import__('os').fork() or __import__('os')._exit(0)",
    "exec": "lambda path: __import__('subprocess').run(['/bin/true'], check=True) and 'ran'",
    "exec in place": "lambda path: __import__('os').execv('/bin/true', ['true'])",
    "kill the runner": "lambda path: __import__('os').kill(__import__('os').getppid(), 0) or 'sent'",
    "memory of the runner": "lambda path: open(f\"/proc/{__import__('os').getppid()}/mem\", 'rb') and 'opened'",
}
ALONE = (
    "import os, sys; f = eval(sys.argv[1]); made = f(sys.argv[2]); sys.stdout.write('succeeded'); sys.stdout.flush()"
)


def test_the_attacks_work_in_a_plain_process(tmp_path: Path) -> None:
    target = tmp_path / "user-file"
    target.write_text("content")
    for name, source in ATTACKS.items():
        done = subprocess.run(
            [sys.executable, "-c", ALONE, source, str(target)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (name, done.stderr)
        assert done.stdout == "succeeded" or name == "exec in place", name


@pytest.mark.parametrize("wrapped", WALLS)
def test_the_attacks_fail_in_a_job(tmp_path: Path, wrapped: bool) -> None:
    target = tmp_path / "user-file"
    target.write_text("content")

    async def body(vault: Vault) -> None:
        path = vault.put(str(target))
        made = {name: vault.map(path, bundle(source)) for name, source in ATTACKS.items()}
        await vault.client.settle()
        reasons = {name: (await vault.client.describe(handle)).reason for name, handle in made.items()}
        # behind bubblewrap the file is not there, and nothing can be made (a read-only file system: OSError)
        denied = {"PermissionError", "FileNotFoundError", "OSError"} if wrapped else {"PermissionError"}
        assert {name for name, reason in reasons.items() if reason not in denied} == set(), reasons
        assert not (tmp_path / "user-file.new").exists()

    in_vault(tmp_path, body, wrapped=wrapped)


def test_a_job_holds_no_descriptor_but_its_own_stream(tmp_path: Path) -> None:
    probe = function(
        "probe", "def probe(fd):\n    import os\n    try:\n        os.fstat(fd)\n    except OSError:\n"
        "        return False\n    return True\n", line=3,
    )  # fmt: skip
    entry = function("<lambda>", "lambda x: str(sum(map(probe, range(3, 4096))))",
                     FreeName("probe", "function", function=probe.key))  # fmt: skip

    async def body(vault: Vault) -> None:
        made = vault.map(vault.put(1), FunctionBundle(entry.key, "", (entry, probe)))
        assert await vault.text(made) == "2"  # the stream, and the pipe that tells the runner of the end

    in_vault(tmp_path, body)


def test_output_of_a_job_goes_nowhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def body(vault: Vault) -> None:
        noisy = bundle(
            "lambda x: (print(x), __import__('os').write(1, x.encode()), __import__('os').write(2, x.encode()), x)[3]"
        )
        assert await vault.text(vault.map(vault.put("canary-on-stdout"), noisy)) == "canary-on-stdout"

    in_vault(tmp_path, body)
    out, err = capfd.readouterr()
    assert "canary" not in out + err


def test_a_job_cannot_see_what_an_earlier_one_did(tmp_path: Path) -> None:
    mark, look = "setattr(json, 'mark', 1)", "str(hasattr(json, 'mark'))"
    name = module("json")

    async def body(vault: Vault) -> None:
        one = vault.put("x")
        together = vault.map(one, bundle(f"lambda x: ({mark}, {look})[1]", name))
        assert await vault.text(together) == "True"  # within one job it is seen
        vault.map(one, bundle(f"lambda x: {mark}", name))
        assert await vault.text(vault.map(one, bundle(f"lambda x: {look}", name))) == "False"
        grow = bundle("lambda x: str((x.append(1), x)[1])")
        lists = vault.put([0])
        assert [await vault.text(vault.map(lists, grow)) for _ in range(2)] == ["[0, 1]"] * 2

    in_vault(tmp_path, body)


WRITE_CANARY = "import secrets, sys; open(sys.argv[1], 'w').write(secrets.token_hex(32))"
COMPARE = "import sys; a, b = (open(p).read() for p in sys.argv[1:]); sys.exit(0 if a and b == a[::-1] else 1)"
COUNT = """
import sys; sys.path.insert(0, sys.argv[1]); from memory import count_in_memory
canary = open(sys.argv[2], 'rb').read()
print([count_in_memory(int(pid), canary[:24]) + count_in_memory(int(pid), canary[::-1][:24]) for pid in sys.argv[3:]])
"""


@pytest.mark.skipif(not readable(os.getpid()), reason="this user may not read the memory of processes")
def test_the_cleartext_of_a_filled_file_is_in_the_keeper_and_in_no_other_process(tmp_path: Path) -> None:
    source, sink, known = tmp_path / "secret", tmp_path / "sink", tmp_path / "known"
    for path in (source, known):
        subprocess.run([sys.executable, "-c", WRITE_CANARY, str(path)], check=True, timeout=60)

    def count(path: Path, *pids: int | None) -> list[int]:
        support = str(Path(sys.modules["memory"].__file__ or "").parent)
        done = subprocess.run([sys.executable, "-c", COUNT, support, str(path), *map(str, pids)],
                              capture_output=True, text=True, check=True, timeout=100)  # fmt: skip
        return [int(number) for number in done.stdout.strip(" []\n").split(",")]

    async def body(vault: Vault) -> None:
        descriptor = os.open(source, os.O_RDONLY)
        vault.client.fill("secret", descriptor, "str", "file")
        os.close(descriptor)
        turned = vault.map("secret", bundle("lambda s: s[::-1]"))
        out = os.open(sink, os.O_WRONLY | os.O_CREAT)
        assert await vault.client.write(turned, out, 1000) == WriteOutcome("written", 64)
        os.close(out)
        subprocess.run([sys.executable, "-c", COMPARE, str(source), str(sink)], check=True, timeout=60)
        here, keeper, runner = await asyncio.to_thread(
            count, source, os.getpid(), vault.client.keeper_pid, vault.client.runner_pid
        )
        assert keeper > 0  # the search does find it
        assert (here, runner) == (0, 0)
        kept = known.read_bytes()
        assert (await asyncio.to_thread(count, known, os.getpid()))[0] > 0, len(kept)  # and finds it in this process

    in_vault(tmp_path, body)


def test_a_job_that_misuses_its_stream_harms_nobody(tmp_path: Path) -> None:
    write = function(
        "misuse", "def misuse(data):\n    import os\n    stream = next(fd for fd in range(3, 4096) if is_socket(fd))\n"
        "    while True:\n        os.write(stream, data)\n",
        FreeName("is_socket", "function", function=CodeKey(1, 9, "is_socket", (9, 0, 9, 9))), line=3,
    )  # fmt: skip
    is_socket = function(
        "is_socket", "def is_socket(fd):\n    import os, stat\n    try:\n"
        "        return stat.S_ISSOCK(os.fstat(fd).st_mode)\n"
        "    except OSError:\n        return False\n", line=9,
    )  # fmt: skip
    hostile = FunctionBundle(write.key, "", (write, is_socket))

    async def body(vault: Vault) -> None:
        for data in (
            b"\xff" * 65536,
            b"\0" * 65536,
            encode_frame(Result(), encode("mine")),
            encode_frame(Count(1), b""),
        ):
            made = vault.map(vault.put(data), hostile)
            found = await vault.settled(made)
            assert (found.state, found.reason) == ("poison", "time limit")
        assert await vault.text(vault.put("alive")) == "alive"
        assert (await vault.client.status()).runner_generation == 1

    in_vault(tmp_path, body, limits=Limits(job_seconds=0.3))


# ── losses ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wrapped", WALLS)
def test_a_killed_runner_costs_the_running_job_only(tmp_path: Path, wrapped: bool) -> None:
    lost: list[str] = []

    async def body(vault: Vault) -> None:
        kept = vault.put("kept", "file a")
        done = vault.map(kept, bundle("lambda x: x + '1'"))
        await vault.client.settle()
        first = vault.client.runner_pid
        assert first is not None
        slow = vault.map(kept, bundle("lambda x: __import__('time').sleep(1.5)"))
        after = vault.map(kept, bundle("lambda x: x + '2'"))
        await asyncio.sleep(0.3)
        os.kill(first, signal.SIGKILL)
        assert await vault.text(after) == "kept2"
        assert await vault.text(done) == "kept1"
        found = await vault.client.describe(slow)
        assert (found.state, found.origins) == ("poison", ("file a",))
        assert vault.client.runner_pid != first
        await vault.client.settle()
        os.kill(vault.client.runner_pid or 0, signal.SIGKILL)  # while idle: no job is lost
        await asyncio.sleep(0.05)
        assert await vault.text(vault.map(kept, bundle("lambda x: x + '3'"))) == "kept3"
        assert (await vault.client.status()).runner_generation == 3
        assert lost == []

    in_vault(tmp_path, body, on_lost=lost.append, wrapped=wrapped)


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not fact():
            await asyncio.sleep(0.01)


def test_runners_that_cannot_be_started_for_a_while_cost_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault_processes, "_RUNNER_PAUSES", (0.0,) * 6)
    lost: list[str] = []

    def starve(vault: Vault, times: int) -> list[int]:
        """Let the next `times` starts of a runner fail, as they do where no process can be made."""
        tries: list[int] = []
        spawn = vault.client._processes._spawn_runner

        def starved(fd: int) -> Any:
            tries.append(fd)
            if len(tries) <= times:
                raise BlockingIOError("Resource temporarily unavailable")
            return spawn(fd)

        monkeypatch.setattr(vault.client._processes, "_spawn_runner", starved)
        return tries

    async def passes(vault: Vault) -> None:
        kept = vault.put("kept")
        await vault.client.settle()
        tries = starve(vault, 5)
        os.kill(vault.client.runner_pid or 0, signal.SIGKILL)
        await until(lambda: tries)  # its end was noticed, so the next job is not lost with it
        assert await vault.text(vault.map(kept, bundle("lambda x: x + '!'"))) == "kept!"
        assert len(tries) == 6
        assert lost == []

    in_vault(tmp_path, passes, on_lost=lost.append)

    async def stays(vault: Vault) -> None:
        kept = vault.put("kept")
        await vault.client.settle()
        starve(vault, 1000)
        os.kill(vault.client.runner_pid or 0, signal.SIGKILL)
        await until(lambda: lost)
        assert (await vault.read(vault.map(kept, bundle("lambda x: x"))))[0] == WriteOutcome("lost")
        assert len(lost) == 1
        assert "the runner cannot be started" in lost[0]

    in_vault(tmp_path, stays, on_lost=lost.append)


def test_a_killed_keeper_is_told_once_and_the_next_start_works(tmp_path: Path) -> None:
    lost: list[str] = []

    async def body(vault: Vault) -> None:
        old = vault.put("old", "file a")
        slow = vault.map(old, bundle("lambda x: __import__('time').sleep(1)"))
        descriptor = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        waiting = vault.client.write(slow, descriptor, 100)
        settling = asyncio.create_task(vault.client.settle())
        await asyncio.sleep(0.1)
        runner = vault.client.runner_pid
        os.kill(vault.client.keeper_pid or 0, signal.SIGKILL)
        assert await asyncio.wait_for(waiting, 20) == WriteOutcome("lost")
        with pytest.raises(VaultFailed):
            await settling
        assert len(lost) == 1
        assert "every Classified value of this session is lost" in lost[0]
        vault.put("posted meanwhile")  # no answer, no error
        assert await vault.client.write(old, descriptor, 100) == WriteOutcome("lost")
        os.close(descriptor)
        with pytest.raises(VaultFailed):
            await vault.client.status()
        assert await asyncio.to_thread(gone, [runner])
        await vault.client.start()
        found = await vault.settled(vault.map(old, bundle("lambda x: x")))
        assert (found.state, found.reason) == ("poison", "an unknown handle")
        assert await vault.text(vault.put("new")) == "new"
        with pytest.raises(DuplicateHandle):
            vault.client.put(old, encode(1), "")
        assert len(lost) == 1

    in_vault(tmp_path, body, on_lost=lost.append)


KERNEL = """
import asyncio, os, signal, sys
from capkernel.vault.client import VaultClient
from capkernel.vault.launch import keeper_profile, runner_profile, spawners
from capkernel.wire.plan import CodeKey, PureFunction
from capkernel.wire.values import encode
from capkernel.wire.vault import FunctionBundle, Limits
key = CodeKey(1, 1, "<lambda>", (1, 0, 1, 9))
sleep = PureFunction(key, "lambda", "<lambda>", "lambda x: __import__('time').sleep(60)")
async def main():
    keeper, runner = spawners(keeper_profile(), runner_profile(), cwd=sys.argv[1], use_bwrap=sys.argv[2] == "True")
    client = VaultClient(spawn_keeper=keeper, spawn_runner=runner, limits=Limits(job_seconds=1.0))
    await client.start()
    client.put("a", encode(1), "")
    client.map("b", "a", FunctionBundle(key, "", (sleep,)), encode({"globals": {}}))
    await asyncio.sleep(0.3)
    print(client.keeper_pid, client.runner_pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.mark.parametrize("wrapped", WALLS)
def test_nothing_outlives_a_killed_kernel_but_a_job_until_its_time_limit(tmp_path: Path, wrapped: bool) -> None:
    done = subprocess.run([sys.executable, "-c", KERNEL, str(tmp_path), str(wrapped)],
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    assert gone(pids)


def gone(sessions: Sequence[int | None], seconds: float = 10.0) -> bool:
    """Whether these processes and their jobs end in time: a killed job is reaped by init, a moment later."""
    deadline = time.monotonic() + seconds
    while any(session_members(pid) or alive(pid) for pid in sessions):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int | None) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_close_ends_both_processes(tmp_path: Path) -> None:
    pids: list[int | None] = []

    async def body(vault: Vault) -> None:
        pids.extend((vault.client.keeper_pid, vault.client.runner_pid))
        vault.map(vault.put(1), bundle("lambda x: __import__('time').sleep(60)"))
        await asyncio.sleep(0.1)

    in_vault(tmp_path, body)
    assert gone(pids)


def test_a_process_that_cannot_be_locked_down_does_not_start(tmp_path: Path) -> None:
    for name in ("keeper", "runner"):
        argv = interpreter_argv(
            f"capkernel.vault.{name}_main", "--fd", "9", "--profile", Profile("worker").to_json(), "--wall", "plain"
        )
        done = subprocess.run(argv, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 3
        assert "the sandbox profile is one of a worker" in done.stderr

    async def main() -> None:
        keeper, _ = spawners(keeper_profile(), runner_profile(), cwd=str(tmp_path), use_bwrap=False)
        wrong, _ = spawners(Profile("worker"), runner_profile(), cwd=str(tmp_path), use_bwrap=False)
        for one, two in ((wrong, wrong), (keeper, wrong)):
            client = VaultClient(spawn_keeper=one, spawn_runner=two)
            with pytest.raises(VaultFailed, match=r"capkernel doctor"):
                await client.start()
            assert (client.keeper_pid, client.runner_pid) == (None, None)

    asyncio.run(main())


# ── posting ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_handle_is_accepted_once_whatever_makes_it(tmp_path: Path) -> None:
    async def body(vault: Vault) -> None:
        one = vault.put("first")
        two = vault.map(one, bundle("lambda x: x"))
        for handle in (one, two):
            with pytest.raises(DuplicateHandle):
                vault.client.put(handle, encode("second"), "")
            with pytest.raises(DuplicateHandle):
                vault.client.map(handle, one, bundle("lambda x: x"), NOTHING)
            with pytest.raises(DuplicateHandle):
                vault.client.zip(handle, one, two)
        assert await vault.text(one) == "first"
        for handle in ("", "a b", "x" * 65, "ä"):
            with pytest.raises(RemoteProtocolError):
                vault.client.put(handle, encode(1), "")
        with pytest.raises(BadValue):
            vault.client.map("fresh", one, bundle("lambda x: x"), b"nonsense")

    in_vault(tmp_path, body)


def test_the_limits_count_posts_and_bytes_whatever_became_of_them(tmp_path: Path) -> None:
    async def posts(vault: Vault) -> None:
        bad = vault.put(0)
        vault.map(bad, bundle("lambda x: 1 / x"))
        await vault.client.settle()
        vault.put(1)
        with pytest.raises(VaultQuota, match="restart the kernel"):
            vault.put(2)

    async def size(vault: Vault) -> None:
        vault.put(b"x" * 900)
        with pytest.raises(VaultQuota):
            vault.put(b"x" * 900)

    in_vault(tmp_path, posts, max_posts=3)
    in_vault(tmp_path, size, max_post_bytes=1000)


def test_posting_takes_the_same_time_whatever_the_vault_does(tmp_path: Path) -> None:
    async def body(vault: Vault) -> None:
        source = vault.put("x")
        vault.map(source, bundle("lambda x: __import__('time').sleep(1)"))
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        made = [vault.map(source, bundle("lambda x: 1 / 0" if turn % 2 else "lambda x: x")) for turn in range(1000)]
        assert time.perf_counter() - start < 0.5  # the first job still sleeps
        assert (await vault.client.describe(made[-1])).state == "pending"

    in_vault(tmp_path, body)


def test_megabytes_go_through_whole(tmp_path: Path) -> None:
    async def body(vault: Vault) -> None:
        canary = secrets.token_hex(8)
        large = vault.put("x" * 30_000_000 + canary)
        made = vault.map(large, bundle("lambda s: s[1:] + s[-16:]"))
        outcome, content = await vault.read(made, 40_000_000)
        assert outcome.size == len(content) == 30_000_031
        assert content.endswith(canary.encode() * 2)
        assert (await vault.read(large, 1000))[0] == WriteOutcome("too_large", 30_000_016)

    in_vault(tmp_path, body)
