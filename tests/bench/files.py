"""What files cost through the broker, against plain Python on the same files. Paired runs, medians.

read_1k_us, access_read_1k_us: `entry.read()` and `fs.access(path).read()` of 1 KB, asked for in another process through
the worker's and the kernel's ends of their links. ping_us: 1 KB there and back between the same two processes, with a
blocking thread at each end: what waking alone costs now. sleeps_per_read: how often a thread of either process went to
sleep. broker_1k_us: the same read from the event loop to a thread and back, without links.

ratio_10m: 10 MB over a socket pair, as frames, against reading the file. ratio_walk, ratio_grep: 10 000 files, listed
and searched as `api.files` does; the walk against the list of the same paths from `os.walk`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from capkernel.api import membrane, request_file_system
from capkernel.api.search import matches_in
from capkernel.broker.audit import AuditLog
from capkernel.broker.broker import Broker
from capkernel.kernel.worker_process import Handlers, Spawned, WorkerProcess
from capkernel.policy import default_policy
from capkernel.sandbox import Level, Report
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.plan import Plan, ScopeSite, Span
from capkernel.wire.worker import Call, CallResult, Complete, Finished, Invoke, OpenScope, Ready, Request
from capkernel.worker.channel import Channel
from capkernel.worker.functions import Functions
from capkernel.worker.interrupts import Interrupts
from capkernel.worker.membrane import WorkerMembrane
from capkernel.worker.quick_link import QuickLink
from capkernel.worker.request_link import RequestLink

PLAN = Plan(scopes=(ScopeSite("file_system", None, 1, Span(1, 0, 1, 1)),))
FILES = 10_000
READS = 500
PATTERN = re.compile("needle")


def make(top: Path) -> None:
    (top / "small").write_bytes(b"x" * 1024)
    (top / "big").write_bytes(os.urandom(10_000_000))
    for folder in range(100):
        (top / "tree" / f"d{folder}").mkdir(parents=True)
        for number in range(FILES // 100):
            text = f"line one of {number}\nneedle here\n" * 10
            (top / "tree" / f"d{folder}" / f"f{number}.txt").write_text(text)


async def ask(broker: Broker, effect: Invoke | OpenScope) -> tuple[Any, bytes]:
    answer, blob = await broker.call(Call(1, effect), b"")
    if answer.error is not None:
        raise RuntimeError(answer.error.message)
    return answer.value, blob


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


def plain(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def over_a_socket(answer: CallResult, blob: bytes) -> bytes:
    """The answer, sent and taken apart, as between the kernel and the worker."""
    left, right = socket.socketpair()
    sender = threading.Thread(target=lambda: left.sendall(encode(answer, blob)))
    sender.start()
    reader: FrameReader[CallResult] = FrameReader(CallResult)
    try:
        while True:
            reader.feed(right.recv(1 << 20))
            for _message, content in reader.frames():
                return content
    finally:
        sender.join()
        left.close()
        right.close()


async def search(broker: Broker, top: str) -> int:
    paths = (await ask(broker, Invoke(top, "files")))[0]
    found, start = 0, 0
    while start < len(paths):
        sizes, content = await ask(broker, Invoke(top, "read_many", paths=tuple(paths[start : start + 2000])))
        place = 0
        for path, size in zip(paths[start:], sizes, strict=False):
            found += len(matches_in(path, content[place : place + size].decode(), PATTERN))
            place += size
        start += len(sizes)
    return found


def search_plainly(top: Path) -> int:
    found = 0
    for folder, _, names in os.walk(top):
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                found += sum(1 for line in stream if PATTERN.search(line))
    return found


def walk_plainly(top: Path) -> list[str]:
    return [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]


def sleeps() -> int:
    """How often the threads of this process have gone to sleep."""
    lines = [line for task in Path("/proc/self/task").iterdir() for line in (task / "status").open()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def read_as_a_worker(link: int, asked: int, quick: int, bare: int) -> None:
    """The other process: on one request it reads, and answers with seconds and sleeps."""
    interrupts = Interrupts()
    channel = Channel(socket.socket(fileno=link), interrupts, QuickLink(socket.socket(fileno=quick), interrupts))
    membrane.install(WorkerMembrane(channel, Functions({}, {})))
    requests: SimpleQueue[Request] = SimpleQueue()
    coming = RequestLink(socket.socket(fileno=asked), interrupts)
    channel.start()
    channel.send(Ready(Report(Level.NONE, 0).to_json()))
    pings = socket.socket(fileno=bare)

    def ping() -> None:
        pings.sendall(b"x" * 1024)
        pings.recv(2048)

    while True:
        while requests.empty():
            select.select([coming], [], [])
            coming.read(lambda request, _: requests.put(request))
        request = requests.get()
        with request_file_system(".") as fs:
            small = fs.access("small")
            read: list[float] = []
            both: list[float] = []
            bare_times: list[float] = []
            slept = 0
            for _ in range(READS // 20):  # in turns, so that all see the same neighbours
                before = sleeps()
                read += [plain(small.read) for _ in range(20)]
                slept += sleeps() - before
                both += [plain(lambda: fs.access("small").read()) for _ in range(20)]
                bare_times += [plain(ping) for _ in range(20)]
        channel.send(Finished(request.request, {"read": read, "both": both, "bare": bare_times, "sleeps": slept}))


async def over_the_links(broker: Broker) -> dict[str, float]:
    """The reads of another process. Of this one only the thread of the quick link has anything to do meanwhile."""
    pairs = [socket.socketpair() for _ in range(4)]
    theirs = [end.fileno() for _, end in pairs]
    out, err = os.pipe(), os.pipe()
    process = subprocess.Popen([sys.executable, "-P", __file__, *map(str, theirs)], pass_fds=theirs)
    for _, end in pairs:
        end.close()
    (link, _), (asked, _), (quick, _), (bare, _) = pairs

    def echo() -> None:
        while data := bare.recv(2048):
            bare.sendall(data)

    threading.Thread(target=echo, daemon=True).start()
    handlers = Handlers(
        published=lambda _: None, printed=lambda *_: None, asked=lambda _: None, call=broker.call,
        call_quickly=broker.call_quickly, post=broker.post, comm=lambda *_: None, ended=lambda _: None,
    )  # fmt: skip
    child = cast("Any", process)
    child.terminate_hard = process.kill
    worker = WorkerProcess(
        Spawned(child, link, asked, quick, out[0], err[0], verify=list, clean_up=lambda: None), handlers, Level.NONE
    )
    await worker.start()
    await worker.request(Complete(1, "", 0))  # once to warm up
    before = sleeps()
    found = (await worker.request(Complete(2, "", 0))).content
    ours = sleeps() - before
    worker.close()
    process.wait()
    os.close(out[1])
    os.close(err[1])
    # Of the kernel's sleeps two thirds belong to what is not a plain read: both, where it is two, and the pings.
    return {
        "read_1k_us": microseconds(found["read"]),
        "access_read_1k_us": microseconds(found["both"]),
        "ping_us": microseconds(found["bare"]),
        "sleeps_per_read": round(found["sleeps"] / READS + max(0, ours - READS) / (3 * READS), 2),
    }


def microseconds(times: list[float]) -> float:
    return round(statistics.median(times) * 1e6, 1)


async def measure(project: Path, audit: AuditLog) -> dict[str, float]:
    # The broker asks the vault for nothing here.
    broker = Broker(default_policy(project), project, cast("Any", None), audit)
    broker.open_cell(1, PLAN)
    scope = (await ask(broker, OpenScope("file_system", ".")))[0]

    async def entry(path: str) -> str:
        return str((await ask(broker, Invoke(scope, "access", path)))[0][0])

    small, big, tree = await entry("small"), await entry("big"), await entry("tree")
    listed = (await ask(broker, Invoke(tree, "files")))[0]
    assert sorted(str(project / path) for path in listed) == sorted(walk_plainly(project / "tree"))
    assert await search(broker, tree) == search_plainly(project / "tree")

    async def read_big() -> None:
        value, blob = await ask(broker, Invoke(big, "read_bytes"))
        assert len(over_a_socket(CallResult(1, value), blob)) == 10_000_000

    reads = [await timed(lambda: ask(broker, Invoke(small, "read_bytes"))) for _ in range(500)]
    bulk = [await timed(read_big) / plain(lambda: (project / "big").read_bytes()) for _ in range(20)]
    walks, greps = [], []
    for _ in range(5):
        walked = await timed(lambda: ask(broker, Invoke(tree, "files")))
        walks.append(walked / plain(lambda: walk_plainly(project / "tree")))
        greps.append(await timed(lambda: search(broker, tree)) / plain(lambda: search_plainly(project / "tree")))
    linked = await over_the_links(broker)
    await broker.close()
    return {
        **linked,
        "broker_1k_us": microseconds(reads),
        "ratio_10m": round(statistics.median(bulk), 2),
        "ratio_walk": round(statistics.median(walks), 2),
        "ratio_grep": round(statistics.median(greps), 2),
    }


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="capkernel-bench-") as directory:
        project, log = Path(directory, "project"), Path(directory, "audit")
        project.mkdir()
        make(project)
        numbers = asyncio.run(measure(project, AuditLog.open_ambient("bench", log)))
    for name, value in numbers.items():
        print(f"{name:>12} {value}")
    print(json.dumps(numbers))
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        read_as_a_worker(*map(int, sys.argv[1:]))
    sys.exit(main())
