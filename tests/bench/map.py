"""What posting a `map` costs, and how long the vault works on it.

post_us_p50, big_post_us_p50: from the call to its return, the time that anything outside can see; the second on a
frame of a million rows that is in the vault. chain100_ms: posting a chain of 100 maps. The *_done_ms values are until
the vault is done, which only the person sees.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from capkernel.vault.client import VaultClient
from capkernel.vault.launch import keeper_profile, runner_profile, spawners
from capkernel.wire.plan import CodeKey, PureFunction
from capkernel.wire.values import encode
from capkernel.wire.vault import FunctionBundle

NOTHING = encode({"globals": {}, "closure": {}})


def bundle(source: str) -> FunctionBundle:
    key = CodeKey(1, 1, "<lambda>", (1, 0, 1, 9))
    return FunctionBundle(key, "", (PureFunction(key, "lambda", "<lambda>", source),))


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


async def measure(vault: VaultClient) -> dict[str, float]:
    numbers = iter(range(10**9))
    new = lambda: f"h{next(numbers)}"  # noqa: E731
    add, shape = bundle("lambda x: x + 1"), bundle("lambda d: len(d)")
    small = new()
    vault.put(small, encode(1), "bench")
    vault.map(new(), small, add, NOTHING)
    await vault.settle()

    posts = []
    for _ in range(200):
        posts.append(timed(lambda: vault.map(new(), small, add, NOTHING)))
        await asyncio.sleep(0)  # lets the queue go out, as between two messages of a worker
    await vault.settle()

    chains, done = [], []
    for _ in range(5):
        start = time.perf_counter()
        last = small
        for _ in range(100):
            last, before = new(), last
            vault.map(last, before, add, NOTHING)
        chains.append(time.perf_counter() - start)
        await vault.settle()
        done.append(time.perf_counter() - start)
        assert (await vault.describe(last)).type_name == "int"

    rows = 10**6
    words = np.array(["x", "y", "zz"])[np.arange(rows) % 3]
    frame = pd.DataFrame({"a": np.arange(rows), "b": np.arange(rows) / 7, "s": words})
    big = new()
    vault.put(big, encode(frame), "bench")
    vault.map(new(), big, shape, NOTHING)
    await vault.settle()
    big_posts = []
    start = time.perf_counter()
    for _ in range(10):
        big_posts.append(timed(lambda: vault.map(new(), big, shape, NOTHING)))
        await asyncio.sleep(0)
    await vault.settle()
    big_done = (time.perf_counter() - start) / len(big_posts)
    assert (await vault.status()).poisoned == 0
    return {
        "post_us_p50": statistics.median(posts) * 1e6,
        "post_us_p95": statistics.quantiles(posts, n=20)[-1] * 1e6,
        "chain100_ms": statistics.median(chains) * 1e3,
        "chain100_done_ms": statistics.median(done) * 1e3,
        "big_post_us_p50": statistics.median(big_posts) * 1e6,
        "big_done_ms": big_done * 1e3,
    }


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        keeper, runner = spawners(keeper_profile(), runner_profile(), cwd=folder)
        vault = VaultClient(spawn_keeper=keeper, spawn_runner=runner)
        start = time.perf_counter()
        await vault.start()
        found = {"start_ms": (time.perf_counter() - start) * 1e3}
        try:
            found |= await measure(vault)
        finally:
            await vault.close()
    for name, value in found.items():
        sys.stdout.write(f"{name:18} {value:10.1f}\n")
    sys.stdout.write(json.dumps({name: round(value, 2) for name, value in found.items()}) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
