"""What the check costs: cells through capkernel and through stock ipykernel, paired and interleaved.

A latency is the wall time from sending the request until both the reply and `idle` have arrived. `ratio_p50` and
`ratio_p95` compare the medians' and the 95th percentiles' worth of `1+1`; the others are medians of paired ratios.
Options: `--rounds N`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

ARGV = {
    "capkernel": [sys.executable, "-P", "-s", "-E", "-m", "capkernel.kernel", "-f", "{connection_file}"],
    "stock": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
}
WARM = 25
CELLS = {
    "one": "1+1",
    "numpy": "import numpy as np\na = np.arange(1000.0).reshape(10, 100)\nb = (a @ a.T).sum(axis=0)\nfloat(b.mean())",
    "pandas": (
        "import pandas as pd\ndf = pd.DataFrame({'k': list('abcab') * 40, 'v': range(200)})\n"
        "df.groupby('k').agg({'v': 'sum'})"
    ),
    "def": "def area(width: float, height: float) -> float:\n    return width * height\n\narea(2.0, 3.0)",
}


@dataclass
class Kernel:
    name: str
    manager: KernelManager
    client: BlockingKernelClient
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def start(cls, name: str, directory: str) -> Kernel:
        manager = KernelManager()
        manager._kernel_spec = KernelSpec(
            argv=ARGV[name], display_name=name, language="python", interrupt_mode="signal"
        )
        manager.start_kernel(cwd=directory)
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=120)
        return cls(name, manager, client)

    def run(self, code: str) -> float:
        began = time.perf_counter()
        request = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=300)
            mine = message["parent_header"].get("msg_id") == request
            if mine and message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
        while True:
            reply = self.client.get_shell_msg(timeout=300)
            if reply["parent_header"].get("msg_id") == request:
                break
        ended = time.perf_counter()
        if reply["content"]["status"] != "ok":
            raise SystemExit(f"{self.name} did not run {code!r}: {reply['content']}")
        return ended - began

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        os.environ["IPYTHONDIR"] = directory
        os.environ["XDG_STATE_HOME"] = directory
        kernels = [Kernel.start(name, directory) for name in ARGV]
        try:
            measure(kernels, rounds)
        finally:
            for kernel in kernels:
                kernel.close()
    report(kernels)


def measure(kernels: list[Kernel], rounds: int) -> None:
    for kernel in kernels:
        for code in CELLS.values():
            for _ in range(WARM):
                kernel.run(code)
    for name, code in CELLS.items():
        for number in range(rounds if name == "one" else max(20, rounds // 3)):
            for kernel in kernels if number % 2 else kernels[::-1]:
                kernel.seconds.setdefault(name, []).append(kernel.run(code))


def report(kernels: list[Kernel]) -> None:
    ours, stock = kernels
    print(f"{'cell':8} {'capkernel p50':>14} {'p95':>8} {'stock p50':>12} {'p95':>8}  (ms)  paired ratio p50")
    ratios = {}
    for name in CELLS:
        mine, theirs = ours.seconds[name], stock.seconds[name]
        ratios[name] = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
        numbers = [p * 1e3 for p in (middle(mine), high(mine), middle(theirs), high(theirs))]
        shown = "{:14.2f} {:8.2f} {:12.2f} {:8.2f}".format(*numbers)
        print(f"{name:8} {shown}        {ratios[name]:.2f}")
    print(json.dumps({
        "ratio_p50": round(ratios["one"], 3),
        "ratio_p95": round(high(ours.seconds["one"]) / high(stock.seconds["one"]), 3),
        "ratio_numpy": round(ratios["numpy"], 3),
        "ratio_pandas": round(ratios["pandas"], 3),
        "ratio_def": round(ratios["def"], 3),
    }))  # fmt: skip


def middle(values: list[float]) -> float:
    return statistics.median(values)


def high(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


if __name__ == "__main__":
    main()
