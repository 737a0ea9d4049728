"""Cells that nobody wrote, judged while nobody waits: what a check reads or makes at its first use is there then.

The tables of the rules, mypy's symbols of the libraries (it completes them one by one, as they are used), its caches,
and what is recalled of the commonest expressions (`recall`): the first cell of a notebook would pay a few times the
price of the hundredth.

Rule 1: it leaves nothing that a check could see. No cell has the number 0, and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

AT_ONCE = 2  # texts that need no silence before them: a few milliseconds each, and every cell needs what they bring
BRIEFLY_IDLE, IDLE = 0.05, 0.4  # seconds without a question before a short step, and before one of a library

PLAIN = (
    "1 + 1",
    'print(len([f"{n}" for n in range(3)]))',
    """\
import json, math, re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
groups: defaultdict[int, list[str]] = defaultdict(list)
for word in "some words".split():
    groups[len(word)].append(word.upper())
pairs = dict(zip("ab", [n * 2 for n in range(3) if n % 2]))
for letter, number in sorted(pairs.items(), key=lambda pair: -pair[1]):
    if number > 1:
        print(letter, number, end="")
text = " ".join(f"{k}:{v}" for k, v in Counter("text").most_common(3))
with_id = {**pairs, "id": max(pairs.values(), default=0)}
try:
    total = math.sqrt(sum(with_id.values())) / len(re.findall("a", text))
except ZeroDivisionError as error:
    total = float(str(error) == "")
json.dumps(with_id)[1:-1]
""",
    """\
from dataclasses import dataclass, field
from collections.abc import Callable, Iterator
@dataclass
class Record:
    number: int
    tags: list[str] = field(default_factory=list)
    parent: "Record | None" = None
    def weight(self) -> int:
        return self.number + len(self.tags)
class Shelf(dict[str, Record]):
    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size
    @property
    def full(self) -> bool:
        return len(self) >= self.size
def steps(values: list[int], change: Callable[[int], int]) -> Iterator[int]:
    for value in values:
        changed = change(value)
        if changed:
            yield changed
def loose(a, b=1, *rest, **more):
    return a + b
item = Shelf(2)
item["a"] = Record(loose(1, b=2), ["x"])
item["a"].weight(), item.full, sorted(steps([1, 2], lambda v: v + 1))
""",
    """\
secret = classify("a").map(lambda a: a.strip())
with request_file_system("data") as fs:
    names = [entry.name for entry in fs.access(".").children]
print(secret, names)
""",
    "print(never_bound)",
)  # fmt: skip
LIBRARIES = {
    "numpy": (
        """\
import numpy as np
array = np.linspace(0.0, 1.0, 50)
more = np.sqrt(np.abs(array) + 1) * 2.0 - np.arange(50) / 3
mask = (more > more.mean()) & (array != 0)
grid = np.outer(array, more).reshape(-1, 2).T @ np.zeros((10, 3)) + np.random.default_rng(0).normal(size=3)
chosen = np.where(mask, more, 0)[mask][:3]
float(chosen.sum()) + grid.shape[0] + np.array([[1, 2], [3, 4]]).max(axis=0).std()
""",
        """\
import numpy as np
line = np.linspace(0, 1, 50)
wave = np.sin(line)
both = wave + line
less = wave - line
more = wave * line
share = wave / line
twice = wave * 2
half = wave * 0.5
added = wave + 1
power = wave**2
negative = -wave
positive = wave > 0
wave[positive]
wave[0]
wave[-1]
wave[1:]
wave.mean()
wave.sum()
wave.std()
wave.max()
wave.min()
wave.shape
wave.size
len(wave)
float(wave.mean())
print(wave)
np.mean(wave)
np.sum(wave)
np.cos(line)
np.exp(-line)
np.log(line)
np.argmax(wave)
np.diff(wave)
np.cumsum(wave)
""",
        """\
import numpy as np
numbers = np.arange(10)
floats = np.arange(10.0)
square = np.arange(9.0).reshape(3, 3)
rows = np.arange(12).reshape(3, -1)
listed = np.array([1, 2, 3])
weights = np.array([0.5, 0.5])
table = np.array([[1.0, 2.0], [3.0, 4.0]])
zeros = np.zeros(10)
grid = np.zeros((3, 3))
ones = np.ones((2, 3))
grid[0] = 1.0
grid[0, 0] = 1
product = square @ square.T
outer = table @ table
table.T
square.sum(axis=0)
square.mean(axis=1)
(square @ square.T).sum(axis=0)
listed * 2
listed + listed
listed.sum()
listed.mean()
listed[0]
numbers % 2
numbers[numbers > 3]
numbers * 2
numbers**2
numbers.sum()
square[0]
square[:, 0]
square[0, 1]
square.flatten()
np.dot(table, table)
np.linalg.inv(table)
np.concatenate([zeros, zeros])
np.unique(listed)
np.sort(listed)
""",
        """\
