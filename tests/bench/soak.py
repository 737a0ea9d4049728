"""Does a session grow? Many cells and many refusals in one real kernel; memory of all its processes.

The cells define and redefine functions, classes and names, compute, show frames, markup and long texts, fail, read
files, make classified values, map, pair, show and drop them. Each phase is cut into tenths; a tenth's memory is the
median of its samples (proportional set size, so shared pages count once). What grew from the second tenth to the last
is printed for each process, and judged: more than NOISE_MB and FLAT_KB for each cell is growth, and the program ends
with 1. The first tenth is not looked at: what is built once, and caches that fill, are not growth.

Keys: `PHASE_PART_mb` (growth), `PHASE_PART_total_mb` (in the last tenth), `PHASE_per_second`, `flat`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
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
FLAT_KB = {"cells": 6.0, "refusals": 1.0}  # of each, in one process: its text, types and lines in lists are kept
NOISE_MB = 2.0
SAMPLES = 8  # of each tenth
NAMES = 10  # that the cells bind, over and over: all of them within the first tenth

CELLS = (
    "v{k} = [n * {n} for n in range(1000)]\nlen(v{k})",
    "def f{k}(x: int) -> int:\n    return x + {n}\nf{k}({n})",
    "class C{k}:\n    def __init__(self) -> None:\n        self.number = {n}\nC{k}().number",
    "import pandas as pd\ntable = pd.DataFrame({{'a': range(100), 'b': [{n}] * 100}})\ntable",
    "from IPython.display import HTML, display\ndisplay(HTML('<b>{n}</b>'))\nprint('x' * 100_000)",
    "raise ValueError('number {n}')",
    "with request_file_system('.') as fs:\n    text{k} = fs.access('plain.txt').read()\nlen(text{k})",
    "with request_file_system('.') as fs:\n    s{k} = fs.read_classified('.env')\nprint(s{k})",
    "c{k} = classify('y' * 100_000, label='number {n}')\nd{k} = c{k}.map(lambda t: len(t) + {n})\nd{k}",
    "p{k} = c{k}.zip(d{k})\np{k} = p{k}.zip(d{k})\nfor _ in range(10):\n    e{k} = c{k}.map(str.upper)",
    "c{k} = classify(bytes(200_000))\nc{k} = c{k}.map(lambda b: b + b'{n}')\nprint(c{k}, [c{k}])",
    "del v{k}, c{k}",
    "for i in range(3000):\n    print(i, {n})",
    "try:\n    1 / 0\nexcept ZeroDivisionError as problem:\n    kept{k} = str(problem)\nkept{k}",
)
REFUSALS = (
    "def g{n}(x: int) -> int:\n    return x + no_such_name_{n}\neval('{n}')",
    "open('file{n}')",
    "r{k}: int = 'text {n}'\nr{k}.missing_{n}",
    "with request_file_system('.') as fs:\n    kept{n} = fs\nkept{n}.access('a').read()",
    "classify('{n}').map(lambda t: print(t))",
    "syntax error {n}",
    "import os\nos.environ['V{n}']",
    "import pandas as pd\npd.read_csv('t{n}.csv')",
)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=2_000)
    parser.add_argument("--refusals", type=int, default=10_000)
    arguments = parser.parse_args()
    result: dict[str, float | bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "plain.txt").write_text("plain\n" * 1000)
        Path(folder, ".env").write_text("KEY=secret\n")
        with live_kernel(Path(folder)) as kernel:
            flat = phase(kernel, "cells", arguments.cells, cell, result)
            flat &= phase(kernel, "refusals", arguments.refusals, refusal, result)
    result["flat"] = flat
    print("flat" if flat else "NOT FLAT", flush=True)
    print(json.dumps(result))
    return 0 if flat else 1


def phase(
    kernel: LiveKernel, name: str, count: int, text: Callable[[int], str], result: dict[str, float | bool]
) -> bool:
    """Run `count` cells; whether nothing grew."""
    tenths: list[list[dict[str, tuple[float, int]]]] = [[] for _ in range(10)]
    every = max(1, count // (10 * SAMPLES))
    began = time.monotonic()
    for number in range(count):
        ran = kernel.run(text(number))
        assert ran.reply["status"] == expected(name, number), (text(number), ran.everything[:2000])
        if number % every == every - 1:
            tenths[min(9, number * 10 // count)].append(memory(kernel))
    result[f"{name}_per_second"] = round(count / (time.monotonic() - began), 1)
    flat = True
    for part in PARTS:
        medians = [statistics.median(sample[part][0] for sample in tenth) for tenth in tenths]
        # A process that was ended and started anew (a check that took too long on a busy machine) began again.
        same = [before[-1][part][1] == after[-1][part][1] for before, after in pairwise(tenths)]
        grown = sum(after - before for (before, after), kept in zip(pairwise(medians), same, strict=True) if kept)
        grown -= medians[1] - medians[0] if same[0] else 0.0  # the first tenth is not looked at
        last = medians[9]
        fine = grown <= NOISE_MB + FLAT_KB[name] * count * 0.8 / 1024
        flat &= fine
        result[f"{name}_{part}_mb"], result[f"{name}_{part}_total_mb"] = round(grown, 2), round(last, 1)
        course = " ".join(f"{median:.0f}" for median in medians)
        course += "" if all(same) else f"; started anew {same.count(False)} times"
        print(f"{name:>8} {part:>8} {grown:+7.2f} MB {'' if fine else 'GROWS '} of {last:.0f}  [{course}]", flush=True)
    return flat


def cell(number: int) -> str:
    turn, kind = divmod(number, len(CELLS))
    return CELLS[kind].format(n=number, k=turn % NAMES)


def refusal(number: int) -> str:
    return REFUSALS[number % len(REFUSALS)].format(n=number, k=number % NAMES)


def expected(phase_name: str, number: int) -> str:
    fails = phase_name == "refusals" or CELLS[number % len(CELLS)].startswith("raise ")
    return "error" if fails else "ok"


def memory(kernel: LiveKernel) -> dict[str, tuple[float, int]]:
    """Megabytes by part, all of its processes together, and the number of the first of them."""
    found = dict.fromkeys(PARTS, (0.0, 0))
    front = psutil.Process(kernel.pid)
    for process in (front, *front.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # a job of the vault that has just ended
            words = process.cmdline()
            for part, module in PARTS.items():
                if module in words:
                    before, first = found[part]
                    found[part] = before + process.memory_full_info().pss / MB, first or process.pid
    return found


if __name__ == "__main__":
    sys.exit(main())
