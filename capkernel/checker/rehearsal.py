"""Cells that nobody wrote, judged while nobody waits: what a check reads or makes at its first use is there then.

The tables of the rules, mypy's symbols of the libraries (it completes them one by one, as they are used), and its
caches: the first cell of a notebook would pay a few times the price of the hundredth.

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
            self._texts += LIBRARIES.get(name, ())
