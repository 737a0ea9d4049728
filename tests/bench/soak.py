"""Does a session grow? Many cells and many refusals through the real kernel; resident memory of all its processes.

Keys: `mb_per_1000_cells`, `mb_per_1000_refusals` (kernel, worker, checker and vault together), and each process's part of
both. A program only: how much is too much is for a person to say.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import psutil
from live_kernel import LiveKernel, live_kernel

PARTS = {
    "kernel": "capkernel.kernel.app",
    "worker": "capkernel.worker.main",
    "checker": "capkernel.checker.main",
    "keeper": "capkernel.vault.keeper_main",
    "runner": "capkernel.vault.runner_main",
}
MB = 1024 * 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=2000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, live_kernel(Path(folder)) as kernel:
        for number in range(200):  # what is built once is not growth
            kernel.run(cell(number))
            kernel.run(refusal(number))
        result: dict[str, float] = {}
        for name, text in (("cells", cell), ("refusals", refusal)):
            before, began = resident(kernel), time.monotonic()
            for number in range(arguments.cells):
                kernel.run(text(number))
            after = resident(kernel)
            per = 1000 / arguments.cells
            result[f"mb_per_1000_{name}"] = (sum(after.values()) - sum(before.values())) * per
            result |= {f"{part}_mb_per_1000_{name}": (after[part] - before[part]) * per for part in PARTS}
            result[f"{name}_per_second"] = arguments.cells / (time.monotonic() - began)
            print(f"{name}: {result[f'mb_per_1000_{name}']:.1f} MB per 1000")
    print(json.dumps(result))


def cell(number: int) -> str:
    return f"v{number % 50} = [n * {number} for n in range(10)]\ndef f{number % 50}(x: int) -> int:\n    return x + {number}\nlen(v{number % 50})"  # noqa: E501


def refusal(number: int) -> str:
    return f"def g{number}(x: int) -> int:\n    return x + no_such_name_{number}\neval('{number}')"


def resident(kernel: LiveKernel) -> dict[str, float]:
    """Megabytes by part, all of its processes together."""
    found = dict.fromkeys(PARTS, 0.0)
    front = psutil.Process(kernel.pid)
    for process in (front, *front.children(recursive=True)):
        words = process.cmdline()
        for part, module in PARTS.items():
            if module in words:
                found[part] += process.memory_info().rss / MB
    return found


if __name__ == "__main__":
    main()
