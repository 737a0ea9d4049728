"""What the check costs: cells through capkernel and through stock ipykernel, paired and interleaved.

A latency is the wall time from sending the request until both the reply and `idle` have arrived. `ratio_p50` and
`ratio_p95` compare the medians' and the 95th percentiles' worth of `1+1`, with other numbers every time; the others are
medians of paired ratios. The cells of numpy and pandas are five lines each, of eight kinds in turn, with other numbers
in them every time: as somebody works who changes a cell and runs it again. `_first`: each kind the first time that it
runs, in a session that has only imported the library. `again`: one text again and again. The kernels were launched
some seconds before their first cell.
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
LAUNCHED = 8.0  # seconds before the first cell
NUMPY = """
import numpy as np
a = np.arange({n}00.0).reshape(10, -1)
b = (a @ a.T).sum(axis=0)
c = b / {m}
float(c.mean())

x = np.linspace(0, {n}, 200)
y = np.sin(x) * {m}
z = y + np.cos(x)
peak = z.max()
print(x[z > peak / 2].size)

rng = np.random.default_rng({n})
s = rng.normal(size=500)
m = s.mean()
d = s.std() * {m}
(m, d)

g = np.zeros(({m}, {n}))
g[0] = 1.5
g[:, 1] += {m}
h = g.T
h.shape

w = np.array([1.0, {n}, {m}])
u = w / w.sum()
ent = -(u * np.log(u)).sum()
k = np.argmax(u)
round(float(ent), 3)

p = np.ones({n}) * {m}
q = np.cumsum(p)
r = np.where(q > 10, q, 0.0)
t = np.concatenate([p, r])
len(t)

e = np.eye({m})
f = e * {n}
i = np.linalg.inv(f)
o = i @ f
np.allclose(o, e)

v = np.arange({n}) % {m}
k, c = np.unique(v, return_counts=True)
big = c.max()
print(k[c == big])
int(big)
"""
PANDAS = """
import pandas as pd
df = pd.DataFrame({{'k': list('abcab') * {n}, 'v': range(5 * {n})}})
df['w'] = df['v'] * {m}
g = df.groupby('k')
g.agg({{'v': 'sum', 'w': 'mean'}})

big = df[df['v'] > {m}]
n = len(big)
mean = big['v'].mean()
print(n, mean)
big.head({m})

t = df.sort_values('v', ascending=False)
t = t.reset_index(drop=True)
t['r'] = t.index + {n}
last = t.tail({m})
last.shape

names = pd.Series(['x', 'y', 'z'] * {n})
counts = names.value_counts()
top = counts.index[0]
share = counts.max() / {m}
print(top, share)

other = pd.DataFrame({{'k': ['a', 'b', 'c'], 'f': [1.0, 2.0, {n}]}})
both = df.merge(other, on='k')
both['p'] = both['v'] * both['f']
s = both['p'].sum()
round(s / {m}, 2)

days = pd.date_range('2024-01-01', periods={n})
ts = pd.Series(range({n}), index=days)
roll = ts.rolling({m}).mean()
ok = roll.dropna()
ok.describe()

miss = df['v'].where(df['v'] > {m})
filled = miss.fillna(0)
gone = miss.isna().sum()
print(gone)
filled.astype(int).max()

wide = df.pivot_table(index='k', values='v', aggfunc='sum')
wide['n'] = {n}
wide = wide.rename(columns={{'v': 'total'}})
best = wide['total'].idxmax()
print(best, {m})
"""
DEFINITION = """
def area_{n}(width: float, height: float) -> float:
    return width * height + {m}

area_{n}({n}.0, 3.0)
"""
CELLS = {
    "one": ["{n} + {m}"],
    "numpy": NUMPY.strip().split("\n\n"),
    "pandas": PANDAS.strip().split("\n\n"),
    "def": [DEFINITION.strip()],
}
AGAIN = CELLS["pandas"][0].format(n=40, m=3)
BEFORE = "import numpy as np, pandas as pd"


def numbered(kind: str, number: int) -> str:
    """The cell of a kind for a round."""
    forms = CELLS[kind]
    return forms[number % len(forms)].format(n=20 + number % 61, m=2 + number % 7)


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
            time.sleep(LAUNCHED)
            measure(kernels, rounds)
        finally:
            for kernel in kernels:
                kernel.close()
    report(kernels)


def measure(kernels: list[Kernel], rounds: int) -> None:
    for kernel in kernels:
        for code in (BEFORE, *["1 + 1"] * WARM):
            kernel.run(code)
    for kind in ("numpy", "pandas"):
        for number in range(len(CELLS[kind])):
            both(kernels, f"{kind}_first", numbered(kind, number), number)
    for kernel in kernels:
        for kind, forms in CELLS.items():
            for number in range(max(WARM, 2 * len(forms))):
                kernel.run(numbered(kind, number))
    for number in range(rounds):
        for kind in CELLS:
            if kind == "one" or number % 2:
                both(kernels, kind, numbered(kind, number // 2), number // 2)
        if number % 3 == 0:
            both(kernels, "again", AGAIN, number)


def both(kernels: list[Kernel], name: str, code: str, number: int) -> None:
    for kernel in kernels if number % 2 else kernels[::-1]:
        kernel.seconds.setdefault(name, []).append(kernel.run(code))


def report(kernels: list[Kernel]) -> None:
    ours, stock = kernels
    print(f"{'cell':12} {'capkernel p50':>14} {'p95':>8} {'stock p50':>12} {'p95':>8}  (ms)  paired ratio p50")
    ratios = {}
    for name, mine in ours.seconds.items():
        theirs = stock.seconds[name]
        ratios[name] = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
        numbers = [p * 1e3 for p in (middle(mine), high(mine), middle(theirs), high(theirs))]
        shown = "{:14.2f} {:8.2f} {:12.2f} {:8.2f}".format(*numbers)
        print(f"{name:12} {shown}        {ratios[name]:.2f}")
    result = {
        "ratio_p50": ratios["one"],
        "ratio_p95": high(ours.seconds["one"]) / high(stock.seconds["one"]),
        "ratio_numpy": ratios["numpy"],
        "ratio_pandas": ratios["pandas"],
        "ratio_def": ratios["def"],
        "ratio_numpy_first": ratios["numpy_first"],
        "ratio_pandas_first": ratios["pandas_first"],
        "ratio_again": ratios["again"],
        "load": os.getloadavg()[0],
    }
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


def middle(values: list[float]) -> float:
    return statistics.median(values)


def high(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


if __name__ == "__main__":
    main()