import numpy as np
rng = np.random.default_rng(0)
sample = rng.normal(size=100)
uniform = rng.random(10)
whole = rng.integers(0, 10, 5)
old = np.random.rand(5)
older = np.random.randn(5)
np.random.seed(0)
sample.mean()
sample.std()
sample * 2
sample + 1
sample[sample > 0]
whole.sum()
old * 2
np.percentile(sample, 50)
np.where(sample > 0, sample, 0)
np.round(sample, 2)
""",
    ),
    "pandas": (
        """\
import pandas as pd
frame = pd.DataFrame({"a": [1, 2, 2, 3], "b": [0.5, 1.5, 2.5, 3.5]})
more = frame.assign(c=frame["a"] * 2)
more["d"] = more["b"].astype(float).fillna(0) + 1
more.apply(lambda row: row["a"], axis=1).value_counts(), more.describe()
""",
        """\
import pandas as pd
frame = pd.DataFrame({"a": [1, 2, 2, 3], "b": [0.5, 1.5, 2.5, 3.5]})
some = frame[frame["a"] > 1].loc[:, ["a", "b"]].merge(frame, on="a", how="left")
means = some.groupby("a").agg({"b_x": "mean"}).reset_index().sort_values("a", ascending=False).head(3)
means.loc[means["a"] > 1, "b_x"], means.iloc[0]
""",
        """\
import pandas as pd
frame = pd.DataFrame({"a": [1, 2, 2, 3], "b": ["x", "y", "y", "z"]})
column = frame["a"]
frame["c"] = frame["a"] * 2
frame["d"] = frame["a"] + frame["c"]
frame["e"] = frame["a"] - frame["c"]
frame["f"] = frame["a"] / frame["c"]
frame["g"] = 1
frame.head()
frame.tail(3)
frame.shape
frame.columns
frame.describe()
frame.info()
frame[["a", "b"]]
frame[frame["a"] > 1]
frame[frame["b"] == "x"]
frame[(frame["a"] > 1) & (frame["b"] == "x")]
big = frame[frame["a"] > 1]
len(frame)
print(frame)
print(frame.head())
frame["a"].sum()
frame["a"].mean()
frame["a"].max()
frame["b"].unique()
frame["b"].value_counts()
frame["a"].isna().sum()
frame["b"].str.upper()
""",
        """\
import pandas as pd
frame = pd.DataFrame({"a": [1, 2, 2, 3], "b": [0.5, 1.5, 2.5, 3.5]})
groups = frame.groupby("a")
groups.mean()
groups["b"].mean()
groups.size()
groups.agg({"b": "sum"})
frame.groupby("a").agg({"b": "sum"})
frame.groupby("a")["b"].sum()
frame.groupby("a").mean()
ordered = frame.sort_values("b")
down = frame.sort_values("b", ascending=False)
clean = frame.dropna()
filled = frame.fillna(0)
named = frame.rename(columns={"a": "x"})
less = frame.drop(columns=["a"])
frame.reset_index(drop=True)
frame.set_index("a")
frame.iloc[0]
frame.loc[0]
frame.mean()
frame.corr()
series = pd.Series([1, 2, 3])
series.mean()
series * 2
series + 1
series > 1
series[series > 1]
series.sum()
pd.concat([frame, frame])
""",
    ),
    "matplotlib.pyplot": (
        """\
import matplotlib.pyplot as plt
figure, axes = plt.subplots(1, 2, figsize=(8, 3))
axes[0].plot([1, 2], [3, 4], label="x")
plt.title("t")
plt.show()
""",
    ),
}


class Judge(Protocol):
    """A session of the checker."""

    def check(self, cell: int, text: str, /) -> object: ...
    def discard(self, cell: int, /) -> None: ...


class Rehearsal:
    """One step at a time, so that a question never waits for more than one."""

    def __init__(self, session: Judge, preload: Callable[[], str]) -> None:
        """`preload` loads one more big library, and says which; "" when all are there."""
        self._session = session
        self._preload = preload
        self._texts = list(PLAIN)
        self._later: list[str] = []  # of libraries: when all are loaded, or the next would let them be forgotten
        self._loading = True
        self._steps = 0

    @property
    def patience(self) -> float | None:
        """Seconds without a question before the next step; None when nothing is left to do."""
        if not self._texts and not self._loading:
            return None
        if self._steps < AT_ONCE:
            return 0.0
        return BRIEFLY_IDLE if self._steps < len(PLAIN) else IDLE

    def step(self) -> None:
        """Judge one cell and forget it, or load one library. Nothing to do is fine."""
        self._steps += 1
        if self._texts:
            self._session.check(0, self._texts.pop(0))
            self._session.discard(0)
        elif self._loading:
            name = self._preload()
            self._loading = bool(name)
            self._later += LIBRARIES.get(name, ())
            if not self._loading:
                self._texts, self._later = self._later, []
