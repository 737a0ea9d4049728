"""What files cost through the broker, against plain Python on the same files. Paired runs, medians.

read_1k_us: one `read_bytes` of 1 KB from the call to its answer, in the broker. ratio_10m: 10 MB over a socket pair, as
frames, against reading the file. ratio_walk, ratio_grep: 10 000 files, listed and searched as `api.files` does; the
walk against the list of the same paths from `os.walk`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from capkernel.api.search import matches_in
from capkernel.broker.audit import AuditLog
from capkernel.broker.broker import Broker
from capkernel.policy import default_policy
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.plan import Plan, ScopeSite, Span
from capkernel.wire.worker import Call, CallResult, Invoke, OpenScope

PLAN = Plan(scopes=(ScopeSite("file_system", None, 1, Span(1, 0, 1, 1)),))
FILES = 10_000
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
    await broker.close()
    return {
        "read_1k_us": round(statistics.median(reads) * 1e6, 1),
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
    sys.exit(main())
